"""Convolutions and transposed convolutions through oneDNN: channels last, weights packed once, epilogues as post-ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from mgx_core import Kernels, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.convolution import Convolution, ConvolutionBackwards
from mgx_core.ops.pad import Pad
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.argument import Array

from ..emitter import CpuEmitter, is_traced
from ..layout import as_channels_last
from ..native_library import native
from .anchors import offer_anchor, offer_widened, onednn_convolution
from .epilogues import Epilogue
from .long_rows import convolution_of_rows
from .native_loops import copy_into_image
from .offer import FLOATS, only
from .volumes import Depthwise, depthwise_volumes

__all__ = ["PLANS", "padded_image", "with_group_axis", "expand_multiplier"]

PLANS = Kernels("cpu")
TILE: Final = 32  # bfloat16 channels per row of an AMX tile
# Maximum padding for which oneDNN has kernels for dilated depthwise convolutions; its fallback is 100 times slower.
MAX_PADDING: Final = 6
# Maximum channels for which, as for groups, oneDNN's kernels take twice as long if a window can lie in the padding as a whole.
FEW_CHANNELS: Final = 4


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, ..] with w [o, c / group, ..]; operand and result are channels last."""
    result = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens))
    lens = result.lens()
    if 0 in lens or 0 in x.lens:
        raise Refused("an extent is 0")
    x, group = expand_multiplier(e, x, lens[1], op.group)
    merged = _groups_to_merge(group, w) if e.fast_math else 1  # the zeros turn infinities of other groups into NaN
    if merged > 1 and (array := e.constant(w)) is not None:
        key = ("groups together", group, merged)
        [w] = e.derived_literals([array], key, lambda: [_merge_groups(array, group, merged)])
        group //= merged
    window = w.lens[2:]
    strides, dilations, begin, end = op.sliding(x.lens[2:], window)
    x = as_channels_last(e, x)
    if group > 1 or x.lens[1] <= FEW_CHANNELS:
        reach = [(k - 1) * d for k, d in zip(window, dilations, strict=True)]
        before, after = ([max(p - r, 0) for p, r in zip(pads, reach, strict=True)] for pads in (begin, end))
        if any(before) or any(after):
            x = padded_image(e, x, before, after)
            begin, end = (list(map(min, pads, reach)) for pads in (begin, end))
    lines = False
    if group > 1 and group == x.lens[1] == lens[1]:
        if max(dilations) > 1 and max(*begin, *end) > MAX_PADDING:
            x, begin, end = padded_image(e, x, begin, end), (0,) * len(window), (0,) * len(window)
        if len(window) == 3:
            windows = {"strides": strides, "dilations": dilations, "padding_begin": begin, "padding_end": end}
            permute = partial(with_group_axis, group=group)
            return depthwise_volumes(e, Depthwise(x, w, permute, lens, epilogue, windows))
        lines = len(window) == 1
    columns = len(window) == 2 and w.lens[3] == 1 == x.lens[3] < x.lens[2] and not begin[1] and not end[1]
    if columns:  # images of width 1 take oneDNN three times as long as images of height 1
        x, w, epilogue = swap_axes(x), swap_axes(w), None if epilogue is None else epilogue.viewed(swap_axes)
        lens, strides, dilations = [*lens[:2], lens[3], lens[2]], strides[::-1], dilations[::-1]
        begin, end = begin[::-1], end[::-1]
    if lines:
        x, w, epilogue = as_image(x), as_image(w), None if epilogue is None else epilogue.viewed(as_image)
        lens = [*lens[:2], 1, *lens[2:]]
        strides, dilations, begin, end = (1, *strides), (1, *dilations), (0, *begin), (0, *end)
    out = convolution_of_rows(
        e,
        x,
        w,
        lambda weights: with_group_axis(weights, group),
        lens,
        epilogue,
        strides=strides,
        dilations=dilations,
        padding_begin=begin,
        padding_end=end,
    )
    if columns:
        return swap_axes(out)
    return out.view_at(0, Shape(out.shape.dtype, result.lens(), [*out.strides[:2], out.strides[3]])) if lines else out


def swap_axes(value: Value) -> Value:
    """Returns a view of an image [n, c, h, w] with h = 1 or w = 1 as [n, c, w, h]."""
    (n, c, h, w), (by_n, by_c, by_h, by_w) = value.lens, value.strides
    by = (by_h * h, by_h) if w == 1 else (by_w, by_w)
    return value.view_at(0, Shape(value.shape.dtype, [n, c, w, h], [by_n, by_c, *by]))


def as_image(value: Value) -> Value:
    """Returns a view of [n, c, w] as [n, c, 1, w]: oneDNN has depthwise kernels only for images."""
    (n, c, w), (by_n, by_c, by_w) = value.lens, value.strides
    return Value(Shape(value.shape.dtype, [n, c, 1, w], [by_n, by_c, by_w * w, by_w]), value.buffer, value.offset)


