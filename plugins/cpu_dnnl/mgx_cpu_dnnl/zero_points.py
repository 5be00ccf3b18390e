"""Rewrites zero points that oneDNN does not support: of convolution weights, and per-row or per-column in matrix products."""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.pointwise import Mul, Sub
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.ops.reduce import ReduceSum
from mgx_core.ops.reshape import Reshape
from mgx_core.rules.engine import Builder, Rules
from mgx_core.types.dim import Dim

from .int8_depthwise import has_avx512_vnni, is_depthwise

__all__ = ["ZERO_POINTS"]

ZERO_POINTS: Final = Rules("zero-points-of-products")

BYTES: Final = frozenset({dt.int8, dt.uint8})


@ZERO_POINTS.on(QuantConvolution)
def sum_windows_for_zero_points(i: Instruction, b: Builder) -> Instruction | No | None:
    """quant_convolution(x, w, p, q) -> quant_convolution(x, w, p) - q * quant_convolution(x, 1, p)."""
    x, w, x_zero, w_zero = _operands(i)
    if w_zero is None or not {x.shape.dtype, w.shape.dtype} <= BYTES:
        return None
    if has_avx512_vnni() and w.is_literal and is_depthwise(i.op, w.shape):
        return No("the native depthwise loop supports zero points of weights")
    kernels, *window = w.shape.dims
    groups = i.op.group  # type: ignore[attr-defined]
    if not all(isinstance(d, int) for d in w.shape.dims) or not isinstance(kernels, int):
        return No(f"the weights {w.shape} have symbolic extents")
    rest = [] if x_zero is None else [x_zero]
    ones = b.literal(np.ones([groups, *window], w.shape.dtype.numpy))
    sums = b.add(i.op, x, ones, *rest)
    dims = i.shape.dims
    if 1 < groups < kernels:  # filters of a group are adjacent
        apart = (dims[0], groups, 1, *dims[2:])
        repeated = (dims[0], groups, kernels // groups, *dims[2:])
        sums = b.add(Reshape(dims=dims), _spread(b, b.add(Reshape(dims=apart), sums), repeated))
    point = _wide(b, w_zero)
    if point.shape.elements() != 1:
        point = b.add(Reshape(dims=(*point.shape.dims, *(1 for _ in window[1:]))), point)
    elif point.shape.rank:
        point = b.add(Reshape(dims=()), point)
    return _less_products(b, b.add(i.op, x, w, *rest), sums, point)


def _less_products(b: Builder, product: Instruction, x: Instruction, y: Instruction) -> Instruction:
    """Returns product - x * y, with x and y broadcast to the product."""
    dims = product.shape.dims
    return b.add(Sub(), product, b.add(Mul(), _spread(b, x, dims), _spread(b, y, dims)))


@ZERO_POINTS.on(QuantDot)
def sum_rows_for_zero_points(i: Instruction, b: Builder) -> Instruction | No | None:
    """quant_dot(x, y, p, q) -> quant_dot(x, y, p) - reduce_sum(x - p) * q where q differs between columns."""
    x, y, p, q = _operands(i)
    if q is None or _one(q) or not {x.shape.dtype, y.shape.dtype} <= BYTES:
        return None
    if q.shape.rank > 1 and q.shape.dims[-2] != 1:
        return No("the right operand's zero points vary along the depth")
    product = b.add(i.op, x, y, *([] if p is None else [p]))
    return _less_products(b, product, _sum_less_zero_point(b, x, p, -1), _wide(b, q))


@ZERO_POINTS.on(QuantDot)
def sum_columns_for_zero_points(i: Instruction, b: Builder) -> Instruction | No | None:
    """quant_dot(x, y, p, q) -> quant_dot(x, y, 0, q) - p * reduce_sum(y - q) where p differs between rows."""
    x, y, p, q = _operands(i)
    if p is None or _one(p) or not {x.shape.dtype, y.shape.dtype} <= BYTES:
        return None
    if p.shape.dims[-1] != 1:
        return No("the left operand's zero points vary along the depth")
    product = b.add(i.op, x, y, *([] if q is None else [b.absent(), q]))
    return _less_products(b, product, _wide(b, p), _sum_less_zero_point(b, y, q, -2))


def _operands(i: Instruction) -> tuple[Instruction, Instruction, Instruction | None, Instruction | None]:
    zeros = [None if z.is_absent else z for z in i.inputs[2:]]
    first, second = (*zeros, None, None)[:2]
    return i.inputs[0], i.inputs[1], first, second


def _one(x: Instruction) -> bool:
    return all(d == 1 for d in x.shape.dims)


def _sum_less_zero_point(b: Builder, x: Instruction, zero: Instruction | None, axis: int) -> Instruction:
    """Returns the sums of a matrix minus its zero point along one axis, which is kept with extent 1."""
    wide = _wide(b, x)
    if zero is not None:
        wide = b.add(Sub(), wide, _spread(b, _wide(b, zero), wide.shape.dims))
    return b.add(ReduceSum(axes=(x.shape.rank + axis,)), wide)


def _wide(b: Builder, x: Instruction) -> Instruction:
    return b.add(Convert(target_type=dt.int32), x)


def _spread(b: Builder, x: Instruction, dims: tuple[Dim, ...]) -> Instruction:
    return x if x.shape.dims == dims else b.add(Multibroadcast(out_lens=dims), x)
