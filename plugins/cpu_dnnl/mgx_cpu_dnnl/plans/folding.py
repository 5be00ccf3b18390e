"""Sums of columns in an image (col2im), and transposed convolutions by them: a product gives the columns of all windows."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Shape
from mgx_core import dtype as dt
from mgx_core.errors import No, Refused
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.ops.linear import Dot
from mgx_core.ops.window import Moves
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.traced_int import usual

from ..emitter import CpuEmitter
from .anchors import offer_anchor
from .epilogues import Epilogue
from .native_loops import emit_op, grain_of, merge_axes, native_loop

__all__ = ["PLANS", "fold", "summed_columns"]

PLANS = Kernels("cpu")
MAX_OUTPUTS: Final = 6  # output channels of images; for more, oneDNN is faster
MAX_PHASES: Final = 16  # the same of volumes, times places within the strides: the channels of a convolution instead
MAX_BYTES: Final = 1 << 20  # of the columns: the product writes them, and the sums read them again
# the same of dilated windows in groups; with strides oneDNN takes several times as long, and only memory sets a limit
MAX_GROUPED_BYTES: Final = 1 << 24
MAX_STRIDED_BYTES: Final = 1 << 28


def fold(
    e: CpuEmitter, name: str, columns: Value, out: Value, window: Sequence[int], moves: Moves, counts: Sequence[int]
) -> None:
    """Emits the sums of row-major columns [n, c, taps, positions] in images [n, c, ..]; name: of the step.

    moves: of the windows, whose numbers along each axis are `counts`.
    """
    image, kind = out.lens[2:], columns.shape.dtype
    axes = zip(image, window, moves.stride, moves.dilation, moves.begins, strict=True)
    numbers = [len(image), *(n for axis in axes for n in axis), *counts]
    work, step = prod(out.lens[:2]), moves.stride[-1]
    line = -(-image[-1] // step) * step
    in_place = step == 1 and kind not in (dt.float16, dt.bfloat16)
    scratch = 0 if in_place else max(4, kind.size) * prod(image[:-1]) * line
    native_loop(e, name, f"folded_{kind}", [columns, out], [out], numbers, work, grain_of(work, [columns]), scratch)


def deconvolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the transposed convolution of x [n, c, ..] with w [c, o / group, ..]; the result is row-major."""
    if epilogue is not None:
        raise Refused("a loop of its own applies the epilogue to the sums of columns")
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    (batch, channels, *image), window = x.lens, w.lens[2:]
    strides, dilations, begins, ends, _ = op.plan(len(image), window)
    step = _pixel_step(x)
    if step is None:
        x, step = e.row_major(x), 1
    per, (by_image, by_channel, *_) = channels // op.group, x.strides
    lens_of, strides_of = [batch, op.group, per, prod(image)], [by_image, per * by_channel, by_channel, step]
    rows = x.view_at(0, Shape(dt.float32, lens_of, strides_of))
    made = emit_op(e, Dot(), _matrices(e, op.group, w, batch), rows)
    out = e.allocate(dt.float32, lens)
    fold(e, op.name, e.row_major(made), out, window, Moves(strides, dilations, begins, ends), image)
    return out


def _pixel_step(x: Value) -> int | None:
    """Returns the distance in memory of the pixels [n, c, ..] of a channel; None if they have more than one."""
    lens, steps = merge_axes(x.lens[2:], x.strides[2:])
    return steps[0][0] if len(lens) == 1 else None


def _matrices(e: CpuEmitter, group: int, w: Value, batch: int) -> Value:
    """Returns weights [c, o / group, *k] as matrices [n, group, o / group k, c / group]; those of all images are the same."""
    per, rows = w.lens[0] // group, prod(w.lens[1:])

    def turned(array: Array) -> Array:
        return np.ascontiguousarray(np.swapaxes(array.reshape(group, per, rows), 1, 2))

    known = e.constant(w)
    if known is None:
        plain = e.row_major(w)
        made = plain.view_at(0, Shape(dt.float32, [group, rows, per], [per * rows, 1, rows]))
    else:
        [made] = e.derived_literals([known], ("columns", group), lambda: [turned(known)])
    return made.view_at(0, Shape(dt.float32, [batch, *made.lens], [0, *made.strides]))


def summed_columns(op: Any, x: Shape, w: Shape) -> No | None:
    """Returns why a transposed convolution should not run in this way, or None.

    oneDNN is slow for dilated windows, most of all with strides in groups, and computes whole vectors of output channels.
    """
    if not isinstance(x, Shape) or not isinstance(w, Shape) or x.dtype is not dt.float32 or w.dtype is not dt.float32:
        return No("only float32 is supported")
    if x.dynamic() or w.dynamic():
        return No("the extents are known only at run time")
    (batch, channels, *image), (_, outputs, *window) = x.lens(), w.lens()
    strides, dilations, *_ = op.plan(len(image), window)
    dilated = any(d > 1 and k > 1 for d, k in zip(dilations, window, strict=True))
    few = outputs <= MAX_OUTPUTS if len(image) == 2 else len(image) == 3 and outputs * prod(strides) <= MAX_PHASES
    if not dilated and (op.group > 1 or not few):
        return No("oneDNN has a fast kernel for windows without gaps and many channels")
    most = MAX_BYTES
    if op.group > 1:
        most = MAX_GROUPED_BYTES if prod(strides) == 1 else MAX_STRIDED_BYTES
        if prod(strides) == 1 and (channels > op.group or outputs > 1):
            return No("oneDNN has a fast kernel for groups of several channels and stride 1")
    size = usual(4 * prod((batch, *image, op.group * outputs, *window)))
    if size > most:
        return No(f"the columns take {size} bytes, more than {most}")
    return None


def fits(op: Any, inputs: Sequence[Any], modules: Sequence[Any]) -> No | None:
    return summed_columns(op, *inputs)


offer_anchor(PLANS, ConvolutionBackwards, deconvolve, "columns", fits)
