"""Networks that select: sorts, nearest codes, experts, neighbors, rows of tables, and sums along lines."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, below, heads, inputs, joined, normal, perceptron, uniform

__all__ = ["NETWORKS"]


class Sparsemax(nn.Module):
    """Two layers of attention whose weights are projections onto the simplex (sparsemax)."""

    counts: Tensor

    def __init__(self, width: int = 256, count: int = 8, layers: int = 2) -> None:
        super().__init__()
        self.count = count
        self.register_buffer("counts", torch.arange(1.0, 129))
        self.project = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(width, width) for _ in range(layers))

    def weights(self, scores: Tensor) -> Tensor:
        ordered = scores.sort(-1, descending=True).values
        sums = ordered.cumsum(-1)
        support = (1 + self.counts * ordered > sums).sum(-1, keepdim=True)
        return (scores - (sums.gather(-1, support - 1) - 1) / support).clamp(min=0)

    def forward(self, tokens: Tensor) -> Any:
        for project, out in zip(self.project, self.out, strict=True):
            query, key, value = (heads(part, self.count) for part in project(tokens).chunk(3, -1))
            scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1])
            tokens = tokens + out(joined(self.weights(scores) @ value))
        return tokens


class SplineFlow(nn.Module):
    """A flow of coupling layers with monotonic rational quadratic splines of eight bins."""

    def __init__(self, width: int = 32, bins: int = 8, layers: int = 4) -> None:
        super().__init__()
        self.half, self.bins = width // 2, bins
        outputs = self.half * (3 * bins - 1)
        self.layers = nn.ModuleList(perceptron(self.half, 128, 128, outputs) for _ in range(layers))

    def spline(self, x: Tensor, numbers: Tensor) -> tuple[Tensor, Tensor]:
        bins, bound = self.bins, 3.0
        widths, heights, slopes = numbers.split([bins, bins, bins - 1], -1)
        widths, heights = (1e-3 + (1 - 1e-3 * bins) * v.softmax(-1) for v in (widths, heights))
        slopes = F.pad(1e-3 + F.softplus(slopes), (1, 1), value=1.0)
        left, low = (F.pad(v.cumsum(-1), (1, 0)) * 2 * bound - bound for v in (widths, heights))
        inside = x.clamp(-bound, bound)
        at = ((inside[..., None] >= left).sum(-1, keepdim=True) - 1).clamp(0, bins - 1)
        x0, x1, y0, y1 = (v.gather(-1, at + k)[..., 0] for v in (left, low) for k in (0, 1))
        d0, d1 = (slopes.gather(-1, at + k)[..., 0] for k in (0, 1))
        slope, part = (y1 - y0) / (x1 - x0), (inside - x0) / (x1 - x0)
        rest = part * (1 - part)
        below_line = slope + (d0 + d1 - 2 * slope) * rest
        y = y0 + (y1 - y0) * (slope * part * part + d0 * rest) / below_line
        rise = slope * slope * (d1 * part * part + 2 * slope * rest + d0 * (1 - part) ** 2) / (below_line * below_line)
        outside = x.abs() > bound
        return torch.where(outside, x, y), torch.where(outside, 0.0, rise.log())

    def forward(self, x: Tensor) -> Any:
        total = x.new_zeros(x.shape[0])
        for layer in self.layers:
            kept, changed = x.chunk(2, -1)
            changed, rise = self.spline(changed, layer(kept).unflatten(-1, (self.half, -1)))
            total = total + rise.sum(-1)
            x = torch.cat([changed, kept], -1)
        return x, total


class ResidualCodes(nn.Module):
    """An encoder of sound whose frames become codes: the nearest of 1,024 in each of eight codebooks, of what is left."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        sizes = (1, 32, 64, 128, width)
        self.encoder = nn.Sequential(
            *(
                layer
                for a, b in itertools.pairwise(sizes)
                for layer in (nn.Conv1d(a, b, 8, stride=4, padding=2), nn.ELU())
            )
        )
        self.books = nn.ParameterList(torch.randn(1024, width) for _ in range(8))

    def forward(self, sound: Tensor) -> Any:
        left = self.encoder(sound).transpose(1, 2)
        total = torch.zeros_like(left)
        for book in self.books:
            distance = (book * book).sum(-1) - 2 * left @ book.t()
            nearest = F.embedding(distance.argmin(-1), book)
            total, left = total + nearest, left - nearest
        return total


