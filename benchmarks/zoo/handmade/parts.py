"""Layers shared by the hand-written networks, and generators of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

Value = Callable[[int], Tensor]  # generates one input for a batch
Inputs = Callable[[int], dict[str, Tensor]]


class Network(NamedTuple):
    """One network: `build` creates the module, `inputs` its arguments by name for a batch."""

    build: Callable[[], nn.Module]
    inputs: Inputs


def inputs(**values: Value) -> Inputs:
    """Returns a generator of inputs by name, in the order of the module's arguments."""
    return lambda batch: {name: value(batch) for name, value in values.items()}


def normal(rows: int, *shape: int) -> Value:
    """Returns a generator of normal values, `rows` per batch element."""
    return lambda batch: torch.randn(rows * batch, *shape)


def uniform(rows: int, *shape: int) -> Value:
    """Returns a generator of values between 0 and 1, `rows` per batch element."""
    return lambda batch: torch.rand(rows * batch, *shape)


def below(limit: int, rows: int, *shape: int) -> Value:
    """Returns a generator of indices below a limit, `rows` per batch element."""
    return lambda batch: torch.randint(0, limit, (rows * batch, *shape))


def image(size: int, channels: int = 3, rows: int = 1) -> Inputs:
    """Returns a generator of square images, `rows` per batch element."""
    return inputs(image=normal(rows, channels, size, size))


def normed(
    channels: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    groups: int = 1,
    activation: type[nn.Module] = nn.ReLU,
) -> nn.Sequential:
    """Returns a convolution that keeps the size (over its stride), its batch norm and an activation."""
    convolution = nn.Conv2d(channels, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(convolution, nn.BatchNorm2d(outputs), activation())


def perceptron(*sizes: int, activation: type[nn.Module] = nn.ReLU) -> nn.Sequential:
    """Returns linear layers of given widths, with activations between them."""
    layers: list[nn.Module] = []
    for width, following in pairwise(sizes):
        layers += [nn.Linear(width, following), activation()]
    return nn.Sequential(*layers[:-1])


def heads(value: Tensor, count: int) -> Tensor:
    """Converts (batch, positions, width) to (batch, heads, positions, width of a head)."""
    return value.reshape(*value.shape[:2], count, -1).transpose(1, 2)


def joined(value: Tensor) -> Tensor:
    """Converts (batch, heads, positions, width of a head) to (batch, positions, width)."""
    return value.transpose(1, 2).flatten(2)
