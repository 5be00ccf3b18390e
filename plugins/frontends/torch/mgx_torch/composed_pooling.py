"""Decompositions of pooling over windows whose places random numbers determine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["fractional_max_pool"]


def fractional_max_pool(x: Tensor, window: Sequence[int], sizes: Sequence[int], samples: Tensor) -> Any:
    """Returns the maximum of each window and its place in the flattened image.

    samples: numbers in [0, 1) for each image and axis, in torch's order: width first for two axes, else depth first.
    """
    axes = len(sizes)
    front = x.shape[:-axes]
    if samples.numel() != math.prod(front) * axes:  # of more images
        return NotImplemented
    samples = samples.reshape(*front, axes)
    place = torch.zeros([1] * (2 * axes), dtype=torch.int64, device=x.device)
    for axis in range(axes):
        sample = samples[..., axes - 1 - axis if axes == 2 else axis]
        extent = x.shape[x.dim() - axes + axis]
        at = _starts(sample, extent, sizes[axis], window[axis]).unsqueeze(-1)
        at = at + torch.arange(window[axis], device=x.device)
        shape = [1] * (2 * axes)
        shape[axis], shape[axes + axis] = sizes[axis], window[axis]
        place = place * extent + at.reshape(*front, *shape)
    place = place.reshape(*front, -1)
    shape = [*front, *sizes, math.prod(window)]
    best, chosen = x.flatten(-axes).gather(-1, place).reshape(shape).max(-1, keepdim=True)
    return best.squeeze(-1), place.reshape(shape).gather(-1, chosen).squeeze(-1)


def _starts(sample: Tensor, extent: int, count: int, window: int) -> Tensor:
    """Returns where the windows along one axis start; the last one ends with the axis."""
    last = torch.full_like(sample.unsqueeze(-1), extent - window).long()
    if count == 1:
        return last
    step = (extent - window) / (count - 1)
    sample = sample.unsqueeze(-1)
    moved = ((torch.arange(count - 1, device=sample.device) + sample) * step).long()
    return torch.cat([moved - (sample * step).long(), last], -1)
