"""Fields and shapes: operators between functions, geometric algebra, proteins, point clouds, and images on any grid."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, below, heads, inputs, joined, normal, normed, perceptron, uniform

__all__ = ["NETWORKS"]


class DeepONet(nn.Module):
    """A branch for a function's samples and a trunk for places, multiplied."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.branch = perceptron(100, width, width, 2 * width, activation=nn.Tanh)
        self.trunk = perceptron(24, width, width, 2 * width, activation=nn.Tanh)

    def forward(self, samples: Tensor, places: Tensor) -> Any:
        angles = places[..., None] * torch.arange(1, 5, device=places.device)
        features = self.trunk(torch.cat([angles.sin(), angles.cos(), angles], -1).flatten(2))
        return torch.einsum("bnw,bw->bn", features, self.branch(samples))


class Galerkin(nn.Module):
    """Attention as a product of normed keys and values, with places beside the features of each head."""

    def __init__(self, width: int = 128, count: int = 4) -> None:
        super().__init__()
        self.count, self.before, self.after = (
            count,
            nn.Linear(3, width),
            perceptron(width, width, 1, activation=nn.SiLU),
        )
        self.project = nn.ModuleList(nn.Linear(width, 3 * width) for _ in range(3))
        self.join = nn.ModuleList(nn.Linear(width + 2 * count, width) for _ in range(3))
        self.units = nn.ModuleList(perceptron(width, 2 * width, width) for _ in range(3))

    def forward(self, x: Tensor) -> Any:
        places = x[..., :2][:, None].expand(-1, self.count, -1, -1)
        x = self.before(x)
        for project, join, unit in zip(self.project, self.join, self.units, strict=True):
            query, key, value = (heads(part, self.count) for part in project(x).chunk(3, -1))
            key, value = (F.layer_norm(t, t.shape[-1:]) for t in (key, value))
            query, key, value = (torch.cat([places, t], -1) for t in (query, key, value))
            x = x + join(joined(query @ (key.transpose(-1, -2) @ value) / x.shape[1]))
            x = x + unit(x)
        return self.after(x)


class GeometricAlgebra(nn.Module):
    """GATr: multivectors of 16 numbers, mixed by equivariant maps, geometric products and attention by inner products."""

    def __init__(self, width: int = 8, layers: int = 2) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.basis = nn.Parameter((torch.rand(9, 16, 16) < 0.08).float())
        self.product = nn.Parameter((torch.rand(16, 16, 16) < 0.05).float())
        self.maps = nn.ParameterList(0.3 * torch.randn(3 * width, width, 9) for _ in range(layers))
        self.pairs = nn.ParameterList(0.3 * torch.randn(2 * width, width, 9) for _ in range(layers))
        self.outs = nn.ParameterList(0.3 * torch.randn(width, width, 9) for _ in range(layers))

    def mix(self, weights: Tensor, x: Tensor) -> Tensor:
        return torch.einsum("oca,aij,bncj->bnoi", weights, self.basis, x)

    def forward(self, x: Tensor) -> Any:
        for maps, pairs, outs in zip(self.maps, self.pairs, self.outs, strict=True):
            y = x / (x.square().sum(-1, keepdim=True).mean(-2, keepdim=True) + 1e-3).sqrt()
            query, key, value = self.mix(maps, y).chunk(3, -2)
            y = F.scaled_dot_product_attention(query.flatten(2), key.flatten(2), value.flatten(2))
            x = x + y.view_as(x)
            left, right = self.mix(pairs, x / (x.square().mean((-1, -2), keepdim=True) + 1e-3).sqrt()).chunk(2, -2)
            both = torch.einsum("ijk,bncj,bnck->bnci", self.product, left, right)
            x = x + self.mix(outs, both * F.gelu(both[..., :1]))
        return x


