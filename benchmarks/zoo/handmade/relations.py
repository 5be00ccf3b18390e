"""Relations: gated recurrences and steps of language models, recommenders, graphs, molecules, series and pitch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .languages import Attention
from .mixers import GatedUnit, Residual, RootNorm
from .parts import Network, below, heads, inputs, joined, normal, normed, perceptron, uniform

__all__ = ["NETWORKS"]


class GatedLinear(nn.Module):
    """Gated linear attention: states that decay by a gate for each feature, in chunks of 32."""

    def __init__(self, width: int = 256, count: int = 4, chunk: int = 32) -> None:
        super().__init__()
        self.count, self.chunk = count, chunk
        self.project, self.out = nn.Linear(width, 4 * width, bias=False), nn.Linear(width, width, bias=False)
        self.low, self.high = nn.Linear(width, 16, bias=False), nn.Linear(16, width)
        self.norm = RootNorm(width // count)

    def forward(self, x: Tensor) -> Any:
        query, key, value, gate = self.project(x).chunk(4, -1)
        decay = F.logsigmoid(self.high(self.low(x))) / 16
        query, key, value, decay = (
            heads(t, self.count).unflatten(2, (-1, self.chunk)) for t in (query, key, value, decay)
        )
        total = decay.cumsum(3)
        end = total[:, :, :, -1:]
        query, inner = query * total.exp(), key * (-total).exp()
        scores = (query @ inner.transpose(-1, -2)).tril()
        added = (key * (end - total).exp()).transpose(-1, -2) @ value
        state, results = torch.zeros_like(added[:, :, 0]), []
        for k in range(added.shape[2]):
            results.append(scores[:, :, k] @ value[:, :, k] + query[:, :, k] @ state)
            state = state * end[:, :, k].exp().transpose(-1, -2) + added[:, :, k]
        return self.out(joined(self.norm(torch.cat(results, 2))) * F.silu(gate))


class StateStep(nn.Module):
    """One token through two layers of RWKV 7: shifted tokens, a state of 64 x 64 for each head that decays and is corrected."""

    def __init__(self, width: int = 512, count: int = 8) -> None:
        super().__init__()
        self.count, size = count, width // count
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.shifts = nn.ParameterList(torch.rand(6, width) for _ in range(2))
        self.project = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(8))
        self.rates = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 32, bias=False), nn.Tanh(), nn.Linear(32, width)) for _ in range(6)
        )
        self.norm = nn.ModuleList(nn.GroupNorm(count, width, eps=64e-5) for _ in range(2))
        self.bonus = nn.Parameter(0.1 * torch.randn(2, count, size))
        self.units = nn.ModuleList(
            nn.ModuleList([nn.Linear(width, 4 * width, bias=False), nn.Linear(4 * width, width, bias=False)])
            for _ in range(2)
        )
        self.mixes = nn.Parameter(torch.rand(2, width))

    def forward(self, x: Tensor, last: Tensor, before: Tensor, state: Tensor) -> Any:
        shape, kept = (x.shape[0], self.count, -1), []
        for k in range(2):
            now = self.norms[2 * k](x)
            mixed = [now + (last[k] - now) * shift for shift in self.shifts[k]]
            receive, key, value, out = self.project[4 * k : 4 * k + 4]
            decay, rate, gate = self.rates[3 * k : 3 * k + 3]
            r, keys, v = receive(mixed[0]).view(shape), key(mixed[1]).view(shape), value(mixed[2]).view(shape)
            w = torch.exp(-0.606531 * decay(mixed[3]).sigmoid()).view(shape)
            a = rate(mixed[4]).sigmoid().view(shape)
            unit = F.normalize(keys, dim=-1)
            keys = keys * (0.5 + 0.5 * a)
            held = state[k] * w[:, :, None] - (state[k] @ unit[..., None]) @ (unit * a)[:, :, None]
            held = held + v[..., None] @ keys[:, :, None]
            kept.append(held)
            y = self.norm[k]((held @ r[..., None]).flatten(1))
            y = y + ((r * keys * self.bonus[k]).sum(-1, keepdim=True) * v).flatten(1)
            x = x + out(y * gate(mixed[5]))
            now = self.norms[2 * k + 1](x)
            x = x + self.units[k][1](self.units[k][0](now + (before[k] - now) * self.mixes[k]).relu().square())
        return x, torch.stack(kept)


class ShortConvolutions(nn.Module):
    """LFM2: gated causal convolutions of three tokens, with attention to groups of heads in every third layer."""

    def __init__(self, width: int = 384) -> None:
        super().__init__()
        self.mixes = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(4))
        self.near = nn.ModuleList(nn.Conv1d(width, width, 3, groups=width, bias=False) for _ in range(4))
        self.outs = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(4))
        self.attend = nn.ModuleList(Attention(width, 6) for _ in range(2))
        self.units = nn.ModuleList(GatedUnit(width, 2 * width) for _ in range(6))
        self.norms = nn.ModuleList(RootNorm(width) for _ in range(12))

    def forward(self, x: Tensor) -> Any:
        short = iter(zip(self.mixes, self.near, self.outs, strict=True))
        attend = iter(self.attend)
        for k, unit in enumerate(self.units):
            y = self.norms[2 * k](x)
            if k % 3 == 2:
                x = x + next(attend)(y)
            else:
                mix, near, out = next(short)
                before, after, value = mix(y).transpose(1, 2).chunk(3, 1)
                x = x + out((after * near(F.pad(before * value, (2, 0)))).transpose(1, 2))
            x = x + unit(self.norms[2 * k + 1](x))
        return x


class Slopes(nn.Module):
    """A parallel block (GPT-J): attention with biases linear in the distance (ALiBi) beside a perceptron of squared ReLUs."""

    def __init__(self, width: int = 512, count: int = 8) -> None:
        super().__init__()
        self.count, self.project = count, nn.Linear(width, 3 * width)
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.slopes = nn.Buffer(2.0 ** -torch.arange(1, count + 1))

    def forward(self, x: Tensor) -> Any:
        y = self.norm(x)
        query, key, value = (heads(part, self.count) for part in self.project(y).chunk(3, -1))
        at = torch.arange(x.shape[1], device=x.device)
        bias = self.slopes[:, None, None] * (at - at[:, None]).to(x.dtype)
        bias = bias.masked_fill(at > at[:, None], -6e4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + bias
        return x + self.out(joined(scores.softmax(-1) @ value)) + self.down(self.up(y).relu().square())


class Guesses(nn.Module):
    """Medusa: a tree of 26 guessed tokens checked against a cache of 512, then four heads that guess the following."""

    def __init__(self, width: int = 512, count: int = 8, words: int = 8192, guesses: int = 26) -> None:
        super().__init__()
        self.count, self.words = count, nn.Embedding(words, width)
        self.project = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(2))
        self.units = nn.ModuleList(GatedUnit(width, 2 * width) for _ in range(2))
        self.norms = nn.ModuleList(RootNorm(width) for _ in range(5))
        self.guess = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.head = nn.Linear(width, words, bias=False)
        parent = [(k - 1) // 3 for k in range(guesses)]
        tree = torch.eye(guesses, dtype=torch.bool)
        for k in range(1, guesses):
            tree[k] |= tree[parent[k]]
        self.tree = nn.Buffer(torch.cat([torch.ones(guesses, 512, dtype=torch.bool), tree], 1))

    def forward(self, ids: Tensor, keys: Tensor, values: Tensor) -> Any:
        x = self.words(ids)
        for k, (project, out, unit) in enumerate(zip(self.project, self.outs, self.units, strict=True)):
            query, key, value = (heads(t, self.count) for t in project(self.norms[2 * k](x)).chunk(3, -1))
            key, value = torch.cat([keys[k], key], 2), torch.cat([values[k], value], 2)
            x = x + out(joined(F.scaled_dot_product_attention(query, key, value, attn_mask=self.tree)))
            x = x + unit(self.norms[2 * k + 1](x))
        x = self.norms[4](x)
        best = self.head(x).argmax(-1)
        hit = (best[:, (torch.arange(25, device=x.device)) // 3] == ids[:, 1:]).to(x.dtype)
        last = x[:, -1] + hit.sum(-1, keepdim=True) * x[:, 0]
        return torch.stack([self.head(last + F.silu(g(last))) for g in self.guess], 1)


class Pitch(nn.Module):
    """CREPE: 1,024 samples of each frame through strided convolutions with pooling, and 360 pitches."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((1, 128, 512, 4), (128, 32, 64, 1), (32, 32, 64, 1), (32, 32, 64, 1), (32, 64, 64, 1))
        self.layers = nn.Sequential()
        for a, b, kernel, stride in sizes:
            pad = (kernel - stride) // 2
            self.layers += nn.Sequential(
                nn.ZeroPad1d((pad, kernel - stride - pad)), nn.Conv1d(a, b, kernel, stride), nn.ReLU(), nn.BatchNorm1d(b),
                nn.MaxPool1d(2),
            )  # fmt: skip
        self.head = nn.Linear(64 * 8, 360)

    def forward(self, frames: Tensor) -> Any:
        frames = (frames - frames.mean(-1, keepdim=True)) / frames.std(-1, keepdim=True).clamp_min(1e-4)
        return self.head(self.layers(frames[:, None]).transpose(1, 2).flatten(1)).sigmoid()


