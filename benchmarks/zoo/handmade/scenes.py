"""Images, video and volumes: keypoints, text, salient objects, mattes, words in detectors, views, sparse voxels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, heads, image, inputs, joined, normal, normed, perceptron

__all__ = ["NETWORKS"]


class FastKeypoints(nn.Module):
    """XFeat: features at three scales, keypoints from blocks of 8 x 8, the 256 best peaks with interpolated descriptors."""

    def __init__(self, most: int = 256) -> None:
        super().__init__()
        self.most, self.norm = most, nn.InstanceNorm2d(1)
        self.skip = nn.Conv2d(1, 24, 1, 4)
        self.start = nn.Sequential(normed(1, 4), normed(4, 8, 3, 2), normed(8, 8), normed(8, 24, 3, 2))
        self.one, self.two, self.three = (
            nn.Sequential(normed(24, 64, 3, 2), normed(64, 64)),
            nn.Sequential(normed(64, 64, 3, 2), normed(64, 64)),
            nn.Sequential(normed(64, 128, 3, 2), normed(128, 64, 1)),
        )
        self.fuse = nn.Sequential(normed(64, 64), normed(64, 64), nn.Conv2d(64, 64, 1))
        self.heat = nn.Sequential(normed(64, 64, 1), nn.Conv2d(64, 1, 1), nn.Sigmoid())
        self.points = nn.Sequential(normed(64, 64, 1), normed(64, 64, 1), nn.Conv2d(64, 65, 1))

    def forward(self, image: Tensor) -> Any:
        x = self.norm(image.mean(1, keepdim=True))
        h, w = x.shape[2:]
        one = self.one(self.start(x) + self.skip(x))
        two = self.two(one)
        three = self.three(two)
        size = one.shape[2:]
        maps = self.fuse(one + sum(F.interpolate(v, size, mode="bilinear", align_corners=False) for v in (two, three)))
        blocks = x.unflatten(3, (w // 8, 8)).unflatten(2, (h // 8, 8)).permute(0, 1, 3, 5, 2, 4).flatten(1, 3)
        chance = self.points(blocks).softmax(1)[:, :64]
        peaks = F.pixel_shuffle(chance, 8)
        peaks = torch.where((peaks == F.max_pool2d(peaks, 5, 1, 2)) & (peaks > 0.01), peaks, 0.0)
        score = (peaks * F.interpolate(self.heat(maps), (h, w), mode="bilinear")).flatten(1)
        score, at = score.topk(self.most, -1)
        where = torch.stack([at % w / (w - 1) * 2 - 1, at // w / (h - 1) * 2 - 1], -1).to(x.dtype)
        found = F.grid_sample(F.normalize(maps, dim=1), where[:, None], mode="bicubic", align_corners=False)[:, :, 0]
        return score, F.normalize(found.transpose(1, 2), dim=-1)


class TextRegions(nn.Module):
    """DBNet: a pyramid with attention over scales, and a map that is made binary by a steep sigmoid."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        widths = (64, 128, 256, 512)
        self.stem = nn.Sequential(normed(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1))
        self.stages = nn.ModuleList(
            nn.Sequential(normed(a, b, 3, 1 if n == 0 else 2), normed(b, b))
            for n, (a, b) in enumerate(zip((64, *widths), widths, strict=False))
        )
        self.ins = nn.ModuleList(nn.Conv2d(w, 256, 1, bias=False) for w in widths)
        self.outs = nn.ModuleList(nn.Conv2d(256, width, 3, padding=1, bias=False) for _ in widths)
        self.squeeze, self.weigh = nn.Conv2d(256, width, 3, padding=1), perceptron(width, 16, 4)
        self.heads = nn.ModuleList(
            nn.Sequential(
                normed(256, 64),
                nn.ConvTranspose2d(64, 64, 2, 2),
                nn.BatchNorm2d(64),
                nn.ReLU(),
                nn.ConvTranspose2d(64, 1, 2, 2),
                nn.Sigmoid(),
            )
            for _ in range(2)
        )

    def forward(self, image: Tensor) -> Any:
        x, found = self.stem(image), []
        for stage in self.stages:
            x = stage(x)
            found.append(x)
        maps = [into(v) for into, v in zip(self.ins, found, strict=True)]
        for n in (2, 1, 0):
            maps[n] = maps[n] + F.interpolate(maps[n + 1], scale_factor=2.0)
        parts = [
            F.interpolate(out(v), scale_factor=2.0**n) for n, (out, v) in enumerate(zip(self.outs, maps, strict=True))
        ]
        weights = self.weigh(self.squeeze(torch.cat(parts, 1)).mean((2, 3))).sigmoid()
        fused = torch.cat([p * weights[:, n, None, None, None] for n, p in enumerate(parts)], 1)
        likely, limit = (head(fused) for head in self.heads)
        return torch.sigmoid(50 * (likely - limit)), likely