class Vectors(nn.Module):
    """Geometric vector perceptrons (ESM-IF): scalars and vectors of residues, with messages from 16 neighbors of each."""

    def __init__(self, scalars: int = 128, vectors: int = 16, layers: int = 3) -> None:
        super().__init__()
        wide, many = 2 * scalars + 32, 2 * vectors + 1
        self.hidden = nn.ModuleList(nn.Linear(many, many, bias=False) for _ in range(layers))
        self.up = nn.ModuleList(nn.Linear(many, vectors, bias=False) for _ in range(layers))
        self.mix = nn.ModuleList(nn.Linear(wide + many, scalars) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(scalars, vectors) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(scalars) for _ in range(layers))
        self.words, self.head = nn.Linear(6, scalars), nn.Linear(scalars, 20)
        self.start = nn.Parameter(torch.randn(vectors, 3))

    def forward(self, angles: Tensor, places: Tensor, near: Tensor) -> Any:
        batch, count, most = near.shape
        s = self.words(angles)
        v = F.normalize(places, dim=-1)[:, :, None] * self.start
        at = near.flatten(1)
        away = places.gather(1, at[..., None].expand(-1, -1, 3)).view(batch, count, most, 3) - places[:, :, None]
        far = away.square().sum(-1, keepdim=True).add(1e-4).sqrt()
        rings = torch.exp(-(far - torch.linspace(0, 4, 32, device=far.device, dtype=far.dtype)).square())
        for hidden, up, mix, gate, norm in zip(self.hidden, self.up, self.mix, self.gate, self.norms, strict=True):
            theirs = s.gather(1, at[..., None].expand(-1, -1, s.shape[-1])).view(batch, count, most, -1)
            turned = (
                v.flatten(2).gather(1, at[..., None].expand(-1, -1, v.shape[2] * 3)).view(batch, count, most, -1, 3)
            )
            own = s[:, :, None].expand_as(theirs), v[:, :, None].expand_as(turned)
            vectors = torch.cat([own[1], turned, (away / far)[..., None, :]], -2)
            inner = hidden(vectors.transpose(-1, -2))
            size = inner.square().sum(-2).clamp(min=1e-6).sqrt()
            scalars = mix(torch.cat([own[0], theirs, rings, size], -1))
            moved = (up(inner) * gate(scalars).sigmoid()[..., None, :]).transpose(-1, -2)
            s, v = norm(s + scalars.relu().mean(2)), v + moved.mean(2)
            v = v / v.square().sum(-1, keepdim=True).mean(-2, keepdim=True).add(1e-4).sqrt()
        return self.head(s)


class RandLA(nn.Module):
    """Attentive pooling over 16 given neighbors of points, on two levels, and back by the nearest point."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.before = nn.Linear(6, width)
        self.places = nn.ModuleList(perceptron(10, width * k, width * k) for k in (1, 2))
        self.scores = nn.ModuleList(nn.Linear(2 * width * k, 2 * width * k, bias=False) for k in (1, 2))
        self.out = nn.ModuleList(nn.Linear(2 * width * k, 2 * width * k) for k in (1, 2))
        self.last = perceptron(6 * width, 64, 13)

    def forward(self, points: Tensor, near: Tensor, coarse: Tensor, back: Tensor) -> Any:
        x, places, levels = self.before(points), points[..., :3], []
        for k, rows in enumerate((near, coarse)):
            at = rows.flatten(1)[..., None]
            theirs = places.gather(1, at.expand(-1, -1, 3)).view(*rows.shape, 3)
            own = places[:, :, None].expand_as(theirs)
            away = own - theirs
            code = self.places[k](torch.cat([own, theirs, away, away.square().sum(-1, keepdim=True).sqrt()], -1))
            features = x.gather(1, at.expand(-1, -1, x.shape[-1])).view(*rows.shape, -1)
            both = torch.cat([features, code], -1)
            x = F.leaky_relu(self.out[k]((self.scores[k](both).softmax(2) * both).sum(2)), 0.2)
            levels.append(x)
            places, x = places[:, :512], x[:, :512] if k == 0 else x
        up = levels[1].gather(1, back[..., None].expand(-1, -1, levels[1].shape[-1]))
        return self.last(torch.cat([levels[0], up], -1))


class LocalImages(nn.Module):
    """LIIF: an image at any places, from the features of the four nearest pixels weighted by opposite areas."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.encode = nn.Sequential(normed(3, width), normed(width, width), nn.Conv2d(width, width, 3, padding=1))
        self.decode = perceptron(9 * width + 4, 256, 256, 3)

    def forward(self, picture: Tensor, places: Tensor) -> Any:
        features = F.unfold(self.encode(picture), 3, padding=1).unflatten(-1, picture.shape[2:])
        size = picture.shape[-1]
        colors, areas = [], []
        for dy in (-1, 1):
            for dx in (-1, 1):
                moved = (
                    (places + torch.tensor([dx, dy], device=places.device) / size).clamp(-0.999, 0.999).to(places.dtype)
                )
                taken = F.grid_sample(features, moved[:, None], mode="nearest", align_corners=False)[:, :, 0]
                center = ((moved + 1) * (size / 2)).floor() * (2 / size) - 1 + 1 / size
                away = (places - center) * size
                code = torch.cat([taken.transpose(1, 2), away, torch.ones_like(away)], -1)
                colors.append(self.decode(code))
                areas.append(away.prod(-1).abs() + 1e-6)
        total = torch.stack(areas).sum(0)
        parts = (color * (area / total)[..., None] for color, area in zip(colors, reversed(areas), strict=True))
        return sum(parts)