class Interests(nn.Module):
    """DIEN: a history through a GRU, then through one whose updates are weighted by the attention to the item."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.items, self.first = nn.Embedding(10000, width), nn.GRU(width, width, batch_first=True)
        self.score = perceptron(4 * width, 80, 1, activation=nn.Sigmoid)
        self.gates, self.new = nn.Linear(2 * width, 2 * width), nn.Linear(2 * width, width)
        self.last = perceptron(2 * width, 80, 40, 1, activation=nn.PReLU)

    def forward(self, item: Tensor, history: Tensor) -> Any:
        target = self.items(item)
        states = self.first(self.items(history))[0]
        wide = target[:, None].expand_as(states)
        share = self.score(torch.cat([wide, states, wide - states, wide * states], -1)).softmax(1)
        held = torch.zeros_like(target)
        for k in range(states.shape[1]):
            reset, update = self.gates(torch.cat([states[:, k], held], -1)).sigmoid().chunk(2, -1)
            update = update * share[:, k]
            new = self.new(torch.cat([states[:, k], held * reset], -1)).tanh()
            held = (1 - update) * held + update * new
        return self.last(torch.cat([target, held], -1)).sigmoid()


class Tasks(nn.Module):
    """MMoE: eight experts shared by four tasks, each of which weights them by its own gate."""

    def __init__(self, width: int = 256, experts: int = 8, tasks: int = 4) -> None:
        super().__init__()
        self.tables, self.tasks, self.experts = nn.Embedding(5000, 16), tasks, experts
        self.up = nn.Parameter((20 * 16) ** -0.5 * torch.randn(experts, 20 * 16, width))
        self.down = nn.Parameter(width**-0.5 * torch.randn(experts, width, 64))
        self.gates = nn.Linear(20 * 16, tasks * experts)
        self.towers = nn.ModuleList(perceptron(64, 32, 1) for _ in range(tasks))

    def forward(self, ids: Tensor) -> Any:
        x = self.tables(ids).flatten(1)
        y = F.relu(torch.einsum("bi,eij->bej", x, self.up))
        y = F.relu(torch.einsum("bej,ejk->bek", y, self.down))
        share = self.gates(x).unflatten(-1, (self.tasks, self.experts)).softmax(-1)
        mixed = share @ y
        return torch.cat([tower(mixed[:, k]) for k, tower in enumerate(self.towers)], -1).sigmoid()


class Relational(nn.Module):
    """R-GCN: 4,096 edges of eight kinds, whose matrices are mixed from four, with sums divided by counts."""

    def __init__(self, width: int = 64, kinds: int = 8, bases: int = 4) -> None:
        super().__init__()
        self.kinds = kinds
        self.bases = nn.ParameterList(0.1 * torch.randn(bases, width, width) for _ in range(2))
        self.shares = nn.ParameterList(torch.randn(kinds, bases) for _ in range(2))
        self.own = nn.ModuleList(nn.Linear(width, width) for _ in range(2))

    def forward(self, nodes: Tensor, source: Tensor, target: Tensor, kind: Tensor) -> Any:
        count, width = nodes.shape
        place = target * self.kinds + kind
        total = torch.zeros(count * self.kinds, 1, device=nodes.device, dtype=nodes.dtype)
        total = total.index_add(0, place, torch.ones_like(place, dtype=nodes.dtype)[:, None]).clamp_min(1)
        for bases, shares, own in zip(self.bases, self.shares, self.own, strict=True):
            sums = nodes.new_zeros(count * self.kinds, width).index_add(0, place, nodes[source]) / total
            matrices = torch.einsum("kb,bij->kij", shares, bases)
            mixed = torch.einsum("nki,kij->nj", sums.view(count, self.kinds, width), matrices)
            nodes = F.relu(own(nodes) + mixed)
        return nodes


class Pooled(nn.Module):
    """DiffPool: dense graphs pooled twice by assignments that a graph convolution predicts."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.embed = nn.ModuleList(nn.Linear(n, width) for n in (32, width, width))
        self.assign = nn.ModuleList([nn.Linear(32, 25), nn.Linear(width, 6)])
        self.head = nn.Linear(2 * width, 10)

    def forward(self, x: Tensor, adjacent: Tensor) -> Any:
        found = []
        for k in range(3):
            sums = adjacent @ x / adjacent.sum(-1, keepdim=True).clamp_min(1)
            y = F.normalize(F.relu(self.embed[k](sums + x)), dim=-1)
            if k == 2:
                found.append(y.amax(1))
                break
            share = self.assign[k](sums).softmax(-1)
            x = share.transpose(1, 2) @ y
            adjacent = share.transpose(1, 2) @ adjacent @ share
            found.append(y.amax(1)) if k == 0 else None
        return self.head(torch.cat(found, -1))


