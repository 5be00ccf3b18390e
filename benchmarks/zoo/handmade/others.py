"""Hand-written networks for points, graphs, coordinates, tables and distributions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, below, inputs, normal, perceptron, uniform


class PointNet(nn.Module):
    """PointNet: the same layers for every point of a cloud, and the maximum over the points."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width, following in ((3, 64), (64, 128), (128, 512), (512, 1024)):
            layers += [nn.Conv1d(width, following, 1), nn.BatchNorm1d(following), nn.ReLU()]
        self.points, self.head = nn.Sequential(*layers), perceptron(1024, 256, 40)

    def forward(self, points: Tensor) -> Any:
        return self.head(self.points(points).max(-1).values)


class EdgeConv(nn.Module):
    """DGCNN's edge convolutions: every point with its nearest neighbors, recomputed in each layer."""

    def __init__(self, neighbors: int = 16) -> None:
        super().__init__()
        self.neighbors = neighbors
        self.first = nn.Sequential(nn.Conv2d(6, 32, 1), nn.LeakyReLU(0.2), nn.Conv2d(32, 32, 1))
        self.second = nn.Sequential(nn.Conv2d(64, 64, 1), nn.LeakyReLU(0.2))

    def edges(self, values: Tensor) -> Tensor:
        points = values.transpose(1, 2)
        nearest = torch.cdist(points, points).topk(self.neighbors, -1, largest=False).indices
        clouds = torch.arange(points.shape[0], device=points.device)[:, None, None]
        around = points[clouds, nearest]
        center = points[:, :, None].expand_as(around)
        return torch.cat([around - center, center], -1).permute(0, 3, 1, 2)

    def forward(self, points: Tensor) -> Any:
        values = self.first(self.edges(points)).max(-1).values
        return self.second(self.edges(values)).max(-1).values


class MessagePassing(nn.Module):
    """A graph network: three rounds of messages along listed edges, summed at their targets."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(3))

    def forward(self, nodes: Tensor, sources: Tensor, destinations: Tensor) -> Any:
        for layer in self.layers:
            arrived = torch.zeros_like(nodes).index_add(0, destinations, layer(nodes)[sources])
            nodes = torch.relu(arrived + nodes)
        return nodes.mean(0, keepdim=True)


class GraphAttention(nn.Module):
    """A graph attention layer over a dense adjacency matrix."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Linear(64, 48)
        self.left, self.right = nn.Parameter(torch.randn(48, 1)), nn.Parameter(torch.randn(48, 1))

    def forward(self, nodes: Tensor, adjacency: Tensor) -> Any:
        values = self.values(nodes)
        scores = F.leaky_relu(values @ self.left + (values @ self.right).T, 0.2)
        scores = torch.where(adjacency > 0, scores, torch.full_like(scores, -1e9))
        return F.elu(scores.softmax(-1) @ values)


def _adjacency(batch: int) -> Tensor:
    return (torch.rand(256 * batch, 256 * batch) > 0.9).float()


class Siren(nn.Module):
    """SIREN: a coordinate network with sine activations."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 128), nn.Linear(128, 128), nn.Linear(128, 128)])
        for layer, bound in zip(self.layers, (1 / 2, *[(6 / 128) ** 0.5 / 30] * 2), strict=True):
            # as its authors do; otherwise results are badly conditioned
            nn.init.uniform_(layer.get_parameter("weight"), -bound, bound)
        self.head = nn.Linear(128, 3)

    def forward(self, coordinates: Tensor) -> Any:
        for layer in self.layers:
            coordinates = torch.sin(30 * layer(coordinates))
        return self.head(coordinates)


class NeRF(nn.Module):
    """NeRF's field: positional encoding by sines and cosines of increasing frequencies, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.field = perceptron(39, 128, 128, 128, 4)

    def forward(self, positions: Tensor) -> Any:
        waves = [wave(2.0**octave * positions) for octave in range(6) for wave in (torch.sin, torch.cos)]
        return self.field(torch.cat([positions, *waves], -1))


class HashGrid(nn.Module):
    """Hash grids of Instant NGP: feature look-up by hashed cells of four resolutions."""

    primes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ParameterList(nn.Parameter(torch.randn(4096, 4)) for _ in range(4))
        self.register_buffer("primes", torch.tensor([1, 2654435761, 805459861]))
        self.field = perceptron(16, 64, 4)

    def forward(self, positions: Tensor) -> Any:
        features = []
        for table, cells in zip(self.tables, (16, 32, 64, 128), strict=True):
            features.append(table[((positions * cells).long() * self.primes).sum(-1) % 4096])
        return self.field(torch.cat(features, -1))


class Tabular(nn.Module):
    """A network for tables: embeddings of categories next to numbers, ELU and SELU."""

    def __init__(self) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(100, 8) for _ in range(6))
        first = [nn.Linear(58, 128), nn.BatchNorm1d(128), nn.ELU()]
        self.layers = nn.Sequential(*first, nn.Linear(128, 64), nn.SELU(), nn.Linear(64, 1), nn.Sigmoid())

    def forward(self, categories: Tensor, numbers: Tensor) -> Any:
        columns = [embedding(categories[:, k]) for k, embedding in enumerate(self.embeddings)]
        return self.layers(torch.cat([*columns, numbers], 1))