class LongSkips(nn.Module):
    """U-ViT: time, text and patches as tokens of one sequence, with skips from early to late layers."""

    def __init__(self, width: int = 384, depth: int = 2) -> None:
        super().__init__()
        self.patches, self.text = nn.Conv2d(4, width, 2, 2), nn.Linear(256, width)
        self.place = nn.Parameter(0.02 * torch.randn(1, 1 + 20 + 256, width))

        def layer() -> nn.Module:
            return nn.TransformerEncoderLayer(width, 6, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)

        self.first, self.middle = nn.ModuleList(layer() for _ in range(depth)), layer()
        self.last = nn.ModuleList(layer() for _ in range(depth))
        self.skips = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(depth))
        self.norm, self.head, self.smooth = nn.LayerNorm(width), nn.Linear(width, 16), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, latent: Tensor, time: Tensor, text: Tensor) -> Any:
        angles = time * torch.exp(-math.log(1e4) * torch.arange(192, device=time.device, dtype=time.dtype) / 192)
        clock = torch.cat([angles.cos(), angles.sin()], -1)[:, None]
        x = torch.cat([clock, self.text(text), self.patches(latent).flatten(2).transpose(1, 2)], 1) + self.place
        held = []
        for layer in self.first:
            x = layer(x)
            held.append(x)
        x = self.middle(x)
        for layer, skip in zip(self.last, self.skips, strict=True):
            x = layer(skip(torch.cat([x, held.pop()], -1)))
        x = self.head(self.norm(x))[:, 21:].transpose(1, 2).unflatten(-1, (16, 16))
        return self.smooth(F.pixel_shuffle(x, 2))


class SparseBoxes(nn.Module):
    """Sparse R-CNN's heads: features of each box multiplied by weights made from its query, twice."""

    def __init__(self, width: int = 256, inner: int = 64) -> None:
        super().__init__()
        self.inner, self.attend = inner, nn.MultiheadAttention(width, 8, batch_first=True)
        self.weights, self.out = nn.Linear(width, 2 * width * inner), nn.Linear(49 * width, width)
        self.norms = nn.ModuleList(nn.LayerNorm(n) for n in (width, inner, width, width, width))
        self.unit, self.scores, self.boxes = perceptron(width, 1024, width), nn.Linear(width, 80), nn.Linear(width, 4)

    def forward(self, regions: Tensor, queries: Tensor) -> Any:
        for _ in range(2):
            queries = self.norms[0](queries + self.attend(queries, queries, queries, need_weights=False)[0])
            first, second = self.weights(queries).chunk(2, -1)
            x = regions @ first.unflatten(-1, (-1, self.inner))
            x = self.norms[1](x).relu() @ second.unflatten(-1, (self.inner, -1))
            x = self.out(self.norms[2](x).relu().flatten(2))
            queries = self.norms[3](queries + x)
            queries = self.norms[4](queries + self.unit(queries))
        return torch.cat([self.scores(queries), self.boxes(queries)], -1)


