"""Hand-written networks for images, volumes and video."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, heads, image, inputs, joined, normal, normed, perceptron

_mish, _silu = partial(normed, activation=nn.Mish), partial(normed, activation=nn.SiLU)


def c3d() -> nn.Module:
    """Returns a C3D: 3-d convolutions over video."""
    return nn.Sequential(
        nn.Conv3d(3, 32, 3, padding=1),
        nn.BatchNorm3d(32),
        nn.ReLU(),
        nn.MaxPool3d((1, 2, 2)),
        nn.Conv3d(32, 64, 3, padding=1),
        nn.BatchNorm3d(64),
        nn.ReLU(),
        nn.MaxPool3d(2),
        nn.Conv3d(64, 64, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(64, 10),
    )


def r2plus1d() -> nn.Module:
    """Returns an R(2+1)D: alternating convolutions over the image and over time."""
    return nn.Sequential(
        nn.Conv3d(3, 24, (1, 7, 7), (1, 2, 2), (0, 3, 3)),
        nn.BatchNorm3d(24),
        nn.ReLU(),
        nn.Conv3d(24, 32, (3, 1, 1), padding=(1, 0, 0)),
        nn.BatchNorm3d(32),
        nn.ReLU(),
        nn.Conv3d(32, 48, (1, 3, 3), (1, 2, 2), (0, 1, 1)),
        nn.ReLU(),
        nn.Conv3d(48, 64, (3, 1, 1), padding=(1, 0, 0)),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(64, 20),
    )


class UNet3d(nn.Module):
    """A 3-d U-Net with one downsampling step, instance norms without weights."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Sequential(nn.Conv3d(a, b, 3, padding=1), nn.InstanceNorm3d(b), nn.LeakyReLU(0.01))
            for a, b in ((1, 16), (16, 32))
        )
        self.up, self.head = nn.ConvTranspose3d(32, 16, 2, 2), nn.Conv3d(32, 3, 1)

    def forward(self, volume: Tensor) -> Any:
        kept = self.first(volume)
        return self.head(torch.cat([self.up(self.second(F.max_pool3d(kept, 2))), kept], 1))


class UNet(nn.Module):
    """A U-Net with instance norms, average pooling and bilinear upsampling."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self.block(3, 24), self.block(24, 48), self.block(48, 96)])
        self.up = nn.ModuleList([self.block(96 + 48, 48), self.block(48 + 24, 24)])
        self.head = nn.Conv2d(24, 2, 1)

    def block(self, channels: int, outputs: int) -> nn.Module:
        layers: list[nn.Module] = []
        for width in (channels, outputs):
            layers += [nn.Conv2d(width, outputs, 3, padding=1), nn.InstanceNorm2d(outputs, affine=True)]
            layers.append(nn.LeakyReLU(0.01))
        return nn.Sequential(*layers)

    def forward(self, image: Tensor) -> Any:
        values = self.down[0](image)
        kept = [values]
        for down in self.down[1:]:
            values = down(F.avg_pool2d(values, 2))
            kept.append(values)
        kept.pop()
        for up in self.up:
            larger = F.interpolate(values, scale_factor=2, mode="bilinear", align_corners=True)
            values = up(torch.cat([larger, kept.pop()], 1))
        return self.head(values)


class ShuffleGroups(nn.Module):
    """ShuffleNet's blocks of three groups, with hard swish and Mish."""

    def __init__(self, channels: int = 96) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, channels, 4, 4)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                normed(channels, channels, 1, groups=3, activation=nn.Hardswish),
                nn.ChannelShuffle(3),
                normed(channels, channels, 5, groups=channels, activation=nn.Identity),
                normed(channels, channels, 1, groups=3, activation=nn.Identity),
            )
            for _ in range(5)
        )

    def forward(self, image: Tensor) -> Any:
        values = self.stem(image)
        for block in self.blocks:
            values = F.mish(values + block(values))
        return values.mean((2, 3))