class Atoms(nn.Module):
    """ANI: radial and angular symmetry functions of 24 atoms, and a perceptron for each of four elements."""

    def __init__(self, atoms: int = 24) -> None:
        super().__init__()
        self.radial, self.shifts = nn.Buffer(torch.linspace(0.8, 5.0, 16)), nn.Buffer(torch.linspace(0.8, 3.2, 4))
        self.turns = nn.Buffer(torch.linspace(0.2, 2.9, 8))
        self.first = nn.Parameter(0.05 * torch.randn(4, 64 + 32 * 10, 128))
        self.second, self.third = nn.Parameter(0.1 * torch.randn(4, 128, 64)), nn.Parameter(0.1 * torch.randn(4, 64, 1))
        left, right = torch.triu_indices(4, 4).unbind(0)
        pair = torch.zeros(4, 4, dtype=torch.long)
        pair[left, right] = pair[right, left] = torch.arange(10)
        self.pair = nn.Buffer(F.one_hot(pair, 10).float())
        self.outside = nn.Buffer(1 - torch.eye(atoms))

    def forward(self, places: Tensor, kinds: Tensor) -> Any:
        one = F.one_hot(kinds, 4).to(places.dtype)
        apart = places[:, None] - places[:, :, None]
        far = (apart.square().sum(-1) + 1e-6).sqrt()
        near = (0.5 * (torch.pi * far.clamp_max(5.2) / 5.2).cos() + 0.5) * self.outside
        bumps = torch.exp(-16.0 * (far[..., None] - self.radial).square()) * near[..., None]
        radial = torch.einsum("bijr,bjs->bisr", bumps, one).flatten(2)
        turn = torch.einsum("bijx,bikx->bijk", apart, apart) / (far[..., None] * far[:, :, None])
        turn = torch.acos(0.95 * turn)
        both = near[..., None] * near[:, :, None] * self.outside
        middle = (far[..., None] + far[:, :, None]) / 2
        around = ((1 + (turn[..., None] - self.turns).cos()) / 2) ** 8
        length = torch.exp(-8.0 * (middle[..., None] - self.shifts).square())
        terms = torch.einsum("bijkt,bijkl,bijk->bijktl", around, length, both).flatten(4)
        pairs = torch.einsum("bjs,bkt,stp->bjkp", one, one, self.pair)
        angular = torch.einsum("bijkf,bjkp->bipf", terms, pairs).flatten(2)
        x = torch.cat([radial, angular], -1)
        x = F.celu(torch.einsum("bif,sfh->bish", x, self.first), 0.1)
        x = F.celu(torch.einsum("bish,shk->bisk", x, self.second), 0.1)
        return (torch.einsum("bisk,sko->biso", x, self.third)[..., 0] * one).sum((1, 2))


