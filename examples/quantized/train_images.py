"""Trains the two classifiers of handwritten digits that `measure.py` quantizes: a residual CNN and a small vision transformer.

Writes residual.onnx, vision_transformer.onnx and calibration.npz (images of the training part) beside this file.  The images
and the held-out part are those of ../digits.  Needs torch, onnxscript and scikit-learn; takes about five minutes.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import torch
from export import export
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.nn import functional

HERE = Path(__file__).parent
BATCH = 64


class Block(nn.Module):
    """Two convolutions with batch norms and a shortcut."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(),
            nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs),
        )  # fmt: skip
        same = inputs == outputs and stride == 1
        self.shortcut = (
            nn.Identity()
            if same
            else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        )

    def forward(self, x):
        return functional.relu(self.main(x) + self.shortcut(x))


def residual() -> nn.Module:
    """A residual network of six blocks; images [n, 1, 8, 8] -> logits [n, 10]."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, 1, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU(),
        Block(24, 24, 1), Block(24, 24, 1), Block(24, 48, 2), Block(48, 48, 1), Block(48, 72, 2), Block(72, 72, 1),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(72, 10),
    )  # fmt: skip


class Transformer(nn.Module):
    """A vision transformer over patches of 2 x 2 pixels; images [n, 1, 8, 8] -> logits [n, 10]."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, width, 2, 2)
        self.places = nn.Parameter(torch.randn(16, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "before": nn.LayerNorm(width), "joined": nn.Linear(width, 3 * width), "out": nn.Linear(width, width),
                "between": nn.LayerNorm(width), "wide": nn.Linear(width, 4 * width), "narrow": nn.Linear(4 * width, width),
            })
            for _ in range(layers)
        )  # fmt: skip
        self.heads, self.last = heads, nn.LayerNorm(width)
        self.logits = nn.Linear(width, 10)

    def forward(self, image):
        x = self.patches(image).flatten(2).transpose(1, 2) + self.places
        n, length, width = x.shape
        for layer in self.layers:
            parts = layer["joined"](layer["before"](x)).reshape(n, length, 3, self.heads, width // self.heads)
            q, k, v = parts.permute(2, 0, 3, 1, 4)
            y = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, length, width)
            x = x + layer["out"](y)
            x = x + layer["narrow"](functional.gelu(layer["wide"](layer["between"](x))))
        return self.logits(self.last(x).mean(1))


def train(model, images, labels, epochs: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.05)
    steps = epochs * math.ceil(len(images) / BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, steps)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images)).split(BATCH):
            shift = torch.randint(-1, 2, (2,)).tolist()  # an image shifted by a pixel is the same digit
            x = torch.roll(images[chosen], shift, (2, 3))
            x = (x + 0.05 * torch.randn_like(x)).clip(0, 1)
            loss = functional.cross_entropy(model(x), labels[chosen], label_smoothing=0.05)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
    model.eval()


def main() -> None:
    data = load_digits()
    split = train_test_split(data.images, data.target, test_size=0.2, stratify=data.target, random_state=0)
    images, held_out = (torch.from_numpy(x[:, None] / 16).float() for x in split[:2])
    labels, wanted = (torch.from_numpy(y) for y in split[2:])
    for name, make, epochs, rate in (("residual", residual, 40, 3e-3), ("vision_transformer", Transformer, 150, 1e-3)):
        torch.manual_seed(0)
        model = make()
        train(model, images, labels, epochs, rate)
        with torch.no_grad():
            right = (model(held_out).argmax(1) == wanted).float().mean()
        print(f"{name}: {right:.2%} of {len(wanted)} images, {sum(p.numel() for p in model.parameters())} parameters")
        export(model, held_out[:2], HERE / f"{name}.onnx", "image")
    np.savez_compressed(HERE / "calibration.npz", images=split[0][:128].astype(np.uint8))


if __name__ == "__main__":
    main()
