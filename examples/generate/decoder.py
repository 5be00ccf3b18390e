"""A decoder of the llama family in plain torch whose key-value cache is passed and returned as tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["Decoder", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """Extents of a decoder; the defaults are those of TinyLlama (1.1 billion parameters)."""

    layers: int = 22
    heads: int = 32
    kv_heads: int = 4
    head: int = 64
    inner: int = 5632
    vocabulary: int = 32000

    @property
    def width(self) -> int:
        return self.heads * self.head


class _Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)).to(x.dtype)


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


class _Layer(nn.Module):
    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes, width, kept = sizes, sizes.width, sizes.kv_heads * sizes.head
        self.before, self.between = _Norm(width), _Norm(width)
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, kept, bias=False)
        self.value, self.out = nn.Linear(width, kept, bias=False), nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, sizes.inner, bias=False), nn.Linear(width, sizes.inner, bias=False)
        self.down = nn.Linear(sizes.inner, width, bias=False)

    def forward(
        self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor, keys: Tensor, values: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        s, (batch, length, _) = self.sizes, x.shape
        y = self.before(x)
        query = _rotated(self.query(y).view(batch, length, s.heads, s.head).transpose(1, 2), cos, sin)
        key = _rotated(self.key(y).view(batch, length, s.kv_heads, s.head).transpose(1, 2), cos, sin)
        value = self.value(y).view(batch, length, s.kv_heads, s.head).transpose(1, 2)
        keys, values = torch.cat([keys, key], 2), torch.cat([values, value], 2)
        group = s.heads // s.kv_heads
        wide = [t[:, :, None].expand(-1, -1, group, -1, -1).reshape(batch, s.heads, -1, s.head) for t in (keys, values)]
        seen = functional.scaled_dot_product_attention(query, *wide, attn_mask=mask)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, s.width))
        y = self.between(x)
        return x + self.down(functional.silu(self.gate(y)) * self.up(y)), keys, values


class Decoder(nn.Module):
    """(ids [batch, n], past keys and values [batch, kv_heads, p, head] of every layer) -> (logits, the extended caches).

    Token i of the n is at position p + i and attends to all earlier ones.
    """

    def __init__(self, sizes: Sizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.embedding = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(_Layer(sizes) for _ in range(sizes.layers))
        self.norm, self.head = _Norm(sizes.width), nn.Linear(sizes.width, sizes.vocabulary, bias=False)
        self.register_buffer("rates", 10000.0 ** (-torch.arange(0, sizes.head, 2) / sizes.head))

    def forward(self, ids: Tensor, *past: Tensor) -> tuple[Tensor, ...]:
        length, known = ids.shape[1], past[0].shape[2]
        positions = torch.arange(known, known + length, device=ids.device)
        mask = torch.arange(known + length, device=ids.device)[None, :] <= positions[:, None]
        angles = positions[:, None].float() * torch.cat([self.rates, self.rates]).float()
        x = self.embedding(ids)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        present: list[Tensor] = []
        for n, layer in enumerate(self.layers):
            x, keys, values = layer(x, mask, cos, sin, past[2 * n], past[2 * n + 1])
            present += [keys, values]
        return self.head(self.norm(x)), *present
