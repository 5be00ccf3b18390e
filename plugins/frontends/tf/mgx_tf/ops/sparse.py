"""Sparse tensors as indices, values and extents (COO)."""

from __future__ import annotations

from math import prod

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_memory

__all__: list[str] = []

LARGEST = 1 << 62  # limit of the number of elements of a sparse tensor's extents


def whole(*shapes: Shape) -> None:
    """Errors: ShapeError unless all shapes are int64."""
    for shape in shapes:
        if shape.dtype is not dt.int64:
            raise ShapeError(f"int64 is required for indices and extents, got {shape}")


def _checked(indices: Shape, shape: Shape) -> None:
    whole(indices, shape)
    if indices.rank != 2 or shape.rank != 1:
        raise ShapeError(f"indices [k, rank] and extents [rank] are required, got {indices} and {shape}")


def flat_places(indices: Array, dims: list[int]) -> Array:
    """Returns linear indices.  Errors: ShapeError for indices out of range, or extents that are too large."""
    if any(d < 0 for d in dims) or prod(dims) > LARGEST or indices.shape[1] != len(dims):
        raise ShapeError(f"the extents {dims} do not fit indices of rank {indices.shape[1]}, or are too large")
    if indices.size and ((indices < 0).any() or (indices >= np.array(dims)).any()):
        raise ShapeError(f"an index is outside the extents {dims}")
    if not indices.size:  # if one extent is 0, the others are unlimited and strides may exceed 64 bits
        return np.zeros(len(indices), np.int64)
    return indices @ np.array([prod(dims[k + 1 :]) for k in range(len(dims))], np.int64)


@op("tf_sparse_reshape", exact=True)
class SparseReshape(Operation):
    """The indices of a sparse tensor after a reshape.

    indices: int64 [k, r], shape: int64 [r], wanted: int64 [s], at most one -1 -> int64 [k, s], int64 [s].
    Errors: ShapeError for another number of elements.  Source: TensorFlow SparseReshape.
    """

    def infer(self, indices: Shape, shape: Shape, wanted: Shape) -> TupleShape:
        _checked(indices, shape)
        return TupleShape([indices.with_dims((indices.dims[0], wanted.dims[0])), wanted])

    def compute(self, indices: Array, shape: Array, wanted: Array) -> tuple[Array, Array]:
        dims, out = shape.tolist(), wanted.tolist()
        at = flat_places(indices, dims)
        if -1 in out:
            rest = prod(d for d in out if d != -1)
            out[out.index(-1)] = prod(dims) // rest if rest > 0 else 0
        if prod(out) != prod(dims) or min(out, default=0) < 0:
            raise ShapeError(f"extents {dims} cannot be reshaped to {wanted.tolist()}")
        places = []
        for d in reversed(out):
            places.append(at % max(d, 1))
            at = at // max(d, 1)
        made = np.stack(places[::-1], 1) if places else np.zeros((len(indices), 0), np.int64)
        return made.astype(np.int64), np.array(out, np.int64)


@op("tf_sparse_order", exact=True)
class SparseOrder(Operation):
    """The entries of a sparse tensor, sorted in row-major order.

    indices: int64 [k, r], values: any [k], shape: int64 [r] -> both, sorted.  Source: TensorFlow SparseReorder.
    """

    def infer(self, indices: Shape, values: Shape, shape: Shape) -> TupleShape:
        _checked(indices, shape)
        return TupleShape([indices, values])

    def compute(self, indices: Array, values: Array, shape: Array) -> tuple[Array, Array]:
        order = np.argsort(flat_places(indices, shape.tolist()), kind="stable")
        return indices[order], values[order]


@op("tf_sparse_fill_empty", exact=True)
class SparseFillEmpty(Operation):
    """A sparse tensor with a default entry in the first column of each empty row; entries are sorted by row.

    indices: int64 [k, r], values: any [k], shape: int64 [r], default: one element
    -> int64 [k', r], any [k'], bool [rows]: whether a row was empty, int64 [k]: the new position of each entry.
    Errors: ShapeError for indices out of range and for rank 0.  Source: TensorFlow SparseFillEmptyRows.
    """

    def infer(self, indices: Shape, values: Shape, shape: Shape, default: Shape) -> TupleShape:
        _checked(indices, shape)
        count = fresh("entries")
        out = [indices.with_dims((count, indices.dims[1])), values.with_dims((count,))]
        return TupleShape([*out, Shape.of(dt.bool_, (fresh("rows"),)), Shape.of(dt.int64, (indices.dims[0],))])

    def compute(self, indices: Array, values: Array, shape: Array, default: Array) -> tuple[Array, ...]:
        flat_places(indices, shape.tolist())
        if not len(shape):
            raise ShapeError("a sparse tensor of rank 1 or more is required, got one of rank 0, which has no rows")
        rows = int(shape[0])
        require_memory((rows, len(shape)), 8)
        empty = np.ones(rows, bool)
        empty[indices[:, 0]] = False
        more = np.zeros((int(empty.sum()), len(shape)), np.int64)
        more[:, 0] = np.flatnonzero(empty)
        found = np.concatenate([indices, more])
        filler = np.empty(len(more), values.dtype)
        filler[...] = default
        order = np.argsort(found[:, 0], kind="stable")
        back = np.empty(len(order), np.int64)
        back[order] = np.arange(len(order))
        return found[order], np.concatenate([values, filler])[order], empty, back[: len(indices)]