class SparseAutoencoder(nn.Module):
    """A sparse autoencoder of activations: the 32 largest of 8,192 latents, scattered and decoded."""

    def __init__(self, width: int = 512, latents: int = 8192) -> None:
        super().__init__()
        self.shift, self.rise, self.fall = (
            nn.Parameter(torch.randn(width)),
            nn.Linear(width, latents),
            nn.Linear(latents, width),
        )

    def forward(self, x: Tensor) -> Any:
        latents = self.rise(x - self.shift)
        values, places = latents.topk(32, -1)
        return self.fall(torch.zeros_like(latents).scatter(-1, places, values.relu())) + self.shift


class ProductKeys(nn.Module):
    """A memory layer with product keys: 16 of 128 x 128 values for each of four heads, weighted sums of their rows."""

    def __init__(self, width: int = 256, keys: int = 128, count: int = 4) -> None:
        super().__init__()
        self.count, self.keys = count, keys
        self.query, self.norm = nn.Linear(width, count * 128), nn.LayerNorm(128)
        self.first, self.second = (nn.Parameter(torch.randn(count, keys, 64)) for _ in range(2))
        self.values = nn.Parameter(torch.randn(keys * keys, width))

    def forward(self, tokens: Tensor) -> Any:
        query = self.norm(self.query(tokens).unflatten(-1, (self.count, 128)))
        a, b = (
            torch.einsum("bthd,hkd->bthk", q, k)
            for q, k in zip(query.chunk(2, -1), (self.first, self.second), strict=True)
        )
        (left, i), (right, j) = a.topk(16, -1), b.topk(16, -1)
        best, at = (left[..., :, None] + right[..., None, :]).flatten(-2).topk(16, -1)
        places = i.gather(-1, at // 16) * self.keys + j.gather(-1, at % 16)
        rows = F.embedding(places, self.values)
        return tokens + (rows * best.softmax(-1)[..., None]).sum((2, 3))


class ManyAdapters(nn.Module):
    """Linear layers with low-rank adapters, a different one for each sample of the batch."""

    def __init__(self, width: int = 512, adapters: int = 16, rank: int = 16) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.down = nn.ParameterList(torch.randn(adapters, width, rank) / 32 for _ in range(4))
        self.up = nn.ParameterList(torch.randn(adapters, rank, width) / 32 for _ in range(4))

    def forward(self, tokens: Tensor, adapter: Tensor) -> Any:
        for layer, down, up in zip(self.layers, self.down, self.up, strict=True):
            tokens = F.silu(layer(tokens) + tokens @ down[adapter] @ up[adapter])
        return tokens


class Interest(nn.Module):
    """A deep interest network: each of 100 past items is compared with the candidate by an MLP."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.items, self.scores = nn.Embedding(20000, width), perceptron(4 * width, 80, 40, 1, activation=nn.Sigmoid)
        self.head = perceptron(3 * width, 200, 80, 1, activation=nn.PReLU)

    def forward(self, history: Tensor, candidate: Tensor) -> Any:
        past, item = self.items(history), self.items(candidate)
        other = item[:, None].expand_as(past)
        scores = self.scores(torch.cat([other, past, other - past, other * past], -1))
        weights = torch.where((history > 0)[..., None], scores, -1e4).softmax(1)
        pooled = (weights * past).sum(1)
        return self.head(torch.cat([pooled, item, pooled * item], -1)).sigmoid()


class CrossFields(nn.Module):
    """xDeepFM: outer products of 26 fields with those of the layer before, compressed, and a deep part."""

    def __init__(self, fields: int = 26, width: int = 16) -> None:
        super().__init__()
        self.table = nn.Embedding(10000, width)
        sizes = (fields, 64, 64, 64)
        self.layers = nn.ModuleList(nn.Conv1d(fields * a, b, 1) for a, b in itertools.pairwise(sizes))
        self.deep, self.head = perceptron(fields * width, 256, 128, 1), nn.Linear(192, 1)

    def forward(self, ids: Tensor) -> Any:
        fields = self.table(ids)
        hidden, sums = fields, []
        for layer in self.layers:
            hidden = layer((fields[:, :, None] * hidden[:, None]).flatten(1, 2)).relu()
            sums.append(hidden.sum(-1))
        return (self.head(torch.cat(sums, 1)) + self.deep(fields.flatten(1))).sigmoid()


class Gates(nn.Module):
    """PLE: experts of each of three tasks and shared ones, mixed by gates of the task, in two levels."""

    def __init__(self, width: int = 256, tasks: int = 3) -> None:
        super().__init__()
        self.levels = nn.ModuleList(
            nn.ModuleList(nn.ModuleList(perceptron(width, 128, width) for _ in range(3)) for _ in range(tasks + 1))
            for _ in range(2)
        )
        self.gates = nn.ModuleList(nn.ModuleList(nn.Linear(width, 6) for _ in range(tasks)) for _ in range(2))
        self.shared = nn.Linear(width, 12)
        self.heads = nn.ModuleList(perceptron(width, 64, 1) for _ in range(tasks))

    def forward(self, x: Tensor) -> Any:
        hidden = [x] * (len(self.heads) + 1)
        for number, (level, gates) in enumerate(zip(self.levels, self.gates, strict=True)):
            experts = [[expert(h) for expert in group] for group, h in zip(level, hidden, strict=True)]
            mixed = [
                (gate(h).softmax(-1)[..., None] * torch.stack([*own, *experts[-1]], 1)).sum(1)
                for gate, h, own in zip(gates, hidden, experts, strict=False)
            ]
            if number == 0:
                every = torch.stack([e for group in experts for e in group], 1)
                mixed.append((self.shared(hidden[-1]).softmax(-1)[..., None] * every).sum(1))
            hidden = mixed
        return torch.cat([head(h) for head, h in zip(self.heads, hidden, strict=False)], -1).sigmoid()


class Triplets(nn.Module):
    """DimeNet's interactions: messages of edges, weighted by radii and by angles between pairs of edges, summed by receiver."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.kinds, self.edges = nn.Embedding(20, width), nn.Linear(2 * width + 6, width)
        self.radial, self.angular = nn.Linear(6, width), nn.Linear(42, 8)
        self.mix = nn.Parameter(torch.randn(8, width, width) / 64)
        self.own, self.other = nn.Linear(width, width), nn.Linear(width, width)
        self.out, self.head = nn.Linear(6, width), perceptron(width, width, 1, activation=nn.SiLU)

    def forward(
        self, kinds: Tensor, send: Tensor, receive: Tensor, first: Tensor, second: Tensor, places: Tensor
    ) -> Any:
        distance = (places[send] - places[receive]).norm(dim=-1, keepdim=True) + 0.1
        waves = torch.sin(torch.arange(1, 7, device=distance.device) * distance) / distance
        to, by = places[receive[first]] - places[send[first]], places[receive[second]] - places[send[second]]
        angle = torch.atan2(torch.linalg.cross(to, by).norm(dim=-1), (to * by).sum(-1))
        angles = (
            waves[first][:, :, None] * torch.cos(torch.arange(7, device=angle.device) * angle[:, None])[:, None]
        ).flatten(1)
        nodes = self.kinds(kinds)
        message = F.silu(self.edges(torch.cat([nodes[send], nodes[receive], waves], -1)))
        for _ in range(2):
            other = (F.silu(self.other(message)) * self.radial(waves))[first]
            turned = torch.einsum("wj,wl,jil->wi", self.angular(angles), other, self.mix)
            message = message + F.silu(self.own(message)) + torch.zeros_like(message).index_add(0, second, turned)
        return self.head(torch.zeros_like(nodes).index_add(0, receive, message * self.out(waves)))


class KernelPoints(nn.Module):
    """KPConv: 16 neighbors of each point weighted by their distances to 15 points of the kernel, then a product."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.points = nn.Parameter(torch.rand(15, 3) - 0.5)
        sizes = (8, width, 2 * width)
        self.weights = nn.ParameterList(torch.randn(15, a, b) / 10 for a, b in itertools.pairwise(sizes))
        self.rise = nn.Linear(3, 8)

    def forward(self, cloud: Tensor) -> Any:
        square = (cloud[:, :, None] - cloud[:, None]).square().sum(-1)
        near = square.topk(16, largest=False).indices
        rows = torch.arange(cloud.shape[0], device=cloud.device)[:, None, None]
        offsets = cloud[rows, near] - cloud[:, :, None]
        influence = (1 - (offsets[..., None, :] - self.points).norm(dim=-1) / 0.5).clamp(min=0)
        values = self.rise(cloud)
        for weight in self.weights:
            gathered = influence.transpose(-1, -2) @ values[rows, near]
            values = F.leaky_relu(torch.einsum("bnkc,kcd->bnd", gathered, weight), 0.1)
        return values


class Radiance(nn.Module):
    """NeRF: 64 samples on each of 256 rays, encoded by sines, and colors summed by how much light passes before them."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.trunk, self.density = perceptron(63, width, width, width, width), nn.Linear(width, 1)
        self.color = perceptron(width + 27, 64, 3)

    def encoded(self, x: Tensor, octaves: int) -> Tensor:
        turns = (x[..., None] * 2.0 ** torch.arange(octaves, device=x.device, dtype=x.dtype)).flatten(-2)
        return torch.cat([x, turns.sin(), turns.cos()], -1)

    def forward(self, origin: Tensor, direction: Tensor) -> Any:
        depth = torch.linspace(0, 1, 64, device=origin.device, dtype=origin.dtype)
        at = origin[:, None] + direction[:, None] * depth[:, None]
        hidden = self.trunk(self.encoded(at, 10)).relu()
        seen = self.encoded(direction, 4)[:, None].expand(-1, 64, -1)
        color = self.color(torch.cat([hidden, seen], -1)).sigmoid()
        absorbed = F.softplus(self.density(hidden)[..., 0]) / 64
        opacity, passed = 1 - torch.exp(-absorbed), torch.exp(absorbed - absorbed.cumsum(-1))
        weights = opacity * passed
        return (weights[..., None] * color).sum(1), (weights * depth).sum(1)


class ColorTables(nn.Module):
    """Image-adaptive 3-D tables of colors: three bases mixed by a small network, and looked up trilinearly."""

    def __init__(self) -> None:
        super().__init__()
        self.bases = nn.Parameter(torch.rand(3, 3, 17, 17, 17))
        self.small = nn.Sequential(
            nn.Conv2d(3, 16, 3, 2, 1), nn.LeakyReLU(0.2), nn.InstanceNorm2d(16, affine=True),
            nn.Conv2d(16, 32, 3, 2, 1), nn.LeakyReLU(0.2), nn.InstanceNorm2d(32, affine=True),
            nn.Conv2d(32, 64, 3, 2, 1), nn.LeakyReLU(0.2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 3),
        )  # fmt: skip

    def forward(self, image: Tensor) -> Any:
        mix = self.small(F.interpolate(image, size=(64, 64), mode="bilinear"))
        table = torch.einsum("bk,kcxyz->bcxyz", mix, self.bases)
        at = (image.permute(0, 2, 3, 1) * 2 - 1)[:, None]
        return image + F.grid_sample(table, at, align_corners=True)[:, :, 0]


class Sampler(nn.Module):
    """The last layer of a language model and its sampling: temperature, the 50 largest, and nucleus of 0.9 by a sort."""

    def __init__(self, width: int = 512, words: int = 32000) -> None:
        super().__init__()
        self.head = nn.Linear(width, words, bias=False)

    def forward(self, hidden: Tensor, noise: Tensor) -> Any:
        scores = self.head(hidden) / 0.8
        least = scores.topk(50, -1).values[:, -1:]
        scores = torch.where(scores < least, -1e4, scores)
        ordered, places = scores.sort(-1, descending=True)
        odds = ordered.softmax(-1)
        kept = torch.where(odds.cumsum(-1) - odds > 0.9, -1e4, ordered)
        return places.gather(-1, (kept + noise).argmax(-1, keepdim=True)), kept.softmax(-1)[:, :50]


class Beams(nn.Module):
    """A step of beam search: log-probabilities of 32,000 words added to the scores of four beams, and the best eight."""

    def __init__(self, width: int = 512, words: int = 32000) -> None:
        super().__init__()
        self.norm, self.head, self.words = nn.LayerNorm(width), nn.Linear(width, words, bias=False), words

    def forward(self, hidden: Tensor, scores: Tensor) -> Any:
        odds = self.head(self.norm(hidden)).log_softmax(-1) + scores[..., None]
        best, at = odds.flatten(1).topk(8, -1)
        beam = at // self.words
        return best, at % self.words, hidden.gather(1, beam[..., None].expand(-1, -1, hidden.shape[-1]))


class TokenMerging(nn.Module):
    """ToMe: after attention, the 32 tokens most similar to one of the other half are added to it, in three layers."""

    def __init__(self, width: int = 192, count: int = 3) -> None:
        super().__init__()
        self.count = count
        self.project = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(3))
        self.mlp = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), *perceptron(width, 4 * width, width)) for _ in range(3)
        )

    def forward(self, tokens: Tensor) -> Any:
        for project, mlp in zip(self.project, self.mlp, strict=True):
            query, key, value = (heads(part, self.count) for part in project(tokens).chunk(3, -1))
            tokens = tokens + joined(F.scaled_dot_product_attention(query, key, value))
            metric = F.normalize(key.mean(1), dim=-1)
            best, to = (metric[:, ::2] @ metric[:, 1::2].transpose(1, 2)).max(-1)
            order = best.argsort(-1, descending=True)
            merged, left = order[:, :32], order[:, 32:]
            source, target = tokens[:, ::2], tokens[:, 1::2]
            width = tokens.shape[-1]
            moved = source.gather(1, merged[..., None].expand(-1, -1, width))
            places = to.gather(1, merged)[..., None].expand(-1, -1, width)
            target = target.scatter_add(1, places, moved)
            tokens = torch.cat([source.gather(1, left[..., None].expand(-1, -1, width)), target], 1)
            tokens = tokens + mlp(tokens)
        return tokens