class Capsules(nn.Module):
    """A capsule network: votes of small vectors, routed by agreement in three rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 64, 9), nn.ReLU(), nn.Conv2d(64, 64, 9, 2))
        self.votes = nn.Parameter(0.05 * torch.randn(10, 288, 8, 16))

    def forward(self, image: Tensor) -> Any:
        capsules = self.features(image).reshape(image.shape[0], -1, 8)
        capsules = capsules / (1 + capsules.pow(2).sum(-1, keepdim=True))
        votes = torch.einsum("bif,jifo->bjio", capsules, self.votes)
        agreement = torch.zeros_like(votes[..., :1])
        for _ in range(3):
            out = (agreement.softmax(1) * votes).sum(2)
            out = out * out.norm(dim=-1, keepdim=True) / (1 + out.pow(2).sum(-1, keepdim=True))
            agreement = agreement + (votes * out[:, :, None]).sum(-1, keepdim=True)
        return out.norm(dim=-1)


class ConvLSTM(nn.Module):
    """An LSTM over video whose products are convolutions, unrolled by the export."""

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.channels, self.gates = channels, nn.Conv2d(channels + 3, 4 * channels, 3, padding=1)

    def forward(self, video: Tensor) -> Any:
        hidden = cell = video.new_zeros(video.shape[0], self.channels, *video.shape[3:])
        for frame in video.unbind(1):
            enter, forget, out, new = self.gates(torch.cat([frame, hidden], 1)).chunk(4, 1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            hidden = torch.sigmoid(out) * torch.tanh(cell)
        return hidden


def _boxes(values: Tensor, width: int) -> Tensor:
    """Returns a map's channels as rows of a given width, one per position and anchor."""
    return values.permute(0, 2, 3, 1).reshape(values.shape[0], -1, width)


class SSD(nn.Module):
    """SSD with a MobileNet: the corners of the hundred best boxes, and their scores."""

    def __init__(self) -> None:
        super().__init__()
        relu6 = partial(normed, activation=nn.ReLU6)
        layers = [relu6(3, 16, stride=2)]
        for channels in (16, 32, 64):
            layers += [relu6(channels, channels, stride=2, groups=channels), relu6(channels, 2 * channels, 1)]
        self.features = nn.Sequential(*layers)
        self.boxes, self.classes = nn.Conv2d(128, 24, 3, padding=1), nn.Conv2d(128, 6 * 21, 3, padding=1)

    def forward(self, image: Tensor) -> Any:
        features = self.features(image)
        boxes, classes = _boxes(self.boxes(features), 4), _boxes(self.classes(features), 21).softmax(-1)
        scores, best = classes[..., 1:].max(-1).values.topk(100, -1)
        boxes = torch.gather(boxes, 1, best[..., None].expand(-1, -1, 4))
        center, half = boxes[..., :2], boxes[..., 2:].exp() / 2
        return torch.cat([center - half, center + half], -1), scores


class RetinaNet(nn.Module):
    """RetinaNet's heads: the two hundred best pairs of box and class, with box, score and class."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(normed(3, 32, stride=2), normed(32, 48, stride=2), normed(48, 64, stride=2))
        classes = nn.Conv2d(64, 9 * 20, 3, padding=1)
        self.classes = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(), classes)
        self.boxes = nn.Conv2d(64, 36, 3, padding=1)

    def forward(self, image: Tensor) -> Any:
        features = self.features(image)
        boxes, classes = _boxes(self.boxes(features), 4), _boxes(self.classes(features), 20).sigmoid()
        scores, best = classes.flatten(1).topk(200)
        boxes = torch.gather(boxes, 1, (best // 20)[..., None].expand(-1, -1, 4))
        return torch.cat([boxes, scores[..., None], (best % 20)[..., None].to(boxes.dtype)], -1)


class DETR(nn.Module):
    """DETR: a transformer whose learned queries become boxes."""

    def __init__(self) -> None:
        super().__init__()
        widths = (3, 32, 64, 96, 128)
        self.features = nn.Sequential(*(normed(a, b, stride=2) for a, b in pairwise(widths)))
        self.transformer = nn.Transformer(128, 4, 1, 1, 256, batch_first=True, dropout=0.0)
        self.queries, self.positions = nn.Parameter(torch.randn(20, 128)), nn.Parameter(torch.randn(100, 128))
        self.classes, self.boxes = nn.Linear(128, 11), nn.Linear(128, 4)

    def forward(self, image: Tensor) -> Any:
        places = self.features(image).flatten(2).transpose(1, 2) + self.positions
        found = self.transformer(places, self.queries.expand(image.shape[0], -1, -1))
        return torch.cat([self.classes(found), self.boxes(found).sigmoid()], -1)


class YoloNeck(nn.Module):
    """A YOLO's neck with Mish: deep features upsampled and concatenated with shallow ones."""

    def __init__(self) -> None:
        super().__init__()
        self.shallow = nn.Sequential(_mish(3, 32, stride=2), _mish(32, 64, stride=2))
        self.deep = nn.Sequential(_mish(64, 128, stride=2), _mish(128, 64, 1), _mish(64, 128), _mish(128, 64, 1))
        self.head = nn.Sequential(_mish(128, 64), nn.Conv2d(64, 30, 1))

    def forward(self, image: Tensor) -> Any:
        shallow = self.shallow(image)
        return self.head(torch.cat([F.interpolate(self.deep(shallow), scale_factor=2), shallow], 1))


