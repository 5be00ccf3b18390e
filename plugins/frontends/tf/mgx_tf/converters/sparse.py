"""Sparse tensors, which come as indices, values and extents."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import reduced
from mgx_core.ops.reduce import ReduceSum

from ..converter import converts
from ..node import Node
from .constant import filled


@converts("SparseReshape")
def reshape(n: Node, indices: Instruction, shape: Instruction, wanted: Instruction) -> Any:
    return n.items(n.add("tf_sparse_reshape", indices, shape, wanted))


@converts("SparseReorder")
def order(n: Node, indices: Instruction, values: Instruction, shape: Instruction) -> Any:
    return n.items(n.add("tf_sparse_order", indices, values, shape))


@converts("SparseFillEmptyRows")
def fill_empty_rows(
    n: Node, indices: Instruction, values: Instruction, shape: Instruction, default: Instruction
) -> Any:
    return n.items(n.add("tf_sparse_fill_empty", indices, values, shape, default))


@converts("SparseReduceSum")
def reduce_sum(
    n: Node, indices: Instruction, values: Instruction, shape: Instruction, axes: Instruction
) -> Instruction:
    dense = n.add("scatternd_add", filled(n, shape, n.literal(0, values.shape.dtype)), indices, values)
    rank = dense.shape.rank
    chosen = n.axes(n.whole(axes, "the axes"), rank) if axes.shape.dims != (0,) else tuple(range(rank))
    return reduced(n, ReduceSum, dense, sorted(set(chosen)), n.flag("keep_dims"))


@converts("SparseCross")
def cross(n: Node, *columns: Instruction) -> Any:
    if n.int("N", 0) or not n.flag("hashed_output"):
        n.unsupported("crosses of sparse or ragged columns, or crosses that are not hashed")
    wide = [c if c.shape.dtype is dt.string else n.convert(c, dt.int64) for c in columns]
    return n.items(n.add("tf_cross", *wide, buckets=n.int("num_buckets", 0), key=n.int("hash_key")))
