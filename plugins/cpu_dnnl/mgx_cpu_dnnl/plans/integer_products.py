"""int8 products and convolutions through oneDNN: int32 sums, with scaling, bias and requantization before the store."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from mgx_core import Instruction, Kernels, Module, Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.targets.group_checks import around
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, channels_last
from mgx_core.types.shape import row_major

from ..emitter import CpuEmitter
from ..layout import as_channels_last, descriptor
from .convolution import expand_multiplier, with_group_axis
from .epilogues import Epilogue, fused_epilogue
from .integer_epilogues import BYTES, QuantizationAttributes
from .integer_operands import known_bug, operands_of
from .offer import offer, only
from .products import matmul_operand

__all__ = ["PLANS"]

PLANS = Kernels("cpu")

STORED: Final = frozenset({dt.float32, dt.bfloat16, dt.int8, dt.uint8})


@offer(PLANS, QuantDot, when=only(BYTES), name="onednn")
def emit_quant_dot(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return product(e, op, args, None)


@offer(PLANS, QuantConvolution, when=only(BYTES), name="onednn")
def emit_quant_convolution(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return convolve(e, op, args, None)


@offer(PLANS, Group, when=around(QuantDot, QuantConvolution, when=only(BYTES, 1)), name="onednn")
def emit_integer_group(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    return fused_epilogue(e, modules[0], [a for a in args if a is not None], build, STORED)


def build(e: CpuEmitter, anchor: Instruction, operands: Sequence[Value], epilogue: Epilogue | None) -> Value:
    if epilogue is None:
        made = e.run_op(anchor.op, (), operands)
        assert isinstance(made, Value)
        return made
    if isinstance(anchor.op, QuantDot):
        return product(e, anchor.op, operands, epilogue)
    return convolve(e, anchor.op, operands, epilogue)


def checked_operands(
    e: CpuEmitter, op: Any, args: Sequence[Value | None]
) -> tuple[Value, Value, Value | None, Value | None]:
    """Returns the operands (see `operands_of`).  Errors: Refused also if oneDNN computes wrong sums."""
    x, w, x_zero, w_zero = operands_of(e, args)
    wrong = known_bug(op, [x, w, x_zero, w_zero])
    if wrong:
        raise Refused(f"oneDNN computes wrong sums for {wrong} on AVX2-VNNI")
    return x, w, x_zero, w_zero


# convolutions --------------------------------------------------------------------------------------------------------


def convolve(e: CpuEmitter, op: Any, args: Sequence[Value | None], epilogue: Epilogue | None) -> Value:
    """Emits the convolution of x [n, c, ..] with w [o, c / group, ..]; operand and result are channels last."""
    x, w, x_zero, w_zero = checked_operands(e, op, args)
    if w_zero is not None:
        raise Refused("the weights have a zero point")
    lens = op.infer(Shape(x.shape.dtype, x.lens), Shape(w.shape.dtype, w.lens)).lens()
    if 0 in lens:
        raise Refused("an extent is 0")
    x, group = expand_multiplier(e, x, lens[1], op.group)
    x = as_channels_last(e, x)
    strides, dilations, begin, end = op.sliding(x.lens[2:], w.lens[2:])
    if w.shape.broadcasted():
        array = e.constant(w)
        w = e.copy(w) if array is None else e.literal(array)
    extras = QuantizationAttributes(e, epilogue, 1, lens[1], 3 if op.group > 1 else 1, [x, w], channels_last(lens))
    extras.zero_point(e, x_zero, extras.native.ARG_SRC)
    out = extras.out or e.allocate(dt.int32 if epilogue is None else epilogue.dtype, lens, channels_last(lens))
    weights = with_group_axis(w, group)
    w_md = descriptor(weights)
    made = e.made(
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
    )
    packed = e.packed(weights, w_md, made.weights) if e.is_constant(w) else e.reordered(weights, w_md, made.weights)
    native = extras.native
    bound = {native.ARG_SRC: x, native.ARG_WEIGHTS: packed, native.ARG_DST: out, **extras.arguments(made)}
    if extras.bias is not None:
        bound[native.ARG_BIAS] = extras.bias
    e.primitive(f"conv {made.impl}", made, bound, flops=2 * prod(lens) * prod(w.lens[1:]))
    return out


# products ------------------------------------------------------------------------------------------------------------


def product(e: CpuEmitter, op: Any, args: Sequence[Value | None], epilogue: Epilogue | None) -> Value:
    """Emits the product of a [.., m, k] and b [.., k, n], row-major, with broadcast batches."""
    a, b, a_zero, b_zero = checked_operands(e, op, args)
    rank = max(len(a.lens), len(b.lens))
    batch = op.infer(a.shape, b.shape).lens()[:-2]
    lens = [*batch, a.lens[-2], b.lens[-1]]
    if 0 in lens or not a.lens[-1]:
        raise Refused("an extent is 0")
    a, b = (matmul_operand(e, with_rank(x, rank)) for x in (a, b))
    if a.strides[-1] != 1 and a.lens[-1] != 1:
        a = e.row_major(a)  # required by oneDNN's optimized int8 kernels
    flat = not any(n != 1 and s for n, s in zip(b.lens[:-2], b.strides[:-2], strict=True)) and a.shape.standard()
    extras = QuantizationAttributes(e, epilogue, -1, lens[-1], 2 if flat else 1 << (rank - 1), [a, b], row_major(lens))
    extras.zero_point(e, a_zero, extras.native.ARG_SRC)
    extras.zero_point(e, b_zero, extras.native.ARG_WEIGHTS)
    out = extras.out or e.allocate(dt.int32 if epilogue is None else epilogue.dtype, lens)
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
    made = e.made("matmul", a_md, wanted, out_md, **keywords)
    packed = e.packed(b, b_md, made.weights) if constant else b
    bound = {native.ARG_SRC: a, native.ARG_WEIGHTS: packed, native.ARG_DST: out, **extras.arguments(made)}
    if extras.bias is not None:
        bound[native.ARG_BIAS] = extras.bias
    e.primitive(f"matmul {made.impl}", made, bound, flops=2 * prod(lens) * a.lens[-1])
    return out


def with_rank(x: Value, rank: int) -> Value:
    """Returns a view with leading axes of extent 1 up to a rank."""
    missing = rank - len(x.lens)
    if not missing:
        return x
    return x.view_at(0, Shape(x.shape.dtype, [1] * missing + x.lens, [prod(x.lens)] * missing + x.strides))
