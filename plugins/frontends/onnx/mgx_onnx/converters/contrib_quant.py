"""Operators of com.microsoft on 8-bit tensors with scales and zero points."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from .quantized import dequantized, one_value, requantized

MS = "com.microsoft"


def quantized(
    n: Node, x: Instruction, scale: Instruction, zero_point: Instruction | None, dtype: dt.DType
) -> Instruction:
    """Quantizes floats to `dtype` with one scale."""
    scale = one_value(n, n.convert(scale, dt.float32)) or scale
    return n.add("quantizelinear", x, scale, one_value(n, zero_point), out_type=dtype)


def centered(n: Node, x: Instruction, zero_point: Instruction | None) -> Instruction:
    """Returns x minus its zero point as float32 (exact)."""
    return dequantized(n, x, n.literal(1.0, dt.float32), zero_point)


@converts("QLinearAdd", "QLinearMul", domain=MS)
def qlinear_binary(
    n: Node,
    a: Instruction,
    a_scale: Instruction,
    a_zero_point: Instruction | None,
    b: Instruction,
    b_scale: Instruction,
    b_zero_point: Instruction | None,
    c_scale: Instruction,
    c_zero_point: Instruction | None = None,
) -> Instruction:
    out = a.shape.dtype
    if n.op_type == "QLinearAdd":
        both = dequantized(n, a, a_scale, a_zero_point), dequantized(n, b, b_scale, b_zero_point)
        return quantized(n, n.pointwise("add", *both), c_scale, c_zero_point, out)
    product = n.pointwise("mul", centered(n, a, a_zero_point), centered(n, b, b_zero_point))
    left, right, result = (n.reshape(s, ()) for s in (a_scale, b_scale, c_scale))
    return requantized(n, product, left, right, result, one_value(n, c_zero_point), out)


@converts("QLinearSigmoid", "QLinearLeakyRelu", domain=MS)
def qlinear_unary(
    n: Node,
    x: Instruction,
    x_scale: Instruction,
    x_zero_point: Instruction | None,
    y_scale: Instruction,
    y_zero_point: Instruction | None = None,
) -> Instruction:
    wide = dequantized(n, x, x_scale, x_zero_point)
    if n.op_type == "QLinearSigmoid":
        y = n.add("sigmoid", wide)
    else:
        y = n.add("leaky_relu", wide, alpha=n.attr("alpha", 0.01))
    return quantized(n, y, y_scale, y_zero_point, x.shape.dtype)


@converts("QLinearSoftmax", domain=MS)
def qlinear_softmax(
    n: Node,
    x: Instruction,
    x_scale: Instruction,
    x_zero_point: Instruction | None,
    y_scale: Instruction,
    y_zero_point: Instruction | None = None,
) -> Instruction:
    wide = dequantized(n, x, x_scale, x_zero_point)
    (axis,) = n.axes([n.attr("axis", -1)], x.shape.rank)
    if n.attr("opset", 13) >= 13:
        y = n.add("softmax", wide, axis=axis)
    else:
        y = n.reshape(n.add("softmax", n.add("flatten", wide, axis=axis), axis=1), x.shape.dims)
    return quantized(n, y, y_scale, y_zero_point, x.shape.dtype)


@converts("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(
    n: Node,
    x: Instruction,
    x_scale: Instruction,
    x_zero_point: Instruction | None,
    y_scale: Instruction,
    y_zero_point: Instruction | None = None,
) -> Instruction:
    axes = n.axes(n.attr("axes", None) or range(x.shape.rank), x.shape.rank)
    mean = n.add("reduce_mean", dequantized(n, x, x_scale, x_zero_point), axes=axes)
    y = quantized(n, mean, y_scale, y_zero_point, x.shape.dtype)
    return y if n.attr("keepdims", 1) else n.squeeze(y, axes)


@converts("QLinearWhere", domain=MS)
def qlinear_where(
    n: Node,
    condition: Instruction,
    x: Instruction,
    x_scale: Instruction,
    x_zero_point: Instruction,
    y: Instruction,
    y_scale: Instruction,
    y_zero_point: Instruction,
    z_scale: Instruction,
    z_zero_point: Instruction,
) -> Instruction:
    out = x.shape.dtype
    sides = [
        quantized(n, dequantized(n, v, scale, point), z_scale, z_zero_point, out)
        for v, scale, point in ((x, x_scale, x_zero_point), (y, y_scale, y_zero_point))
    ]
    return n.pointwise("where", n.convert(condition, dt.bool_), *sides)


@converts("QLinearConcat", domain=MS)
def qlinear_concat(n: Node, y_scale: Instruction, y_zero_point: Instruction, *triples: Instruction) -> Instruction:
    if not triples or len(triples) % 3:
        n.fail(f"inputs after the first two must be triples (tensor, scale, zero point), got {len(triples)}")
    parts = []
    for i in range(0, len(triples), 3):
        x, scale, point = triples[i : i + 3]
        parts.append(quantized(n, dequantized(n, x, scale, point), y_scale, y_zero_point, y_zero_point.shape.dtype))
    (axis,) = n.axes([n.attr("axis")], parts[0].shape.rank)
    return n.add("concat", *parts, axis=axis)


@converts("QLinearAveragePool", "QLinearGlobalAveragePool", domain=MS)
def qlinear_average_pool(
    n: Node,
    x: Instruction,
    x_scale: Instruction,
    x_zero_point: Instruction | None,
    y_scale: Instruction,
    y_zero_point: Instruction | None = None,
) -> Instruction:
    rank = x.shape.rank
    if rank < 3:
        n.fail(f"a tensor with at least one spatial axis is required, got {x.shape}")
    last = bool(n.attr("channels_last", 0))
    wide = dequantized(n, x, x_scale, x_zero_point)
    if n.op_type == "QLinearGlobalAveragePool":
        axes = tuple(range(1, rank - 1) if last else range(2, rank))
        return quantized(n, n.add("reduce_mean", wide, axes=axes), y_scale, y_zero_point, x.shape.dtype)
    if last:
        wide = n.transpose(wide, [0, rank - 1, *range(1, rank - 1)])
    auto = n.attr("auto_pad", "NOTSET")
    modes = {"SAME_UPPER": "same_upper", "SAME_LOWER": "same_lower"}
    pooled = n.add(
        "pooling",
        wide,
        mode="average",
        lengths=tuple(n.attr("kernel_shape")),
        stride=tuple(n.attr("strides", ())),
        padding=tuple(n.attr("pads", ())) if auto == "NOTSET" else (),
        padding_mode=modes.get(auto, "default"),
        ceil_mode=bool(n.attr("ceil_mode", 0)),
        count_include_pad=bool(n.attr("count_include_pad", 0)),
    )
    y = quantized(n, pooled, y_scale, y_zero_point, x.shape.dtype)
    return n.transpose(y, [0, *range(2, rank), 1]) if last else y


@converts("MulInteger", domain=MS)
def mul_integer(
    n: Node,
    a: Instruction,
    a_zero_point: Instruction | None,
    b: Instruction,
    b_zero_point: Instruction | None = None,
) -> Instruction:
    def shifted(x: Instruction, point: Instruction | None) -> Instruction:
        wide = n.convert(x, dt.int32)
        return wide if point is None else n.pointwise("sub", wide, n.convert(n.reshape(point, ()), dt.int32))

    return n.pointwise("mul", shifted(a, a_zero_point), shifted(b, b_zero_point))
