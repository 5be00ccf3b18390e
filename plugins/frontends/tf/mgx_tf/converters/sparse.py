"""Sparse tensors, represented as indices, values and extents (COO)."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.filling import filled
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


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


def _axes(n: Node, axes: Instruction, shape: Instruction) -> tuple[int, ...]:
    """Returns the axes of a reduction; all if none is given."""
    rank = shape.shape.dims[0]
    if not isinstance(rank, int):
        n.unsupported("sparse tensors of unknown rank")
    return tuple(sorted(set(n.axes(n.whole(axes, "the axes"), rank)))) or tuple(range(rank))


@converts("SparseReduceSumSparse", "SparseReduceMaxSparse")
def reduce_sparse(n: Node, indices: Instruction, values: Instruction, shape: Instruction, axes: Instruction) -> Any:
    how = "sum" if "Sum" in n.op_type else "max"
    chosen = _axes(n, axes, shape)
    return n.items(n.add("tf_sparse_reduce", indices, values, shape, how=how, axes=chosen, keep=n.flag("keep_dims")))


@converts("SparseReduceSum", "SparseReduceMax")
def reduce_dense(
    n: Node, indices: Instruction, values: Instruction, shape: Instruction, axes: Instruction
) -> Instruction:
    at, made, dims = reduce_sparse(n, indices, values, shape, axes)
    return n.add("scatternd_none", filled(n, dims, n.literal(0, values.shape.dtype)), at, made)


@converts("SparseTensorDenseAdd")
def add_dense(n: Node, indices: Instruction, values: Instruction, shape: Instruction, y: Instruction) -> Instruction:
    return n.add("scatternd_add", y, n.convert(indices, dt.int64), values)


DENSE = {"SparseDenseCwiseAdd": "add", "SparseDenseCwiseMul": "mul", "SparseDenseCwiseDiv": "div"}


@converts(*DENSE)
def with_dense(n: Node, indices: Instruction, values: Instruction, shape: Instruction, y: Instruction) -> Instruction:
    dense = n.add("broadcast_with_dims", y, shape)
    return n.pointwise(DENSE[n.op_type], values, n.add("gathernd", dense, indices))


@converts("SparseSoftmax")
def softmax(n: Node, indices: Instruction, values: Instruction, shape: Instruction) -> Instruction:
    return n.add("tf_sparse_softmax", indices, values, shape)


PAIRS = {"SparseAdd": "add", "SparseSparseMaximum": "max", "SparseSparseMinimum": "min"}


@converts(*PAIRS)
def pair(n: Node, *parts: Instruction) -> Any:
    made = n.items(n.add("tf_sparse_pair", *parts, how=PAIRS[n.op_type]))
    return made if n.op_type == "SparseAdd" else made[:2]


@converts("SparseConcat")
def concat(n: Node, *parts: Instruction) -> Any:
    return n.items(n.add("tf_sparse_concat", *parts, axis=n.int("concat_dim")))


@converts("SparseSlice")
def slice_(n: Node, *parts: Instruction) -> Any:
    return n.items(n.add("tf_sparse_slice", *parts))


@converts("SparseSplit")
def split(n: Node, axis: Instruction, indices: Instruction, values: Instruction, shape: Instruction) -> Any:
    """Returns slices; if the extent is not divisible, the first ones are longer by one."""
    count, rank = n.int("num_split"), shape.shape.dims[0]
    if not isinstance(rank, int) or not 0 < rank <= 32 or not 0 < count <= 1 << 10:
        n.unsupported(f"sparse tensors of rank {rank}, or {count} parts: up to rank 32 and 1,024 parts are supported")
    (at,) = n.axes(n.whole(axis, "the axis")[:1], rank)
    length = n.slice(shape, [0], [at], [at + 1])
    each = n.pointwise("div", length, n.literal([count], dt.int64))
    more = n.pointwise("sub", length, n.pointwise("mul", each, n.literal([count], dt.int64)))
    parts = []
    for k in range(count):
        longer = n.pointwise("min", more, n.literal([k], dt.int64))
        start = n.pointwise("add", n.pointwise("mul", each, n.literal([k], dt.int64)), longer)
        extra = n.convert(n.pointwise("greater", more, n.literal([k], dt.int64)), dt.int64)
        size = n.pointwise("add", each, extra)
        none = n.literal([0], dt.int64)
        starts = n.concat([start if a == at else none for a in range(rank)], 0)
        sizes = n.concat([size if a == at else n.slice(shape, [0], [a], [a + 1]) for a in range(rank)], 0)
        parts.append(n.items(n.add("tf_sparse_slice", indices, values, shape, starts, sizes)))
    return tuple(p[k] for k in range(3) for p in parts)


@converts("DenseToDenseSetOperation", "DenseToSparseSetOperation", "SparseToSparseSetOperation")
def sets(n: Node, *parts: Instruction) -> Any:
    dense = not n.op_type.startswith("Sparse"), n.op_type.startswith("DenseToDense")
    return n.items(n.add("tf_set_operation", *parts, how=n.string("set_operation"), dense=dense))


@converts("SetSize")
def set_size(n: Node, indices: Instruction, values: Instruction, shape: Instruction) -> Instruction:
    rank = shape.shape.dims[0]
    if not isinstance(rank, int):
        n.unsupported("sparse tensors of unknown rank")
    base = filled(n, n.slice(shape, [0], [0], [rank - 1]), n.literal(0, dt.int32))
    ones = n.broadcast_to(n.literal(1, dt.int32), indices.shape.dims[:1])
    return n.add("scatternd_add", base, n.slice(indices, [1], [0], [rank - 1]), ones)


def _counted(n: Node, rows: Instruction, x: Instruction, count: Instruction, weights: Instruction, single: bool) -> Any:
    least, most, marks = n.int("minlength", -1), n.int("maxlength", -1), n.flag("binary_output")
    flat = n.reshape(weights, (product(weights.shape.dims),))
    given = n.convert(rows, dt.int64), n.convert(x, dt.int64), count, flat
    return n.items(n.add("tf_count", *given, least=least, most=most, marks=marks, single=single))


@converts("DenseCountSparseOutput")
def count_dense(n: Node, x: Instruction, weights: Instruction) -> Any:
    single = x.shape.rank == 1
    wide = n.unsqueeze(x, [0]) if single else x
    rows = n.add("prefix_scan_sum", n.full_like(n.convert(wide, dt.int64), 1), axis=0, exclusive=True)
    total = n.add("dimensions_of", wide, start=0, end=1)
    first, second = (n.reshape(v, (product(wide.shape.dims),)) for v in (rows, wide))
    return _counted(n, first, second, total, weights, single)


@converts("SparseCountSparseOutput")
def count_sparse(n: Node, indices: Instruction, x: Instruction, shape: Instruction, weights: Instruction) -> Any:
    rank = shape.shape.dims[0]
    if rank not in (1, 2):
        n.unsupported("counts in sparse tensors of ranks other than 1 and 2")
    rows = n.squeeze(n.slice(indices, [1], [0], [1]), [1])
    if rank == 1:
        rows = n.full_like(rows, 0)
    return _counted(n, rows, x, n.slice(shape, [0], [0], [1]), weights, rank == 1)


@converts("RaggedCountSparseOutput")
def count_ragged(n: Node, splits: Instruction, x: Instruction, weights: Instruction) -> Any:
    places, extents = n.items(n.add("tf_ragged_places", n.convert(splits, dt.int64)))
    rows = n.squeeze(n.slice(places, [1], [0], [1]), [1])
    return _counted(n, rows, x, n.slice(extents, [0], [0], [1]), weights, False)


@converts("SparseBincount")
def bincount(
    n: Node, indices: Instruction, x: Instruction, shape: Instruction, size: Instruction, weights: Instruction
) -> Instruction:
    total = n.reshape(n.convert(size, dt.int64), (1,))
    rank = shape.shape.dims[0]
    if rank == 1:
        return n.add("tf_bincount", n.convert(x, dt.int64), total, weights, marks=n.flag("binary_output"))
    rows = n.slice(shape, [0], [0], [1])
    base = filled(n, n.concat([rows, total], 0), n.literal(0, weights.shape.dtype))
    at = n.concat([n.slice(indices, [1], [0], [1]), n.unsqueeze(n.convert(x, dt.int64), [1])], 1)
    ones = n.broadcast_to(n.literal(1, weights.shape.dtype), x.shape.dims)
    given = ones if 0 in weights.shape.dims or n.flag("binary_output") else weights
    return n.add("scatternd_none" if n.flag("binary_output") else "scatternd_add", base, at, given)


@converts("EditDistance")
def edit_distance(n: Node, *parts: Instruction) -> Instruction:
    return n.add("tf_edit_distance", *parts, normalize=n.flag("normalize", True))


@converts("RaggedTensorToSparse")
def ragged_to_sparse(n: Node, *xs: Instruction) -> Any:
    *splits, values = xs
    places, extents = n.items(n.add("tf_ragged_places", *(n.convert(s, dt.int64) for s in splits)))
    flat, rank = values, values.shape.rank
    if rank > 1:
        n.unsupported("ragged tensors with inner dimensions")
    return places, flat, extents