class Equivariant(nn.Module):
    """TorchMD-Net: attention of atoms within a cutoff, weighted by radial bases, that also updates vectors."""

    def __init__(self, width: int = 128, count: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.count, self.kinds = count, nn.Embedding(100, width)
        self.bases = nn.Buffer(torch.linspace(0.0, 1.0, 32))
        self.project = nn.ModuleList(nn.Linear(width, 5 * width) for _ in range(layers))
        self.far = nn.ModuleList(nn.Linear(32, 4 * width) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Linear(width, 3 * width, bias=False) for _ in range(layers))
        self.outs = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers))
        self.head = perceptron(width, width // 2, 1, activation=nn.SiLU)

    def forward(self, places: Tensor, kinds: Tensor) -> Any:
        x = self.kinds(kinds)
        vectors = x.new_zeros(*x.shape[:2], 3, x.shape[-1])
        apart = places[:, :, None] - places[:, None]
        far = (apart.square().sum(-1) + 1e-6).sqrt()
        near = 0.5 * ((far.clamp_max(5) * (torch.pi / 5)).cos() + 1)
        bumps = near[..., None] * torch.exp(-64.0 * (torch.exp(-far)[..., None] - self.bases).square())
        turn = apart / far[..., None]
        for project, rates, mix, out, norm in zip(self.project, self.far, self.mix, self.outs, self.norms, strict=True):
            query, key, value, left, right = project(norm(x)).unflatten(-1, (5, self.count, -1)).unbind(2)
            dk, dv, d1, d2 = F.silu(rates(bumps)).unflatten(-1, (4, self.count, -1)).unbind(3)
            share = F.silu((query[:, :, None] * key[:, None] * dk).sum(-1)) * near[..., None]
            sums = (share[..., None] * value[:, None] * dv).sum(2).flatten(2)
            along = torch.einsum("bijh,bijx->bixh", (left[:, None] * d1).flatten(3), turn)
            moved = torch.einsum("bijh,bjxh->bixh", (right[:, None] * d2).flatten(3), vectors)
            first, second, third = mix(vectors).chunk(3, -1)
            a, b, c = out(sums).chunk(3, -1)
            x = x + a + b * (first * second).sum(2)
            vectors = vectors + c[:, :, None] * third + along + moved
        return self.head(x).sum(1)


class GatedResidual(nn.Module):
    """A perceptron with ELU, a GLU, a skip and a norm; optionally shifted by a context."""

    def __init__(self, size: int, width: int, result: int, context: int = 0) -> None:
        super().__init__()
        self.first, self.second, self.gate = (
            nn.Linear(size, width),
            nn.Linear(width, width),
            nn.Linear(width, 2 * result),
        )
        self.context = nn.Linear(context, width, bias=False) if context else None
        self.skip, self.norm = nn.Linear(size, result) if size != result else nn.Identity(), nn.LayerNorm(result)

    def forward(self, x: Tensor, context: Tensor | None = None) -> Any:
        y = self.first(x)
        if self.context is not None and context is not None:
            y = y + self.context(context)
        return self.norm(self.skip(x) + F.glu(self.gate(self.second(F.elu(y))), -1))


class Horizons(nn.Module):
    """Temporal fusion transformer: variables selected for each step, an LSTM, and attention with shared values."""

    def __init__(self, width: int = 64, known: int = 4, past: int = 6) -> None:
        super().__init__()
        self.counts = {"past": past + known, "known": known}
        self.embed = nn.ParameterDict({k: torch.randn(2, n, width) for k, n in self.counts.items()})
        self.pick = nn.ModuleDict({k: GatedResidual(n * width, width, n, width) for k, n in self.counts.items()})
        self.each = nn.ModuleDict(
            {k: nn.ModuleList(GatedResidual(width, width, width) for _ in range(n)) for k, n in self.counts.items()}
        )
        self.static = nn.Embedding(50, width)
        self.encode, self.decode = (nn.LSTM(width, width, batch_first=True) for _ in range(2))
        self.enrich, self.after = GatedResidual(width, width, width, width), GatedResidual(width, width, width)
        self.query, self.key = nn.Linear(width, width), nn.Linear(width, width)
        self.value, self.out, self.head = nn.Linear(width, 16), nn.Linear(16, width), nn.Linear(width, 3)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))

    def select(self, kind: str, x: Tensor, context: Tensor) -> Tensor:
        scale, shift = self.embed[kind]
        y = x[..., None] * scale + shift  # batch, step, variable, width
        share = self.pick[kind](y.flatten(2), context[:, None]).softmax(-1)
        parts = torch.stack([each(y[:, :, k]) for k, each in enumerate(self.each[kind])], -1)
        return (parts * share[:, :, None]).sum(-1)

    def forward(self, past: Tensor, known: Tensor, site: Tensor) -> Any:
        context = self.static(site)
        before, after = self.select("past", past, context), self.select("known", known, context)
        first, state = self.encode(before)
        held = (1, -1, first.shape[-1])
        steps, inputs = (
            torch.cat([first, self.decode(after, (state[0].reshape(held), state[1].reshape(held)))[0]], 1),
            torch.cat([before, after], 1),
        )
        x = self.enrich(self.norms[0](steps + inputs), context[:, None])
        length = x.shape[1]
        query, key, value = heads(self.query(x), 4), heads(self.key(x), 4), self.value(x)
        mask = torch.full((length, length), -1e4, device=x.device, dtype=x.dtype).triu(1)
        share = (query @ key.transpose(-1, -2) / 4 + mask).softmax(-1)
        y = self.norms[1](x + self.out((share @ value[:, None]).mean(1)))
        return self.head(self.after(y)[:, -known.shape[1] :])


