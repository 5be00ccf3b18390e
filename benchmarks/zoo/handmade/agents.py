"""Agents, memories and sequences: planning by a learned model, robots, worlds, sparse and linear attention, retrieval, speech."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .languages import Attention
from .mixers import GatedUnit, Residual, RootNorm
from .parts import Network, below, heads, inputs, joined, normal, normed, perceptron

__all__ = ["NETWORKS"]


class MuZero(nn.Module):
    """Five steps of planning: the dynamics of a hidden image, scaled to between 0 and 1, with a reward, values and a policy."""

    def __init__(self, width: int = 64, actions: int = 18) -> None:
        super().__init__()
        self.actions = actions
        self.encode = nn.Sequential(normed(12, width, stride=2), normed(width, width, stride=2))
        self.move = nn.Sequential(normed(width + 1, width), normed(width, width))
        self.heads = nn.ModuleList(nn.Sequential(normed(width, 8, 1), nn.Flatten()) for _ in range(2))
        self.value, self.policy = perceptron(8 * 144, 128, 601), perceptron(8 * 144, 128, actions)

    def forward(self, frames: Tensor, plan: Tensor) -> Any:
        state, results = self.encode(frames), []
        for step in range(5):
            plane = (plan[:, step] / self.actions)[:, None, None, None].expand(-1, 1, *state.shape[2:]).to(state.dtype)
            state = F.relu(self.move(torch.cat([state, plane], 1)) + state)
            low, high = state.amin((1, 2, 3), keepdim=True), state.amax((1, 2, 3), keepdim=True)
            state = (state - low) / (high - low + 1e-3)
            share = self.value(self.heads[0](state)).softmax(-1)
            worth = (share * torch.arange(-300, 301, device=share.device, dtype=share.dtype)).sum(-1, keepdim=True)
            results.append(torch.cat([worth / 300, self.policy(self.heads[1](state))], -1))
        return torch.stack(results, 1)


class Mixing(nn.Module):
    """QMIX: recurrent agents, whose values a monotonic network mixes with weights made from the state."""

    def __init__(self, agents: int = 8, width: int = 64) -> None:
        super().__init__()
        self.agents, self.width = agents, width
        self.before, self.cell, self.after = nn.Linear(80, width), nn.GRUCell(width, width), nn.Linear(width, 14)
        self.first, self.second = perceptron(120, 64, agents * width), perceptron(120, 64, width)
        self.shift, self.last = nn.Linear(120, width), perceptron(120, width, 1)

    def forward(self, seen: Tensor, state: Tensor) -> Any:
        held = seen.new_zeros(seen.shape[0] * self.agents, self.width)
        results = []
        for step in range(8):
            held = self.cell(self.before(seen[:, step].flatten(0, 1)).relu(), held)
            best = self.after(held).amax(-1).view(-1, 1, self.agents)
            now = state[:, step]
            inner = F.elu(best @ self.first(now).abs().view(-1, self.agents, self.width) + self.shift(now)[:, None])
            results.append(inner @ self.second(now).abs()[..., None] + self.last(now)[:, None])
        return torch.cat(results, 1)


class RobotTokens(nn.Module):
    """RT-1: images conditioned by an instruction (FiLM), eight learned tokens of each, and a decoder of actions in bins."""

    def __init__(self, width: int = 256, count: int = 8) -> None:
        super().__init__()
        self.stem = nn.Sequential(normed(3, 64, stride=2), normed(64, 128, stride=2), normed(128, width, stride=2))
        self.blocks = nn.ModuleList(normed(width, width) for _ in range(2))
        self.films = nn.ModuleList(nn.Linear(512, 2 * width) for _ in range(2))
        self.norm, self.pick = nn.LayerNorm(width), perceptron(width, 64, count, activation=nn.GELU)
        self.layers = nn.Sequential(*(Residual(Attention(width, 4), width) for _ in range(2)))
        self.head = nn.Linear(width, 11 * 256)

    def forward(self, frames: Tensor, text: Tensor) -> Any:
        x = self.stem(frames.flatten(0, 1))
        words = text.repeat_interleave(frames.shape[1], 0)
        for block, film in zip(self.blocks, self.films, strict=True):
            scale, shift = film(words)[..., None, None].chunk(2, 1)
            x = x + block(x) * (1 + scale) + shift
        pixels = x.flatten(2).transpose(1, 2)
        share = self.pick(self.norm(pixels)).transpose(1, 2).softmax(-1)
        tokens = (share @ pixels).view(text.shape[0], -1, pixels.shape[-1])
        return self.head(self.layers(tokens)[:, -1]).view(-1, 11, 256).log_softmax(-1)


class Worlds(nn.Module):
    """Genie's world: attention within frames and, causal, between them, of tokens shifted and scaled by actions."""

    def __init__(self, width: int = 256, layers: int = 2) -> None:
        super().__init__()
        self.words, self.actions = nn.Embedding(1024, width), nn.Embedding(8, 2 * width)
        self.place = nn.Parameter(0.02 * torch.randn(1, 8, 64, width))
        self.space = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.time = nn.ModuleList(Attention(width, 4) for _ in range(layers))
        self.units = nn.ModuleList(GatedUnit(width, 2 * width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(3 * layers))
        self.head = nn.Linear(width, 1024)

    def forward(self, ids: Tensor, actions: Tensor) -> Any:
        x = self.words(ids) + self.place  # batch, frame, place, width
        scale, shift = self.actions(actions)[:, :, None].chunk(2, -1)
        for k, (space, time, unit) in enumerate(zip(self.space, self.time, self.units, strict=True)):
            y = self.norms[3 * k](x) * (1 + scale) + shift
            query, key, value = (heads(part, 4) for part in space(y.flatten(0, 1)).chunk(3, -1))
            x = x + joined(F.scaled_dot_product_attention(query, key, value)).view_as(x)
            y = self.norms[3 * k + 1](x).transpose(1, 2)
            x = x + time(y.flatten(0, 1)).view_as(y).transpose(1, 2)
            x = x + unit(self.norms[3 * k + 2](x))
        return self.head(x)


class Joints(nn.Module):
    """ST-GCN: a skeleton's joints mixed by learned graphs of three kinds, then convolutions along time."""

    def __init__(self, widths: tuple[int, ...] = (3, 64, 64, 128), joints: int = 25) -> None:
        super().__init__()
        self.graphs = nn.ParameterList(torch.rand(3, joints, joints) / joints for _ in widths[1:])
        pairs = list(pairwise(widths))
        self.mix = nn.ModuleList(nn.Conv2d(a, 3 * b, 1) for a, b in pairs)
        self.time = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, (9, 1), (1 + k // 2, 1), (4, 0)), nn.BatchNorm2d(b)
            )
            for k, (_, b) in enumerate(pairs)
        )
        self.head = nn.Linear(widths[-1], 60)

    def forward(self, x: Tensor) -> Any:
        for graph, mix, time in zip(self.graphs, self.mix, self.time, strict=True):
            x = time(torch.einsum("nkctv,kvw->nctw", mix(x).unflatten(1, (3, -1)), graph)).relu()
        return self.head(x.mean((2, 3)))