class NestedUnits(nn.Module):
    """U2-Net: units that are U-Nets themselves, with dilated bottoms, and six side outputs that are fused."""

    def __init__(self) -> None:
        super().__init__()
        self.encoders = nn.ModuleList(
            _Unit(a, m, b, d) for a, m, b, d in ((3, 16, 64, 4), (64, 16, 64, 3), (64, 16, 64, 2))
        )
        self.decoders = nn.ModuleList(_Unit(128, 16, 64, d) for d in (3, 4))
        self.sides = nn.ModuleList(nn.Conv2d(64, 1, 3, padding=1) for _ in range(3))
        self.fuse = nn.Conv2d(3, 1, 1)

    def forward(self, image: Tensor) -> Any:
        x, kept = image, []
        for n, encoder in enumerate(self.encoders):
            x = encoder(x if n == 0 else F.max_pool2d(x, 2, 2))
            kept.append(x)
        made = [x]
        for decoder, skip in zip(self.decoders, reversed(kept[:-1]), strict=True):
            x = decoder(torch.cat([F.interpolate(x, skip.shape[2:], mode="bilinear"), skip], 1))
            made.append(x)
        size = image.shape[2:]
        sides = [F.interpolate(s(v), size, mode="bilinear") for s, v in zip(self.sides, made, strict=True)]
        return self.fuse(torch.cat(sides, 1)).sigmoid()


class _Unit(nn.Module):
    """A residual U-Net of given depth."""

    def __init__(self, channels: int, middle: int, outputs: int, depth: int) -> None:
        super().__init__()
        self.first = normed(channels, outputs)
        self.down = nn.ModuleList(normed(outputs if n == 0 else middle, middle) for n in range(depth))
        self.bottom = nn.Sequential(
            nn.Conv2d(middle, middle, 3, padding=2, dilation=2, bias=False), nn.BatchNorm2d(middle), nn.ReLU()
        )
        self.up = nn.ModuleList(normed(2 * middle, outputs if n == depth - 1 else middle) for n in range(depth))

    def forward(self, image: Tensor) -> Tensor:
        first = self.first(image)
        x, kept = first, []
        for n, layer in enumerate(self.down):
            x = layer(x if n == 0 else F.max_pool2d(x, 2, 2))
            kept.append(x)
        x = self.bottom(x)
        for layer, skip in zip(self.up, reversed(kept), strict=True):
            if x.shape != skip.shape:
                x = F.interpolate(x, skip.shape[2:], mode="bilinear")
            x = layer(torch.cat([x, skip], 1))
        return x + first


class Mattes(nn.Module):
    """Robust video matting: convolutional GRUs over four frames of small maps, and a guided filter up to the frame's size."""

    def __init__(self, width: int = 48) -> None:
        super().__init__()
        self.body = nn.Sequential(normed(3, 16, 3, 2), normed(16, 32, 3, 2), normed(32, width, 3, 2))
        self.gates = nn.Conv2d(2 * width, 2 * width, 3, padding=1)
        self.new = nn.Conv2d(2 * width, width, 3, padding=1)
        self.up = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="bilinear"), normed(width, 24), nn.Conv2d(24, 4, 3, padding=1)
        )
        self.local = nn.Sequential(nn.Conv2d(8, 16, 1), nn.ReLU(), nn.Conv2d(16, 4, 1))

    def forward(self, frames: Tensor) -> Any:
        b, t = frames.shape[:2]
        small = F.interpolate(frames.flatten(0, 1), scale_factor=0.5, mode="bilinear")
        maps = self.body(small).unflatten(0, (b, t))
        state, states = torch.zeros_like(maps[:, 0]), []
        for x in maps.unbind(1):
            reset, update = self.gates(torch.cat([x, state], 1)).sigmoid().chunk(2, 1)
            new = self.new(torch.cat([x, reset * state], 1)).tanh()
            state = (1 - update) * state + update * new
            states.append(state)
        made = F.interpolate(self.up(torch.stack(states, 1).flatten(0, 1)), small.shape[2:], mode="bilinear")
        guide = torch.cat([small, small.mean(1, keepdim=True)], 1)
        mean_x, mean_y = (F.avg_pool2d(v, 3, 1, 1) for v in (guide, made))
        cover = F.avg_pool2d(guide * made, 3, 1, 1) - mean_x * mean_y
        spread = F.avg_pool2d(guide * guide, 3, 1, 1) - mean_x * mean_x
        slope = self.local(torch.cat([cover, spread], 1))
        shift = mean_y - slope * mean_x
        whole = frames.flatten(0, 1)
        size = whole.shape[2:]
        slope, shift = (F.interpolate(v, size, mode="bilinear") for v in (slope, shift))
        full = torch.cat([whole, whole.mean(1, keepdim=True)], 1)
        y = slope * full + shift
        return (y[:, :3] + whole).clamp(0, 1), y[:, 3:].clamp(0, 1)