class PyramidPool(nn.Module):
    """Spatial pyramid pooling: max pooling with three window sizes, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(_silu(3, 32, stride=2), _silu(32, 64, stride=2), _silu(64, 64, stride=2))
        self.head = _silu(256, 64, 1)

    def forward(self, image: Tensor) -> Any:
        values = self.features(image)
        return self.head(torch.cat([values, *(F.max_pool2d(values, k, 1, k // 2) for k in (5, 9, 13))], 1))


class DeepLab(nn.Module):
    """DeepLab's atrous pyramid: dilated convolutions and the image's mean, concatenated."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(normed(3, 32, stride=2), normed(32, 48, stride=2), normed(48, 64, stride=2))
        self.branches = nn.ModuleList([normed(64, 32, 1)])
        for dilation in (6, 12, 18):
            convolution = nn.Conv2d(64, 32, 3, padding=dilation, dilation=dilation)
            self.branches.append(nn.Sequential(convolution, nn.BatchNorm2d(32), nn.ReLU()))
        self.mean = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(64, 32, 1), nn.ReLU())
        self.head = nn.Sequential(nn.Conv2d(160, 48, 1), nn.ReLU(), nn.Conv2d(48, 21, 1))

    def forward(self, image: Tensor) -> Any:
        values = self.features(image)
        parts = [branch(values) for branch in self.branches]
        parts.append(F.interpolate(self.mean(values), size=values.shape[2:]))
        return F.interpolate(self.head(torch.cat(parts, 1)), scale_factor=8, mode="bilinear")


class FPN(nn.Module):
    """A feature pyramid: three maps, each added to the upsampled next smaller one."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(normed(3, 32, stride=2), normed(32, 48, stride=2))
        self.second, self.third = normed(48, 96, stride=2), normed(96, 128, stride=2)
        self.lateral = nn.ModuleList(nn.Conv2d(channels, 48, 1) for channels in (48, 96, 128))
        self.head = nn.Conv2d(48, 24, 3, padding=1)

    def forward(self, image: Tensor) -> Any:
        first = self.first(image)
        second = self.second(first)
        high, middle, low = (f(v) for f, v in zip(self.lateral, (first, second, self.third(second)), strict=True))
        middle = middle + F.interpolate(low, scale_factor=2.0, mode="nearest")
        high = high + F.interpolate(middle, scale_factor=2.0, mode="nearest")
        return self.head(high), self.head(middle), self.head(low)


class SwinWindows(nn.Module):
    """Swin's attention in shifted windows of 7 by 7, with a bias for each pair of positions."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.out = nn.Linear(96, 288), nn.Linear(96, 96)
        self.bias = nn.Parameter(torch.randn(3, 49, 49))

    def forward(self, values: Tensor) -> Any:
        shifted = torch.roll(values, (-3, -3), (1, 2)).reshape(-1, 8, 7, 8, 7, 96)
        windows = shifted.permute(0, 1, 3, 2, 4, 5).reshape(-1, 49, 96)
        query, key, value = (heads(part, 3) for part in self.attention(windows).chunk(3, -1))
        weights = ((query @ key.transpose(-1, -2)) * 32**-0.5 + self.bias).softmax(-1)
        windows = self.out(joined(weights @ value)).reshape(-1, 8, 8, 7, 7, 96)
        return windows.permute(0, 1, 3, 2, 4, 5).reshape(-1, 56, 56, 96)


class NonLocal(nn.Module):
    """A non-local block: attention of all pixels to pooled ones."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.key, self.value = (nn.Conv2d(64, 32, 1) for _ in range(3))
        self.out = nn.Conv2d(32, 64, 1)

    def forward(self, values: Tensor) -> Any:
        query = self.query(values)
        key, value = (F.max_pool2d(part(values), 2).flatten(2) for part in (self.key, self.value))
        weights = (query.flatten(2).transpose(1, 2) @ key).softmax(-1)
        return values + self.out((weights @ value.transpose(1, 2)).transpose(1, 2).reshape(query.shape))


class Involution(nn.Module):
    """An involution: kernels computed at each position, shared by groups of channels."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels = nn.Sequential(nn.Conv2d(64, 16, 1), nn.ReLU(), nn.Conv2d(16, 36, 1))

    def forward(self, values: Tensor) -> Any:
        kernels = self.kernels(values).reshape(-1, 4, 1, 9, 28, 28)
        windows = F.unfold(values, 3, padding=1).reshape(-1, 4, 16, 9, 28, 28)
        return (kernels * windows).sum(3).reshape(values.shape)


