"""Tables, wave functions, ensembles of trees, recommenders and decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from .languages import Attention
from .mixers import Residual
from .parts import Network, below, inputs, normal, perceptron

__all__ = ["NETWORKS"]


class WaveFunction(nn.Module):
    """FermiNet: streams of 8 electrons and of their pairs, and 4 determinants of orbitals with decaying envelopes."""

    atoms: Tensor

    def __init__(self, electrons: int = 8, width: int = 64, count: int = 4) -> None:
        super().__init__()
        self.electrons, self.count, pair = electrons, count, 16
        self.register_buffer("atoms", torch.randn(3, 3))
        sizes = [(12, 4), (width, pair), (width, pair)]
        self.single = nn.ModuleList(nn.Linear(3 * a + 2 * b, width) for a, b in sizes)
        self.pairs = nn.ModuleList(nn.Linear(b, pair) for _, b in sizes[:-1])
        self.orbitals = nn.Linear(width, count * electrons)
        self.decay, self.share = (
            nn.Parameter(torch.rand(3, count * electrons)),
            nn.Parameter(torch.rand(3, count * electrons)),
        )

    def forward(self, places: Tensor) -> Any:
        half = self.electrons // 2
        away = places[:, :, None] - self.atoms
        distance = away.square().sum(-1, keepdim=True).sqrt()
        one = torch.cat([away, distance], -1).flatten(2)
        gap = places[:, :, None] - places[:, None]
        two = torch.cat([gap, (gap.square().sum(-1, keepdim=True) + 1e-6).sqrt()], -1)
        for n, single in enumerate(self.single):
            means = [v.mean(1, keepdim=True).expand_as(one) for v in one.split(half, 1)]
            near = [v.mean(2) for v in two.split(half, 2)]
            new = single(torch.cat([one, *means, *near], -1)).tanh()
            one = new if n == 0 else one + new
            if n < len(self.pairs):
                fresh = self.pairs[n](two).tanh()
                two = fresh if n == 0 else two + fresh
        envelope = (self.share * (-distance * self.decay.abs()).exp()).sum(2)
        matrix = (self.orbitals(one) * envelope).unflatten(-1, (self.count, self.electrons)).transpose(1, 2)
        return torch.linalg.det(matrix.float()).sum(-1)


class Trees(nn.Module):
    """200 regression trees of depth 6 as tables: the nodes that each row visits are gathered step by step."""

    feature: Tensor
    limit: Tensor
    leaf: Tensor

    def __init__(self, trees: int = 200, depth: int = 6, features: int = 32) -> None:
        super().__init__()
        self.depth, nodes = depth, 2**depth - 1
        self.register_buffer("feature", torch.randint(0, features, (trees * nodes,)))
        self.register_buffer("limit", torch.randn(trees * nodes))
        self.register_buffer("leaf", torch.randn(trees * (nodes + 1)))
        self.register_buffer("start", torch.arange(trees) * nodes, persistent=False)

    def forward(self, rows: Tensor) -> Any:
        start: Tensor = self.start  # type: ignore[assignment]
        node = torch.zeros(rows.shape[0], start.shape[0], device=rows.device, dtype=torch.int64)
        for _ in range(self.depth):
            value = rows.gather(1, self.feature[node + start])
            node = 2 * node + 1 + (value > self.limit[node + start]).long()
        nodes = 2**self.depth - 1
        return self.leaf[node - nodes + start // nodes * (nodes + 1)].sum(1)


class Ensemble(nn.Module):
    """TabM: 32 models that share weights and differ in scales of inputs and results, over periodic embeddings of numbers."""

    def __init__(self, features: int = 24, width: int = 256, models: int = 32) -> None:
        super().__init__()
        self.speeds = nn.Parameter(torch.randn(features, 16))
        self.embed = nn.Parameter(torch.randn(features, 32, 16) / 6)
        sizes = [(features * 16, width), (width, width)]
        self.layers = nn.ModuleList(nn.Linear(a, b, bias=False) for a, b in sizes)
        self.before = nn.ParameterList(nn.Parameter(torch.randn(models, a).sign()) for a, _ in sizes)
        self.after = nn.ParameterList(nn.Parameter(torch.randn(models, b)) for _, b in sizes)
        self.bias = nn.ParameterList(nn.Parameter(torch.randn(models, b)) for _, b in sizes)
        self.out, self.shift = nn.Parameter(torch.randn(models, width, 10) / 16), nn.Parameter(torch.randn(models, 10))

    def forward(self, rows: Tensor) -> Any:
        turns = 6.2832 * self.speeds * rows[..., None]
        waves = torch.cat([turns.cos(), turns.sin()], -1)
        x = torch.einsum("bfi,fio->bfo", waves, self.embed).relu().flatten(1)[:, None]
        for layer, before, after, bias in zip(self.layers, self.before, self.after, self.bias, strict=True):
            x = (layer(x * before) * after + bias).relu()
        return (torch.einsum("bmi,mio->bmo", x, self.out) + self.shift).softmax(-1).mean(1)


class Wukong(nn.Module):
    """Blocks of factorization machines with linear compression, over embeddings of 26 categories and of numbers."""

    def __init__(self, width: int = 64, tokens: int = 27, layers: int = 3) -> None:
        super().__init__()
        self.table, self.numbers = nn.Embedding(26 * 1000, width), perceptron(13, 128, width)
        self.low = nn.ParameterList(nn.Parameter(torch.randn(tokens, 8) / 5) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(tokens * 8) for _ in range(layers))
        self.mlp = nn.ModuleList(perceptron(tokens * 8, 256, 16 * width) for _ in range(layers))
        self.compress = nn.ParameterList(nn.Parameter(torch.randn(tokens - 16, tokens) / 5) for _ in range(layers))
        self.last, self.head = (
            nn.ModuleList(nn.LayerNorm(width) for _ in range(layers)),
            perceptron(tokens * width, 256, 1),
        )

    def forward(self, ids: Tensor, numbers: Tensor) -> Any:
        offsets = torch.arange(26, device=ids.device) * 1000
        x = torch.cat([self.table(ids + offsets), self.numbers(numbers)[:, None]], 1)
        for low, norm, mlp, compress, last in zip(
            self.low, self.norms, self.mlp, self.compress, self.last, strict=True
        ):
            pairs = (x @ (x.transpose(1, 2) @ low)).flatten(1)
            made = mlp(norm(pairs)).unflatten(-1, (16, -1))
            x = last(torch.cat([made, compress @ x], 1) + x)
        return self.head(x.flatten(1)).sigmoid()


class Decisions(nn.Module):
    """A decision transformer: returns, states and actions interleaved with embeddings of time, and the next action."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.time = nn.Embedding(1000, width)
        self.ins = nn.ModuleList(nn.Linear(n, width) for n in (1, 17, 6))
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, 6)
        self.layers = nn.ModuleList(Residual(Attention(width, 4), width) for _ in range(3))

    def forward(self, rewards: Tensor, states: Tensor, actions: Tensor, steps: Tensor) -> Any:
        time = self.time(steps)
        x = torch.stack([into(v) + time for into, v in zip(self.ins, (rewards, states, actions), strict=True)], 2)
        x = self.norm(x.flatten(1, 2))
        for layer in self.layers:
            x = layer(x)
        return self.out(x.unflatten(1, (-1, 3))[:, :, 1]).tanh()


NETWORKS: Mapping[str, Network] = {
    "ferminet": Network(WaveFunction, inputs(places=normal(128, 8, 3))),
    "trees": Network(Trees, inputs(rows=normal(256, 32))),
    "tabm": Network(Ensemble, inputs(rows=normal(64, 24))),
    "wukong": Network(Wukong, inputs(ids=below(1000, 64, 26), numbers=normal(64, 13))),
    "decisions": Network(
        Decisions,
        inputs(rewards=normal(1, 20, 1), states=normal(1, 20, 17), actions=normal(1, 20, 6), steps=below(1000, 1, 20)),
    ),
}
