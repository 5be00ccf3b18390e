"""Products and convolutions of bytes through oneDNN: sums in int32; factors, terms and rounding before the result is stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import DeviceError, Instruction, Kernels, Module, No, Operation, Shape, UnsupportedError
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.ops.window import explicit_padding, per_axis
from mgx_core.targets.epilogue import Link
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape

from ..emitter import CpuEmitter
from ..layout import as_channels_last, descriptor
from .convolution import grouped
from .epilogues import Epilogue, fused_epilogue
from .offer import offer, only
from .products import matrix_ready

__all__ = ["PLANS"]

PLANS = Kernels("cpu")

BYTES: Final = frozenset({dt.int8, dt.uint8})
STORED: Final = frozenset({dt.float32, dt.bfloat16, dt.int8, dt.uint8})
SAFE: Final = 64  # two products of uint8 and numbers up to it, added in int16, do not saturate


def is_integer_group(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    anchor = next((i for i in modules[0] if isinstance(i.op, (QuantDot, QuantConvolution))), None)
    if anchor is None:
        return No("the group is not a product of bytes with an epilogue")
    if anchor.inputs[0].shape.dtype not in BYTES:
        return No(f"a product of {anchor.inputs[0].shape.dtype}")
    return None


@offer(PLANS, QuantDot, when=only(BYTES), name="onednn")
def emit_quant_dot(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return product(e, args, None)


@offer(PLANS, QuantConvolution, when=only(BYTES), name="onednn")
def emit_quant_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return convolve(e, op, args, None)


@offer(PLANS, Group, when=is_integer_group, name="onednn")
def emit_integer_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return fused_epilogue(e, modules[0], [a for a in args if a is not None], build, STORED)


def build(e: CpuEmitter, anchor: Instruction, operands: Sequence[Value], epilogue: Epilogue | None) -> Value:
    if epilogue is None:
        made = e.run_op(anchor.op, (), operands)
        assert isinstance(made, Value)
        return made
    if isinstance(anchor.op, QuantDot):
        return product(e, operands, epilogue)
    return convolve(e, anchor.op, operands, epilogue)


# what a product reads beside its operands ----------------------------------------------------------------------------


def operands_of(e: CpuEmitter, args: Sequence[Value | None]) -> tuple[Value, Value, Value | None, Value | None]:
    """The operands, and their zero points where they are not all 0.  Errors: Refused for what oneDNN does not multiply."""
    x, w, x_zero, w_zero = (*args, None, None)[:4]
    assert x is not None and w is not None
    if w.shape.dtype is not dt.int8:
        raise Refused("oneDNN multiplies by int8 alone")
    if not fast(e) and saturates(e, x, w):
        raise Refused("this processor adds pairs of products in int16, which these weights may exceed")
    return x, w, x_zero, w_zero


def fast(e: CpuEmitter) -> bool:
    """True if oneDNN sums products of bytes in int32, which it can be kept from (ONEDNN_MAX_CPU_ISA)."""
    from ..native_library import native

    return bool(native().onednn_sums_bytes())


def saturates(e: CpuEmitter, x: Value, w: Value) -> bool:
    array = e.constant(w)
    return array is None or bool(np.abs(array.astype(np.int16)).max(initial=0) > SAFE)


def whole_number(e: CpuEmitter, zero: Value) -> Value:
    """A zero point as int32 [1], as oneDNN reads it.  Errors: Refused for more than one."""
    if prod(zero.lens) != 1:
        raise Refused("the left operand has more than one zero point")
    plain = zero.seen_as(0, Shape(zero.shape.dtype, [1]))
    array = e.constant(plain)
    if array is not None:
        return e.literal(array.astype(np.int32))
    wide = e.allocate(dt.int32, [1])
    e.copy_into(plain, wide)
    return wide


def take_scale(e: CpuEmitter, epilogue: Epilogue, axis: int, count: int) -> tuple[Value, bool] | None:
    """The first link as the scale of the weights, if it multiplies by one number or one an index of `axis`.

    Returns the numbers and if there is one an index.
    """
    if not epilogue.links:
        return None
    link, operand = epilogue.links[0]
    if link.kind == "eltwise":
        if link.algorithm != "linear" or link.beta:
            return None
        del epilogue.links[0]
        return e.literal(np.array([link.alpha], np.float32)), False
    if link.algorithm != "mul" or operand is None or operand.shape.dtype is not dt.float32:
        return None
    found = as_vector(operand, axis, count)
    if found is None:
        return None
    del epilogue.links[0]
    return found, prod(found.lens) != 1 or count == 1


def take_term(e: CpuEmitter, epilogue: Epilogue, axis: int, count: int) -> Value | None:
    """The first link as a bias, if it adds one number an index of `axis`."""
    if not epilogue.links:
        return None
    link, operand = epilogue.links[0]
    if link.kind != "binary" or link.algorithm != "add" or operand is None or operand is epilogue.residual:
        return None
    found = as_vector(operand, axis, count)
    if found is None or found.lens != [count] or operand.shape.dtype is not dt.float32:
        return None
    del epilogue.links[0]
    return found


def as_vector(value: Value, axis: int, count: int) -> Value | None:
    """A value that varies along one axis at most, with its numbers in a row."""
    varies = [a for a, (n, s) in enumerate(zip(value.lens, value.strides, strict=True)) if s and n != 1]
    if not varies:
        return value.seen_as(0, Shape(value.shape.dtype, [1]))
    if varies != [axis % len(value.lens)] or value.strides[varies[0]] != 1 or value.lens[varies[0]] != count:
        return None
    return value.seen_as(0, Shape(value.shape.dtype, [count]))


def joined(links: list[tuple[Link, Value | None]], stored: DType) -> list[tuple[Link, Value | None]]:
    """The same with linear functions that follow each other as one, and without what storing integers does by itself."""
    found: list[tuple[Link, Value | None]] = []
    for link, operand in links:
        before = found[-1][0] if found else None
        if link.algorithm == "linear" and before is not None and before.algorithm == "linear":
            found[-1] = (
                Link("eltwise", "linear", link.alpha * before.alpha, link.alpha * before.beta + link.beta),
                None,
            )
        else:
            found.append((link, operand))
    if stored in BYTES:
        while found and found[-1][0].algorithm == "clip" and _covers(found[-1][0], stored):
            found.pop()
        shift = found[-1][0] if found and found[-1][0].algorithm == "linear" and found[-1][0].alpha == 1.0 else None
        if shift is not None and len(found) > 1 and found[-2][0].algorithm == "round":
            if shift.beta % 2 == 0:  # else ties between two numbers go the other way after the shift than before it
                del found[-2]
                found = joined(found, dt.float32)
        elif found and found[-1][0].algorithm == "round":
            found.pop()
        if stored is dt.uint8 and found and found[-1][0].algorithm == "relu" and not found[-1][0].alpha:
            found.pop()
    return [f for f in found if f[0].algorithm != "linear" or (f[0].alpha, f[0].beta) != (1.0, 0.0)]


def _covers(link: Link, stored: DType) -> bool:
    return bool(link.alpha <= stored.lowest and link.beta >= stored.highest)


class Extras:
    """Attributes and arguments of a primitive: scales, zero points, bias, post-ops."""

    def __init__(self, e: CpuEmitter, epilogue: Epilogue | None, axis: int, count: int, mask: int) -> None:
        from ..native_library import native

        self.native = native()
        self.bound: dict[int, Value] = {}
        self.attributes: dict[str, Any] = {}
        self.bias: Value | None = None
        self.epilogue = epilogue
        if epilogue is None:
            return
        epilogue.residual = None
        scale = take_scale(e, epilogue, axis, count)
        if scale is not None:
            self.attributes["scales"] = {self.native.ARG_WEIGHTS: mask if scale[1] else 0}
            self.bound[self.native.ARG_ATTR_SCALES | self.native.ARG_WEIGHTS] = scale[0]
        self.bias = take_term(e, epilogue, axis, count)
        epilogue.links = joined(epilogue.links, epilogue.dtype)

    def zero_point(self, e: CpuEmitter, zero: Value | None) -> None:
        if zero is not None:
            self.attributes["zero_points"] = {self.native.ARG_SRC: 0}
            self.bound[self.native.ARG_ATTR_ZERO_POINTS | self.native.ARG_SRC] = whole_number(e, zero)

    def links(self, e: CpuEmitter, out: Value, flat: tuple[int, int] | None = None) -> dict[str, Any]:
        more = {} if self.epilogue is None else self.epilogue.attributes(e, out, flat)
        return {**self.attributes, **more}

    def arguments(self, made: Any) -> dict[int, Value]:
        return self.bound | ({} if self.epilogue is None else self.epilogue.arguments(made))


def chosen(e: CpuEmitter, what: str, make: Callable[[], Any]) -> Any:
    """A primitive.  Errors: Refused if oneDNN has none, or only its reference."""
    try:
        made = make()
    except (UnsupportedError, DeviceError) as error:
        raise Refused(f"oneDNN: {error}") from None
    if made.is_reference:
        raise Refused(f"oneDNN has only its reference {what}")
    return made


# convolutions --------------------------------------------------------------------------------------------------------


def convolve(e: CpuEmitter, op: Any, args: Sequence[Value | None], epilogue: Epilogue | None) -> Value:
    """x [n, c, ..] with weights [o, c / group, ..], channels last in and out."""
    x, w, x_zero, w_zero = operands_of(e, args)
    if w_zero is not None:
        raise Refused("the weights have a zero point")
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens or 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    x = as_channels_last(e, x)
    window = w.lens[2:]
    strides, dilations = (per_axis(v, len(window), "stride") for v in (op.stride, op.dilation))
    begin, end = explicit_padding(x.lens[2:], window, strides, dilations, op.padding, op.padding_mode)
    if w.shape.broadcasted():
        array = e.constant(w)
        w = e.copy(w) if array is None else e.literal(array)
    extras = Extras(e, epilogue, 1, lens[1], 3 if op.group > 1 else 1)
    extras.zero_point(e, x_zero)
    out = e.allocate(dt.int32 if epilogue is None else epilogue.dtype, lens, channels_last(lens))
    weights = grouped(w, op.group)
    w_md = descriptor(weights)
    made = chosen(
        e,
        "convolution",
        lambda: e.made(
            "convolution",
            descriptor(x),
            extras.native.MemoryDesc(list(w_md.dims), w_md.dtype, "any"),
            None if extras.bias is None else descriptor(extras.bias),
            descriptor(out),
            strides=strides,
            dilations=dilations,
            padding_begin=begin,
            padding_end=end,
            **extras.links(e, out),
        ),
    )
    packed = e.packed(weights, w_md, made.weights) if e.is_constant(w) else e.reordered(weights, w_md, made.weights)
    native = extras.native
    bound = {native.ARG_SRC: x, native.ARG_WEIGHTS: packed, native.ARG_DST: out, **extras.arguments(made)}
    if extras.bias is not None:
        bound[native.ARG_BIAS] = extras.bias
    e.primitive(f"conv {made.impl}", made, bound, flops=2 * prod(lens) * prod(w.lens[1:]))
    return out


# products ------------------------------------------------------------------------------------------------------------


def product(e: CpuEmitter, args: Sequence[Value | None], epilogue: Epilogue | None) -> Value:
    """a [.., m, k] times b [.., k, n], row-major; batches broadcast."""
    a, b, a_zero, b_zero = operands_of(e, args)
    if b_zero is not None:
        raise Refused("the right operand has a zero point")
    rank = max(len(a.lens), len(b.lens))
    batch = list(np.broadcast_shapes(tuple(a.lens[:-2]), tuple(b.lens[:-2])))
    lens = [*batch, a.lens[-2], b.lens[-1]]
    if 0 in lens or not a.lens[-1]:
        raise Refused("an extent is 0")
    a, b = (matrix_ready(e, with_rank(x, rank)) for x in (a, b))
    flat = not any(n != 1 and s for n, s in zip(b.lens[:-2], b.strides[:-2], strict=True)) and a.shape.standard()
    extras = Extras(e, epilogue, -1, lens[-1], 2 if flat else 1 << (rank - 1))
    extras.zero_point(e, a_zero)
    out = e.allocate(dt.int32 if epilogue is None else epilogue.dtype, lens)
    shape_of = None
    if flat:
        rows, k, n = prod(lens[:-1]), a.lens[-1], lens[-1]
        a_md, out_md = descriptor(a, [rows, k], [k, 1]), descriptor(out, [rows, n], [n, 1])
        b_md, shape_of = descriptor(b, b.lens[-2:], b.strides[-2:]), (rows, n)
    else:
        a_md, b_md, out_md = descriptor(a), descriptor(b), descriptor(out)
    constant, native = e.is_constant(b), extras.native
    wanted = native.MemoryDesc(list(b_md.dims), b_md.dtype, "any") if constant else b_md
    keywords = extras.links(e, out, shape_of)
    if extras.bias is not None:
        bias_md = descriptor(
            extras.bias, [1] * (len(out_md.dims) - 1) + [lens[-1]], [lens[-1]] * (len(out_md.dims) - 1) + [1]
        )
        keywords["bias"] = bias_md
    made = chosen(e, "product", lambda: e.made("matmul", a_md, wanted, out_md, **keywords))
    packed = e.packed(b, b_md, made.weights) if constant else b
    bound = {native.ARG_SRC: a, native.ARG_WEIGHTS: packed, native.ARG_DST: out, **extras.arguments(made)}
    if extras.bias is not None:
        bound[native.ARG_BIAS] = extras.bias
    e.primitive(f"matmul {made.impl}", made, bound, flops=2 * prod(lens) * a.lens[-1])
    return out


def with_rank(x: Value, rank: int) -> Value:
    """A matrix with axes of extent 1 in front."""
    missing = rank - len(x.lens)
    if not missing:
        return x
    return x.seen_as(0, Shape(x.shape.dtype, [1] * missing + x.lens, [prod(x.lens)] * missing + x.strides))