class WordsInPyramids(nn.Module):
    """YOLO-World: features weighed by their most similar word, words updated from pooled images, scores as cosines."""

    def __init__(self, width: int = 128, words: int = 256) -> None:
        super().__init__()
        self.body = nn.ModuleList(
            [
                nn.Sequential(normed(3, 32, 3, 2), normed(32, 64, 3, 2), normed(64, width, 3, 2)),
                normed(width, width, 3, 2),
            ]
        )
        self.mix = nn.ModuleList(normed(width, width, activation=nn.SiLU) for _ in range(2))
        self.guides = nn.ModuleList(nn.Linear(words, width) for _ in range(2))
        self.bias = nn.Parameter(torch.zeros(2, 4))
        self.query, self.key, self.value = nn.Linear(words, words), nn.Linear(width, words), nn.Linear(width, words)
        self.out, self.embed = nn.Linear(words, words), nn.Conv2d(width, words, 1)
        self.boxes = nn.Conv2d(width, 64, 1)
        self.scale, self.shift = nn.Parameter(torch.tensor(2.0)), nn.Parameter(torch.tensor(-4.0))

    def weighed(self, x: Tensor, text: Tensor, n: int) -> Tensor:
        guide = self.guides[n](text).unflatten(-1, (4, -1))
        maps = x.unflatten(1, (4, -1))
        scores = torch.einsum("bmchw,bnmc->bmhwn", maps, guide)
        best = (scores.amax(-1) / maps.shape[2] ** 0.5 + self.bias[n][:, None, None]).sigmoid()
        return (self.mix[n](x).unflatten(1, (4, -1)) * best[:, :, None]).flatten(1, 2)

    def forward(self, image: Tensor, text: Tensor) -> Any:
        large = self.body[0](image)
        small = self.body[1](large)
        small = self.weighed(small, text, 0)
        large = self.weighed(large + F.interpolate(small, scale_factor=2.0), text, 1)
        pooled = torch.cat([F.max_pool2d(v, v.shape[-1] // 3).flatten(2) for v in (large, small)], 2).transpose(1, 2)
        query, key, value = heads(self.query(text), 8), heads(self.key(pooled), 8), heads(self.value(pooled), 8)
        text = F.normalize(text + self.out(joined(F.scaled_dot_product_attention(query, key, value))), dim=-1)
        results = []
        for x in (large, small):
            scores = torch.einsum("bchw,bnc->bnhw", F.normalize(self.embed(x), dim=1), text)
            sides = self.boxes(x).flatten(2).unflatten(1, (4, 16)).softmax(2)
            distance = (sides * torch.arange(16, device=x.device, dtype=x.dtype)[:, None]).sum(2)
            results.append(torch.cat([(scores * self.scale.exp() + self.shift).flatten(2), distance], 1))
        return torch.cat(results, 2)


class Sweep(nn.Module):
    """MVSplat: two views, correlations of features that 32 planes warp, a distribution of depth, and points with colors."""

    planes: Tensor

    def __init__(self, width: int = 64, depths: int = 32) -> None:
        super().__init__()
        self.body = nn.Sequential(normed(3, 32, 3, 2), normed(32, width, 3, 2), nn.Conv2d(width, width, 3, padding=1))
        self.refine = nn.Sequential(normed(depths + width, 64), nn.Conv2d(64, depths, 3, padding=1))
        self.points = nn.Conv2d(width + depths + 1, 14, 1)
        self.register_buffer("planes", 1 / torch.linspace(1 / 8, 1, depths))

    def forward(self, views: Tensor, pose: Tensor) -> Any:
        b, h, w = views.shape[0], views.shape[3] // 4, views.shape[4] // 4
        maps = self.body(views.flatten(0, 1)).unflatten(0, (b, 2))
        here, there = maps[:, 0], maps[:, 1]
        y, x = torch.meshgrid(
            torch.linspace(-1, 1, h, device=views.device), torch.linspace(-1, 1, w, device=views.device), indexing="ij"
        )
        rays = torch.stack([x, y, torch.ones_like(x)], -1).to(views.dtype).flatten(0, 1)
        turned = rays @ (pose[:, :, :3] * 0.05 + torch.eye(3, device=pose.device, dtype=pose.dtype)).transpose(1, 2)
        moved = turned[:, None] * self.planes[:, None, None] + 0.1 * pose[:, None, None, :, 3]
        at = (moved[..., :2] / moved[..., 2:].clamp(min=0.1)).reshape(b, -1, w, 2)
        warped = F.grid_sample(there, at, align_corners=True).unflatten(2, (-1, h))
        cost = (warped * here[:, :, None]).sum(1) / here.shape[1] ** 0.5
        chance = (cost + self.refine(torch.cat([cost, here], 1))).softmax(1)
        depth = (chance * self.planes[:, None, None]).sum(1, keepdim=True)
        numbers = self.points(torch.cat([here, chance, depth], 1)).flatten(2).transpose(1, 2)
        places = rays * depth.flatten(2).transpose(1, 2)
        turn = F.normalize(numbers[..., 3:7], dim=-1)
        return torch.cat(
            [places + numbers[..., :3] * 0.01, turn, numbers[..., 7:10].exp(), numbers[..., 10:].sigmoid()], -1
        )


class SparseVoxels(nn.Module):
    """Submanifold sparse convolutions: each of 2,048 voxels gathers its 27 neighbors' features by a table of indices."""

    def __init__(self, width: int = 32, layers: int = 3) -> None:
        super().__init__()
        self.first = nn.Linear(4, width)
        self.weights = nn.ParameterList(nn.Parameter(torch.randn(27 * width, width) / 30) for _ in range(layers))
        self.norms, self.head = nn.ModuleList(nn.LayerNorm(width) for _ in range(layers)), nn.Linear(width, 20)

    def forward(self, voxels: Tensor, near: Tensor) -> Any:
        x = self.first(voxels)
        for weight, norm in zip(self.weights, self.norms, strict=True):
            padded = F.pad(norm(x), (0, 0, 0, 1))  # the last row stands for neighbors that do not exist
            taken = padded.gather(1, near.flatten(1)[..., None].expand(-1, -1, x.shape[-1]))
            x = x + (taken.unflatten(1, near.shape[1:]).flatten(2) @ weight).relu()
        return self.head(x)


class AdaptiveScales(nn.Module):
    """SAFMN: channels split over four scales of adaptive pools, depthwise layers, nearest resizes, and gates."""

    def __init__(self, width: int = 36, layers: int = 3) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 48, 3, padding=1)
        part = width // 4
        self.scales = nn.ModuleList(
            nn.ModuleList(nn.Conv2d(part, part, 3, padding=1, groups=part) for _ in range(4)) for _ in range(layers)
        )
        self.mix = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(layers))
        self.grow = nn.ModuleList(
            nn.Sequential(nn.Conv2d(width, 2 * width, 3, padding=1), nn.GELU(), nn.Conv2d(2 * width, width, 1))
            for _ in range(layers)
        )
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))

    def normed(self, x: Tensor, n: int) -> Any:
        return self.norms[n](x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)

    def forward(self, image: Tensor) -> Any:
        x = first = self.first(image)
        h, w = image.shape[2:]
        for n, (scales, mix, grow) in enumerate(zip(self.scales, self.mix, self.grow, strict=True)):
            y, made = self.normed(x, 2 * n), []
            for s, (layer, part) in enumerate(zip(scales, y.chunk(4, 1), strict=True)):
                small = F.adaptive_max_pool2d(part, (h >> s, w >> s)) if s else part
                made.append(F.interpolate(layer(small), (h, w)) if s else layer(small))
            x = x + F.gelu(mix(torch.cat(made, 1))) * y
            x = x + grow(self.normed(x, 2 * n + 1))
        return F.pixel_shuffle(self.last(x + first), 4)


NETWORKS: Mapping[str, Network] = {
    "xfeat": Network(FastKeypoints, image(256)),
    "dbnet": Network(TextRegions, image(256)),
    "u2net": Network(NestedUnits, image(160)),
    "rvm": Network(Mattes, inputs(frames=normal(1, 4, 3, 192, 192))),
    "yoloworld": Network(WordsInPyramids, inputs(image=normal(1, 3, 256, 256), text=normal(1, 80, 256))),
    "mvsplat": Network(Sweep, inputs(views=normal(1, 2, 3, 192, 192), pose=normal(1, 3, 4))),
    "voxels": Network(
        SparseVoxels,
        inputs(voxels=normal(1, 2048, 4), near=lambda batch: torch.randint(0, 2049, (batch, 2048, 27))),
    ),
    "safmn": Network(AdaptiveScales, image(96)),
}
