"""Language models of recent kinds: residual streams, sparse and recursive attention, hashed n-grams, chunks and routing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .mixers import GatedUnit, Residual, RootNorm
from .parts import Network, below, heads, inputs, joined, normal

__all__ = ["NETWORKS"]


class Attention(nn.Module):
    """Causal attention."""

    def __init__(self, width: int, count: int) -> None:
        super().__init__()
        self.count, self.project = count, nn.Linear(width, 3 * width, bias=False)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        return self.out(joined(F.scaled_dot_product_attention(query, key, value, is_causal=True)))


class HyperConnections(nn.Module):
    """Four residual streams that mix by a doubly stochastic matrix for each token (20 Sinkhorn iterations), as in mHC."""

    def __init__(self, width: int = 256, streams: int = 4) -> None:
        super().__init__()
        self.streams = streams
        self.parts = nn.ModuleList([Attention(width, 4), GatedUnit(width, 2 * width)] * 2)
        self.norms = nn.ModuleList(RootNorm(width) for _ in self.parts)
        self.mixes = nn.ModuleList(nn.Linear(streams * width, streams * (streams + 2)) for _ in self.parts)

    def forward(self, x: Tensor) -> Any:
        n = self.streams
        held = x[..., None, :].expand(-1, -1, n, -1)
        for part, norm, mix in zip(self.parts, self.norms, self.mixes, strict=True):
            numbers = mix(F.rms_norm(held.flatten(2), (held.shape[-1] * n,)))
            read, write, turn = numbers.split([n, n, n * n], -1)
            mixing = turn.unflatten(-1, (n, n)).exp()
            for _ in range(20):
                mixing = mixing / mixing.sum(-1, keepdim=True)
                mixing = mixing / mixing.sum(-2, keepdim=True)
            y = part(norm((read.sigmoid()[..., None] * held).sum(-2)))
            held = mixing @ held + 2 * write.sigmoid()[..., None] * y[..., None, :]
        return held.sum(-2)


class HashedWords(nn.Module):
    """Memory of hashed pairs and triples of tokens (Engram): rows of tables for each head, gated by the hidden state."""

    def __init__(self, width: int = 256, rows: int = 20011, count: int = 4) -> None:
        super().__init__()
        self.rows, self.count = rows, count
        self.words, self.table = nn.Embedding(8192, width), nn.Embedding(2 * count * rows, 32)
        self.key, self.value = nn.Linear(2 * count * 32, width), nn.Linear(2 * count * 32, width)
        self.layer, self.norms = Residual(Attention(width, 4), width), nn.ModuleList(RootNorm(width) for _ in range(2))
        self.near = nn.Conv1d(width, width, 4, groups=width)

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids)
        before = [F.pad(ids, (n, 0))[:, : ids.shape[1]] for n in range(3)]
        found = []
        for order in (2, 3):
            for head in range(self.count):
                key = before[0] * (3 * head + 7)
                for n in range(1, order):
                    key = torch.bitwise_xor(key, before[n] * (1000003 * n + 131 * head))
                found.append(key % self.rows + (self.count * (order - 2) + head) * self.rows)
        memory = self.table(torch.stack(found, -1)).flatten(2)
        scores = (self.norms[0](x) * self.norms[1](self.key(memory))).sum(-1, keepdim=True) / math.sqrt(x.shape[-1])
        y = scores.sigmoid() * self.value(memory)
        y = y + F.silu(self.near(F.pad(y.transpose(1, 2), (3, 0)))).transpose(1, 2)
        return self.layer(x + y)


class IndexedAttention(nn.Module):
    """Sparse attention of DeepSeek 3.2: an indexer scores the keys, each query attends to the 64 best, gathered latents."""

    def __init__(self, width: int = 512, count: int = 8, most: int = 64) -> None:
        super().__init__()
        self.count, self.most = count, most
        self.query, self.latent = nn.Linear(width, count * 128), nn.Linear(width, 128)
        self.index_query, self.index_key, self.weights = (
            nn.Linear(width, 4 * 64),
            nn.Linear(width, 64),
            nn.Linear(width, 4),
        )
        self.up, self.out = nn.Parameter(torch.randn(count, 128, 64) / 11), nn.Linear(count * 64, width)

    def forward(self, x: Tensor) -> Any:
        scores = torch.einsum("bqhd,bkd->bqhk", self.index_query(x).unflatten(-1, (4, 64)), self.index_key(x)).relu()
        scores = (scores * self.weights(x)[..., None]).sum(2)
        later = torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool).triu(1)
        chosen = scores.masked_fill(later, -6e4).topk(self.most, -1).indices
        latent = self.latent(x)
        kept = latent[:, None].expand(-1, x.shape[1], -1, -1).gather(2, chosen[..., None].expand(-1, -1, -1, 128))
        query = self.query(x).unflatten(-1, (self.count, 128))
        at = torch.arange(x.shape[1], device=x.device)
        weights = query @ kept.transpose(-1, -2) / math.sqrt(128)
        weights = weights.masked_fill((chosen > at[:, None])[:, :, None], -6e4).softmax(-1)
        return self.out(torch.einsum("bqhd,hde->bqhe", weights @ kept, self.up).flatten(2))


class Chunks(nn.Module):
    """H-Net's chunks of bytes: boundaries where neighbors differ, and a smoothing recurrence back to bytes."""

    def __init__(self, width: int = 256, size: int = 64) -> None:
        super().__init__()
        self.bytes, self.size = nn.Embedding(256, width), size
        self.query, self.key = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.inner, self.head = Residual(Attention(width, 4), width), nn.Linear(width, 256)

    def forward(self, ids: Tensor) -> Any:
        x = self.bytes(ids)
        alike = F.cosine_similarity(self.query(x[:, :-1]), self.key(x[:, 1:]), dim=-1)
        chance = F.pad((1 - alike) / 2, (1, 0), value=1.0)
        order = chance.topk(self.size, -1).indices.sort(-1).values
        chosen = x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))
        share = chance.gather(1, order)
        y = self.inner(chosen)
        # y[t] = sum over s <= t of share[s] y[s] times the product of (1 - share) between
        logs = (1 - share).clamp(min=1e-4).log().cumsum(-1)
        lower = torch.ones(self.size, self.size, device=x.device, dtype=torch.bool).tril()
        decay = (logs[..., :, None] - logs[..., None, :]).masked_fill(~lower, -1e4).exp()
        smooth = decay @ (share[..., None] * y)
        marks = torch.zeros_like(chance).scatter(1, order, 1.0)
        at = (marks.cumsum(-1).long() - 1).clamp(min=0)
        return self.head(x + smooth.gather(1, at[..., None].expand(-1, -1, x.shape[-1])))


