"""Mixers of tokens: variants of attention and of linear recurrences, and towers for speech, text, tables, series and images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, heads, image, inputs, joined, normal, normed, perceptron

__all__ = ["NETWORKS"]


class RootNorm(nn.Module):
    """An RMS norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class GatedUnit(nn.Module):
    """A SwiGLU."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.gate, self.up, self.down = nn.Linear(width, inner), nn.Linear(width, inner), nn.Linear(inner, width)

    def forward(self, x: Tensor) -> Any:
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Residual(nn.Module):
    """A mixer and a SwiGLU behind RMS norms."""

    def __init__(self, mixer: nn.Module, width: int, layers: int = 1) -> None:
        super().__init__()
        self.mixer, self.unit = mixer, GatedUnit(width, 2 * width)
        self.norms = nn.ModuleList([RootNorm(width), RootNorm(width)])

    def forward(self, x: Tensor) -> Any:
        x = x + self.mixer(self.norms[0](x))
        return x + self.unit(self.norms[1](x))


class DifferentialAttention(nn.Module):
    """Attention whose weights are the difference of two softmaxes, with a norm for each head."""

    def __init__(self, width: int = 256, count: int = 4) -> None:
        super().__init__()
        self.count, self.project, self.out = (
            count,
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.share, self.norm = nn.Parameter(torch.tensor(0.5)), RootNorm(width // count)

    def forward(self, x: Tensor) -> Any:
        query, key, value = self.project(x).chunk(3, -1)
        query, key, value = heads(query, 2 * self.count), heads(key, 2 * self.count), heads(value, self.count)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
        mask = torch.full(scores.shape[-2:], -1e4, device=x.device, dtype=x.dtype).triu(1)
        first, second = (scores + mask).softmax(-1).unflatten(1, (self.count, 2)).unbind(2)
        return self.out(joined(self.norm((first - self.share * second) @ value) * 0.2))


class Forgetting(nn.Module):
    """Attention with a bias: the sum of the logarithms of forget gates between key and query."""

    def __init__(self, width: int = 256, count: int = 4) -> None:
        super().__init__()
        self.count, self.project, self.out = count, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.forget = nn.Linear(width, count)

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        sums = F.logsigmoid(self.forget(x)).cumsum(1).transpose(1, 2)
        bias = (sums[..., :, None] - sums[..., None, :]).masked_fill(
            torch.ones(x.shape[1], x.shape[1], device=x.device, dtype=torch.bool).triu(1), -1e4
        )
        return self.out(joined(F.scaled_dot_product_attention(query, key, value, bias)))


class DeltaChannels(nn.Module):
    """Kimi's delta attention: chunks of 16, gates for each channel, states carried from chunk to chunk."""

    def __init__(self, width: int = 256, count: int = 4, size: int = 16) -> None:
        super().__init__()
        self.count, self.size = count, size
        self.project, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.decay, self.write = nn.Linear(width, width), nn.Linear(width, count)

    def forward(self, x: Tensor) -> Any:
        query, key, value, decay = (
            heads(part, self.count).unflatten(2, (-1, self.size))
            for part in (*self.project(x).chunk(3, -1), self.decay(x))
        )
        query, key = F.normalize(query, dim=-1), F.normalize(key, dim=-1)
        write = self.write(x).sigmoid().transpose(1, 2).unflatten(2, (-1, self.size))[..., None]
        sums = (F.logsigmoid(decay) / 16).cumsum(-2)
        rise, fall = key * sums.exp(), key * (-sums).exp()
        lower = torch.ones(self.size, self.size, device=x.device, dtype=x.dtype).tril(-1)
        one = torch.eye(self.size, device=x.device, dtype=x.dtype)
        system = one + write * (rise @ fall.transpose(-1, -2)) * lower
        inverse, power = one, one - system
        for _ in range(4):
            inverse, power = inverse + power @ inverse, power @ power
        new_values, new_keys = inverse @ (write * value), inverse @ (write * rise)
        reads = query * sums.exp()
        inner = (reads @ fall.transpose(-1, -2)) * (lower + one)
        last = sums[..., -1:, :]
        kept = key * (last - sums).exp()
        state, results = torch.zeros_like(key[:, :, 0].transpose(-1, -2) @ value[:, :, 0]), []
        for c in range(key.shape[2]):
            fresh = new_values[:, :, c] - new_keys[:, :, c] @ state
            results.append(reads[:, :, c] @ state + inner[:, :, c] @ fresh)
            state = state * last[:, :, c].transpose(-1, -2).exp() + kept[:, :, c].transpose(-1, -2) @ fresh
        return self.out(joined(torch.cat(results, 2)))