class MedianFilter(nn.Module):
    """A denoiser: medians of windows of 5 x 5, and a small residual network."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(6, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 3, 3, padding=1),
        )

    def forward(self, image: Tensor) -> Any:
        windows = F.pad(image, (2, 2, 2, 2), mode="reflect").unfold(2, 5, 1).unfold(3, 5, 1).flatten(-2)
        median = windows.sort(-1).values[..., 12]
        return median + self.body(torch.cat([image, median], 1))


class Polarized(nn.Module):
    """PaiNN: scalars and vectors of 64 atoms, messages along 1,024 edges summed by receiver, two rounds."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.kinds = nn.Embedding(20, width)
        self.message = nn.ModuleList(perceptron(width, width, 3 * width, activation=nn.SiLU) for _ in range(2))
        self.radial = nn.ModuleList(nn.Linear(20, 3 * width) for _ in range(2))
        self.pairs = nn.ModuleList(nn.Linear(width, 2 * width, bias=False) for _ in range(2))
        self.update = nn.ModuleList(perceptron(2 * width, width, 3 * width, activation=nn.SiLU) for _ in range(2))
        self.head = perceptron(width, 32, 1, activation=nn.SiLU)

    def forward(self, kinds: Tensor, send: Tensor, receive: Tensor, places: Tensor) -> Any:
        offset = places[receive] - places[send]
        distance = offset.norm(dim=-1, keepdim=True) + 0.1
        waves = torch.sin(torch.arange(1, 21, device=distance.device) * distance) / distance
        cut, unit = 0.5 * (torch.cos(distance.clamp(max=5) * 0.6) + 1), offset / distance
        scalars = self.kinds(kinds)
        vectors = scalars.new_zeros(scalars.shape[0], 3, scalars.shape[1])
        for message, radial, pairs, update in zip(self.message, self.radial, self.pairs, self.update, strict=True):
            filters = radial(waves) * cut
            own, turned, made = (message(scalars)[send] * filters).chunk(3, -1)
            moved = vectors[send] * turned[:, None] + unit[..., None] * made[:, None]
            scalars = scalars.index_add(0, receive, own)
            vectors = vectors.index_add(0, receive, moved)
            u, v = pairs(vectors).chunk(2, -1)
            a, b, c = update(torch.cat([scalars, v.square().sum(1).add(1e-4).sqrt()], -1)).chunk(3, -1)
            vectors = vectors + u * a[:, None]
            scalars = scalars + b * (u * v).sum(1) + c
        return self.head(scalars)


