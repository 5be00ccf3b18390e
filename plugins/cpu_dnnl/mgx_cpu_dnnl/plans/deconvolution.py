"""Transposed convolutions through oneDNN: channels last, weights packed once, pointwise work as post-ops."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from mgx_core import DeviceError, Instruction, Kernels, Module, No, Operation, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import ConvolutionBackwards
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import as_channels_last, descriptor
from .convolution import take_bias
from .epilogues import Epilogue, fused_epilogue
from .offer import FLOATS, offer, only
from .precision import narrowed, widened

__all__ = ["PLANS"]

PLANS = Kernels("cpu")


def is_deconvolution_group(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    anchor = next((i for i in modules[0] if isinstance(i.op, ConvolutionBackwards)), None)
    if op.tag != "convolution_backwards" or anchor is None:
        return No("the group is not a transposed convolution with an epilogue")
    if anchor.shape.dtype not in FLOATS:
        return No(f"a transposed convolution of {anchor.shape.dtype}")
    return None


@offer(PLANS, ConvolutionBackwards, when=only(FLOATS), name="onednn")
def emit_deconvolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, w = args
    assert x is not None and w is not None
    return deconvolve(e, op, x, w, None)


@offer(PLANS, ConvolutionBackwards, when=only(frozenset({dt.float16, dt.bfloat16})), name="onednn-wide")
def emit_wide_deconvolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Narrow floats on processors that cannot multiply them: in float32, rounded once."""
    x, w = args
    assert x is not None and w is not None
    return narrowed(e, deconvolve(e, op, widened(e, x), widened(e, w), None), x.shape.dtype)


@offer(PLANS, Group, when=is_deconvolution_group, name="onednn")
def emit_deconvolution_group(
    e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]
) -> Results:
    return fused_epilogue(e, modules[0], [a for a in args if a is not None], build)


def build(e: CpuEmitter, anchor: Instruction, operands: Sequence[Value], epilogue: Epilogue | None) -> Value:
    return deconvolve(e, anchor.op, operands[0], operands[1], epilogue)


def deconvolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """x [n, c, ..] with weights [c, o / group, ..], channels last in and out."""
    from ..native_library import native

    _native = native()

    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    x = as_channels_last(e, x)
    if w.shape.broadcasted():  # oneDNN's weights do not repeat
        array = e.constant(w)
        w = e.copy(w) if array is None else e.literal(array)
    strides, dilations, begin, end, extra = op.plan(len(lens) - 2, w.lens[2:])
    dtype = x.shape.dtype if epilogue is None else epilogue.dtype
    out = None if epilogue is None else epilogue.in_place([x, w], channels_last(lens))
    if out is None:
        out = e.allocate(dtype, lens, channels_last(lens))
    weights = _turned(w, op.group)
    w_md = descriptor(weights)
    bias = None if epilogue is None else take_bias(e, epilogue, lens[1])
    attributes = {} if epilogue is None else epilogue.attributes(e, out)
    try:
        made = _native.deconvolution(
            descriptor(x),
            _native.MemoryDesc(list(w_md.dims), w_md.dtype, "any"),
            None if bias is None else descriptor(bias),
            descriptor(out),
            strides=strides,
            dilations=dilations,
            padding_begin=begin,
            padding_end=[b - p for b, p in zip(end, extra, strict=True)],
            **attributes,
        )
    except (UnsupportedError, DeviceError) as error:
        raise Refused(f"oneDNN: {error}") from None
    if made.is_reference:
        raise Refused("oneDNN has only its reference transposed convolution")
    constant = e.constant(w) is not None
    packed = e.packed(weights, w_md, made.weights) if constant else e.reordered(weights, w_md, made.weights)
    bound = {_native.ARG_SRC: x, _native.ARG_WEIGHTS: packed, _native.ARG_DST: out}
    if bias is not None:
        bound[_native.ARG_BIAS] = bias
    if epilogue is not None:
        bound |= epilogue.arguments(made)
    e.primitive(f"deconv {made.impl}", made, bound, flops=2 * x.shape.elements() * math.prod(w.lens[1:]))
    return out


def _turned(w: Value, group: int) -> Value:
    """Weights [c, o / group, ..] as oneDNN wants them: results before operands, the group as an axis of its own."""
    (c, o, *window), (sc, so, *steps) = w.lens, w.strides
    if group == 1:
        shape = Shape(w.shape.dtype, [o, c, *window], [so, sc, *steps])
    else:
        per = c // group
        shape = Shape(w.shape.dtype, [group, o, per, *window], [per * sc, so, sc, *steps])
    return Value(shape, w.buffer, w.offset)