class DLRM(nn.Module):
    """DLRM, a recommender: products of all pairs of embeddings, below the diagonal."""

    rows: Tensor
    columns: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.bottom = nn.Sequential(*perceptron(13, 64, 32), nn.ReLU())
        self.embeddings = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(8))
        self.top = nn.Sequential(*perceptron(32 + 36, 64, 1), nn.Sigmoid())
        rows, columns = torch.tril_indices(9, 9, -1)
        self.register_buffer("rows", rows)
        self.register_buffer("columns", columns)

    def forward(self, numbers: Tensor, categories: Tensor) -> Any:
        looked_up = [embedding(categories[:, k]) for k, embedding in enumerate(self.embeddings)]
        vectors = torch.stack([self.bottom(numbers), *looked_up], 1)
        products = torch.bmm(vectors, vectors.transpose(1, 2))[:, self.rows, self.columns]
        return self.top(torch.cat([vectors[:, 0], products], 1))


class AttentiveFilter(nn.Module):
    """Collaborative filtering: an item compared with a user's history, weighted by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.items = nn.Embedding(5000, 32)
        self.head = nn.Sequential(nn.Linear(64, 32), nn.PReLU(), nn.Linear(32, 1))

    def forward(self, item: Tensor, history: Tensor) -> Any:
        wanted, known = self.items(item), self.items(history)
        weights = torch.softmax((known * wanted[:, None]).sum(-1), -1)
        return self.head(torch.cat([wanted, (weights[..., None] * known).sum(1)], -1))


class Experts(nn.Module):
    """A mixture of experts: the gate's best two of four, with every expert computed and weighted."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(96, 4)
        self.experts = nn.ModuleList(perceptron(96, 192, 96, activation=nn.GELU) for _ in range(4))

    def forward(self, tokens: Tensor) -> Any:
        best = self.gate(tokens).topk(2, -1)
        weights = best.values.softmax(-1)
        parts = []
        for k, expert in enumerate(self.experts):
            parts.append((weights * (best.indices == k)).sum(-1, keepdim=True) * expert(tokens))
        return sum(parts)


class VAE(nn.Module):
    """A variational autoencoder of digits; its noise is an input."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Flatten(), nn.Linear(784, 400), nn.Softplus())
        self.mean, self.log_variance = nn.Linear(400, 20), nn.Linear(400, 20)
        self.decoder = nn.Sequential(*perceptron(20, 400, 784, activation=nn.Softplus), nn.Sigmoid())

    def forward(self, image: Tensor, noise: Tensor) -> Any:
        hidden = self.encoder(image)
        return self.decoder(self.mean(hidden) + noise * torch.exp(0.5 * self.log_variance(hidden)))


class RealNVP(nn.Module):
    """RealNVP, a normalizing flow: six couplings that scale and shift one half by functions of the other, and the log
    determinant.
    """

    def __init__(self) -> None:
        super().__init__()
        self.couplings = nn.ModuleList(perceptron(8, 64, 64, 16, activation=nn.Tanh) for _ in range(6))

    def forward(self, values: Tensor) -> Any:
        kept, changed = values.chunk(2, 1)
        log_determinant = torch.zeros_like(values[:, 0])
        for coupling in self.couplings:
            scale, shift = coupling(kept).chunk(2, 1)
            scale = torch.tanh(scale)
            changed = changed * scale.exp() + shift
            log_determinant = log_determinant + scale.sum(1)
            kept, changed = changed, kept
        return torch.cat([kept, changed, log_determinant[:, None]], 1)


class KAN(nn.Module):
    """A Kolmogorov-Arnold layer: a learned sum of radial basis functions for each pair of input and output."""

    centers: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("centers", torch.linspace(-2, 2, 8))
        self.bumps, self.linear = nn.Parameter(0.1 * torch.randn(64, 64, 8)), nn.Linear(64, 64)

    def forward(self, values: Tensor) -> Any:
        near = torch.exp(-(((values[..., None] - self.centers) / 0.5) ** 2))
        return torch.einsum("nik,iok->no", near, self.bumps) + self.linear(F.silu(values))


NETWORKS: Mapping[str, Network] = {
    "pointnet": Network(PointNet, inputs(points=normal(1, 3, 1024))),
    "edgeconv": Network(EdgeConv, inputs(points=normal(1, 3, 256))),
    "gnn": Network(
        MessagePassing,
        inputs(nodes=normal(500, 64), sources=below(500, 3000), destinations=below(500, 3000)),
    ),
    "gatconv": Network(GraphAttention, inputs(nodes=normal(256, 64), adjacency=_adjacency)),
    "siren": Network(Siren, inputs(coordinates=normal(2048, 2))),
    "nerf": Network(NeRF, inputs(positions=normal(2048, 3))),
    "hashgrid": Network(HashGrid, inputs(positions=uniform(4096, 3))),
    "tabular": Network(Tabular, inputs(categories=below(100, 64, 6), numbers=normal(64, 10))),
    "dlrm": Network(DLRM, inputs(numbers=normal(128, 13), categories=below(1000, 128, 8))),
    "ncf_att": Network(AttentiveFilter, inputs(item=below(5000, 64), history=below(5000, 64, 50))),
    "topk_moe": Network(Experts, inputs(tokens=normal(64, 96))),
    "vae": Network(VAE, inputs(image=normal(16, 1, 28, 28), noise=normal(16, 20))),
    "realnvp": Network(RealNVP, inputs(values=normal(256, 16))),
    "kan": Network(KAN, inputs(values=normal(64, 64))),
}