class LinearRecurrence(nn.Module):
    """A linear recurrent unit: complex states with diagonal transitions, combined in a logarithmic number of steps."""

    def __init__(self, width: int = 128, states: int = 128) -> None:
        super().__init__()
        self.decay, self.turn = nn.Parameter(torch.rand(states)), nn.Parameter(torch.rand(states))
        self.into, self.out, self.skip = (
            nn.Linear(width, 2 * states),
            nn.Linear(2 * states, width),
            nn.Parameter(torch.randn(width)),
        )

    def forward(self, x: Tensor) -> Any:
        real, imaginary = self.into(x).chunk(2, -1)
        size, angle = torch.exp(-torch.exp(self.decay)), torch.exp(self.turn)
        a, b, step = size * angle.cos(), size * angle.sin(), 1
        while step < x.shape[1]:
            r, i = (F.pad(v[:, :-step], (0, 0, step, 0)) for v in (real, imaginary))
            real, imaginary = real + a * r - b * i, imaginary + a * i + b * r
            a, b, step = a * a - b * b, 2 * a * b, 2 * step
        return self.out(torch.cat([real, -imaginary], -1)) + self.skip * x


class RandomFeatures(nn.Module):
    """Performer's attention: positive random features of queries and keys, and products associated from the right."""

    turns: Tensor

    def __init__(self, width: int = 256, count: int = 4, features: int = 128) -> None:
        super().__init__()
        self.count, self.project, self.out = count, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("turns", torch.randn(features, width // count))

    def features(self, x: Tensor, query: bool) -> Tensor:
        x = x * x.shape[-1] ** -0.25
        turned = x @ self.turns.t()
        most = turned.amax(-1, keepdim=True) if query else turned.amax((-2, -1), keepdim=True)
        return (turned - x.square().sum(-1, keepdim=True) / 2 - most).exp() + 1e-4

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        query, key = self.features(query, True), self.features(key, False)
        total = (query * key.sum(-2, keepdim=True)).sum(-1, keepdim=True)
        return self.out(joined(query @ (key.transpose(-1, -2) @ value) / total))


class Retention(nn.Module):
    """RetNet's retention in chunks of 64: decays within a chunk, and a state carried from chunk to chunk."""

    within: Tensor
    before: Tensor
    after: Tensor

    def __init__(self, width: int = 256, count: int = 4, size: int = 64) -> None:
        super().__init__()
        self.count, self.size = count, size
        self.project, self.gate, self.out = (
            nn.Linear(width, 3 * width),
            nn.Linear(width, width),
            nn.Linear(width, width),
        )
        self.norm = RootNorm(width // count)
        decay = 1 - 2.0 ** (-5 - torch.arange(count))
        at = torch.arange(size)
        away = (at[:, None] - at).clamp(min=0)
        self.register_buffer("within", decay[:, None, None] ** away * (at[:, None] >= at))
        self.register_buffer("before", decay[:, None, None] ** (at[:, None] + 1))
        self.register_buffer("after", decay[:, None, None] ** (size - 1 - at[:, None]))

    def forward(self, x: Tensor) -> Any:
        query, key, value = (
            heads(part, self.count).unflatten(2, (-1, self.size)) for part in self.project(x).chunk(3, -1)
        )
        key = key / 8
        inner = (query @ key.transpose(-1, -2) * self.within[:, None]) @ value
        added = (key * self.after[:, None]).transpose(-1, -2) @ value
        state, states, carry = torch.zeros_like(added[:, :, 0]), [], self.before[:, -1:]
        for c in range(added.shape[2]):
            states.append(state)
            state = state * carry + added[:, :, c]
        result = inner + (query * self.before[:, None]) @ torch.stack(states, 2)
        return self.out(joined(self.norm(result.flatten(2, 3))) * F.silu(self.gate(x)))


class BitLinear(nn.Module):
    """A linear layer with ternary weights and inputs rounded to 8 bits for each token."""

    def __init__(self, width: int, outputs: int) -> None:
        super().__init__()
        self.norm, self.weight = RootNorm(width), nn.Parameter(torch.randn(outputs, width) / 16)

    def forward(self, x: Tensor) -> Any:
        x = self.norm(x)
        scale = 127 / x.abs().amax(-1, keepdim=True).clamp(min=1e-4)
        rounded = (x * scale).round().clamp(-128, 127) / scale
        mean = self.weight.abs().mean().clamp(min=1e-4)
        return rounded @ ((self.weight / mean).round().clamp(-1, 1) * mean).t()


class BitNet(nn.Module):
    """BitNet's layer with squared ReLUs."""

    def __init__(self, width: int = 256, count: int = 4) -> None:
        super().__init__()
        self.count, self.project, self.out = count, BitLinear(width, 3 * width), BitLinear(width, width)
        self.gate, self.up, self.down = BitLinear(width, 512), BitLinear(width, 512), BitLinear(512, width)

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        x = x + self.out(joined(F.scaled_dot_product_attention(query, key, value, is_causal=True)))
        return x + self.down(self.gate(x).relu().square() * self.up(x))


class TableCells(nn.Module):
    """TabPFN 2: cells of a table attend along their row's features and along their column's samples, the first 96 as known."""

    def __init__(self, width: int = 96, count: int = 4) -> None:
        super().__init__()
        self.count, self.cell = count, nn.Linear(2, width)
        self.across, self.down = nn.Linear(width, 3 * width), nn.Linear(width, 3 * width)
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.mlp, self.head = perceptron(width, 4 * width, width, activation=nn.GELU), nn.Linear(width, 10)

    def forward(self, cells: Tensor) -> Any:
        x = self.cell(cells)
        for _ in range(2):
            rows = x.flatten(0, 1)
            query, key, value = (heads(part, self.count) for part in self.across(rows).chunk(3, -1))
            rows = self.norms[0](rows + self.outs[0](joined(F.scaled_dot_product_attention(query, key, value))))
            columns = rows.unflatten(0, cells.shape[:2]).transpose(1, 2).flatten(0, 1)
            query, key, value = (heads(part, self.count) for part in self.down(columns).chunk(3, -1))
            attended = joined(F.scaled_dot_product_attention(query, key[:, :, :96], value[:, :, :96]))
            columns = self.norms[1](columns + self.outs[1](attended))
            x = columns.unflatten(0, (cells.shape[0], -1)).transpose(1, 2)
            x = self.norms[2](x + self.mlp(x))
        return self.head(x[:, 96:, -1])


class PatchSeries(nn.Module):
    """PatchTST: patches of 16 of each of seven series, normalized, through attention shared by all series."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.patch, self.position = nn.Linear(16, width), nn.Parameter(torch.randn(42, width) / 50)
        layer = nn.TransformerEncoderLayer(width, 16, 256, activation="gelu", batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(42 * width, 96)

    def forward(self, series: Tensor) -> Any:
        mean, spread = series.mean(1, keepdim=True), series.var(1, keepdim=True, unbiased=False).add(1e-5).sqrt()
        lines = F.pad(((series - mean) / spread).transpose(1, 2), (0, 8), mode="replicate").unfold(-1, 16, 8)
        x = self.layers((self.patch(lines) + self.position).flatten(0, 1))
        forecast = self.head(x.flatten(1)).unflatten(0, (-1, 7)).transpose(1, 2)
        return forecast * spread + mean


class DualPath(nn.Module):
    """SepFormer's masks: attention within chunks of 100 frames and between them, in halves that overlap."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.encoder, self.decoder = (
            nn.Conv1d(1, width, 16, 8, bias=False),
            nn.ConvTranspose1d(width, 1, 16, 8, bias=False),
        )
        self.norm, self.masks = nn.GroupNorm(1, width), nn.Conv1d(width, 2 * width, 1)
        layers = [nn.TransformerEncoderLayer(width, 8, 512, batch_first=True, norm_first=True) for _ in range(2)]
        self.inner, self.outer = layers

    def forward(self, sound: Tensor) -> Any:
        frames = self.encoder(sound).relu()
        chunks = self.norm(frames).unfold(-1, 100, 50)  # batch, width, chunks, 100
        b, c, s, k = chunks.shape
        x = self.inner(chunks.permute(0, 2, 3, 1).reshape(b * s, k, c)).reshape(b, s, k, c)
        x = self.outer(x.transpose(1, 2).reshape(b * k, s, c)).reshape(b, k, s, c)
        line = F.fold(x.permute(0, 3, 1, 2).reshape(b, c * k, s), (1, frames.shape[-1]), (1, 100), stride=(1, 50))[
            :, :, 0
        ]
        first, second = self.masks(F.relu(line)).relu().chunk(2, 1)
        return torch.cat([self.decoder(frames * first), self.decoder(frames * second)], 1)


class GatedPositions(nn.Module):
    """WavLM's attention: biases of relative positions, scaled by gates that are computed from each query."""

    near: Tensor

    def __init__(self, width: int = 256, count: int = 4, length: int = 200) -> None:
        super().__init__()
        self.count, self.project, self.out = count, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.table, self.gate, self.const = (
            nn.Embedding(64, count),
            nn.Linear(width // count, 8),
            nn.Parameter(torch.ones(count, 1, 1)),
        )
        at = torch.arange(length)
        self.register_buffer("near", (at[None] - at[:, None]).clamp(-32, 31) + 32)

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        a, b = self.gate(heads(x, self.count)).unflatten(-1, (2, 4)).sum(-1).sigmoid().chunk(2, -1)
        bias = (a * (b * self.const - 1) + 2) * self.table(self.near).permute(2, 0, 1)
        return self.out(joined(F.scaled_dot_product_attention(query, key, value, bias)))


class SingleStream(nn.Module):
    """Lumina 2's layer: sandwich norms, rotations along three axes, norms of queries and keys, and tanh gates of the time."""

    turns: Tensor

    def __init__(self, width: int = 384, count: int = 6) -> None:
        super().__init__()
        self.count, self.project, self.out = (
            count,
            nn.Linear(width, 3 * width, bias=False),
            nn.Linear(width, width, bias=False),
        )
        self.time, self.unit = nn.Linear(128, 4 * width), GatedUnit(width, 1024)
        self.norms = nn.ModuleList(RootNorm(width) for _ in range(4))
        self.query_norm, self.key_norm = RootNorm(width // count), RootNorm(width // count)
        at, speeds = torch.arange(256.0), 100.0 ** -(torch.arange(8.0) / 8)
        axes = [
            at[:, None] * 0 * speeds,
            (at // 16)[:, None] * speeds,
            (at % 16)[:, None] * speeds,
            at[:, None] * speeds,
        ]
        self.register_buffer("turns", torch.cat(axes, -1))

    def rotated(self, x: Tensor) -> Tensor:
        even, odd = x.unflatten(-1, (-1, 2)).unbind(-1)
        cosine, sine = self.turns.cos(), self.turns.sin()
        return torch.stack([even * cosine - odd * sine, even * sine + odd * cosine], -1).flatten(-2)

    def forward(self, x: Tensor, time: Tensor) -> Any:
        for _ in range(2):
            scale, gate, scale2, gate2 = self.time(F.silu(time))[:, None].chunk(4, -1)
            query, key, value = (
                heads(part, self.count) for part in self.project(self.norms[0](x) * (1 + scale)).chunk(3, -1)
            )
            query, key = self.rotated(self.query_norm(query)), self.rotated(self.key_norm(key))
            x = x + gate.tanh() * self.norms[1](self.out(joined(F.scaled_dot_product_attention(query, key, value))))
            x = x + gate2.tanh() * self.norms[3](self.unit(self.norms[2](x) * (1 + scale2)))
        return x


class Planner(nn.Module):
    """TD-MPC 2: a latent model with simplicial norms rolled out for five steps, and five value heads over bins."""

    bins: Tensor

    def __init__(self, width: int = 256, actions: int = 6) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(39, width), nn.LayerNorm(width), nn.Mish(), nn.Linear(width, width))
        self.model = nn.Sequential(
            nn.Linear(width + actions, width), nn.LayerNorm(width), nn.Mish(), nn.Linear(width, width)
        )
        self.reward = nn.Sequential(
            nn.Linear(width + actions, width), nn.LayerNorm(width), nn.Mish(), nn.Linear(width, 101)
        )
        self.first, self.second = (
            nn.Parameter(torch.randn(5, width + actions, width) / 16),
            nn.Parameter(torch.randn(5, width, 101) / 16),
        )
        self.register_buffer("bins", torch.linspace(-10, 10, 101))

    def simplex(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, 8)).softmax(-1).flatten(-2)

    def number(self, scores: Tensor) -> Tensor:
        value = (scores.softmax(-1) * self.bins).sum(-1)
        return value.sign() * (value.abs().exp() - 1)

    def forward(self, seen: Tensor, actions: Tensor) -> Any:
        state, total = self.simplex(self.encoder(seen)), torch.zeros_like(seen[:, 0])
        for step, action in enumerate(actions.unbind(1)):
            both = torch.cat([state, action], -1)
            total = total + 0.99**step * self.number(self.reward(both))
            state = self.simplex(self.model(both))
        values = F.mish(torch.cat([state, actions[:, -1]], -1) @ self.first) @ self.second
        return total + 0.95 * self.number(values).amin(0)


class KeypointBins(nn.Module):
    """RTMPose's head: a large kernel, a gated attention unit, and coordinates as classes along x and y."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.body = nn.Sequential(
            normed(3, 32, 3, 2), normed(32, 64, 3, 2), normed(64, 128, 3, 2), normed(128, 256, 3, 2)
        )
        self.final, self.flat, self.norm = nn.Conv2d(256, 17, 7, padding=3), nn.Linear(192, width), RootNorm(192)
        self.rise, self.out, self.unit_norm = (
            nn.Linear(width, 4 * width + 64),
            nn.Linear(2 * width, width),
            RootNorm(width),
        )
        self.scale, self.shift = nn.Parameter(torch.rand(2, 64)), nn.Parameter(torch.rand(2, 64))
        self.x, self.y = nn.Linear(width, 384, bias=False), nn.Linear(width, 512, bias=False)

    def forward(self, image: Tensor) -> Any:
        x = self.flat(self.norm(self.final(self.body(image)).flatten(2)))
        u, v, base = F.silu(self.rise(self.unit_norm(x))).split([256, 256, 64], -1)
        query, key = (base[..., None, :] * self.scale + self.shift).unbind(-2)
        weights = (query @ key.transpose(-1, -2) / 8).relu().square()
        x = x + self.out(u * (weights @ v))
        return self.x(x), self.y(x)


class LargeKernels(nn.Module):
    """PLKSR: kernels of 17 x 17 for a quarter of the channels, gates, and a shuffle of pixels."""

    def __init__(self, width: int = 64, layers: int = 4) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 48, 3, padding=1)
        self.mix = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.GELU(), nn.Conv2d(2 * width, width, 1))
            for _ in range(layers)
        )
        self.large = nn.ModuleList(nn.Conv2d(16, 16, 17, padding=8) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(layers))
        self.refine = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))

    def forward(self, image: Tensor) -> Any:
        x = self.first(image)
        for mix, large, gate, refine in zip(self.mix, self.large, self.gate, self.refine, strict=True):
            part, rest = mix(x).split([16, 48], 1)
            y = torch.cat([large(part), rest], 1)
            x = x + refine(y * gate(y).sigmoid())
        return F.pixel_shuffle(self.last(x) + image.repeat_interleave(16, 1), 4)


class Hamburger(nn.Module):
    """SegNeXt: attention by strip convolutions, then a head that factors its features in six steps (NMF)."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.stem = nn.Sequential(normed(3, 64, 3, 2), normed(64, width, 3, 2), normed(width, width, 3, 2))
        self.five = nn.Conv2d(width, width, 5, padding=2, groups=width)
        self.strips = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, (1, k), padding=(0, k // 2), groups=width),
                nn.Conv2d(width, width, (k, 1), padding=(k // 2, 0), groups=width),
            )
            for k in (7, 11, 21)
        )
        self.mix, self.head = nn.Conv2d(width, width, 1), nn.Conv2d(width, 21, 1)
        self.bases = nn.Parameter(torch.rand(1, width, 32))

    def forward(self, image: Tensor) -> Any:
        x = self.stem(image)
        five = self.five(x)
        x = x * self.mix(five + sum(strip(five) for strip in self.strips))
        pixels = x.relu().flatten(2)
        bases = F.normalize(self.bases, dim=1).expand(x.shape[0], -1, -1)
        code = (pixels.transpose(1, 2) @ bases).softmax(-1)
        for _ in range(6):
            code = code * (pixels.transpose(1, 2) @ bases) / (code @ (bases.transpose(1, 2) @ bases) + 1e-4)
            bases = bases * (pixels @ code) / (bases @ (code.transpose(1, 2) @ code) + 1e-4)
        x = x + (bases @ code.transpose(1, 2)).unflatten(2, x.shape[2:])
        return F.interpolate(self.head(x), scale_factor=8, mode="bilinear")


class TextLines(nn.Module):
    """SVTR: a text line through attention within windows of 7 x 11 patches and over all patches, down to one row."""

    near: Tensor

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.stem = nn.Sequential(normed(3, 48, 3, 2, activation=nn.GELU), normed(48, width, 3, 2, activation=nn.GELU))
        self.project = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(2))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.mlp = nn.ModuleList(perceptron(width, 4 * width, width, activation=nn.GELU) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.merge, self.head = nn.Conv2d(width, 192, 3, (2, 1), 1), nn.Linear(192, 97)
        y, x = torch.arange(8 * 25) // 25, torch.arange(8 * 25) % 25
        far = ((y[:, None] - y).abs() > 3) | ((x[:, None] - x).abs() > 5)
        self.register_buffer("near", torch.where(far, -1e4, 0.0))

    def forward(self, image: Tensor) -> Any:
        x = self.stem(image)
        size = x.shape[2:]
        x = x.flatten(2).transpose(1, 2)
        for number, (project, out, mlp) in enumerate(zip(self.project, self.out, self.mlp, strict=True)):
            query, key, value = (heads(part, 3) for part in project(x).chunk(3, -1))
            scores = query @ key.transpose(-1, -2) / math.sqrt(32)
            weights = (scores + self.near if number == 0 else scores).softmax(-1)
            x = self.norms[2 * number](x + out(joined(weights @ value)))
            x = self.norms[2 * number + 1](x + mlp(x))
        x = self.merge(x.transpose(1, 2).unflatten(2, size)).mean(2).transpose(1, 2)
        return self.head(x).log_softmax(-1)


class DepthBins(nn.Module):
    """AdaBins: widths of 64 bins of depth from attention over the image, and a mixture of their centers for each pixel."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.body = nn.Sequential(normed(3, 64, 3, 2), normed(64, width, 3, 2))
        self.patch = nn.Conv2d(width, width, 8, 8)
        self.layer = nn.TransformerEncoderLayer(width, 4, 512, batch_first=True)
        self.widths, self.pixels = (
            perceptron(width, 256, 64, activation=nn.LeakyReLU),
            nn.Conv2d(width, width, 3, padding=1),
        )
        self.out = nn.Conv2d(63, 64, 1)

    def forward(self, image: Tensor) -> Any:
        x = self.body(image)
        tokens = self.layer(self.patch(x).flatten(2).transpose(1, 2))
        widths = self.widths(tokens[:, 0]).relu() + 0.1
        edges = F.pad((widths / widths.sum(-1, keepdim=True) * 9.9).cumsum(-1), (1, 0)) + 0.1
        centers = (edges[:, 1:] + edges[:, :-1]) / 2
        maps = torch.einsum("bchw,bkc->bkhw", self.pixels(x), tokens[:, 1:]) / 16
        return (self.out(maps).softmax(1) * centers[..., None, None]).sum(1)


NETWORKS: Mapping[str, Network] = {
    "differential": Network(lambda: Residual(DifferentialAttention(), 256), inputs(x=normal(1, 256, 256))),
    "forgetting": Network(lambda: Residual(Forgetting(), 256), inputs(x=normal(1, 256, 256))),
    "kimidelta": Network(DeltaChannels, inputs(x=normal(1, 128, 256))),
    "lru": Network(lambda: Residual(LinearRecurrence(), 128), inputs(x=normal(1, 512, 128))),
    "performer": Network(lambda: Residual(RandomFeatures(), 256), inputs(x=normal(1, 512, 256))),
    "retention": Network(lambda: Residual(Retention(), 256), inputs(x=normal(1, 256, 256))),
    "bitnet": Network(BitNet, inputs(x=normal(1, 128, 256))),
    "tabpfn": Network(TableCells, inputs(cells=normal(1, 128, 16, 2))),
    "patchtst": Network(PatchSeries, inputs(series=normal(1, 336, 7))),
    "sepformer": Network(DualPath, inputs(sound=normal(1, 1, 16008))),
    "wavlm": Network(lambda: Residual(GatedPositions(), 256), inputs(x=normal(1, 200, 256))),
    "lumina": Network(SingleStream, inputs(x=normal(1, 256, 384), time=normal(1, 128))),
    "tdmpc": Network(Planner, inputs(seen=normal(64, 39), actions=normal(64, 5, 6))),
    "rtmpose": Network(KeypointBins, inputs(image=normal(1, 3, 256, 192))),
    "plksr": Network(LargeKernels, image(64)),
    "segnext": Network(Hamburger, image(256)),
    "svtr": Network(TextLines, inputs(image=normal(1, 3, 32, 100))),
    "adabins": Network(DepthBins, image(256)),
}