def padded_image(e: CpuEmitter, x: Value, begin: Sequence[int], end: Sequence[int], filler: int = 0) -> Value:
    """Emits x [n, c, ..] padded with a value, channels last."""
    from ..jit.move import compile_pad

    lens = [*x.lens[:2], *(n + a + b for n, a, b in zip(x.lens[2:], begin, end, strict=True))]
    out = e.allocate(x.shape.dtype, lens, channels_last(lens))
    shapes, pads = (x.shape, out.shape), (0, 0, *begin, 0, 0, *end)
    if is_traced(x.shape):
        from .traced_taps import padded

        x = as_channels_last(e, x)
        return out if copy_into_image(e, x, out, begin, filler) else padded(e, Pad(pads=pads, value=filler), x, lens)
    kernel = e.shared.kernels.kernel(
        None, ("pad", pads, filler), shapes, lambda: compile_pad(Pad(pads=pads, value=filler), *shapes, e.engine)
    )
    e.loop(kernel, [x], [out])
    return out


def _groups_to_merge(group: int, w: Value) -> int:
    """Returns how many groups of w [o, c / group, ..] to merge into one: on AMX, as many as fill a tile, else 1."""
    per, out = w.lens[1], w.lens[0] // group
    if per == 1 or w.shape.dtype is not dt.bfloat16 or "amx_bf16" not in native().cpu_features():
        return 1
    fitting = [n for n in range(1, group + 1) if group % n == 0 and max(per, out) * n <= TILE]
    return max(fitting, default=1)


def _merge_groups(w: Array, group: int, merged: int) -> Array:
    """Merges every `merged` groups of weights [o, c / group, ..] into one, block-diagonal with zeros elsewhere."""
    out, per = w.shape[0] // group, w.shape[1]
    wide = np.zeros((group // merged, merged, out, merged, per, *w.shape[2:]), w.dtype)
    parts = w.reshape(group // merged, merged, out, per, *w.shape[2:])
    for n in range(merged):
        wide[:, n, :, n] = parts[:, n]
    return wide.reshape(w.shape[0], merged * per, *w.shape[2:])


def expand_multiplier(e: CpuEmitter, x: Value, results: int, group: int) -> tuple[Value, int]:
    """Repeats the channels of x [n, c, ..] if each has several outputs (depth multiplier > 1); returns it and the group count.

    oneDNN's depthwise kernels support one output per channel only.
    """
    if group != x.lens[1] or group == 1 or results == group:
        return x, group
    times, lens, strides = results // group, x.lens, x.strides
    seen = Shape(x.shape.dtype, [lens[0], lens[1], times, *lens[2:]], [strides[0], strides[1], 0, *strides[2:]])
    wide = [lens[0], lens[1] * times, *lens[2:]]
    out = e.allocate(x.shape.dtype, wide, channels_last(wide))
    step = out.strides
    apart = Shape(x.shape.dtype, seen.lens(), [step[0], step[1] * times, step[1], *step[2:]])
    e.copy_into(Value(seen, x.buffer, x.offset), Value(apart, out.buffer, out.offset))
    return out, results


def with_group_axis(w: Value, group: int) -> Value:
    """Returns a view of weights with a leading group axis, as oneDNN requires."""
    if group == 1:
        return w
    lens, strides = w.lens, w.strides
    per = lens[0] // group
    return Value(Shape(w.shape.dtype, [group, per, *lens[1:]], [per * strides[0], *strides]), w.buffer, w.offset)


offer_anchor(PLANS, Convolution, convolve, "onednn", only(FLOATS))
offer_widened(PLANS, Convolution, convolve)


def deconvolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """Emits the transposed convolution of x [n, c, ..] with w [c, o / group, ..]; operand and result are channels last."""
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    if is_traced(x.shape):
        from .transposed_phases import transposed_by_phases

        e.replaced = True
        if epilogue is not None:
            raise Refused("a loop of its own applies the epilogue to a transposed convolution of traced extents")
        return transposed_by_phases(e, op, x, w, lens)
    strides, dilations, begin, end, extra = op.plan(len(lens) - 2, w.lens[2:])
    if x.shape.dtype is not dt.float32 and op.group == x.lens[1] == lens[1] and any(s > 1 for s in strides):
        raise Refused("oneDNN has kernels of strided channels for float32 only, others take 30 times as long")
    return onednn_convolution(
        e,
        "deconvolution",
        as_channels_last(e, x),
        w,
        lambda weights: _transposed(weights, op.group),
        lens,
        epilogue,
        2 * x.shape.elements() * math.prod(w.lens[1:]),
        strides=strides,
        dilations=dilations,
        padding_begin=begin,
        padding_end=[b - p for b, p in zip(end, extra, strict=True)],
    )


def _transposed(w: Value, group: int) -> Value:
    """Returns a view of weights [c, o / group, ..] as [group, outputs, inputs, ..], without the group axis for one group."""
    (c, o, *window), (sc, so, *steps) = w.lens, w.strides
    if group == 1:
        shape = Shape(w.shape.dtype, [o, c, *window], [so, sc, *steps])
    else:
        per = c // group
        shape = Shape(w.shape.dtype, [group, o, per, *window], [per * sc, so, sc, *steps])
    return Value(shape, w.buffer, w.offset)


offer_anchor(PLANS, ConvolutionBackwards, deconvolve, "onednn", only(FLOATS))
offer_widened(PLANS, ConvolutionBackwards, deconvolve)
