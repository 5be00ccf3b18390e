"""Resizing and padding of traced extents: native loops compute the taps of each axis, and read them axis by axis."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import permutations
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.named_tuples import NamedTuple
from mgx_core.ops.scalar import convert
from mgx_core.targets.values import Value, packed_strides
from mgx_core.types.traced_int import dim_of, surely_equal, usual

from ..emitter import CpuEmitter
from ..jit.taps_plan import double_bits
from ..layout import same_order
from .native_loops import grain_of, native_loop

__all__ = ["padded", "resized"]

ROW: Final = 9  # integers in the row of a table: the number of taps, elements and weights of four
# numbered as in `resize_loops.cpp`
POSITIONS: Final = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip
KINDS: Final = ("nearest", "linear", "cubic")
ROUNDINGS: Final = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple")
BORDERS: Final = ("constant", "reflect", "edge", "wrap")


class _Axis(NamedTuple):
    """An axis with other extents afterwards: the loop that computes its taps, and that loop's numbers after the extents."""

    axis: int
    loop: str
    numbers: tuple[int, ...]


def resized(e: CpuEmitter, op: Any, x: Value, lens: Sequence[int]) -> Value:
    """Emits resampling to these extents with constant parameters.  Errors: Refused for parameters that no loop supports."""
    how = op.coordinate_transformation_mode
    if how not in POSITIONS or op.antialias or (not op.scales and op.keep_aspect_ratio_policy != "stretch"):
        raise Refused("factors, aspect ratios and crops that depend on traced extents are not supported")
    if op.mode != "nearest" and x.shape.dtype not in (dt.float32, dt.float64):
        raise Refused(f"{op.mode} resampling of {x.shape.dtype} is not supported")
    axes = []
    for n, axis in enumerate(op.resized(len(lens))):
        if x.lens[axis] < 1:
            raise Refused(f"axis {axis} has no elements to read")
        factor = op.scales[n] if op.scales else 0.0
        if factor not in (0.0, 1.0) or dim_of(x.lens[axis]) != dim_of(lens[axis]):
            choice = KINDS.index(op.mode), POSITIONS.index(how), ROUNDINGS.index(op.nearest_mode)
            numbers = (
                *choice,
                int(op.exclude_outside),
                int(e.fast_math),
                double_bits(factor),
                double_bits(op.cubic_coeff_a),
            )
            axes.append(_Axis(axis, "resize_taps", numbers))
    return _along(e, op.name, axes, x, lens, None if op.mode != "nearest" else 0)


def padded(e: CpuEmitter, op: Any, x: Value, lens: Sequence[int]) -> Value:
    """Emits padding by constant or traced widths.  Errors: Refused for widths that crop."""
    axes = []
    for axis, (begin, end) in enumerate(zip(op.pads[: len(lens)], op.pads[len(lens) :], strict=True)):
        if begin < 0 or end < 0 or x.lens[axis] < 1:
            raise Refused("widths that crop are not supported")
        if (dim_of(begin), dim_of(end)) != (0, 0):
            axes.append(_Axis(axis, "pad_taps", (begin, BORDERS.index(op.mode))))
    filler = np.asarray(convert(np.asarray(op.value), x.shape.dtype))
    return _along(e, op.name, axes, x, lens, int.from_bytes(filler.tobytes(), "little"))


def _along(e: CpuEmitter, name: str, axes: Sequence[_Axis], x: Value, lens: Sequence[int], filler: int | None) -> Value:
    """Emits a pass along each axis, in the order that writes the fewest elements.

    axes: at least one; filler: bits of the elements without taps; None for weighted sums.
    """
    strides = same_order(x)
    if not surely_equal(x.strides, strides):
        x = e.copy(x, strides)
    memory = sorted(range(len(lens)), key=lambda a: (-strides[a], a))
    orders = permutations(sorted(axes, key=lambda a: -memory.index(a.axis)))
    for one in min(orders, key=lambda order: _written(order, x, lens)):
        x = _pass(e, name, one, x, lens[one.axis], memory, filler)
    return x


def _written(order: Sequence[_Axis], x: Value, lens: Sequence[int]) -> int:
    """Returns how many elements passes in this order write, for usual extents."""
    now, total = [usual(n) for n in x.lens], 0
    for one in order:
        now[one.axis] = usual(lens[one.axis])
        total += prod(now)
    return total


def _pass(
    e: CpuEmitter, name: str, one: _Axis, x: Value, extent: int, memory: Sequence[int], filler: int | None
) -> Value:
    """Emits a pass along one axis of a dense value, whose axes are given from the outermost in memory."""
    before, dtype = x.lens[one.axis], x.shape.dtype
    table = e.allocate(dt.int64, [extent, ROW])
    native_loop(e, f"{name} taps", one.loop, [table], [table], [before, extent, *one.numbers])
    lens = [extent if axis == one.axis else n for axis, n in enumerate(x.lens)]
    out = e.allocate(dtype, lens, packed_strides(lens, memory))
    place = memory.index(one.axis)
    outer, inner = (prod(x.lens[a] for a in part) for part in (memory[:place], memory[place + 1 :]))
    loop, numbers = f"summed_taps_{dtype}", [before, extent, inner]
    if filler is not None:
        loop, numbers = f"copied_taps_{dtype.size}", [*numbers, _signed(filler)]
    work = outer * extent
    native_loop(e, name, loop, [x, table, out], [out], numbers, work, grain_of(work, [out]))
    return out


def _signed(bits: int) -> int:
    """Returns 64 bits as a signed integer."""
    return bits - (1 << 64) if bits >> 63 else bits
