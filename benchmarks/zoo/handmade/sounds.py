"""Speech, sound and series: transducers, separation by recurrent grids, codecs with rounded codes, durations, hierarchies."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, below, heads, inputs, joined, normal, perceptron

__all__ = ["NETWORKS"]


class Transducer(nn.Module):
    """A token-and-duration transducer: a prediction network of two LSTM layers, and all pairs of frames and labels."""

    def __init__(self, width: int = 320, words: int = 1024) -> None:
        super().__init__()
        self.words, self.cells = nn.Embedding(words, width), nn.LSTM(width, width, 2, batch_first=True)
        self.frames, self.labels, self.out = nn.Linear(512, width), nn.Linear(width, width), nn.Linear(width, words + 6)

    def forward(self, encoded: Tensor, ids: Tensor) -> Any:
        labels = self.labels(self.cells(self.words(ids))[0])
        scores = self.out((self.frames(encoded)[:, :, None] + labels[:, None]).relu())
        return scores[..., :-5].log_softmax(-1), scores[..., -5:].log_softmax(-1)


class Grid(nn.Module):
    """TF-GridNet's block: bidirectional LSTMs along frequencies and along frames, and attention over whole frames."""

    def __init__(self, width: int = 32, hidden: int = 48) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, width, 3, padding=1), nn.ConvTranspose2d(width, 4, 3, padding=1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.cells = nn.ModuleList(
            nn.LSTM(4 * width, hidden, 1, batch_first=True, bidirectional=True) for _ in range(2)
        )
        self.outs = nn.ModuleList(nn.ConvTranspose1d(2 * hidden, width, 4) for _ in range(2))
        self.query, self.key, self.value = (
            nn.Conv2d(width, 4 * 4, 1),
            nn.Conv2d(width, 4 * 4, 1),
            nn.Conv2d(width, width, 1),
        )
        self.project = nn.Conv2d(width, width, 1)

    def along(self, x: Tensor, n: int) -> Tensor:
        """Runs one recurrent layer along the last axis but one of (batch, lines, steps, width)."""
        lines = self.norms[n](x).flatten(0, 1).transpose(1, 2)
        taken = lines.unfold(-1, 4, 1).transpose(1, 2).flatten(2)
        y = self.outs[n](self.cells[n](taken)[0].transpose(1, 2)).transpose(1, 2)
        return x + y.unflatten(0, x.shape[:2])

    def forward(self, spectra: Tensor) -> Any:
        x = self.first(spectra).permute(0, 2, 3, 1)  # batch, frames, frequencies, width
        x = self.along(x, 0)
        x = self.along(x.transpose(1, 2), 1).permute(0, 3, 2, 1)
        query, key, value = (
            part(x).unflatten(1, (4, -1)).transpose(2, 3).flatten(3) for part in (self.query, self.key, self.value)
        )
        weights = (query @ key.transpose(-1, -2) / query.shape[-1] ** 0.5).softmax(-1)
        y = (weights @ value).unflatten(-1, (-1, x.shape[-1])).transpose(2, 3).flatten(1, 2)
        return self.last(x + self.project(y))


class RoundedCodec(nn.Module):
    """A codec of speech: causal strided convolutions, attention within a window, eight rounded numbers per frame, and back."""

    levels: Tensor

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        wide, strides = 8 * width, (4, 5, 8)
        self.first, self.last = nn.Conv1d(1, width, 7), nn.Conv1d(width, 1, 7)
        self.down = nn.ModuleList(nn.Conv1d(width << n, width << n + 1, 2 * s) for n, s in enumerate(strides))
        for layer, stride in zip(self.down, strides, strict=True):
            layer.stride = (stride,)
        self.units = nn.ModuleList(nn.Conv1d(width << n, width << n, 3) for n in range(3))
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(width << n + 1, width << n, 2 * s, s) for n, s in reversed(list(enumerate(strides)))
        )
        self.project, self.out = nn.Linear(wide, 3 * wide, bias=False), nn.Linear(wide, wide, bias=False)
        self.norm, self.scale = nn.LayerNorm(wide), nn.Parameter(torch.full((wide,), 0.1))
        self.into, self.back = nn.Linear(wide, 8), nn.Linear(8, wide)
        self.register_buffer("levels", torch.tensor([8.0, 8, 8, 5, 5, 5, 5, 5]))

    def causal(self, layer: Any, x: Tensor) -> Any:
        return layer(F.pad(x, (layer.kernel_size[0] - layer.stride[0], 0)))

    def forward(self, sound: Tensor) -> Any:
        x = self.causal(self.first, sound)
        for unit, down in zip(self.units, self.down, strict=True):
            x = x + self.causal(unit, F.elu(x))
            x = self.causal(down, F.elu(x))
        y = x.transpose(1, 2)
        query, key, value = (heads(part, 4) for part in self.project(self.norm(y)).chunk(3, -1))
        at = torch.arange(y.shape[1], device=y.device)
        away = at[:, None] - at
        near = (away >= 0) & (away < 32)
        y = y + self.scale * self.out(joined(F.scaled_dot_product_attention(query, key, value, near)))
        half = (self.levels - 1) / 2
        x = self.back((self.into(y).tanh() * half).round() / half).transpose(1, 2)
        for up in self.up:
            x = up(F.elu(x))
            x = x[..., : x.shape[-1] - up.stride[0]]
        return self.causal(self.last, F.elu(x)).tanh()


