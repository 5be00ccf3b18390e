"""Rewrites matrix-vector products as row sums: they are bound by memory, and tiled loops take three times as long."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No
from mgx_core import dtype as dt
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.linear import Dot
from mgx_core.ops.movement import Transpose
from mgx_core.ops.pointwise import Mul
from mgx_core.ops.reduce import ReduceSum
from mgx_core.rules.engine import ROUNDING, Builder, Rules

__all__ = ["VECTOR_PRODUCTS"]

VECTOR_PRODUCTS: Final = Rules("vector-products")
MIN_LENGTH: Final = 16  # minimum row length for vector sums


@VECTOR_PRODUCTS.on(Dot, changes=ROUNDING)
def sums_of_rows(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(a, b) with one column in b -> reduce_sum(a * b', -1), which fuses with other row-wise ops."""
    rows, column = i.inputs
    if column.shape.dims[-1] != 1 or i.shape.dtype is not dt.float32:
        return None
    length = rows.shape.dims[-1]
    if not isinstance(length, int) or length < MIN_LENGTH:
        return No("the rows are too short for vectors")
    rank = column.shape.rank
    row = b.add(Transpose(permutation=(*range(rank - 2), rank - 1, rank - 2)), column)
    if row.shape.dims != rows.shape.dims:
        row = b.add(Multibroadcast(out_lens=rows.shape.dims), row)
    return b.add(ReduceSum(axes=(-1,)), b.add(Mul(), rows, row))