class BlockChoice(nn.Module):
    """Mixture of block attention (MoBA): each query attends to its own block of keys and the three with the likest means."""

    def __init__(self, width: int = 256, count: int = 4, size: int = 32) -> None:
        super().__init__()
        self.count, self.size = count, size
        self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        length, blocks = x.shape[1], x.shape[1] // self.size
        means = key.unflatten(2, (blocks, self.size)).mean(3)
        at = torch.arange(length, device=x.device)
        own = at // self.size
        others = torch.arange(blocks, device=x.device)
        gate = query @ means.transpose(-1, -2)
        gate = gate.masked_fill(others > own[:, None], -6e4).masked_fill(others == own[:, None], 6e4)
        chosen = torch.zeros_like(gate).scatter(-1, gate.topk(4, -1).indices, 1.0) > 0
        mask = chosen.repeat_interleave(self.size, -1) & (at[:, None] >= at)
        return self.out(joined(F.scaled_dot_product_attention(query, key, value, attn_mask=mask)))


class Taylor(nn.Module):
    """Based: linear attention whose features are the terms of an exponential's second-order series, in chunks."""

    def __init__(self, width: int = 256, count: int = 4, features: int = 16, chunk: int = 64) -> None:
        super().__init__()
        self.count, self.features, self.chunk = count, features, chunk
        self.narrow = nn.Linear(width, 2 * count * features, bias=False)
        self.value, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)

    def expand(self, x: Tensor) -> Tensor:
        pairs = (x[..., :, None] * x[..., None, :]).flatten(-2) / (math.sqrt(2) * math.sqrt(self.features))
        return torch.cat([torch.ones_like(x[..., :1]), x / self.features**0.25, pairs], -1)

    def forward(self, x: Tensor) -> Any:
        query, key = (self.expand(heads(part, self.count)) for part in self.narrow(x).chunk(2, -1))
        parts = (-1, self.chunk)
        query, key, value = (t.unflatten(2, parts) for t in (query, key, heads(self.value(x), self.count)))
        inner = (query @ key.transpose(-1, -2)).tril()
        states, totals = (key.transpose(-1, -2) @ value).cumsum(2), key.sum(-2).cumsum(2)
        before, total = F.pad(states, (0, 0, 0, 0, 1, -1)), F.pad(totals, (0, 0, 1, -1))
        y = inner @ value + query @ before
        sums = inner.sum(-1, keepdim=True) + query @ total[..., None]
        return self.out(joined((y / (sums + 1e-4)).flatten(2, 3)))