class Durations(nn.Module):
    """FastPitch: phonemes with predicted pitch, repeated by their durations (a product with a mask) into 256 spectra."""

    def __init__(self, width: int = 192, frames: int = 256) -> None:
        super().__init__()
        self.words, self.frames = nn.Embedding(128, width), frames
        self.encoder, self.decoder = (self.layer(width) for _ in range(2))
        self.length = nn.Sequential(nn.Conv1d(width, 128, 3, padding=1), nn.ReLU(), nn.Conv1d(128, 1, 3, padding=1))
        self.pitch = nn.Sequential(nn.Conv1d(width, 128, 3, padding=1), nn.ReLU(), nn.Conv1d(128, 1, 3, padding=1))
        self.shift, self.out = nn.Conv1d(1, width, 3, padding=1), nn.Linear(width, 80)

    def layer(self, width: int) -> nn.Module:
        return nn.TransformerEncoderLayer(width, 2, 4 * width, batch_first=True)

    def forward(self, ids: Tensor) -> Any:
        x = self.encoder(self.words(ids)).transpose(1, 2)
        pitch = self.pitch(x)
        lengths = (self.length(x).squeeze(1).exp() + 2).round().clamp(0, 20)
        x = x + self.shift(pitch)
        ends = lengths.cumsum(-1)
        at = torch.arange(self.frames, device=x.device, dtype=x.dtype)
        path = (at[:, None] < ends[:, None]) & (at[:, None] >= (ends - lengths)[:, None])
        spread = (x @ path.to(x.dtype).transpose(1, 2)).transpose(1, 2)
        return self.out(self.decoder(spread))


class Hierarchy(nn.Module):
    """N-HiTS: stacks that pool their input at different rates, and interpolate their forecasts and what they explain."""

    def __init__(self, length: int = 480, horizon: int = 96, width: int = 256) -> None:
        super().__init__()
        self.length, self.horizon = length, horizon
        self.rates = (8, 4, 1)
        self.blocks = nn.ModuleList(
            perceptron(length // rate, width, width, length // rate + horizon // rate) for rate in self.rates
        )

    def forward(self, series: Tensor) -> Any:
        rest, forecast = series, torch.zeros_like(series[:, : self.horizon])
        for rate, block in zip(self.rates, self.blocks, strict=True):
            pooled = F.max_pool1d(rest[:, None], rate, rate)[:, 0]
            back, ahead = block(pooled).split([self.length // rate, self.horizon // rate], -1)
            rest = rest - F.interpolate(back[:, None], size=self.length, mode="linear")[:, 0]
            forecast = forecast + F.interpolate(ahead[:, None], size=self.horizon, mode="linear")[:, 0]
        return forecast


class ScalesOfTime(nn.Module):
    """TimeMixer: a series at four scales, split into trends and seasons that mix upwards and downwards."""

    def __init__(self, length: int = 96, width: int = 32, scales: int = 4) -> None:
        super().__init__()
        sizes = [length >> n for n in range(scales)]
        self.embed, self.average = nn.Linear(1, width), nn.AvgPool1d(25, 1, 12, count_include_pad=False)
        self.down = nn.ModuleList(perceptron(a, b, b, activation=nn.GELU) for a, b in pairwise(sizes))
        self.up = nn.ModuleList(perceptron(b, a, a, activation=nn.GELU) for a, b in pairwise(sizes))
        self.out, self.heads = (
            perceptron(width, 64, width, activation=nn.GELU),
            nn.ModuleList(nn.Linear(n, 96) for n in sizes),
        )
        self.last = nn.Linear(width, 1)

    def forward(self, series: Tensor) -> Any:
        scaled = [series]
        for _ in self.down:
            scaled.append(F.avg_pool1d(scaled[-1], 2))
        xs = [self.embed(x.flatten(0, 1)[..., None]).transpose(1, 2) for x in scaled]  # series, width, steps
        for _ in range(2):
            trends = [self.average(x) for x in xs]
            seasons = [x - t for x, t in zip(xs, trends, strict=True)]
            for n, down in enumerate(self.down):
                seasons[n + 1] = seasons[n + 1] + down(seasons[n])
            for n in reversed(range(len(self.up))):
                trends[n] = trends[n] + self.up[n](trends[n + 1])
            mixed = [(s + t).transpose(1, 2) for s, t in zip(seasons, trends, strict=True)]
            xs = [x + self.out(m).transpose(1, 2) for x, m in zip(xs, mixed, strict=True)]
        ahead = torch.stack([head(x) for head, x in zip(self.heads, xs, strict=True)]).sum(0)
        return self.last(ahead.transpose(1, 2)).squeeze(-1).unflatten(0, series.shape[:2])


NETWORKS: Mapping[str, Network] = {
    "transducer": Network(Transducer, inputs(encoded=normal(1, 100, 512), ids=below(1024, 1, 24))),
    "gridnet": Network(Grid, inputs(spectra=normal(1, 2, 64, 65))),
    "rounded": Network(RoundedCodec, inputs(sound=normal(1, 1, 16000))),
    "fastpitch": Network(Durations, inputs(ids=below(128, 1, 64))),
    "nhits": Network(Hierarchy, inputs(series=normal(32, 480))),
    "timemixer": Network(ScalesOfTime, inputs(series=normal(1, 21, 96))),
}
