"""Rewrites pooling of few channels as elementwise ops on shifted images: pooling kernels vectorize over channels.

Typical cases have one channel (peaks of a heat map, mask dilation) or three (local means of images).
"""

from __future__ import annotations

from math import inf, prod
from typing import Final

import numpy as np

from mgx_core import Instruction, No, Operation
from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.pad import Pad
from mgx_core.ops.pointwise import Add, Max, Mul
from mgx_core.ops.pooling import Pooling
from mgx_core.ops.slice import Slice
from mgx_core.ops.window import sides
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.types.dim import bounds

__all__ = ["FEW_CHANNEL_WINDOWS"]

FEW_CHANNEL_WINDOWS: Final = Rules("few-channel-windows")
MAX_CHANNELS: Final = 8  # up to this many channels, the loops take at most half the time
MAX_ELEMENTS: Final = 32  # maximum window elements, summed over the axes
END: Final = 1 << 62


class _Shifts(NamedTuple):
    """Padding per spatial axis, and the shifts along each axis whose union covers the window."""

    begins: tuple[int, ...]
    ends: tuple[int, ...]
    parts: list[list[Slice]]
    hangs_over: bool


@FEW_CHANNEL_WINDOWS.on(Pooling)
def maxima_of_shifted_images(i: Instruction, b: Builder) -> Instruction | No | None:
    """pooling, max, of few channels -> the maximum of shifted images, one axis after the other."""
    op = i.op
    assert isinstance(op, Pooling)
    shifts = _shifts(i) if op.mode == "max" else None
    return shifts if shifts is None or isinstance(shifts, No) else _combined(i, b, shifts, Max(), -inf)


@FEW_CHANNEL_WINDOWS.on(Pooling, changes=ROUNDING)
def means_of_shifted_images(i: Instruction, b: Builder) -> Instruction | No | None:
    """pooling, average, of few channels -> the sum of shifted images, one axis after the other, times one over their number."""
    op = i.op
    assert isinstance(op, Pooling)
    shifts = _shifts(i) if op.mode == "average" else None
    if shifts is None or isinstance(shifts, No):
        return shifts
    if shifts.hangs_over or (not op.count_include_pad and any((*shifts.begins, *shifts.ends))):
        return No("windows have different numbers of elements")
    total = _combined(i, b, shifts, Add(), 0.0)
    share = b.literal(np.float32(1 / prod(map(len, shifts.parts))))
    return b.add(Mul(), total, b.add(Multibroadcast(out_lens=total.shape.dims), share))


def _combined(i: Instruction, b: Builder, shifts: _Shifts, join: Operation, border: float) -> Instruction:
    (x,) = i.inputs
    if any((*shifts.begins, *shifts.ends)):
        x = b.add(Pad(pads=(0, 0, *shifts.begins, 0, 0, *shifts.ends), value=border), x)
    for parts in shifts.parts:
        first, *others = (b.add(part, x) for part in parts)
        for other in others:
            first = b.add(join, first, other)
        x = first
    return x


def _shifts(i: Instruction) -> _Shifts | No | None:
    """Returns the shifts of a pooling of few channels; None for global pooling or other types."""
    (x,), op = i.inputs, i.op
    assert isinstance(op, Pooling)
    channels, *spatial = x.shape.dims[1:]
    if op.dyn_global or x.shape.dtype is not dt.float32:
        return None
    if not isinstance(channels, int) or channels > MAX_CHANNELS:
        return No("the channels fill vectors well enough")
    lengths, strides, dilations = op.fitted(spatial).numbers(len(spatial))
    if channels > MAX_CHANNELS // 2 and any(1 < s < k for k, s in zip(lengths, strides, strict=True)):
        return No("strided parts of the images would be read several times")
    if sum(lengths) > MAX_ELEMENTS:
        return No("the windows have too many elements to read each one")
    numbers = list(zip(lengths, strides, dilations, strict=True))
    extents = [n for n in spatial if isinstance(n, int)]
    if len(extents) < len(spatial):
        if op.padding_mode != "default" or op.ceil_mode or any(s > 1 for s in strides):
            return No("the ends of the windows depend on symbolic extents")
        if any(bounds(count)[0] < 1 for count in i.shape.dims[2:]):
            return No("a window may not fit, which empty slices would not report")
        parts = [[_part(2 + n, j * d, (j + 1 - k) * d or END) for j in range(k)] for n, (k, _, d) in enumerate(numbers)]
        return _Shifts(*sides(op.padding, len(spatial)), parts, False)
    counts = [n for n in i.shape.dims[2:] if isinstance(n, int)]
    begins, ends, over = op.fitted(spatial).around(extents, counts)
    parts = [
        [_part(2 + n, j * d, j * d + (c - 1) * s + 1, s) for j in range(k)]
        for n, (c, (k, s, d)) in enumerate(zip(counts, numbers, strict=True))
    ]
    return _Shifts(begins, tuple(e + o for e, o in zip(ends, over, strict=True)), parts, any(over))


def _part(axis: int, start: int, end: int, step: int = 1) -> Slice:
    return Slice(axes=(axis,), starts=(start,), ends=(end,), steps=() if step == 1 else (step,))