class Instances(nn.Module):
    """CondInst: masks of 50 objects by small convolutions whose weights and centers come from each object."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.features = nn.Sequential(normed(3, width, stride=4), normed(width, width), nn.Conv2d(width, 8, 1))
        self.control = nn.Linear(256, 169)

    def forward(self, picture: Tensor, objects: Tensor, centers: Tensor) -> Any:
        x = self.features(picture).flatten(2)[:, None]
        size = picture.shape[-1] // 4
        line = torch.linspace(-1, 1, size, device=x.device, dtype=x.dtype)
        grid = torch.stack([line.repeat(size), line.repeat_interleave(size)])
        away = centers[..., None] - grid
        x = torch.cat([away, x.expand(-1, away.shape[1], -1, -1)], 2)
        parts = self.control(objects).split([80, 64, 8, 8, 8, 1], -1)
        for weights, shift in ((parts[0], parts[3]), (parts[1], parts[4])):
            x = (weights.unflatten(-1, (8, -1)) @ x + shift[..., None]).relu()
        x = parts[2][..., None, :] @ x + parts[5][..., None]
        mask = F.interpolate(x.view(-1, 1, size, size), scale_factor=2.0, mode="bilinear", align_corners=False)
        return mask.sigmoid().view(*objects.shape[:2], 2 * size, 2 * size)


class Context(nn.Module):
    """Learned compression: a masked convolution as context, means and scales of latents, and the bits of rounded ones."""

    def __init__(self, width: int = 96) -> None:
        super().__init__()
        self.encode = nn.Sequential(
            nn.Conv2d(3, width, 5, 4, 2),
            nn.LeakyReLU(),
            nn.Conv2d(width, width, 5, 4, 2),
            nn.LeakyReLU(),
            nn.Conv2d(width, width, 3, 1, 1),
        )
        self.side = nn.Sequential(
            nn.Conv2d(width, width, 3, 2, 1), nn.ReLU(), nn.ConvTranspose2d(width, 2 * width, 4, 2, 1)
        )
        self.context = nn.Conv2d(width, 2 * width, 5, padding=2)
        self.register_buffer("mask", torch.cat([torch.ones(12), torch.zeros(13)]).view(5, 5))
        self.join = nn.Sequential(
            nn.Conv2d(4 * width, 3 * width, 1), nn.LeakyReLU(), nn.Conv2d(3 * width, 2 * width, 1)
        )

    def forward(self, picture: Tensor) -> Any:
        latent = self.encode(picture)
        rounded = latent.round()
        near = F.conv2d(rounded, self.context.weight * self.mask, self.context.bias, padding=2)
        mean, scale = self.join(torch.cat([near, self.side(latent)], 1)).chunk(2, 1)
        scale = F.softplus(scale) + 0.1
        away = (rounded - mean).abs()
        chance = 0.5 * (torch.erfc((away - 0.5) / scale * 0.7071) - torch.erfc((away + 0.5) / scale * 0.7071))
        return -chance.clamp(min=1e-4).log2().sum((1, 2, 3))


NETWORKS: Mapping[str, Network] = {
    "deeponet": Network(DeepONet, inputs(samples=normal(1, 100), places=uniform(1, 2048, 2))),
    "galerkin": Network(Galerkin, inputs(x=normal(1, 1024, 3))),
    "gatr": Network(GeometricAlgebra, inputs(x=normal(1, 128, 8, 16))),
    "gvp": Network(Vectors, inputs(angles=normal(1, 128, 6), places=normal(1, 128, 3), near=below(128, 1, 128, 16))),
    "randla": Network(
        RandLA,
        inputs(
            points=normal(1, 2048, 6),
            near=below(2048, 1, 2048, 16),
            coarse=below(512, 1, 512, 16),
            back=below(512, 1, 2048),
        ),
    ),
    "liif": Network(
        LocalImages, inputs(picture=normal(1, 3, 48, 48), places=lambda n: 1.9 * torch.rand(n, 2304, 2) - 0.95)
    ),
    "uvit": Network(LongSkips, inputs(latent=normal(1, 4, 32, 32), time=uniform(1, 1), text=normal(1, 20, 256))),
    "sparsercnn": Network(SparseBoxes, inputs(regions=normal(1, 100, 49, 256), queries=normal(1, 100, 256))),
    "condinst": Network(
        Instances, inputs(picture=normal(1, 3, 192, 192), objects=normal(1, 50, 256), centers=normal(1, 50, 2))
    ),
    "context": Network(Context, inputs(picture=normal(1, 3, 128, 128))),
}