class Capped(nn.Module):
    """Gemma 2's attention: logits bounded by a tanh, a window in every other layer, norms before and after."""

    def __init__(self, width: int = 512, count: int = 8, groups: int = 4, window: int = 0) -> None:
        super().__init__()
        self.count, self.groups, self.window = count, groups, window
        self.query, self.out = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.key, self.value = (nn.Linear(width, width * groups // count, bias=False) for _ in range(2))
        self.after = RootNorm(width)

    def forward(self, x: Tensor) -> Any:
        query, key, value = heads(self.query(x), self.count), self.key(x), self.value(x)
        key, value = (heads(t, self.groups).repeat_interleave(self.count // self.groups, 1) for t in (key, value))
        at = torch.arange(x.shape[1], device=x.device)
        near = at[:, None] >= at
        if self.window:
            near = near & (at[:, None] - at < self.window)
        scores = torch.tanh(query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) / 50) * 50
        share = scores.masked_fill(~near, -6e4).float().softmax(-1).to(x.dtype)
        return self.after(self.out(joined(share @ value)))


class Unrolled(nn.Module):
    """Test-time training with a perceptron of two layers: each chunk's outputs from weights after a gradient step on it."""

    def __init__(self, width: int = 256, count: int = 4, chunk: int = 32) -> None:
        super().__init__()
        self.count, self.chunk, size = count, chunk, width // count
        self.project, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.rate = nn.Linear(width, count)
        self.first = nn.Parameter(0.05 * torch.randn(count, size, 2 * size))
        self.second = nn.Parameter(0.05 * torch.randn(count, 2 * size, size))

    def forward(self, x: Tensor) -> Any:
        query, key, value = (heads(part, self.count) for part in self.project(x).chunk(3, -1))
        rate = heads(self.rate(x).sigmoid(), self.count) / self.chunk
        first = self.first.expand(x.shape[0], -1, -1, -1)
        second, results = self.second.expand(x.shape[0], -1, -1, -1), []
        for k in range(0, x.shape[1], self.chunk):
            q, key_, v, r = (t[:, :, k : k + self.chunk] for t in (query, key, value, rate))
            inner = key_ @ first
            held = F.silu(inner)
            wrong = (held @ second - (v - key_)) * r
            slope = inner.sigmoid() * (1 + inner * (1 - inner.sigmoid()))
            back = (wrong @ second.transpose(-1, -2)) * slope
            second = second - held.transpose(-1, -2) @ wrong
            first = first - key_.transpose(-1, -2) @ back
            results.append(q + F.silu(q @ first) @ second)
        return self.out(joined(torch.cat(results, 2)))


class Bytes(nn.Module):
    """MegaByte: a model of patches of eight bytes, and a small one within each patch."""

    def __init__(self, width: int = 512, inner: int = 128, patch: int = 8) -> None:
        super().__init__()
        self.patch, self.bytes, self.small = patch, nn.Embedding(256, width // patch), nn.Embedding(256, inner)
        self.outer = nn.Sequential(*(Residual(Attention(width, 8), width) for _ in range(2)))
        self.down = nn.Linear(width // patch, inner)
        self.inner = nn.Sequential(*(Residual(Attention(inner, 4), inner) for _ in range(2)))
        self.head = nn.Linear(inner, 256)

    def forward(self, ids: Tensor) -> Any:
        whole = self.outer(F.pad(self.bytes(ids).unflatten(1, (-1, self.patch)).flatten(2), (0, 0, 1, -1)))
        each = self.down(whole.unflatten(-1, (self.patch, -1)))
        shifted = F.pad(self.small(ids).unflatten(1, (-1, self.patch)), (0, 0, 1, -1))
        return self.head(self.inner((each + shifted).flatten(0, 1))).view(*ids.shape, 256)


class Splade(nn.Module):
    """Sparse retrieval: the largest weight of each word of the vocabulary over the tokens of a text."""

    def __init__(self, width: int = 384, words: int = 30522) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        layer = nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, "gelu", batch_first=True)
        self.layers = nn.ModuleList([layer, layer])
        self.norm, self.bias = nn.LayerNorm(width), nn.Parameter(torch.zeros(words))

    def forward(self, ids: Tensor) -> Any:
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        scores = F.linear(self.norm(x), self.words.weight, self.bias)
        return (torch.log1p(scores.relu()) * (ids != 0)[..., None]).amax(1)


class Transducing(nn.Module):
    """HSTU, a recommender: attention by SiLU of biased scores without a softmax, gated, over a history with times."""

    def __init__(self, width: int = 256, count: int = 4, length: int = 200) -> None:
        super().__init__()
        self.count, self.items = count, nn.Embedding(20000, width)
        self.before, self.out = nn.Linear(width, 4 * width), nn.Linear(width, width)
        self.near, self.ages = nn.Parameter(0.1 * torch.randn(2 * length - 1)), nn.Embedding(64, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def forward(self, ids: Tensor, times: Tensor) -> Any:
        x, length = self.items(ids), ids.shape[1]
        at = torch.arange(length, device=x.device)
        ages = (torch.log1p((times[:, :, None] - times[:, None]).abs()) * 4).long().clamp(0, 63)
        bias = self.near[at[:, None] - at + length - 1] + self.ages(ages)[..., 0]
        mask = (at[:, None] >= at).to(x.dtype) / length
        for _ in range(2):
            gate, value, query, key = F.silu(self.before(self.norms[0](x))).chunk(4, -1)
            scores = F.silu(heads(query, self.count) @ heads(key, self.count).transpose(-1, -2) + bias[:, None])
            y = joined((scores * mask) @ heads(value, self.count))
            x = x + self.out(self.norms[1](y) * gate)
        return F.normalize(x[:, -1], dim=-1)


class ExpertChoice(nn.Module):
    """Experts that choose their 32 tokens each, whose results are added at the tokens' places."""

    def __init__(self, width: int = 256, experts: int = 8, most: int = 32) -> None:
        super().__init__()
        self.most, self.route = most, nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(width**-0.5 * torch.randn(experts, width, 2 * width))
        self.down = nn.Parameter((2 * width) ** -0.5 * torch.randn(experts, 2 * width, width))

    def forward(self, x: Tensor) -> Any:
        weights, chosen = self.route(x).softmax(-1).transpose(1, 2).topk(self.most, -1)  # batch, expert, token
        at = chosen.flatten(1)[..., None].expand(-1, -1, x.shape[-1])
        taken = x.gather(1, at).unflatten(1, (-1, self.most))
        y = F.gelu(taken @ self.up) @ self.down * weights[..., None]
        return torch.zeros_like(x).scatter_add(1, at, y.flatten(1, 2))


class Spectrograms(nn.Module):
    """Tacotron 2's decoder: eight steps with attention to places, two LSTM cells of 512, and a residual post-net."""

    def __init__(self, width: int = 256, cell: int = 512) -> None:
        super().__init__()
        self.before, self.width = perceptron(80, 128, 128), width
        self.first, self.second = nn.LSTMCell(128 + width, cell), nn.LSTMCell(cell + width, cell)
        self.query, self.keys, self.energy = nn.Linear(cell, 128), nn.Linear(width, 128), nn.Linear(128, 1)
        self.places = nn.Conv1d(2, 32, 31, padding=15)
        self.place, self.spectrum = nn.Linear(32, 128, bias=False), nn.Linear(cell + width, 80)
        self.after = nn.Sequential(nn.Conv1d(80, 256, 5, padding=2), nn.Tanh(), nn.Conv1d(256, 80, 5, padding=2))

    def forward(self, memory: Tensor) -> Any:
        batch, length, _ = memory.shape
        a = (memory.new_zeros(batch, 512), memory.new_zeros(batch, 512))
        b, keys, frame = a, self.keys(memory), memory.new_zeros(batch, 80)
        share, total = memory.new_zeros(batch, length), memory.new_zeros(batch, length)
        context, frames = memory.new_zeros(batch, self.width), []
        for _ in range(8):
            a = self.first(torch.cat([self.before(frame), context], -1), a)
            places = self.place(self.places(torch.stack([share, total], 1)).transpose(1, 2))
            share = self.energy(torch.tanh(self.query(a[0])[:, None] + keys + places))[..., 0].softmax(-1)
            total = total + share
            context = (share[:, None] @ memory)[:, 0]
            b = self.second(torch.cat([a[0], context], -1), b)
            frame = self.spectrum(torch.cat([b[0], context], -1))
            frames.append(frame)
        result = torch.stack(frames, 2)
        return result + self.after(result)


class Stems(nn.Module):
    """Open-Unmix: spectra through three bidirectional LSTM layers of 256 units, and a mask."""

    def __init__(self, bins: int = 513, width: int = 512) -> None:
        super().__init__()
        self.before = nn.Sequential(nn.Linear(2 * bins, width, bias=False), nn.LayerNorm(width), nn.Tanh())
        self.lstm = nn.LSTM(width, width // 2, 3, bidirectional=True, batch_first=True)
        self.after = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU(), nn.Linear(width, 2 * bins))

    def forward(self, spectra: Tensor) -> Any:
        x = self.before(spectra)
        return self.after(torch.cat([x, self.lstm(x)[0]], -1)).relu() * spectra


class Harmonics(nn.Module):
    """Basic Pitch: shifted copies of a spectrum as channels, convolutions to pitches, notes and onsets."""

    def __init__(self) -> None:
        super().__init__()
        self.shifts = [-36, 0, 36, 57, 72, 84, 93, 101]
        self.pitch = nn.Sequential(
            nn.Conv2d(8, 16, 5, padding=2), nn.BatchNorm2d(16), nn.ReLU(), nn.Conv2d(16, 8, (3, 39), padding=(1, 19))
        )
        self.pitches = nn.Conv2d(8, 1, 5, padding=2)
        self.notes = nn.Sequential(nn.Conv2d(1, 32, 7, (1, 3), 3), nn.ReLU(), nn.Conv2d(32, 1, (7, 3), padding=(3, 1)))
        self.onset = nn.Sequential(nn.Conv2d(8, 32, 5, (1, 3), 2), nn.BatchNorm2d(32), nn.ReLU())
        self.last = nn.Conv2d(33, 1, 3, padding=1)

    def forward(self, spectrum: Tensor) -> Any:
        copies = [F.pad(spectrum, (-shift, shift)) if shift else spectrum for shift in self.shifts]
        stacked = torch.stack(copies, 1)[..., :264]
        pitches = self.pitches(self.pitch(stacked).relu()).sigmoid()
        notes = self.notes(pitches).sigmoid()
        onsets = self.last(torch.cat([notes, self.onset(stacked)], 1)).sigmoid()
        return torch.cat([notes, onsets], 1)


NETWORKS: Mapping[str, Network] = {
    "muzero": Network(MuZero, inputs(frames=normal(1, 12, 48, 48), plan=below(18, 1, 5))),
    "qmix": Network(Mixing, inputs(seen=normal(1, 8, 8, 80), state=normal(1, 8, 120))),
    "rt1": Network(RobotTokens, inputs(frames=normal(1, 6, 3, 96, 96), text=normal(1, 512))),
    "genie": Network(Worlds, inputs(ids=below(1024, 1, 8, 64), actions=below(8, 1, 8))),
    "stgcn": Network(Joints, inputs(x=normal(1, 3, 64, 25))),
    "moba": Network(lambda: Residual(BlockChoice(), 256), inputs(x=normal(1, 256, 256))),
    "based": Network(lambda: Residual(Taylor(), 256), inputs(x=normal(1, 256, 256))),
    "softcap": Network(
        lambda: nn.Sequential(Residual(Capped(window=64), 512), Residual(Capped(), 512)), inputs(x=normal(1, 256, 512))
    ),
    "ttt": Network(lambda: Residual(Unrolled(), 256), inputs(x=normal(1, 256, 256))),
    "megabyte": Network(Bytes, inputs(ids=below(256, 1, 512))),
    "splade": Network(Splade, inputs(ids=below(30522, 1, 64))),
    "hstu": Network(Transducing, inputs(ids=below(20000, 1, 200), times=lambda n: 1e3 * torch.rand(n, 200))),
    "expertchoice": Network(lambda: Residual(ExpertChoice(), 256), inputs(x=normal(1, 128, 256))),
    "tacotron": Network(Spectrograms, inputs(memory=normal(1, 80, 256))),
    "openunmix": Network(Stems, inputs(spectra=lambda n: torch.rand(n, 64, 1026))),
    "basicpitch": Network(Harmonics, inputs(spectrum=normal(1, 86, 380))),
}
