"""Quantize and dequantize, and the operators of the standard on quantized tensors."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from ..tensors import dtype_of

__all__ = ["as_rows", "convolution_attributes", "dequantized", "dynamic_quantize", "integer_product", "requantized"]


def block_size(n: Node, x: Instruction, scale: Instruction) -> int:
    """Returns the attribute block_size, inferred from the extents of x and its scale if it is missing."""
    stated: int = n.attr("block_size", 0)
    if stated or not x.shape.ranked or x.shape.rank < 2 or scale.shape.rank != x.shape.rank:
        return stated
    (axis,) = n.axes([n.attr("axis", 1)], x.shape.rank)
    length, blocks = x.shape.dims[axis], scale.shape.dims[axis]
    if not isinstance(length, int) or not isinstance(blocks, int) or blocks < 1 or length == blocks or length % blocks:
        return stated
    return length // blocks if blocks > 1 else stated


@converts("QuantizeLinear", since=10)
@converts("QuantizeLinear", domain="com.microsoft")
def quantize_linear(n: Node, x: Instruction, scale: Instruction, zero_point: Instruction | None = None) -> Instruction:
    stated = n.attr("output_dtype", 0)
    out = dtype_of(stated) if stated else zero_point.shape.dtype if zero_point is not None else dt.uint8
    if zero_point is not None and stated and zero_point.shape.dtype is not out:
        n.fail(f"output_dtype {out} differs from the zero point's type {zero_point.shape.dtype}")
    precision = n.attr("precision", 0)
    return n.add(
        "quantizelinear",
        x,
        scale,
        zero_point,
        axis=n.attr("axis", 1),
        block_size=block_size(n, x, scale),
        out_type=out,
        saturate=bool(n.attr("saturate", 1)),
        precision=dtype_of(precision) if precision else None,
    )


@converts("DequantizeLinear", since=10)
@converts("DequantizeLinear", domain="com.microsoft")
def dequantize_linear(
    n: Node, x: Instruction, scale: Instruction, zero_point: Instruction | None = None
) -> Instruction:
    stated = n.attr("output_dtype", 0)
    return n.add(
        "dequantizelinear",
        x,
        scale,
        zero_point,
        axis=n.attr("axis", 1),
        block_size=block_size(n, x, scale),
        out_type=dtype_of(stated) if stated else None,
    )


@converts("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(n: Node, x: Instruction) -> tuple[Instruction, ...]:
    return dynamic_quantize(n, x)


def dynamic_quantize(n: Node, x: Instruction) -> tuple[Instruction, Instruction, Instruction]:
    """Quantizes x to uint8 over its range extended to 0; returns values, scale and zero point."""
    zero = n.literal(0.0, dt.float32)
    high = n.add("max", n.reshape(n.add("reduce_max", x), ()), zero)
    low = n.add("min", n.reshape(n.add("reduce_min", x), ()), zero)
    span = n.add("div", n.add("sub", high, low), n.literal(255.0, dt.float32))
    scale = n.add("where", n.add("equal", high, low), n.literal(1.0, dt.float32), span)
    point = n.add("nearbyint", n.add("sub", zero, n.add("div", low, scale)))
    clipped = n.add("clip", point, zero, n.literal(255.0, dt.float32))
    zero_point = n.convert(clipped, dt.uint8)
    return n.add("quantizelinear", x, scale, zero_point, out_type=dt.uint8), scale, zero_point


def convolution_attributes(n: Node, w: Instruction) -> dict[str, Any]:
    """Returns attributes of `convolution` from those of Conv and its variants; w: the weight, channels first."""
    rank = w.shape.rank - 2
    kernel = n.attr("kernel_shape", None)
    for stated, real in zip(kernel or (), w.shape.dims[2:], strict=False):
        if isinstance(real, int) and stated != real:
            n.fail(f"kernel_shape {kernel} differs from the weight's {list(w.shape.dims[2:])}")
    auto = n.attr("auto_pad", "NOTSET") or "NOTSET"
    modes = {"NOTSET": "default", "VALID": "default", "SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}
    if auto not in modes:
        n.fail(f"auto_pad must be one of {', '.join(modes)}, got {auto!r}")
    pads = n.attr("pads", None) or [0] * (2 * rank)
    if auto != "NOTSET":
        pads = [0] * (2 * rank)
    return {
        "padding": tuple(pads),
        "stride": tuple(n.attr("strides", None) or (1,) * rank),
        "dilation": tuple(n.attr("dilations", None) or (1,) * rank),
        "group": n.attr("group", 1),
        "padding_mode": modes[auto],
    }


def one_value(n: Node, x: Instruction | None) -> Instruction | None:
    """Returns a scalar or a vector of one value as a scalar; longer vectors unchanged."""
    if x is None:
        return None
    return n.reshape(x, ()) if x.shape.rank and all(d == 1 for d in x.shape.dims) else x


@converts("ConvInteger", since=10)
def conv_integer(
    n: Node,
    x: Instruction,
    w: Instruction,
    x_zero_point: Instruction | None = None,
    w_zero_point: Instruction | None = None,
) -> Instruction:
    points = (one_value(n, x_zero_point), one_value(n, w_zero_point))
    return n.add("quant_convolution", x, w, *points, **convolution_attributes(n, w))


@converts("QLinearConv", since=10)
@converts("QLinearConv", domain="com.microsoft")
def qlinear_conv(
    n: Node,
    x: Instruction,
    x_scale: Instruction,
    x_zero_point: Instruction,
    w: Instruction,
    w_scale: Instruction,
    w_zero_point: Instruction,
    y_scale: Instruction,
    y_zero_point: Instruction,
    bias: Instruction | None = None,
) -> Instruction:
    last = bool(n.attr("channels_last", 0))
    rank = x.shape.rank
    if last:
        x = n.transpose(x, [0, rank - 1, *range(1, rank - 1)])
    points = (one_value(n, x_zero_point), one_value(n, w_zero_point))
    sums = n.add("quant_convolution", x, w, *points, **convolution_attributes(n, w))
    if bias is not None:
        sums = n.pointwise("add", sums, n.reshape(bias, (bias.shape.dims[0], *(1,) * (rank - 2))))
    y = requantized(n, sums, _channel(n, x_scale, rank), _channel(n, w_scale, rank), y_scale, y_zero_point)
    return n.transpose(y, [0, *range(2, rank), 1]) if last else y


def _channel(n: Node, x: Instruction, rank: int) -> Instruction:
    x = one_value(n, x) or x
    return n.reshape(x, (x.shape.dims[0], *(1,) * (rank - 2))) if x.shape.rank else x


def requantized(
    n: Node,
    sums: Instruction,
    a_scale: Instruction,
    b_scale: Instruction,
    y_scale: Instruction,
    y_zero_point: Instruction | None,
    out: dt.DType | None = None,
) -> Instruction:
    """Requantizes (int32 sums of) products of two quantized tensors with one factor and one rounding.

    out: its type; by default the zero point's, or uint8.
    """
    a, b = n.broadcast(n.convert(a_scale, dt.float32), n.convert(b_scale, dt.float32))
    factor = n.pointwise("div", n.add("mul", a, b), n.convert(one_value(n, y_scale) or y_scale, dt.float32))
    wide = n.pointwise("mul", n.convert(sums, dt.float32), factor)
    if y_zero_point is not None and y_zero_point.shape.rank and y_zero_point.shape.rank < wide.shape.rank:
        y_zero_point = one_value(n, y_zero_point)
    one = n.literal(1.0, dt.float32)
    if y_zero_point is not None and y_zero_point.shape.rank:
        one = n.broadcast_to(one, y_zero_point.shape.dims)
    return n.add("quantizelinear", wide, one, y_zero_point, axis=-2, out_type=out)


def as_rows(n: Node, x: Instruction | None, rank: int) -> Instruction | None:
    """Returns a left operand's scale or zero point for [.., m, k]: a scalar, [m] as [m, 1], or unchanged."""
    x = one_value(n, x)
    if x is None or x.shape.rank != 1 or rank == 1:
        return x
    return n.unsqueeze(x, [1])


