"""Decompositions of reductions of segments, and of histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["histogram", "histogram_between", "segment_reduce"]

# the reduction of scatter_reduce, and the result of an empty segment
REDUCTIONS = {
    "sum": ("sum", 0.0),
    "mean": ("sum", math.nan),
    "max": ("amax", -math.inf),
    "min": ("amin", math.inf),
    "prod": ("prod", 1.0),
}


def segment_reduce(
    data: Tensor,
    reduce: str,
    *,
    lengths: Tensor | None = None,
    indices: Tensor | None = None,
    offsets: Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,
    initial: float | None = None,
) -> Any:
    """Returns a reduction of each of the segments into which an axis is divided; elements outside of them are ignored."""
    if offsets is not None:
        first, ends = offsets.narrow(-1, 0, 1), offsets.narrow(-1, 1, offsets.shape[-1] - 1)
        counts = offsets.diff(dim=-1)
    elif lengths is not None:
        first, ends, counts = torch.zeros_like(lengths.narrow(-1, 0, 1)), lengths.cumsum(-1), lengths
    else:
        return NotImplemented
    axis, size = axis % data.dim(), ends.shape[-1]
    count = data.shape[axis]
    inner = [1] * (data.dim() - axis - 1)
    marks = torch.zeros([*ends.shape[:-1], count + 1], dtype=torch.int64, device=data.device)
    segment = (
        marks.scatter_add(-1, ends.long(), torch.ones_like(ends, dtype=torch.int64)).cumsum(-1).narrow(-1, 0, count)
    )
    places = torch.arange(count, device=data.device)
    segment = torch.where(places < first, size, segment)  # a further segment takes the rest
    kind, empty = REDUCTIONS[reduce]
    start = initial if initial is not None else 0.0 if reduce == "mean" else empty
    shape = [*data.shape[:axis], size + 1, *data.shape[axis + 1 :]]
    index = segment.view(*segment.shape, *inner).expand_as(data)
    found = data.new_full(shape, start).scatter_reduce(axis, index, data, kind).narrow(axis, 0, size)
    if reduce != "mean":
        return found.clone()
    counts = counts.reshape(*counts.shape, *inner)
    return torch.where(counts == 0, empty if initial is None else initial, found / counts.to(data.dtype))


def histogram(
    x: Tensor,
    bins: int = 100,
    *,
    range: Sequence[float] | None = None,
    weight: Tensor | None = None,
    density: bool = False,
) -> Any:
    """Returns the sizes of equally wide bins between two numbers, or the smallest and largest elements, and the edges."""
    if x.numel() == 0:
        return NotImplemented
    if range is not None:
        widened = 0.5 if range[0] == range[1] else 0.0
        low, high = (x.new_full((), end) for end in (range[0] - widened, range[1] + widened))
    else:
        low, high = x.min(), x.max()
        around = torch.where(low == high, 0.5, 0.0).to(x.dtype)
        low, high = low - around, high + around
    edges = torch.linspace(low, high, bins + 1, dtype=x.dtype, device=x.device)
    return histogram_between(x, edges, weight=weight, density=density)


def histogram_between(
    x: Tensor, bins: Tensor, *, weight: Tensor | None = None, density: bool = False
) -> tuple[Tensor, Tensor]:
    """Returns the sizes of bins between edges, the last of which belongs to its bin, and the edges."""
    values, count = x.reshape(-1), bins.shape[0] - 1
    place = torch.searchsorted(bins, values, right=True) - 1
    place = torch.where(values == bins[-1], count - 1, place)
    inside = (values >= bins[0]) & (values <= bins[-1])
    place = torch.where(inside, place, count)  # a further bin takes the rest
    parts = torch.ones_like(values) if weight is None else weight.reshape(-1)
    sizes = values.new_zeros(count + 1).scatter_add(0, place, parts)[:count]
    return (sizes / (bins.diff() * sizes.sum()) if density else sizes.clone()), bins.clone()
