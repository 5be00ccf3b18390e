"""Rewrites matrix-vector products as row sums: they are bound by memory, and tiled loops take three times as long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Mul
from mgx_core.ops.reduce import ReduceSum
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.types.dim import Dim

__all__ = ["VECTOR_PRODUCTS"]

VECTOR_PRODUCTS: Final = Rules("vector-products")
MIN_LENGTH: Final = 16  # minimum row length for vector sums


@VECTOR_PRODUCTS.on(Dot, changes=ROUNDING)
def sums_of_rows(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a, b) with one column in b -> reduce_sum(a * b', -1), which fuses with other row-wise ops."""
    rows, column = i.inputs
    if column.shape.dims[-1] != 1 or i.shape.dtype is not dt.float32:
        return None
    if (why := _unsuitable(rows, column.shape.dims[:-1])) is not None:
        return why
    rank = column.shape.rank
    row = b.add(Transpose(permutation=(*range(rank - 2), rank - 1, rank - 2)), column)
    if row.shape.dims != rows.shape.dims:
        row = b.add(Multibroadcast(out_lens=rows.shape.dims), row)
    return b.add(ReduceSum(axes=(-1,)), b.add(Mul(), rows, row))


@VECTOR_PRODUCTS.on(Dot, changes=ROUNDING)
def sums_of_transposed_rows(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a, transpose(w)) with one row in a and a parameter w -> transpose(reduce_sum(w * a, -1)).

    oneDNN reads such weights at a third of memory bandwidth. Constant ones are packed instead. Narrow ones are converted as they
    are read.
    """
    row, turned = i.inputs
    if row.shape.rank != 2 or row.shape.dims[0] != 1 or not i.shape.dtype.is_float or i.shape.dtype is dt.float64:
        return None
    if isinstance(turned.op, Convert) and turned.shape.dtype is dt.float32:
        (turned,) = turned.inputs  # the conversion is inserted where products of a type are not supported
    if not isinstance(turned.op, Transpose) or turned.op.permutation != (1, 0):
        return None
    (rows,) = turned.inputs
    if not rows.is_param or not rows.shape.dtype.is_float:
        return No("weights are packed unless they are a parameter")
    if (why := _unsuitable(rows, row.shape.dims[1:])) is not None:
        return why
    wide = b.add(Multibroadcast(out_lens=rows.shape.dims), _widened(b, row))
    sums = b.add(ReduceSum(axes=(-1,)), b.add(Mul(), _widened(b, rows), wide))
    narrow = sums if i.shape.dtype is dt.float32 else b.add(Convert(target_type=i.shape.dtype, saturate=False), sums)
    return b.add(Transpose(permutation=(1, 0)), narrow)


def _unsuitable(rows: Instruction, vectors: Sequence[Dim]) -> No | None:
    """Returns why rows [.., m, n] are not summed times vectors of these extents [.., n]; None if they are."""
    *batch, _, length = rows.shape.dims
    if not isinstance(length, int) or length < MIN_LENGTH:
        return No("the rows are too short for vectors")
    if (*batch, length) != tuple(vectors):
        return No("extents of the operands may differ, and a vector of length 1 would be broadcast")
    return None


def _widened(b: Builder, x: Instruction) -> Instruction:
    return x if x.shape.dtype is dt.float32 else b.add(Convert(target_type=dt.float32), x)
