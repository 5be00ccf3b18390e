"""Convolutions through oneDNN: channels last, weights packed once, pointwise work as post-ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import DeviceError, Instruction, Kernels, Module, No, Operation, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.window import explicit_padding, per_axis
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import as_channels_last, descriptor
from .epilogues import Epilogue, fused_epilogue
from .offer import FLOATS, offer, only
from .precision import narrowed, widened

__all__ = ["PLANS", "grouped", "take_bias"]

PLANS = Kernels("cpu")


def is_convolution_group(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    anchor = next((i for i in modules[0] if isinstance(i.op, Convolution)), None)
    if op.tag != "convolution" or anchor is None:
        return No("the group is not a convolution with an epilogue")
    if anchor.shape.dtype not in FLOATS:
        return No(f"a convolution of {anchor.shape.dtype}")
    return None


@offer(PLANS, Convolution, when=only(FLOATS), name="onednn")
def emit_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    x, w = args
    assert x is not None and w is not None
    return convolve(e, op, x, w, None)


@offer(PLANS, Convolution, when=only(frozenset({dt.float16, dt.bfloat16})), name="onednn-wide")
def emit_wide_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Narrow floats on processors that cannot multiply them: in float32, rounded once."""
    x, w = args
    assert x is not None and w is not None
    return narrowed(e, convolve(e, op, widened(e, x), widened(e, w), None), x.shape.dtype)


@offer(PLANS, Group, when=is_convolution_group, name="onednn")
def emit_convolution_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return fused_epilogue(e, modules[0], [a for a in args if a is not None], build)


def build(e: CpuEmitter, anchor: Instruction, operands: Sequence[Value], epilogue: Epilogue | None) -> Value:
    return convolve(e, anchor.op, operands[0], operands[1], epilogue)


def convolve(e: CpuEmitter, op: Any, x: Value, w: Value, epilogue: Epilogue | None) -> Value:
    """x [n, c, ..] with weights [o, c / group, ..], channels last in and out."""
    from ..native_library import native

    _native = native()

    result = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens))
    lens = result.lens()
    if 0 in lens or 0 in x.lens:
        raise Refused("an extent is 0")
    x = as_channels_last(e, x)
    if w.shape.broadcasted():  # oneDNN's weights do not repeat
        array = e.constant(w)
        w = e.copy(w) if array is None else e.literal(array)
    window = w.lens[2:]
    strides = per_axis(op.stride, len(window), "stride")
    dilations = per_axis(op.dilation, len(window), "dilation")
    begin, end = explicit_padding(x.lens[2:], window, strides, dilations, op.padding, op.padding_mode)
    out = None if epilogue is None else epilogue.in_place([x, w], channels_last(lens))
    if out is None:
        out = e.allocate(x.shape.dtype if epilogue is None else epilogue.dtype, lens, channels_last(lens))
    weights = grouped(w, op.group)
    w_md = descriptor(weights)
    bias = None
    if epilogue is not None:
        bias = take_bias(e, epilogue, lens[1])
    attributes = {} if epilogue is None else epilogue.attributes(e, out)
    constant = e.constant(w) is not None
    try:
        made = e.made(
            "convolution",
            descriptor(x),
            _native.MemoryDesc(list(w_md.dims), w_md.dtype, "any"),
            None if bias is None else descriptor(bias),
            descriptor(out),
            strides=strides,
            dilations=dilations,
            padding_begin=begin,
            padding_end=end,
            **attributes,
        )
    except (UnsupportedError, DeviceError) as error:
        raise Refused(f"oneDNN: {error}") from None
    if made.is_reference:
        raise Refused("oneDNN has only its reference convolution")
    packed = e.packed(weights, w_md, made.weights) if constant else e.reordered(weights, w_md, made.weights)
    bound = {_native.ARG_SRC: x, _native.ARG_WEIGHTS: packed, _native.ARG_DST: out}
    if bias is not None:
        bound[_native.ARG_BIAS] = bias
    if epilogue is not None:
        bound |= epilogue.arguments(made)
    flops = 2 * result.elements()
    for n in w.lens[1:]:
        flops *= n
    e.primitive(f"conv {made.impl}", made, bound, flops=flops)
    return out


def grouped(w: Value, group: int) -> Value:
    """Weights with the group as an axis of its own, as oneDNN wants them."""
    if group == 1:
        return w
    lens, strides = w.lens, w.strides
    per = lens[0] // group
    return Value(Shape(w.shape.dtype, [group, per, *lens[1:]], [per * strides[0], *strides]), w.buffer, w.offset)


def take_bias(e: CpuEmitter, epilogue: Epilogue, channels: int) -> Value | None:
    """The first link as the convolution's own bias, if it adds one number a channel."""
    for position, (link, operand) in enumerate(epilogue.links[:2]):
        if link.kind != "binary" or link.algorithm != "add" or operand is None or operand is epilogue.residual:
            if position == 0 and link.kind == "binary" and link.algorithm == "add":
                continue
            return None
        varies = [a for a, (n, s) in enumerate(zip(operand.lens, operand.strides, strict=True)) if s and n != 1]
        if varies != [1] or operand.strides[1] != 1 or operand.lens[1] != channels:
            return None
        del epilogue.links[position]
        return Value(Shape(operand.shape.dtype, [channels]), operand.buffer, operand.offset)
    return None
