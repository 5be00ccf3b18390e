"""Crops of images, resampled to one size, shared by several formats."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..types import dtype as dt
from .builder import InstructionBuilder

__all__ = ["crops"]


def crops(
    n: InstructionBuilder,
    x: Instruction,
    boxes: Instruction,
    entries: Instruction,
    counts: Sequence[int],
    nearest: bool,
    outside: float,
) -> Instruction:
    """Returns crops of images, sampled at equal steps from edge to edge, as TensorFlow's CropAndResize defines them.

    x: float32 [n, h, w, c]; boxes: float32 [r, 4], y1, x1, y2, x2 as fractions of the last row and column; entries: int64 [r],
    the boxes' images; counts: rows and columns of a crop; nearest: take the nearest pixel instead of mixing four; outside: the
    value of samples outside the image.
    """
    dims = x.shape.dims
    sizes = [n.add("dimensions_of", x, start=k, end=k + 1) for k in range(3)]
    corners = [n.slice(boxes, [1], [k], [k + 1]) for k in range(4)]
    rows = _sampled(n, corners[0], corners[2], counts[0], sizes[1])
    columns = _sampled(n, corners[1], corners[3], counts[1], sizes[2])
    # an image that does not exist must not be counted from the end
    entries = n.pointwise("where", n.pointwise("less", entries, n.literal(0, dt.int64)), sizes[0], entries)
    first = n.unsqueeze(n.pointwise("mul", entries, sizes[1]), [1])
    pixels = n.reshape(x, (dims[0] * dims[1] * dims[2], dims[3]))

    def at(row: Instruction, column: Instruction) -> Instruction:
        line = n.pointwise("mul", n.pointwise("add", first, row), sizes[2])
        return n.add("gather", pixels, n.pointwise("add", n.unsqueeze(line, [2]), n.unsqueeze(column, [1])), axis=0)

    if nearest:
        half = n.literal(0.5, dt.float32)
        near = (n.pointwise("floor", n.pointwise("add", p, half)) for p in (rows, columns))
        found = at(*(_pixel(n, p, s) for p, s in zip(near, sizes[1:], strict=True)))
    else:
        top, left = (n.pointwise("floor", p) for p in (rows, columns))
        down, along = n.unsqueeze(n.add("sub", rows, top), [2, 3]), n.unsqueeze(n.add("sub", columns, left), [1, 3])
        above, below = (_pixel(n, p, sizes[1]) for p in (top, n.pointwise("ceil", rows)))
        before, behind = (_pixel(n, p, sizes[2]) for p in (left, n.pointwise("ceil", columns)))
        upper, lower = (_between(n, at(r, before), at(r, behind), along) for r in (above, below))
        found = _between(n, upper, lower, down)
    inside = n.pointwise(
        "logical_and",
        n.unsqueeze(_within(n, rows, sizes[1]), [2, 3]),
        n.unsqueeze(_within(n, columns, sizes[2]), [1, 3]),
    )
    return n.pointwise("where", inside, found, n.literal(outside, dt.float32))


def _sampled(n: InstructionBuilder, low: Instruction, high: Instruction, count: int, size: Instruction) -> Instruction:
    """Returns `count` positions along an axis for each box, from low to high, which are fractions of the last index."""
    edge = _last(n, size)
    if count == 1:
        return n.pointwise("mul", n.pointwise("mul", n.literal(0.5, dt.float32), n.add("add", low, high)), edge)
    span = n.pointwise("mul", n.add("sub", high, low), edge)
    step = n.pointwise("div", span, n.literal(count - 1, dt.float32))
    places = n.pointwise("mul", step, n.literal(np.arange(count), dt.float32))
    return n.pointwise("add", n.pointwise("mul", low, edge), places)


def _last(n: InstructionBuilder, size: Instruction) -> Instruction:
    return n.convert(n.pointwise("sub", size, n.literal(1, dt.int64)), dt.float32)


def _pixel(n: InstructionBuilder, place: Instruction, size: Instruction) -> Instruction:
    """Returns whole positions as indices of pixels; for those outside, whose samples are not used, that of the nearest one."""
    return n.convert(n.pointwise("clip", place, n.literal(0, dt.float32), _last(n, size)), dt.int64)


def _within(n: InstructionBuilder, place: Instruction, size: Instruction) -> Instruction:
    low = n.pointwise("greater_or_equal", place, n.literal(0, dt.float32))
    return n.add("logical_and", low, n.pointwise("less_or_equal", place, _last(n, size)))


def _between(n: InstructionBuilder, x: Instruction, y: Instruction, share: Instruction) -> Instruction:
    return n.pointwise("add", x, n.pointwise("mul", n.add("sub", y, x), share))