def integer_product(
    n: Node,
    a: Instruction,
    b: Instruction,
    a_zero_point: Instruction | None,
    b_zero_point: Instruction | None,
) -> tuple[Instruction, list[int]]:
    """Returns the int32 matrix product minus zero points, and the axes to squeeze for vector operands."""
    drop: list[int] = []
    if a.shape.rank == 1:
        a, drop = n.unsqueeze(a, [0]), [-2]
    if b.shape.rank == 1:
        b, drop = n.unsqueeze(b, [1]), [*drop, -1]
    return n.add("quant_dot", a, b, as_rows(n, a_zero_point, a.shape.rank), one_value(n, b_zero_point)), drop


@converts("MatMulInteger", since=10)
def matmul_integer(
    n: Node,
    a: Instruction,
    b: Instruction,
    a_zero_point: Instruction | None = None,
    b_zero_point: Instruction | None = None,
) -> Instruction:
    y, drop = integer_product(n, a, b, a_zero_point, b_zero_point)
    return n.squeeze(y, drop) if drop else y


@converts("QLinearMatMul", since=10)
def qlinear_matmul(
    n: Node,
    a: Instruction,
    a_scale: Instruction,
    a_zero_point: Instruction,
    b: Instruction,
    b_scale: Instruction,
    b_zero_point: Instruction,
    y_scale: Instruction,
    y_zero_point: Instruction,
) -> Instruction:
    sums, drop = integer_product(n, a, b, a_zero_point, b_zero_point)
    rank = a.shape.rank
    scales = (
        as_rows(n, a_scale, rank) or a_scale,
        one_value(n, b_scale) or b_scale,
        as_rows(n, y_scale, rank) or y_scale,
    )
    point = as_rows(n, y_zero_point, rank) or y_zero_point
    if point.shape.rank and point.shape.rank < sums.shape.rank:
        point = n.reshape(point, (*(1,) * (sums.shape.rank - point.shape.rank), *point.shape.dims))
    y = requantized(n, sums, *scales, point)
    return n.squeeze(y, drop) if drop else y


def dequantized(
    n: Node, x: Instruction, scale: Instruction, zero_point: Instruction | None, axis: int = 1
) -> Instruction:
    """Dequantizes x with one scale or one per index of `axis`."""
    return n.add("dequantizelinear", x, one_value(n, scale), one_value(n, zero_point), axis=axis)
