"""Convolutions of long rows (audio, signals) by oneDNN, in pieces: its code for a row grows with the row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from typing import Final

from mgx_core import Shape
from mgx_core.targets.values import Value, channels_last

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from .anchors import onednn_convolution
from .epilogues import Epilogue

__all__ = ["convolution_of_rows"]

# Results per piece: oneDNN unrolls rows of convolutions with padding, up to 1.4 KB of code per result.  That of 200,000 results
# takes 280 MB and 0.7 s to generate, and runs slower than that of a piece, which fits in the outer caches.
PIECE: Final = 4096


def convolution_of_rows(
    e: CpuEmitter,
    x: Value,
    w: Value,
    permute: Callable[[Value], Value],
    lens: list[int],
    epilogue: Epilogue | None,
    *,
    strides: Sequence[int],
    dilations: Sequence[int],
    padding_begin: Sequence[int],
    padding_end: Sequence[int],
) -> Value:
    """Emits the convolution of x [n, c, ..] through `onednn_convolution`: in pieces if it has one row, of more than two pieces.

    lens: of the result.
    """
    e.require_fixed("convolution", "convolution", [x])
    flops = 2 * prod(lens) * prod(w.lens[1:])
    emit = partial(onednn_convolution, e, "convolution", strides=strides, dilations=dilations)
    span = (w.lens[-1] - 1) * dilations[-1] + 1
    pieces = []  # of each, the first result and the end, the first column read and the end; the padding has columns, too
    for begin in range(0, lens[-1], PIECE):
        end = min(begin + PIECE, lens[-1])
        first = begin * strides[-1] - padding_begin[-1]
        pieces.append((begin, end, first, first + (end - begin - 1) * strides[-1] + span))
    one_row = prod(lens[2:-1]) == prod(x.lens[2:-1]) == 1
    padded = any(last <= 0 or first >= x.lens[-1] for _, _, first, last in pieces)  # a piece of nothing but padding
    if not one_row or lens[-1] <= 2 * PIECE or padded:
        return emit(x, w, permute, lens, epilogue, flops, padding_begin=padding_begin, padding_end=padding_end)
    out = None if epilogue is None else epilogue.in_place([x, w], channels_last(lens))
    if out is None:
        out = e.allocate(x.shape.dtype if epilogue is None else epilogue.dtype, lens, channels_last(lens))
    if epilogue is not None:
        epilogue = epilogue.viewed(partial(_rows_of_pixels, e))
    for image in range(lens[0]):
        for begin, end, first, last in pieces:
            rows = _part(x, image, max(first, 0), min(last, x.lens[-1]))
            into = _part(out, image, begin, end)
            view = None if epilogue is None else epilogue.viewed(partial(_part, image=image, begin=begin, end=end))
            before, after = (*padding_begin[:-1], max(-first, 0)), (*padding_end[:-1], max(last - x.lens[-1], 0))
            share = flops * (end - begin) // (lens[0] * lens[-1])
            emit(rows, w, permute, into.lens, view, share, into, padding_begin=before, padding_end=after)
    return out


def _part(value: Value, image: int, begin: int, end: int) -> Value:
    """Returns a view of one image of [n, c, .., w], from column `begin` to `end`."""
    lens, strides = [1, *value.lens[1:-1], end - begin], value.strides
    step = strides[-1] * (end - begin)  # oneDNN compares the strides of axes of length 1, too, to those of dense images
    dense = [step if n == 1 and s and axis != 1 else s for axis, (n, s) in enumerate(zip(lens, strides, strict=True))]
    return value.view_at(image * strides[0] + begin * strides[-1], Shape(value.shape.dtype, lens, dense))


def _rows_of_pixels(e: CpuEmitter, value: Value) -> Value:
    """Returns an operand of the epilogue whose parts oneDNN reads: channels last, or broadcast along an axis."""
    broadcast = any(n > 1 and not s for n, s in zip(value.lens, value.strides, strict=True))
    return value if broadcast else as_channels_last(e, value)
