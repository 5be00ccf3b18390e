"""Convolutions with few outputs by oneDNN, several columns of the result at a time.

oneDNN computes the outputs of a pixel in whole vectors, padded with zeros.  Here, adjacent columns are further outputs of a
convolution with wider windows and strides: 16 columns of one output read 18 columns of a 3 x 3 window instead of 48.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, No, Shape
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from ..winograd import tiles_for
from .anchors import float32_only, offer_anchor
from .epilogues import Epilogue
from .links import two_axes, weights_and_extents
from .long_rows import convolution_of_rows

__all__ = ["PLANS"]

PLANS = Kernels("cpu")
LANES: Final = 8  # of AVX2; AVX-512 has twice as many
MIN_COLUMNS: Final = 8  # the fewest wide columns per row: oneDNN computes those of a row at a time
MIN_GAIN: Final = 1.3  # the fewest taps saved, as a factor: strided windows reach less of the peak
# the same where Winograd's filtering, which saves about half of the multiplications, would be used instead
FILTERED_COLUMNS: Final = 16
FILTERED_GAIN: Final = 2.0


@float32_only
def fits(op: Any, x: Shape, w: Shape) -> No | None:
    if op.group != 1 or w.dynamic():
        return No(f"one group and static weights are required, got {op.group} groups and {w}")
    outputs = w.lens()[0]
    if outputs > LANES:
        return No(f"at most {LANES} outputs are supported, got {outputs}")
    return None


def columns_together(outputs: int, taps: int, stride: int, width: int, lanes: int, filtered: bool) -> int:
    """Returns how many of `width` columns to compute as outputs of one; 1 if that would not save time.

    taps: the columns of a window; filtered: Winograd's filtering is an alternative.
    """
    least, columns = (FILTERED_GAIN, FILTERED_COLUMNS) if filtered else (MIN_GAIN, MIN_COLUMNS)
    gains = {
        n: taps * n / (taps + stride * (n - 1))
        for n in range(2, lanes // outputs + 1)
        if width % n == 0 and width // n >= columns
    }
    best = max(gains, key=gains.__getitem__, default=1)
    return best if best > 1 and gains[best] >= least else 1


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, ..] with constant w [o, c, ..]; operand and result are channels last."""
    if not e.fast_math:
        raise Refused("zeros added to the windows turn infinities into NaN, which requires fast_math")
    e.require_fixed("convolution", "convolution", [x])
    weights, lens = weights_and_extents(e, op, x, w, epilogue)
    window = w.lens[2:]
    strides, dilations, begin, end = op.sliding(x.lens[2:], window)
    if dilations[-1] != 1 or min(*begin, *end) < 0:
        raise Refused("dilated columns and negative padding are not supported")
    same = strides[0] if len(set(strides)) == 1 and len(window) < 3 and set(dilations) == {1} else 0
    filtered = bool(same) and bool(tiles_for(*two_axes(window, 1), same))
    outputs, width, stride = lens[1], lens[-1], strides[-1]
    count = columns_together(outputs, window[-1], stride, width, LANES * (1 + e.engine.wide), filtered)
    if count == 1:
        raise Refused(f"computing columns of {outputs} outputs and windows {window} together would not save time")
    taps = window[-1] + stride * (count - 1)
    right = (width // count - 1) * stride * count + taps - begin[-1] - x.lens[-1]
    [wide] = e.derived_literals(
        [weights], ("columns together", count, stride), lambda: [_widened(weights, count, stride)]
    )
    out = convolution_of_rows(
        e,
        as_channels_last(e, x),
        wide,
        lambda weights: weights,
        [lens[0], outputs * count, *lens[2:-1], width // count],
        None if epilogue is None else epilogue.viewed(partial(_together, e, lens, count)),
        strides=(*strides[:-1], stride * count),
        dilations=dilations,
        padding_begin=begin,
        padding_end=(*end[:-1], right),
    )
    return out.view_at(0, Shape(out.shape.dtype, lens, channels_last(lens)))


def _widened(w: Array, count: int, stride: int) -> Array:
    """Returns weights [o, c, .., k] for each of `count` columns of the result as [count * o, c, .., k + stride * (count - 1)]."""
    taps = w.shape[-1]
    wide = np.zeros((count, *w.shape[:-1], taps + stride * (count - 1)), np.float32)
    for n in range(count):
        wide[n, ..., n * stride : n * stride + taps] = w
    return wide.reshape(-1, *wide.shape[2:])


def _together(e: CpuEmitter, lens: Sequence[int], count: int, value: Value) -> Value:
    """Returns an operand of the epilogue of a result [n, o, .., w] as one of [n, count * o, .., w / count].

    Errors: Refused if it varies along some axes only, other than one value per output.
    """
    wide = [lens[0], lens[1] * count, *lens[2:-1], lens[-1] // count]
    varies = [axis for axis, (n, s) in enumerate(zip(value.lens, value.strides, strict=True)) if s and n > 1]
    if not varies:
        return value.view_at(0, Shape(value.shape.dtype, wide, [0] * len(lens)))
    if varies == [1]:
        seen = Shape(value.shape.dtype, [count, lens[1]], [0, value.strides[1]])
        copied = e.row_major(value.view_at(0, seen))
        return copied.view_at(0, Shape(value.shape.dtype, wide, [int(axis == 1) for axis in range(len(lens))]))
    if len(varies) < sum(n > 1 for n in lens):
        raise Refused("an operand of the epilogue is broadcast along some axes")
    return as_channels_last(e, value).view_at(0, Shape(value.shape.dtype, wide, channels_last(wide)))


offer_anchor(PLANS, Convolution, convolve, "columns", fits)
