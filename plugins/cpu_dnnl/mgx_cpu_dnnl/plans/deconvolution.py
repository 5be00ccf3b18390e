"""Transposed convolutions through oneDNN: channels last, weights packed once, pointwise work as post-ops."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import Kernels, Shape
from mgx_core.errors import Refused
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from ..layout import as_channels_last
from .anchors import offer_anchor, offer_widened, windowed
from .epilogues import Epilogue
from .offer import FLOATS, only

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def deconvolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """x [n, c, ..] with weights [c, o / group, ..], channels last in and out."""
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    strides, dilations, begin, end, extra = op.plan(len(lens) - 2, w.lens[2:])
    return windowed(
        e,
        "deconvolution",
        as_channels_last(e, x),
        w,
        lambda weights: _turned(weights, op.group),
        lens,
        epilogue,
        2 * x.shape.elements() * math.prod(w.lens[1:]),
        strides=strides,
        dilations=dilations,
        padding_begin=begin,
        padding_end=[b - p for b, p in zip(end, extra, strict=True)],
    )


def _turned(w: Value, group: int) -> Value:
    """Returns weights [c, o / group, ..] as oneDNN wants them: results before operands, the group as an axis of its own."""
    (c, o, *window), (sc, so, *steps) = w.lens, w.strides
    if group == 1:
        shape = Shape(w.shape.dtype, [o, c, *window], [so, sc, *steps])
    else:
        per = c // group
        shape = Shape(w.shape.dtype, [group, o, per, *window], [per * sc, so, sc, *steps])
    return Value(shape, w.buffer, w.offset)


offer_anchor(PLANS, ConvolutionBackwards, deconvolve, "onednn", only(FLOATS))
offer_widened(PLANS, ConvolutionBackwards, deconvolve, "onednn-wide")
