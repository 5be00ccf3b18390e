"""Hand-written networks whose result is an image: from noise, from a smaller or a noisy image, or from two images."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .parts import Network, image, inputs, normal, normed


def dcgan() -> nn.Module:
    """Returns DCGAN's generator: transposed convolutions from noise to an image."""
    layers: list[nn.Module] = [nn.ConvTranspose2d(100, 256, 4, bias=False), nn.BatchNorm2d(256), nn.ReLU()]
    for channels, outputs in ((256, 128), (128, 64), (64, 32)):
        layers += [nn.ConvTranspose2d(channels, outputs, 4, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Tanh())


class EDSR(nn.Module):
    """EDSR: small residual steps and a pixel shuffle, in parallel with bicubic upsampling."""

    def __init__(self, channels: int = 32, blocks: int = 6, factor: int = 3) -> None:
        super().__init__()
        self.factor = factor
        self.stem = nn.Conv2d(3, channels, 3, padding=1)
        convolution = partial(nn.Conv2d, channels, channels, 3, padding=1)
        self.blocks = nn.ModuleList(nn.Sequential(convolution(), nn.ReLU(), convolution()) for _ in range(blocks))
        self.head = nn.Sequential(nn.Conv2d(channels, 3 * factor**2, 3, padding=1), nn.PixelShuffle(factor))

    def forward(self, image: Tensor) -> Any:
        first = values = self.stem(image)
        for block in self.blocks:
            values = values + 0.1 * block(values)
        larger = F.interpolate(image, scale_factor=self.factor, mode="bicubic", align_corners=False)
        return self.head(values + first) + larger


class ResidualDense(nn.Module):
    """ESRGAN's block: five convolutions, each reading the results of all previous ones."""

    def __init__(self, channels: int = 32, growth: int = 16) -> None:
        super().__init__()
        self.growing = nn.ModuleList(nn.Conv2d(channels + k * growth, growth, 3, padding=1) for k in range(4))
        self.last = nn.Conv2d(channels + 4 * growth, channels, 3, padding=1)

    def forward(self, values: Tensor) -> Any:
        known = [values]
        for layer in self.growing:
            known.append(F.leaky_relu(layer(torch.cat(known, 1)), 0.2))
        return values + 0.2 * self.last(torch.cat(known, 1))


def esrgan() -> nn.Module:
    """Returns a small ESRGAN: two residual dense blocks and upsampling to twice the size."""
    blocks = [nn.Conv2d(3, 32, 3, padding=1), ResidualDense(), ResidualDense(), nn.Upsample(scale_factor=2)]
    return nn.Sequential(*blocks, nn.Conv2d(32, 32, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(32, 3, 3, padding=1))


class PixelAttention(nn.Module):
    """PAN, for super-resolution: a gate for each pixel, and a pixel shuffle."""

    def __init__(self) -> None:
        super().__init__()
        self.values = nn.Sequential(nn.Conv2d(3, 24, 3, padding=1), nn.PReLU(24), nn.Conv2d(24, 24, 3, padding=1))
        self.gate = nn.Sequential(nn.Conv2d(3, 24, 1), nn.Sigmoid())
        self.head = nn.Conv2d(24, 12, 3, padding=1)

    def forward(self, image: Tensor) -> Any:
        return F.pixel_shuffle(self.head(self.values(image) * self.gate(image)), 2)


def dncnn() -> nn.Module:
    """Returns a DnCNN, which estimates the noise of an image: plain convolutions of one width."""
    middle = [normed(48, 48) for _ in range(5)]
    return nn.Sequential(nn.Conv2d(1, 48, 3, padding=1), nn.ReLU(), *middle, nn.Conv2d(48, 1, 3, padding=1))


def autoencoder() -> nn.Module:
    """Returns an image autoencoder with ELU and transposed convolutions."""
    encoder = [nn.Conv2d(1, 16, 3, 2, 1), nn.ELU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ELU()]
    decoder = [nn.ConvTranspose2d(32, 16, 3, 2, 1, 1), nn.ELU(), nn.ConvTranspose2d(16, 1, 3, 2, 1, 1)]
    return nn.Sequential(*encoder, *decoder, nn.Sigmoid())


class Denoiser(nn.Module):
    """A diffusion model's block: group norms, sinusoidal time embedding, attention over pixels."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        stem = [nn.Conv2d(3, 32, 7, 2, 3), nn.GroupNorm(8, 32), nn.SiLU()]
        self.stem = nn.Sequential(*stem, nn.Conv2d(32, 64, 3, 2, 1), nn.GroupNorm(8, 64), nn.SiLU())
        self.attention, self.out = nn.Conv2d(64, 192, 1), nn.Conv2d(64, 64, 1)
        self.time = nn.Linear(32, 64)
        self.register_buffer("frequencies", torch.arange(16.0))

    def forward(self, image: Tensor, time: Tensor) -> Any:
        angles = time[:, None] * self.frequencies
        values = self.stem(image) + self.time(torch.cat([angles.sin(), angles.cos()], 1))[:, :, None, None]
        query, key, value = self.attention(F.group_norm(values, 8)).flatten(2).chunk(3, 1)
        weights = ((query.transpose(1, 2) @ key) * 64**-0.5).softmax(-1)
        return values + self.out((value @ weights.transpose(1, 2)).view_as(values))


class OpticalFlow(nn.Module):
    """Optical flow: the correlation of two images at 81 displacements, and one of them warped by the estimated flow."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 32, 5, 2, 2), nn.ReLU(), nn.Conv2d(32, 32, 3, 2, 1), nn.ReLU())
        self.head = nn.Conv2d(81, 2, 3, padding=1)

    def forward(self, first: Tensor, second: Tensor) -> Any:
        first, second = self.features(first), self.features(second)
        high, wide = first.shape[2:]
        padded = F.pad(second, (4, 4, 4, 4))
        moved = [padded[:, :, i : i + high, j : j + wide] for i in range(9) for j in range(9)]
        correlation = torch.stack([(first * values).mean(1) for values in moved], 1)
        flow = self.head(F.leaky_relu(correlation, 0.1)).permute(0, 2, 3, 1)
        rows, columns = (torch.linspace(-1, 1, n, dtype=first.dtype, device=first.device) for n in (high, wide))
        down, right = torch.meshgrid(rows, columns, indexing="ij")
        return F.grid_sample(second, torch.stack([right, down], -1)[None] + 0.05 * flow, align_corners=True)


NETWORKS: Mapping[str, Network] = {
    "dcgan": Network(dcgan, inputs(noise=normal(4, 100, 1, 1))),
    "edsr": Network(EDSR, image(64)),
    "esrgan": Network(esrgan, image(48)),
    "pixelattn": Network(PixelAttention, image(96)),
    "denoise": Network(dncnn, image(64, 1)),
    "autoenc": Network(autoencoder, image(64, 1, 4)),
    "ddpm": Network(Denoiser, inputs(image=normal(1, 3, 64, 64), time=lambda batch: torch.full((batch,), 3.0))),
    "flow": Network(OpticalFlow, inputs(first=normal(1, 3, 96, 96), second=normal(1, 3, 96, 96))),
}
