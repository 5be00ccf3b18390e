"""Pictures: faces, streets, poses and points in images, video of several kinds, restoration, style, and generated scenes."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, image, inputs, normal, normed, perceptron, uniform

__all__ = ["NETWORKS"]


class Faces(nn.Module):
    """ArcFace: residual units of norm, convolution and PReLU, and a normed embedding of the whole map."""

    def __init__(self, widths: tuple[int, ...] = (64, 64, 128, 256)) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.PReLU(64))
        self.units = nn.ModuleList(
            nn.Sequential(
                nn.BatchNorm2d(a), nn.Conv2d(a, b, 3, 1, 1, bias=False), nn.BatchNorm2d(b), nn.PReLU(b),
                nn.Conv2d(b, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b),
            )
            for a, b in pairwise((64, *widths))
        )  # fmt: skip
        self.skips = nn.ModuleList(nn.Conv2d(a, b, 1, 2, bias=False) for a, b in pairwise((64, *widths)))
        self.norm, self.head = nn.BatchNorm2d(widths[-1]), nn.Linear(widths[-1] * 49, 512)
        self.last = nn.BatchNorm1d(512)

    def forward(self, image: Tensor) -> Any:
        x = self.stem(image)
        for unit, skip in zip(self.units, self.skips, strict=True):
            x = unit(x) + skip(x)
        return F.normalize(self.last(self.head(self.norm(x).flatten(1))))


class TwoBranches(nn.Module):
    """BiSeNet v2: a branch of details and one of meanings, each of which gates the other."""

    def __init__(self) -> None:
        super().__init__()
        self.detail = nn.Sequential(normed(3, 64, stride=2), normed(64, 64, stride=2), normed(64, 128, stride=2))
        self.stem = nn.Sequential(normed(3, 16, stride=2), normed(16, 32, stride=2))
        self.deeper = nn.Sequential(
            normed(32, 32, groups=32), normed(32, 64, 1), normed(64, 64, stride=2, groups=64), normed(64, 128, 1),
            normed(128, 128, stride=2, groups=128), normed(128, 128, 1), normed(128, 128, stride=2, groups=128),
        )  # fmt: skip
        self.whole = nn.Conv2d(128, 128, 1)
        self.keep, self.down = nn.Conv2d(128, 128, 3, 1, 1, groups=128), nn.Conv2d(128, 128, 3, 2, 1, bias=False)
        self.near, self.up = nn.Conv2d(128, 128, 3, 1, 1, groups=128), nn.Conv2d(128, 128, 3, 1, 1, bias=False)
        self.join, self.head = normed(128, 128), nn.Conv2d(128, 19, 1)

    def forward(self, image: Tensor) -> Any:
        detail, deep = self.detail(image), self.deeper(self.stem(image))
        deep = deep + self.whole(deep.mean((2, 3), keepdim=True))
        low = F.avg_pool2d(self.down(detail), 3, 2, 1)
        fine = self.keep(detail) * F.interpolate(self.up(deep), scale_factor=4.0, mode="bilinear").sigmoid()
        coarse = F.interpolate(low * self.near(F.interpolate(deep, low.shape[2:])).sigmoid(), scale_factor=4.0)
        return F.interpolate(self.head(self.join(fine + coarse)), scale_factor=8.0, mode="bilinear")


class Rendered(nn.Module):
    """PointRend: the 784 least certain points of an upsampled mask, predicted again from features sampled there."""

    def __init__(self, classes: int = 8) -> None:
        super().__init__()
        self.fine = nn.Sequential(normed(3, 32, stride=2), normed(32, 64, stride=2))
        self.coarse = nn.Sequential(normed(64, 128, stride=2), nn.Conv2d(128, classes, 1))
        self.points = nn.Sequential(
            nn.Conv1d(64 + classes, 128, 1), nn.ReLU(), nn.Conv1d(128, 128, 1), nn.ReLU(), nn.Conv1d(128, classes, 1)
        )

    def forward(self, image: Tensor) -> Any:
        fine = self.fine(image)
        mask = self.coarse(fine)
        for _ in range(2):
            mask = F.interpolate(mask, scale_factor=2.0, mode="bilinear")
            height, width = mask.shape[2:]
            best = mask.topk(2, 1).values
            at = (best[:, 1] - best[:, 0]).flatten(1).topk(784, -1).indices
            places = torch.stack([(at % width + 0.5) / width, (at // width + 0.5) / height], -1) * 2 - 1
            parts = [F.grid_sample(t, places[:, :, None].to(t.dtype))[..., 0] for t in (fine, mask)]
            new = self.points(torch.cat(parts, 1))
            mask = mask.flatten(2).scatter(2, at[:, None].expand(-1, mask.shape[1], -1), new).view_as(mask)
        return mask


class Warped(nn.Module):
    """BasicVSR: features carried from frame to frame along flows, both ways, and upsampled by shuffles."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.flow = nn.Sequential(nn.Conv2d(6, 32, 7, 1, 3), nn.ReLU(), nn.Conv2d(32, 2, 7, 1, 3))
        self.carry = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width + 3, width, 3, 1, 1), nn.LeakyReLU(0.1), nn.Conv2d(width, width, 3, 1, 1))
            for _ in range(2)
        )
        self.join = nn.Conv2d(2 * width, width, 1)
        self.up = nn.Sequential(nn.Conv2d(width, 4 * width, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(width, 3, 3, 1, 1))

    def forward(self, frames: Tensor) -> Any:
        count, (height, width) = frames.shape[1], frames.shape[-2:]
        rows = torch.arange(height, device=frames.device, dtype=frames.dtype)
        columns = torch.arange(width, device=frames.device, dtype=frames.dtype)
        states = []
        for carry, order in zip(self.carry, (range(count), range(count - 1, -1, -1)), strict=True):
            held, before, found = frames.new_zeros(frames.shape[0], self.join.out_channels, height, width), None, {}
            for k in order:
                now = frames[:, k]
                if before is not None:
                    flow = self.flow(torch.cat([now, before], 1))
                    x = (columns + flow[:, 0]) / (width - 1) * 2 - 1
                    y = (rows[:, None] + flow[:, 1]) / (height - 1) * 2 - 1
                    held = F.grid_sample(held, torch.stack([x, y], -1), align_corners=True)
                held, before = held + carry(torch.cat([now, held], 1)), now
                found[k] = held
            states.append(torch.stack([found[k] for k in range(count)], 1))
        both = torch.cat(states, 2).flatten(0, 1)
        y = self.up(F.leaky_relu(self.join(both), 0.1))
        y = y + F.interpolate(frames.flatten(0, 1), scale_factor=2.0, mode="bilinear")
        return y.unflatten(0, frames.shape[:2])


class Axes(nn.Module):
    """MAXIM: gated perceptrons along the places of a grid and along those within blocks, side by side."""

    def __init__(self, width: int = 64, size: int = 8) -> None:
        super().__init__()
        self.size, self.first, self.last = size, nn.Conv2d(3, width, 3, 1, 1), nn.Conv2d(width, 3, 3, 1, 1)
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(4))
        self.before, self.after = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.gates = nn.ModuleList(nn.LayerNorm(width) for _ in range(2))
        self.inner = nn.ModuleList(nn.Linear(width, 2 * width) for _ in range(2))
        self.mix = nn.ModuleList(nn.Linear(size * size, size * size) for _ in range(2))
        self.outer = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.unit = perceptron(width, 2 * width, width, activation=nn.GELU)

    def gated(self, k: int, x: Tensor, axis: int) -> Tensor:
        u, v = F.gelu(self.inner[k](self.norms[1 + k](x))).chunk(2, -1)
        v = self.mix[k](self.gates[k](v).transpose(axis, -1)).transpose(axis, -1)
        return x + self.outer[k](u * (v + 1))

    def forward(self, image: Tensor) -> Any:
        x = self.first(image).permute(0, 2, 3, 1)
        n, size = x.shape[1] // self.size, self.size
        a, b = F.gelu(self.before(self.norms[0](x))).chunk(2, -1)
        grid = a.unflatten(1, (size, n)).unflatten(3, (size, n)).transpose(2, 3).flatten(1, 2).flatten(2, 3)
        grid = self.gated(0, grid, 1).unflatten(2, (n, n)).unflatten(1, (size, size)).transpose(2, 3)
        block = b.unflatten(1, (n, size)).unflatten(3, (n, size)).transpose(2, 3).flatten(1, 2).flatten(2, 3)
        block = self.gated(1, block, 2).unflatten(2, (size, size)).unflatten(1, (n, n)).transpose(2, 3)
        x = x + self.after(torch.cat([grid.reshape(a.shape), block.reshape(b.shape)], -1))
        return image + self.last((x + self.unit(self.norms[3](x))).permute(0, 3, 1, 2))