class Recursion(nn.Module):
    """A tiny recursive model: two layers without attention over cells, applied six times to a latent and once to an answer."""

    def __init__(self, width: int = 256, cells: int = 81) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(11, width), nn.Linear(width, 11)
        self.across = nn.ModuleList(nn.Linear(cells, cells) for _ in range(2))
        self.units = nn.ModuleList(GatedUnit(width, 2 * width) for _ in range(2))
        self.first, self.latent = nn.Parameter(torch.randn(width)), nn.Parameter(torch.randn(width))

    def step(self, x: Tensor) -> Tensor:
        for across, unit in zip(self.across, self.units, strict=True):
            x = F.rms_norm(x + across(x.transpose(1, 2)).transpose(1, 2), x.shape[-1:])
            x = F.rms_norm(x + unit(x), x.shape[-1:])
        return x

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids)
        answer, latent = self.first.expand_as(x), self.latent.expand_as(x)
        for _ in range(2):
            for _ in range(6):
                latent = self.step(x + answer + latent)
            answer = self.step(answer + latent)
        return self.head(answer)


class Unmasking(nn.Module):
    """A step of a masked diffusion model: the 16 masked tokens with the most confident predictions are filled in."""

    def __init__(self, width: int = 256, words: int = 16000, filled: int = 16) -> None:
        super().__init__()
        self.mask, self.filled = words - 1, filled
        self.words, self.layer = nn.Embedding(words, width), Residual(Attention(width, 4), width)
        self.norm, self.head = RootNorm(width), nn.Linear(width, words, bias=False)

    def forward(self, ids: Tensor) -> Any:
        scores = self.head(self.norm(self.layer(self.words(ids))))
        best, token = scores.softmax(-1).max(-1)
        sure = torch.where(ids == self.mask, best, -1.0)
        order = sure.topk(self.filled, -1).indices
        change = torch.zeros_like(ids).scatter(1, order, 1).bool() & (ids == self.mask)
        return best, torch.where(change, token, ids)