class TwoStages(nn.Module):
    """Crossformer: segments of each series attend along time, then to all series through ten routers."""

    def __init__(self, width: int = 128, segment: int = 12, routers: int = 10, segments: int = 14) -> None:
        super().__init__()
        self.segment, self.embed = segment, nn.Linear(segment, width)
        self.routers = nn.ParameterList(0.1 * torch.randn(segments, routers, width) for _ in range(2))
        self.time = nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2))
        self.send, self.receive = (
            nn.ModuleList(nn.MultiheadAttention(width, 4, batch_first=True) for _ in range(2)) for _ in range(2)
        )
        self.units = nn.ModuleList(perceptron(width, 2 * width, width, activation=nn.GELU) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(8))
        self.head = nn.Linear(width * segments, 24)

    def forward(self, series: Tensor) -> Any:
        count = series.shape[1]
        x = self.embed(series.unflatten(-1, (-1, self.segment)))  # batch, series, segment, width
        for k, routers in enumerate(self.routers):
            y = x.flatten(0, 1)
            y = self.norms[4 * k](y + self.time[k](y, y, y, need_weights=False)[0])
            y = self.norms[4 * k + 1](y + self.units[2 * k](y))
            z = y.unflatten(0, (-1, count)).transpose(1, 2).flatten(0, 1)
            router = routers.expand(series.shape[0], -1, -1, -1).flatten(0, 1)
            held = self.send[k](router, z, z, need_weights=False)[0]
            z = self.norms[4 * k + 2](z + self.receive[k](z, held, held, need_weights=False)[0])
            z = self.norms[4 * k + 3](z + self.units[2 * k + 1](z))
            x = z.unflatten(0, (series.shape[0], -1)).transpose(1, 2)
        return self.head(x.flatten(2))