class Cycle(nn.Module):
    """CycleGAN's generator: reflected borders, instance norms, residual blocks and transposed convolutions."""

    def __init__(self, width: int = 32, blocks: int = 4) -> None:
        super().__init__()

        def block(a: int, b: int, kernel: int, stride: int = 1) -> list[nn.Module]:
            pad: list[nn.Module] = [nn.ReflectionPad2d(kernel // 2)]
            return [*pad, nn.Conv2d(a, b, kernel, stride), nn.InstanceNorm2d(b), nn.ReLU()]

        self.down = nn.Sequential(
            *block(3, width, 7), *block(width, 2 * width, 3, 2), *block(2 * width, 4 * width, 3, 2)
        )
        self.units = nn.ModuleList(
            nn.Sequential(*block(4 * width, 4 * width, 3), *block(4 * width, 4 * width, 3)[:-1]) for _ in range(blocks)
        )
        ups: list[nn.Module] = []
        for a, b in ((4 * width, 2 * width), (2 * width, width)):
            ups += [nn.ConvTranspose2d(a, b, 3, 2, 1, 1), nn.InstanceNorm2d(b), nn.ReLU()]
        self.up = nn.Sequential(*ups, nn.ReflectionPad2d(3), nn.Conv2d(width, 3, 7), nn.Tanh())

    def forward(self, image: Tensor) -> Any:
        x = self.down(image)
        for unit in self.units:
            x = x + unit(x)
        return self.up(x)


class Layouts(nn.Module):
    """SPADE: an image grown from a vector by blocks whose instance norms a map of classes scales and shifts."""

    def __init__(self, width: int = 128, classes: int = 16) -> None:
        super().__init__()
        self.width, self.start, self.classes = width, nn.Linear(64, width * 64), classes
        pairs = ((width, width), (width, width // 2), (width // 2, width // 2))
        self.shared = nn.ModuleList(nn.Conv2d(classes, 64, 3, 1, 1) for _ in pairs)
        self.scales = nn.ModuleList(nn.Conv2d(64, 2 * a, 3, 1, 1) for a, _ in pairs)
        self.mains = nn.ModuleList(nn.Conv2d(a, b, 3, 1, 1) for a, b in pairs)
        self.skips = nn.ModuleList(nn.Conv2d(a, b, 1) for a, b in pairs)
        self.last = nn.Conv2d(width // 2, 3, 3, 1, 1)

    def forward(self, noise: Tensor, layout: Tensor) -> Any:
        x = self.start(noise).view(-1, self.width, 8, 8)
        for shared, scales, main, skip in zip(self.shared, self.scales, self.mains, self.skips, strict=True):
            x = F.interpolate(x, scale_factor=2.0)
            scale, shift = scales(shared(F.interpolate(layout, x.shape[2:])).relu()).chunk(2, 1)
            x = skip(x) + main(F.leaky_relu(F.instance_norm(x) * (1 + scale) + shift, 0.2))
        return self.last(F.leaky_relu(x, 0.2)).tanh()


class Hourglass(nn.Module):
    """Two stacked hourglasses of residual units for poses, each of which reads the heat maps of the one before."""

    def __init__(self, width: int = 64, joints: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(normed(3, 32, 7, 2), normed(32, width, stride=2))
        self.units = nn.ModuleList(self.unit(width) for _ in range(2 * (3 * depth + 1)))
        self.maps = nn.ModuleList(nn.Conv2d(width, joints, 1) for _ in range(2))
        self.back, self.depth = nn.Conv2d(joints, width, 1), depth

    @staticmethod
    def unit(width: int) -> nn.Module:
        return nn.Sequential(
            normed(width, width // 2, 1), normed(width // 2, width // 2), nn.Conv2d(width // 2, width, 1)
        )

    def glass(self, x: Tensor, units: list[nn.Module], depth: int) -> Tensor:
        skip, down = units.pop(), units.pop()
        inner = F.max_pool2d(x, 2)
        inner = inner + down(inner)
        inner = self.glass(inner, units, depth - 1) if depth > 1 else inner + units.pop()(inner)
        inner = inner + units[-1](inner) if depth > 1 and units else inner
        return x + skip(x) + F.interpolate(inner, scale_factor=2.0)

    def forward(self, image: Tensor) -> Any:
        x, count, results = self.stem(image), len(self.units) // 2, []
        for k, maps in enumerate(self.maps):
            y = self.glass(x, list(self.units[k * count : (k + 1) * count]), self.depth)
            results.append(maps(y))
            x = x + y + self.back(results[-1])
        return torch.cat(results, 1)


class Centers(nn.Module):
    """CenterNet: peaks of a heat map found by max pooling, the 100 best, and offsets and sizes gathered there."""

    def __init__(self, width: int = 64, classes: int = 80) -> None:
        super().__init__()
        self.down = nn.Sequential(normed(3, 32, stride=2), normed(32, width, stride=2), normed(width, 128, stride=2))
        self.up = nn.Sequential(nn.ConvTranspose2d(128, width, 4, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.heads = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, width, 3, 1, 1), nn.ReLU(), nn.Conv2d(width, n, 1)) for n in (classes, 2, 2)
        )

    def forward(self, image: Tensor) -> Any:
        x = self.up(self.down(image))
        heat, offset, size = (head(x) for head in self.heads)
        heat = heat.sigmoid()
        heat = heat * (heat == F.max_pool2d(heat, 3, 1, 1)).to(heat.dtype)
        scores, at = heat.flatten(1).topk(100, -1)
        classes, at = at // (x.shape[2] * x.shape[3]), at % (x.shape[2] * x.shape[3])
        parts = [t.flatten(2).gather(2, at[:, None].expand(-1, 2, -1)) for t in (offset, size)]
        places = torch.stack([at % x.shape[3], at // x.shape[3]], 1) + parts[0]
        return torch.cat([places, parts[1], scores[:, None], classes[:, None].to(scores.dtype)], 1)


class Scales(nn.Module):
    """VAR's image decoder: residual codes of ten scales, each enlarged and smoothed, then convolutions up to the image."""

    def __init__(self, width: int = 32, words: int = 4096, channels: int = 96) -> None:
        super().__init__()
        self.sizes = (1, 2, 3, 4, 5, 6, 8, 10, 13, 16)
        self.words, self.smooth = nn.Embedding(words, width), nn.Conv2d(width, width, 3, 1, 1)
        self.first = nn.Conv2d(width, channels, 3, 1, 1)
        self.norms = nn.ModuleList(nn.GroupNorm(32, channels) for _ in range(3))
        self.layers = nn.ModuleList(nn.Conv2d(channels, channels, 3, 1, 1) for _ in range(3))
        self.last = nn.Conv2d(channels, 3, 3, 1, 1)

    def forward(self, ids: Tensor) -> Any:
        total: Any = 0.0
        for part, size in zip(ids.split([n * n for n in self.sizes], 1), self.sizes, strict=True):
            codes = self.words(part).transpose(1, 2).unflatten(2, (size, size))
            codes = F.interpolate(codes, size=(16, 16), mode="bicubic") if size < 16 else codes
            total = total + 0.5 * codes + 0.5 * self.smooth(codes)
        x = self.first(total)
        for k, (norm, layer) in enumerate(zip(self.norms, self.layers, strict=True)):
            x = x + layer(F.silu(norm(x)))
            x = F.interpolate(x, scale_factor=2.0) if k < 2 else x
        return self.last(x)


class Planes(nn.Module):
    """EG3D: features of points along rays from three planes, densities and colors, and their sums along the rays."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.planes = nn.Sequential(nn.Linear(128, 96 * 16), nn.Unflatten(1, (96, 4, 4)), nn.Upsample(scale_factor=4.0))
        self.grow = nn.Sequential(
            normed(96, 96), nn.Upsample(scale_factor=2.0, mode="bilinear"), nn.Conv2d(96, 96, 3, 1, 1)
        )
        self.decode, self.width = perceptron(width, 64, 1 + width, activation=nn.Softplus), width

    def forward(self, latent: Tensor, points: Tensor) -> Any:
        planes = self.grow(self.planes(latent)).unflatten(1, (3, self.width)).flatten(0, 1)
        sides = torch.stack([points[..., [0, 1]], points[..., [1, 2]], points[..., [2, 0]]], 1)
        features = F.grid_sample(planes, sides.flatten(0, 1)).unflatten(0, (-1, 3)).mean(1)  # batch, width, ray, step
        values = self.decode(features.permute(0, 2, 3, 1))
        density = F.softplus(values[..., 0] - 1)
        alpha = 1 - torch.exp(-0.1 * density)
        left = torch.cat([torch.ones_like(alpha[..., :1]), 1 - alpha[..., :-1] + 1e-6], -1).cumprod(-1)
        return ((alpha * left)[..., None] * values[..., 1:].sigmoid()).sum(-2)


class Volumes(nn.Module):
    """V-Net: residual 3-D convolutions of 5 x 5 x 5 with PReLU, strided down and transposed up."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.first = nn.Conv3d(1, width, 5, 1, 2)
        sizes = (width, 2 * width, 4 * width)
        self.down = nn.ModuleList(nn.Conv3d(a, b, 2, 2) for a, b in pairwise(sizes))
        self.units = nn.ModuleList(nn.Sequential(nn.Conv3d(n, n, 5, 1, 2), nn.PReLU(n)) for n in sizes[1:])
        self.up = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in pairwise(sizes))
        self.joins = nn.ModuleList(nn.Sequential(nn.Conv3d(2 * n, n, 5, 1, 2), nn.PReLU(n)) for n in sizes[:2])
        self.last = nn.Conv3d(width, 2, 1)

    def forward(self, volume: Tensor) -> Any:
        x = self.first(volume) + volume
        skips = []
        for down, unit in zip(self.down, self.units, strict=True):
            skips.append(x)
            x = down(x)
            x = x + unit(x)
        for up, join, skip in reversed(list(zip(self.up, self.joins, skips, strict=True))):
            x = up(x)
            x = x + join(torch.cat([x, skip], 1))
        return self.last(x).softmax(1)


class SlowFast(nn.Module):
    """SlowFast: few frames with many channels beside many frames with few, joined by strided convolutions along time."""

    def __init__(self) -> None:
        super().__init__()

        def layer(a: int, b: int, kernel: tuple[int, int, int], stride: tuple[int, int, int]) -> nn.Module:
            pad = tuple(k // 2 for k in kernel)
            return nn.Sequential(nn.Conv3d(a, b, kernel, stride, pad, bias=False), nn.BatchNorm3d(b), nn.ReLU())

        self.slow = nn.ModuleList(
            [
                layer(3, 64, (1, 7, 7), (1, 2, 2)),
                layer(80, 128, (1, 3, 3), (1, 2, 2)),
                layer(160, 256, (3, 3, 3), (1, 2, 2)),
            ]
        )
        self.fast = nn.ModuleList(
            [layer(3, 8, (5, 7, 7), (1, 2, 2)), layer(8, 16, (3, 3, 3), (1, 2, 2)), layer(16, 32, (3, 3, 3), (1, 2, 2))]
        )
        self.across = nn.ModuleList(layer(n, 2 * n, (5, 1, 1), (4, 1, 1)) for n in (8, 16))
        self.head = nn.Linear(288, 400)

    def forward(self, frames: Tensor) -> Any:
        slow, fast = frames[:, :, ::4], frames
        for k, (one, other) in enumerate(zip(self.slow, self.fast, strict=True)):
            slow, fast = one(slow), other(fast)
            if k < 2:
                slow = torch.cat([slow, self.across[k](fast)], 1)
        return self.head(torch.cat([slow.mean((2, 3, 4)), fast.mean((2, 3, 4))], -1))


class Streams(nn.Module):
    """MoViNet: causal separable convolutions over space and time, with gates from the mean of all frames so far."""

    def __init__(self, width: int = 48, inner: int = 96, blocks: int = 3) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv3d(3, width, (1, 3, 3), (1, 2, 2), (0, 1, 1)), nn.Hardswish())
        self.expand = nn.ModuleList(nn.Sequential(nn.Conv3d(width, inner, 1), nn.Hardswish()) for _ in range(blocks))
        self.space = nn.ModuleList(
            nn.Conv3d(inner, inner, (1, 5, 5), padding=(0, 2, 2), groups=inner) for _ in range(blocks)
        )
        self.time = nn.ModuleList(nn.Conv3d(inner, inner, (3, 1, 1), groups=inner) for _ in range(blocks))
        self.gates = nn.ModuleList(
            nn.Sequential(nn.Conv3d(2 * inner, 24, 1), nn.Hardswish(), nn.Conv3d(24, inner, 1)) for _ in range(blocks)
        )
        self.down = nn.ModuleList(nn.Conv3d(inner, width, 1) for _ in range(blocks))
        self.head = nn.Linear(width, 600)

    def forward(self, frames: Tensor) -> Any:
        x = self.stem(frames)
        count = torch.arange(1, x.shape[2] + 1, device=x.device, dtype=x.dtype)[:, None, None]
        for expand, space, time, gate, down in zip(
            self.expand, self.space, self.time, self.gates, self.down, strict=True
        ):
            y = F.hardswish(time(F.pad(space(expand(x)), (0, 0, 0, 0, 2, 0))))
            mean = y.mean((3, 4), keepdim=True)
            y = y * F.hardsigmoid(gate(torch.cat([mean, mean.cumsum(2) / count], 1)))
            x = x + down(y)
        return self.head(x.mean((2, 3, 4)))


NETWORKS: Mapping[str, Network] = {
    "arcface": Network(Faces, image(112)),
    "bisenet": Network(TwoBranches, image(256)),
    "pointrend": Network(Rendered, image(224)),
    "basicvsr": Network(Warped, inputs(frames=uniform(1, 5, 3, 64, 64))),
    "maxim": Network(Axes, image(64)),
    "cyclegan": Network(Cycle, image(128)),
    "spade": Network(Layouts, inputs(noise=normal(1, 64), layout=uniform(1, 16, 64, 64))),
    "hourglass": Network(Hourglass, image(256)),
    "centernet": Network(Centers, image(256)),
    "var": Network(Scales, inputs(ids=lambda n: torch.randint(0, 4096, (n, 680)))),
    "triplane": Network(Planes, inputs(latent=normal(1, 128), points=lambda n: 2 * torch.rand(n, 256, 24, 3) - 1)),
    "vnet": Network(Volumes, inputs(volume=normal(1, 1, 32, 32, 32))),
    "slowfast": Network(SlowFast, inputs(frames=normal(1, 3, 16, 96, 96))),
    "movinet": Network(Streams, inputs(frames=normal(1, 3, 8, 64, 64))),
}