class AlternatingUpdates(nn.Module):
    """Gemma 3n: four streams of which one is computed, the others predicted and corrected; low-rank paths, layer inputs."""

    def __init__(self, width: int = 256, streams: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.streams = streams
        self.layers = nn.ModuleList(Residual(Attention(width, 4), width) for _ in range(layers))
        self.predict = nn.ModuleList(nn.Linear(streams, streams * streams, bias=False) for _ in range(layers))
        self.correct = nn.ModuleList(nn.Linear(streams, streams, bias=False) for _ in range(layers))
        self.routers = nn.ModuleList(nn.Linear(width, streams, bias=False) for _ in range(layers))
        self.low = nn.ModuleList(nn.Sequential(nn.Linear(width, 32), nn.Linear(32, width)) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(width, 64, bias=False) for _ in range(layers))
        self.own, self.up = nn.Embedding(4096, 64 * layers), nn.Linear(64, width, bias=False)
        self.words, self.into = nn.Embedding(4096, width), nn.ModuleList(nn.Linear(width, width) for _ in range(3))

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids)
        size = x.square().mean(-1, keepdim=True).sqrt()
        held = [x]
        for into in self.into:
            y = into(x)
            held.append(y * size / y.square().mean(-1, keepdim=True).clamp(min=1e-5).sqrt())
        state, own = torch.stack(held), self.own(ids).unflatten(-1, (len(self.layers), 64))
        for n, layer in enumerate(self.layers):
            way = self.routers[n](F.rms_norm(state[0], x.shape[-1:]) / 16).tanh()
            turn = self.predict[n](way).unflatten(-1, (self.streams, self.streams)).transpose(-1, -2)
            guess = (state.permute(1, 2, 3, 0) @ turn).permute(3, 0, 1, 2) + state
            active = F.rms_norm(guess[0], x.shape[-1:])
            done = (layer(active) + active + self.low[n](active)) / math.sqrt(2)
            way = self.routers[n](F.rms_norm(done, x.shape[-1:]) / 16).tanh()
            share = self.correct[n](way).permute(2, 0, 1)[..., None] + 1
            state = guess + (done - guess[0]) * share
            added = self.up(F.gelu(self.gate[n](state[0]), approximate="tanh") * own[..., n, :])
            state = torch.cat([state[:1], state[1:] + F.rms_norm(added, x.shape[-1:])])
        return state.mean(0)


class GroupedExperts(nn.Module):
    """Routing limited to groups: 2 of 4 groups by their two best experts, 4 of 16 experts with biases, and a shared one."""

    def __init__(self, width: int = 256, inner: int = 128) -> None:
        super().__init__()
        self.router, self.bias = nn.Linear(width, 16, bias=False), nn.Parameter(torch.rand(16) / 8)
        self.up = nn.Parameter(torch.randn(16, width, 2 * inner) / 16)
        self.down = nn.Parameter(torch.randn(16, inner, width) / 11)
        self.shared = GatedUnit(width, inner)

    def forward(self, x: Tensor) -> Any:
        tokens = x.flatten(0, 1)
        chance = self.router(tokens).sigmoid()
        biased = chance + self.bias
        groups = biased.unflatten(-1, (4, 4))
        best = groups.topk(2, -1).values.sum(-1).topk(2, -1).indices
        open_groups = torch.zeros_like(groups[..., 0]).scatter(1, best, 1.0)
        allowed = (open_groups[..., None] > 0).expand(-1, -1, 4).flatten(1)
        chosen = biased.masked_fill(~allowed, 0.0).topk(4, -1).indices
        weights = chance.gather(1, chosen)
        weights = weights / weights.sum(-1, keepdim=True) * 2.5
        share = torch.zeros_like(chance).scatter(1, chosen, weights)
        gate, up = (tokens @ self.up).chunk(2, -1)  # all experts, as exported without a grouped product
        every = (F.silu(gate) * up) @ self.down
        return (self.shared(tokens) + (every * share.t()[..., None]).sum(0)).view_as(x)


NETWORKS: Mapping[str, Network] = {
    "hyper": Network(HyperConnections, inputs(x=normal(1, 128, 256))),
    "engram": Network(HashedWords, inputs(ids=below(8192, 1, 128))),
    "indexed": Network(lambda: Residual(IndexedAttention(), 512), inputs(x=normal(1, 256, 512))),
    "chunks": Network(Chunks, inputs(ids=below(256, 1, 256))),
    "recursion": Network(Recursion, inputs(ids=below(11, 1, 81))),
    "unmasking": Network(Unmasking, inputs(ids=lambda batch: torch.randint(0, 2, (batch, 64)) * 14999 + 1000)),
    "altup": Network(AlternatingUpdates, inputs(ids=below(4096, 1, 128))),
    "grouped": Network(lambda: Residual(GroupedExperts(), 256), inputs(x=normal(1, 64, 256))),
}