class Spectra(nn.Module):
    """PANNs: a spectrogram through pairs of convolutions with average pooling, the means and maxima of frames, and tags."""

    def __init__(self, widths: tuple[int, ...] = (64, 128, 256, 512)) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(64)
        sizes = (1, *widths)
        self.blocks = nn.ModuleList(
            nn.Sequential(normed(a, b), normed(b, b), nn.AvgPool2d(2)) for a, b in zip(sizes, widths, strict=False)
        )
        self.last, self.tags = nn.Linear(widths[-1], 512), nn.Linear(512, 527)

    def forward(self, spectrum: Tensor) -> Any:
        x = self.norm(spectrum.transpose(1, 3)).transpose(1, 3)
        for block in self.blocks:
            x = block(x)
        x = x.mean(3)
        return self.tags(F.relu(self.last(x.amax(2) + x.mean(2)))).sigmoid()


NETWORKS: Mapping[str, Network] = {
    "gla": Network(lambda: Residual(GatedLinear(), 256), inputs(x=normal(1, 256, 256))),
    "rwkvstep": Network(
        StateStep,
        inputs(
            x=normal(1, 512),
            last=lambda n: torch.randn(2, n, 512),
            before=lambda n: torch.randn(2, n, 512),
            state=lambda n: 0.1 * torch.randn(2, n, 8, 64, 64),
        ),
    ),
    "lfm2": Network(ShortConvolutions, inputs(x=normal(1, 256, 384))),
    "alibi": Network(lambda: nn.Sequential(Slopes(), Slopes()), inputs(x=normal(1, 256, 512))),
    "medusa": Network(
        Guesses,
        inputs(
            ids=below(8192, 1, 26),
            keys=lambda n: torch.randn(2, n, 8, 512, 64),
            values=lambda n: torch.randn(2, n, 8, 512, 64),
        ),
    ),
    "crepe": Network(Pitch, inputs(frames=normal(25, 1024))),
    "dien": Network(Interests, inputs(item=below(10000, 32), history=below(10000, 32, 20))),
    "mmoe": Network(Tasks, inputs(ids=below(5000, 128, 20))),
    "rgcn": Network(
        Relational,
        inputs(nodes=normal(512, 64), source=below(512, 4096), target=below(512, 4096), kind=below(8, 4096)),
    ),
    "diffpool": Network(
        Pooled, inputs(x=normal(4, 100, 32), adjacent=lambda n: (torch.rand(4 * n, 100, 100) < 0.1).float())
    ),
    "ani": Network(Atoms, inputs(places=lambda n: 4 * torch.rand(4 * n, 24, 3), kinds=below(4, 4, 24))),
    "torchmd": Network(Equivariant, inputs(places=lambda n: 6 * torch.rand(2 * n, 32, 3), kinds=below(100, 2, 32))),
    "tft": Network(Horizons, inputs(past=normal(8, 48, 10), known=normal(8, 12, 4), site=below(50, 8))),
    "crossformer": Network(TwoStages, inputs(series=normal(1, 21, 168))),
    "panns": Network(Spectra, inputs(spectrum=uniform(1, 1, 200, 64))),
}