class CBAM(nn.Module):
    """CBAM: gates for channels, then for pixels, from means and maxima."""

    def __init__(self) -> None:
        super().__init__()
        self.channels, self.pixels = perceptron(64, 8, 64), nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, values: Tensor) -> Any:
        gate = torch.sigmoid(self.channels(values.mean((2, 3))) + self.channels(values.amax((2, 3))))
        values = values * gate[:, :, None, None]
        pooled = torch.cat([values.mean(1, keepdim=True), values.max(1, keepdim=True).values], 1)
        return values * torch.sigmoid(self.pixels(pooled))


class PoolMixer(nn.Module):
    """A block of EfficientFormer: pooling instead of attention, scaled, and an MLP."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.randn(96, 1, 1))
        self.layers = nn.Sequential(nn.Conv2d(96, 384, 1), nn.GELU(), nn.Conv2d(384, 96, 1))

    def forward(self, values: Tensor) -> Any:
        pooled = F.avg_pool2d(values, 3, 1, 1, count_include_pad=False)
        return values + self.scale * (pooled - values) + self.layers(values)


def inverted() -> nn.Module:
    """Returns four consecutive inverted bottlenecks without residuals."""
    layers: list[nn.Module] = []
    for _ in range(4):
        layers += [normed(48, 96, 1, activation=nn.Hardswish), normed(96, 96, 5, 1, 96, nn.Hardswish)]
        layers += [nn.Conv2d(96, 48, 1, bias=False), nn.BatchNorm2d(48)]
    return nn.Sequential(*layers)


def pools() -> nn.Module:
    """Returns a stack of every kind of pooling, between grouped convolutions."""
    return nn.Sequential(
        normed(3, 24, 7, 2),
        nn.MaxPool2d(3, 2, 1),
        normed(24, 24, groups=24),
        normed(24, 48, 1),
        nn.LPPool2d(2, 2),
        normed(48, 48, 1, groups=4),
        nn.AvgPool2d(3, 2, 1),
        nn.Hardsigmoid(),
        nn.Flatten(),
        nn.Linear(4800, 10),
    )


def norms() -> nn.Module:
    """Returns a stack of rare norms and activations."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 3, 2, 1),
        nn.LocalResponseNorm(5),
        nn.CELU(),
        nn.Conv2d(32, 48, 3, 2, 1),
        nn.GroupNorm(6, 48),
        nn.Softsign(),
        nn.Conv2d(48, 64, 3, 2, 1),
        nn.LayerNorm([64, 20, 20]),
        nn.Tanhshrink(),
        nn.Flatten(),
        nn.Linear(25600, 16),
    )


NETWORKS: Mapping[str, Network] = {
    "c3d": Network(c3d, inputs(video=normal(1, 3, 8, 56, 56))),
    "r2plus1d": Network(r2plus1d, inputs(video=normal(1, 3, 8, 80, 80))),
    "unet3d": Network(UNet3d, inputs(volume=normal(1, 1, 24, 32, 32))),
    "unet_in": Network(UNet, image(128)),
    "shuffle3": Network(ShuffleGroups, image(160)),
    "caps": Network(Capsules, image(28, 1, 4)),
    "convlstm": Network(ConvLSTM, inputs(video=normal(1, 6, 3, 48, 48))),
    "ssd": Network(SSD, image(300)),
    "retina": Network(RetinaNet, image(128)),
    "detr": Network(DETR, image(160)),
    "cspmish": Network(YoloNeck, image(192)),
    "spp": Network(PyramidPool, image(256)),
    "deeplab": Network(DeepLab, image(256)),
    "fpn": Network(FPN, image(192)),
    "swinwin": Network(SwinWindows, inputs(values=normal(1, 56, 56, 96))),
    "nonlocal": Network(NonLocal, image(28, 64)),
    "involution": Network(Involution, image(28, 64)),
    "cbam": Network(CBAM, image(56, 64, 2)),
    "efficientformer": Network(PoolMixer, image(28, 96)),
    "ghostish": Network(inverted, image(56, 48)),
    "cellpool": Network(pools, image(160)),
    "norms": Network(norms, image(160)),
}