def edges(batch: int) -> dict[str, Tensor]:
    """Returns the inputs of Polarized: 64 atoms per element of the batch, 1,024 edges."""
    found = graph(2 * batch)
    chosen = {name: torch.randint(0, 64 * batch, (1024 * batch,)) for name in ("send", "receive")}
    return {"kinds": found["kinds"], **chosen, "places": found["places"]}


def graph(batch: int) -> dict[str, Tensor]:
    """Returns the inputs of Triplets: 32 atoms per element of the batch, 256 edges, 1,024 pairs of edges."""
    nodes, edges, pairs = 32 * batch, 256 * batch, 1024 * batch
    return {
        "kinds": torch.randint(0, 20, (nodes,)),
        "send": torch.randint(0, nodes, (edges,)),
        "receive": torch.randint(0, nodes, (edges,)),
        "first": torch.randint(0, edges, (pairs,)),
        "second": torch.randint(0, edges, (pairs,)),
        "places": torch.randn(nodes, 3),
    }


NETWORKS: Mapping[str, Network] = {
    "sparsemax": Network(Sparsemax, inputs(tokens=normal(1, 128, 256))),
    "splineflow": Network(SplineFlow, inputs(x=normal(256, 32))),
    "rvq": Network(ResidualCodes, inputs(sound=normal(1, 1, 16384))),
    "sae": Network(SparseAutoencoder, inputs(x=normal(64, 512))),
    "productkeys": Network(ProductKeys, inputs(tokens=normal(1, 128, 256))),
    "adapters": Network(ManyAdapters, inputs(tokens=normal(1, 64, 512), adapter=below(16, 1))),
    "din": Network(Interest, inputs(history=below(20000, 32, 100), candidate=below(20000, 32))),
    "xdeepfm": Network(CrossFields, inputs(ids=below(10000, 64, 26))),
    "ple": Network(Gates, inputs(x=normal(64, 256))),
    "dimenet": Network(Triplets, graph),
    "kpconv": Network(KernelPoints, inputs(cloud=normal(1, 512, 3))),
    "nerf": Network(Radiance, inputs(origin=normal(256, 3), direction=normal(256, 3))),
    "sampler": Network(Sampler, inputs(hidden=normal(1, 512), noise=normal(1, 32000))),
    "beams": Network(Beams, inputs(hidden=normal(1, 4, 512), scores=normal(1, 4))),
    "tome": Network(TokenMerging, inputs(tokens=normal(1, 196, 192))),
    "median": Network(MedianFilter, inputs(image=uniform(1, 3, 96, 96))),
    "painn": Network(Polarized, edges),
    "lut3d": Network(ColorTables, inputs(image=uniform(1, 3, 192, 192))),
}
