"""Matrix products of com.microsoft on 8-bit quantized tensors, and an LSTM with 8-bit weights."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim, may_equal

from ..converter import converts
from ..node import Node
from .contrib_quant import MS, centered
from .quantized import dequantized, dynamic_quantize, integer_product, one_value, requantized
from .recurrent import lstm


def _product_to_float(
    n: Node,
    a: Instruction,
    b: Instruction,
    a_scale: Instruction,
    b_scale: Instruction,
    a_zero_point: Instruction | None,
    b_zero_point: Instruction | None,
    bias: Instruction | None,
) -> Instruction:
    out = b_scale.shape.dtype
    if a_scale.shape.dtype is not out or (bias is not None and bias.shape.dtype is not out):
        n.fail(f"scales and bias must have the same type, got {a_scale.shape.dtype} and {out}")
    k, columns = a.shape.dims[-1], b.shape.dims[-1]
    check_vector(n, "a_scale", a_scale, k)
    check_vector(n, "b_scale", b_scale, columns)
    if bias is not None:
        check_vector(n, "bias", bias, columns)
    wide_a, wide_b = (one_value(n, n.convert(s, dt.float32)) or s for s in (a_scale, b_scale))
    point = one_value(n, a_zero_point)
    if wide_a.shape.rank or (point is not None and point.shape.rank):  # one scale per index of the inner axis
        wide_a = n.broadcast_to(wide_a, [k])
        point = None if point is None else n.broadcast_to(point, [k])
        left = dequantized(n, a, wide_a, point, axis=-1)
        y = n.pointwise("mul", matmul(n, left, centered_columns(n, b, b_zero_point)), wide_b)
    else:
        sums, _ = integer_product(n, a, b, point, b_zero_point)
        y = n.pointwise("mul", n.convert(sums, dt.float32), n.pointwise("mul", wide_a, wide_b))
    if bias is not None:
        y = n.pointwise("add", y, n.convert(bias, dt.float32))
    return n.convert(y, out)


def check_vector(n: Node, name: str, x: Instruction, extent: Dim) -> None:
    """Errors: ParseError unless x is one value or a vector of `extent`."""
    dims = x.shape.dims
    if len(dims) > 1 or (dims and dims[0] != 1 and not may_equal(dims[0], extent)):
        n.fail(f"{name} must have {extent} values, got {x.shape}")


def centered_columns(n: Node, b: Instruction, zero_point: Instruction | None) -> Instruction:
    """Returns a right operand [.., k, n] minus its zero point (a scalar or per column) as float32."""
    point = one_value(n, zero_point)
    if point is None or not point.shape.rank:
        return centered(n, b, point)
    ones = n.broadcast_to(n.literal(1.0, dt.float32), point.shape.dims)
    return n.add("dequantizelinear", b, ones, point, axis=-1)


def matmul(n: Node, a: Instruction, b: Instruction) -> Instruction:
    """Returns the matrix product with broadcast batch axes."""
    if a.shape.rank == b.shape.rank == 2:
        return n.add("dot", a, b)
    a, b = n.add("broadcast_for_dot", a, b), n.add("broadcast_for_dot", b, a)
    return n.add("dot", a, b)


@converts("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(
    n: Node,
    a: Instruction,
    b: Instruction,
    a_scale: Instruction,
    b_scale: Instruction,
    a_zero_point: Instruction | None = None,
    b_zero_point: Instruction | None = None,
    bias: Instruction | None = None,
) -> Instruction:
    return _product_to_float(n, a, b, a_scale, b_scale, a_zero_point, b_zero_point, bias)


@converts("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(
    n: Node,
    a: Instruction,
    b: Instruction,
    b_scale: Instruction,
    b_zero_point: Instruction | None = None,
    bias: Instruction | None = None,
) -> Instruction:
    narrow, scale, point = dynamic_quantize(n, a)
    return _product_to_float(n, narrow, b, scale, b_scale, point, b_zero_point, bias)


@converts("QGemm", domain=MS)
def qgemm(
    n: Node,
    a: Instruction,
    a_scale: Instruction,
    a_zero_point: Instruction,
    b: Instruction,
    b_scale: Instruction,
    b_zero_point: Instruction,
    c: Instruction | None = None,
    y_scale: Instruction | None = None,
    y_zero_point: Instruction | None = None,
) -> Instruction:
    if n.attr("transA", 0):
        a = n.transpose(a, [1, 0])
    if n.attr("transB", 0):
        b = n.transpose(b, [1, 0])
    sums = n.add("quant_dot", a, b, one_value(n, a_zero_point), one_value(n, b_zero_point))
    if c is not None:
        sums = n.pointwise("add", sums, c)
    left = n.pointwise("mul", n.reshape(a_scale, ()), n.literal(n.attr("alpha", 1.0), dt.float32))
    right = one_value(n, b_scale) or b_scale
    if y_scale is None or y_zero_point is None:
        return n.pointwise("mul", n.convert(sums, dt.float32), n.pointwise("mul", left, right))
    return requantized(n, sums, left, right, y_scale, y_zero_point)


@converts("DynamicQuantizeLSTM", domain=MS)
def dynamic_quantize_lstm(n: Node, x: Instruction, w: Instruction, r: Instruction, *rest: Any) -> Any:
    """Returns the LSTM with dequantized weights; x and the states stay in float.

    The operator's definition quantizes only W and R. onnxruntime also quantizes x and, in every step, the state, which makes it
    deviate two to three times as much from the float model.
    """
    given = [*rest, *[None] * (9 - len(rest))]
    operands, (w_scale, w_point, r_scale, r_point) = given[:5], given[5:9]
    if w_scale is None or r_scale is None:
        n.fail("W_scale and R_scale are required")

    def whole(m: Instruction, scale: Instruction, point: Instruction | None) -> Instruction:
        directions, _, gates = m.shape.dims
        across = (directions, 1, gates if scale.shape.rank == 2 else 1)
        scale = n.reshape(scale, across)
        point = None if point is None else n.reshape(point, across)
        return n.transpose(n.add("dequantizelinear", m, scale, point), [0, 2, 1])

    return lstm(n, x, whole(w, w_scale, w_point), whole(r, r_scale, r_point), *operands)
