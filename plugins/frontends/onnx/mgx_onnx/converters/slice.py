"""Slice, Split, Concat, Pad, CenterCropPad."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.repeats import joined_repeats
from mgx_core.converting.strided import cut
from mgx_core.ops.slice import FAR
from mgx_core.types.dim import Dim, bounds, ceil_div, maximum, may_equal, minimum

from ..converter import converts
from ..node import Node
from .movement import bounded, known_ints

MOST_PARTS = 1 << 16  # limit of Split's parts if not all outputs are named
# wrap was added in opset 19, but torch's exporter writes it for 18, too
MODES = ("constant", "reflect", "edge", "wrap")


@converts("Slice")
def slice_1(n: Node, x: Instruction) -> Instruction:
    starts, ends = n.attr("starts"), n.attr("ends")
    axes = n.attr("axes", list(range(len(starts))))
    return cut(n, x, axes, starts, ends, [1] * len(starts))


@converts("DynamicSlice")
@converts("Slice", since=10)
def slice_10(
    n: Node,
    x: Instruction,
    starts: Instruction | None = None,
    ends: Instruction | None = None,
    axes: Instruction | None = None,
    steps: Instruction | None = None,
) -> Instruction:
    if starts is None and n.has("starts"):  # models that use the form of an older opset
        return slice_1(n, x)
    if starts is None or ends is None:
        return n.fail("starts and ends are required")
    first, last = n.dims(starts), n.dims(ends)
    count = starts.shape.dims[0] if starts.shape.rank else 1
    on: list[int] | None = known_ints(n, axes)
    if axes is None and isinstance(count, int):
        on = list(range(count))
    by = known_ints(n, steps)
    if steps is None and isinstance(count, int):
        by = [1] * count
    if on is None or by is None:
        return n.add("slice", x, starts, ends, axes, steps)
    on = list(n.axes(on, x.shape.rank))
    if len(on) == len(by) and any(s < 0 for s in by):
        # a negative step starts at the first element at least; numpy would start before it and select nothing
        extents = [x.shape.dims[axis] for axis in on]
        if first is None:
            least = [-d if s < 0 and isinstance(d, int) else -FAR - 1 for d, s in zip(extents, by, strict=True)]
            starts = n.pointwise("max", starts, n.literal(least, starts.shape.dtype))
        elif len(first) == len(extents):
            first = tuple(
                maximum(f, 0 - d) if s < 0 and isinstance(f, int) and f < -1 else f
                for f, d, s in zip(first, extents, by, strict=True)
            )
    if first is not None and last is not None:
        return cut(n, x, on, first, last, by)
    by = [] if all(s == 1 for s in by) else by
    return n.add("slice", x, starts, ends, axes=on, steps=by)


@converts("Split")
def split_1(n: Node, x: Instruction, sizes: Instruction | None = None) -> Any:
    """Converts Split, whose sizes had the type of x in opset 1."""
    if sizes is not None and n.version == 1:
        sizes = n.convert(sizes, dt.int64)
    return _split(n, x, sizes, n.attr("split", None), None)


@converts("Split", since=18)
def split_18(n: Node, x: Instruction, sizes: Instruction | None = None) -> Any:
    parts = n.attr("num_outputs", None)
    if parts is not None and sizes is not None:
        n.fail("split and num_outputs are mutually exclusive")
    return _split(n, x, sizes, n.attr("split", None), parts)


def _split(n: Node, x: Instruction, sizes: Instruction | None, listed: list[int] | None, parts: int | None) -> Any:
    axis = n.attr("axis", 0)
    (axis,) = n.axes([axis], x.shape.rank)
    length = x.shape.dims[axis]
    outputs = len(n.proto.output)
    if sizes is not None:
        known = n.dims(sizes)
        if known is None:
            return n.items(n.add("split", x, sizes, axis=axis, count=outputs))
        listed = list(known)  # type: ignore[arg-type]
    if listed is None:
        parts = outputs if parts is None else parts
        if not max(n.outputs, 1) <= parts <= max(outputs, MOST_PARTS):
            n.fail(f"num_outputs is {parts}, but {n.outputs} outputs are named")
        if n.version < 18 and isinstance(length, int) and length % parts:
            n.fail(f"axis {axis} of extent {length} cannot be split into {parts} equal parts")
        chunk = ceil_div(length, parts) if n.version >= 18 else length // parts
        at: list[Dim] = [minimum(chunk * i, length) for i in range(parts)] + [length]
    else:
        if len(listed) < n.outputs or any(bounds(s)[1] < 0 for s in listed):
            n.fail(f"one nonnegative size per output is required, got {listed} for {n.outputs} outputs")
        at = [0]
        for s in listed:
            at.append(at[-1] + s)
        if not may_equal(at[-1], length):
            n.fail(f"sizes {listed} must add up to the extent {length} of axis {axis}")
    return tuple(x if len(at) == 2 else n.slice(x, (axis,), (a,), (b,)) for a, b in list(pairwise(at))[:outputs])


@converts("Concat")
def concat(n: Node, *xs: Instruction) -> Instruction:
    axis = n.attr("axis", 1) if n.version < 4 else n.attr("axis")
    if not xs:
        n.fail("at least one input is required")
    if len(xs) == 1:
        n.axes([axis], xs[0].shape.rank)
        return xs[0]
    return joined_repeats(n, xs, axis) or n.add("concat", *xs, axis=axis)


@converts("Pad")
def pad_1(n: Node, x: Instruction) -> Instruction:
    return _pad(n, x, n.attr("paddings"), n.attr("value", 0.0))


@converts("Pad", since=2)
def pad_2(n: Node, x: Instruction) -> Instruction:
    return _pad(n, x, n.attr("pads"), n.attr("value", 0.0))


@converts("Pad", since=11)
def pad_11(
    n: Node,
    x: Instruction,
    pads: Instruction | None = None,
    value: Instruction | None = None,
    axes: Instruction | None = None,
) -> Instruction:
    if pads is None:  # models that use the form of an older opset
        return pad_2(n, x)
    if axes is None and value is not None and value.shape.dtype.is_integer and value.shape.dtype is not x.shape.dtype:
        value, axes = None, value  # nonstandard models omit the empty input between
    if value is not None and 0 in value.shape.dims:
        value = None
    widths, on = n.dims(pads), known_ints(n, axes)
    if widths is None or (axes is not None and on is None):
        return n.add("pad", x, pads, value, axes, mode=_mode(n))
    if on is not None:
        places = n.axes(on, x.shape.rank)
        if len(widths) != 2 * len(places):
            n.fail(f"two pads per axis are required, got {list(widths)} for axes {on}")
        full: list[Dim] = [0] * (2 * x.shape.rank)
        for i, axis in enumerate(places):
            full[axis], full[axis + x.shape.rank] = widths[i], widths[i + len(places)]
        widths = tuple(full)
    constant = n.constant(value)
    if constant is not None and constant.size == 1 and constant.dtype.kind in "biuf" and x.shape.dtype.kind in "biuf":
        number = constant.reshape(-1)[0].item()
        if float(number) == number and value is not None and value.shape.dtype is x.shape.dtype:
            return _pad(n, x, widths, float(number))
    return _pad(n, x, widths, 0.0, value)


def _mode(n: Node) -> str:
    mode: str = n.attr("mode", "constant")
    if mode not in MODES:
        n.fail(f"mode must be one of {', '.join(MODES)}, got {mode!r}")
    return mode


def _pad(n: Node, x: Instruction, pads: Sequence[Dim], number: float, value: Instruction | None = None) -> Instruction:
    mode, rank = _mode(n), x.shape.rank
    if len(pads) != 2 * rank:
        n.fail(f"two pads per axis are required, got {list(pads)} for rank {rank}")
    if all(p == 0 for p in pads):
        return x
    if all(
        isinstance(p, int) and isinstance(d, int) for p, d in zip(pads, (*x.shape.dims, *x.shape.dims), strict=True)
    ):
        sides = zip(x.shape.dims, pads[:rank], pads[rank:], strict=True)
        bounded(n, [d + b + e for d, b, e in sides], x.shape.dtype.size)
    return n.add("pad", x, None, value, pads=tuple(pads), mode=mode, value=number)


@converts("CenterCropPad", since=18)
def center_crop_pad(n: Node, x: Instruction, shape: Instruction) -> Instruction:
    rank = x.shape.rank
    axes = n.axes(n.attr("axes", list(range(rank))), rank)
    wanted = n.dims(shape)
    if wanted is None:
        return _center_at_run_time(n, x, shape, axes)
    if len(wanted) != len(axes) or any(isinstance(t, int) and t < 0 for t in wanted):
        n.fail(f"one nonnegative extent per axis is required, got {list(wanted)} for axes {list(axes)}")
    dims = x.shape.dims
    starts = [maximum(dims[a] - t, 0) // 2 for a, t in zip(axes, wanted, strict=True)]
    ends = [s + minimum(dims[a], t) for s, a, t in zip(starts, axes, wanted, strict=True)]
    pads: list[Dim] = [0] * (2 * rank)
    for a, t in zip(axes, wanted, strict=True):
        missing = maximum(t - dims[a], 0)
        pads[a], pads[a + rank] = missing // 2, missing - missing // 2
    if any(ends[i] != dims[a] or starts[i] != 0 for i, a in enumerate(axes)):
        x = n.slice(x, axes, starts, ends)
    return x if all(p == 0 for p in pads) else n.add("pad", x, pads=tuple(pads))


def _center_at_run_time(n: Node, x: Instruction, shape: Instruction, axes: Sequence[int]) -> Instruction:
    on = n.literal(np.array(axes, np.int64))
    wanted = n.convert(shape, dt.int64)
    have = n.add("gather", n.add("dimensions_of", x), on, axis=0)
    zero, two = n.literal(0, dt.int64), n.literal(2, dt.int64)
    extra = n.pointwise("max", n.pointwise("sub", have, wanted), zero)
    start = n.pointwise("div", extra, two)
    end = n.pointwise("add", start, n.pointwise("min", have, wanted))
    missing = n.pointwise("max", n.pointwise("sub", wanted, have), zero)
    before = n.pointwise("div", missing, two)
    pads = n.add("concat", before, n.pointwise("sub", missing, before), axis=0)
    return n.add("pad", n.add("slice", x, start, end, axes=tuple(axes)), pads, None, on)
