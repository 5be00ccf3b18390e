"""Addition, concatenation, slicing and reduction of sparse tensors."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh
from mgx_core.types.dtype import DType

from .sparse import flat_places, whole

__all__: list[str] = []


def sparse_shapes(kind: DType, rank: Dim) -> list[Shape]:
    """Returns the shapes of indices, values and extents."""
    count = fresh("entries")
    return [Shape.of(dt.int64, (count, rank)), Shape.of(kind, (count,)), Shape.of(dt.int64, (rank,))]


def _unflat(flat: Array, dims: list[int]) -> Array:
    """Returns indices [k, rank] of linear indices."""
    places = []
    for d in reversed(dims):
        places.append(flat % max(d, 1))
        flat = flat // max(d, 1)
    return np.stack(places[::-1], -1).astype(np.int64) if places else np.zeros((len(flat), 0), np.int64)


@op("tf_sparse_pair")
class SparsePair(Operation):
    """An elementwise function of two sparse tensors of equal extents; missing entries are 0.

    Of both operands: indices int64 [k, r], values [k], extents int64 [r]; for sums also a threshold: smaller sums are dropped
    -> indices, values, extents.
    Errors: ShapeError for other extents.  Source: TensorFlow SparseAdd, SparseSparseMaximum, SparseSparseMinimum.
    """

    how: Literal["add", "max", "min"]

    def infer(self, *parts: Shape) -> TupleShape:
        if len(parts) < 6:
            raise ShapeError("two sparse tensors are required")
        whole(parts[0], parts[2], parts[3], parts[5])
        if parts[1].dtype is not parts[4].dtype or not parts[1].dtype.is_number:
            raise ShapeError(f"numbers of one type are required, got {parts[1]} and {parts[4]}")
        return TupleShape(sparse_shapes(parts[1].dtype, parts[2].dims[0]))

    def compute(self, *parts: Array) -> tuple[Array, ...]:
        (a, u, dims), (b, v, others) = parts[:3], parts[3:6]
        extents = dims.tolist()
        if extents != others.tolist():
            raise ShapeError(f"sparse tensors of equal extents are required, got {extents} and {others.tolist()}")
        first, second = flat_places(a, extents), flat_places(b, extents)
        places = np.union1d(first, second)
        left, right = np.zeros(len(places), u.dtype), np.zeros(len(places), u.dtype)
        left[np.searchsorted(places, first)] = u
        right[np.searchsorted(places, second)] = v
        made = {"add": np.add, "max": np.maximum, "min": np.minimum}[self.how](left, right)
        if (
            self.how == "add"
        ):  # an entry of only one tensor is kept unchanged; a sum of two below the threshold is dropped
            kept = ~(np.isin(places, first) & np.isin(places, second)) | (np.abs(made) >= parts[6])
            places, made = places[kept], made[kept]
        return _unflat(places, extents), made, dims


@op("tf_sparse_concat", exact=True)
class SparseConcat(Operation):
    """Sparse tensors concatenated along an axis.

    All indices, then all values, then all extents -> indices int64 [k, r], values [k], extents int64 [r], in row-major order.
    Errors: ShapeError if other extents differ.  Source: TensorFlow SparseConcat.
    """

    axis: int

    def infer(self, *parts: Shape) -> TupleShape:
        count = len(parts) // 3
        if not count or len(parts) % 3:
            raise ShapeError("indices, values and extents of each sparse tensor are required")
        whole(*parts[:count], *parts[2 * count :])
        if any(v.dtype is not parts[count].dtype for v in parts[count : 2 * count]):
            raise ShapeError("values of one type are required")
        return TupleShape(sparse_shapes(parts[count].dtype, parts[0].dims[1]))

    def compute(self, *parts: Array) -> tuple[Array, ...]:
        count = len(parts) // 3
        indices, values, extents = parts[:count], parts[count : 2 * count], parts[2 * count :]
        rank = len(extents[0])
        if not -rank <= self.axis < rank:
            raise ShapeError(f"axis {self.axis} is out of range for a sparse tensor of rank {rank}")
        axis, total, moved = self.axis % rank, 0, []
        for places, dims in zip(indices, extents, strict=True):
            if np.delete(dims, axis).tolist() != np.delete(extents[0], axis).tolist():
                raise ShapeError(
                    f"extents {dims.tolist()} and {extents[0].tolist()} must be equal except along axis {axis}"
                )
            there = places.copy()
            there[:, axis] += total
            total += int(dims[axis])
            moved.append(there)
        out = extents[0].copy()
        out[axis] = total
        places, held = np.concatenate(moved), np.concatenate(values)
        order = np.argsort(flat_places(places, out.tolist()), kind="stable")
        return places[order], held[order], out


@op("tf_sparse_slice", exact=True)
class SparseSlice(Operation):
    """A slice of a sparse tensor, clipped to its extents.

    indices int64 [k, r], values [k], extents int64 [r], start int64 [r], size int64 [r] -> indices, values, extents.
    Source: TensorFlow SparseSlice.
    """

    def infer(self, indices: Shape, values: Shape, dims: Shape, start: Shape, size: Shape) -> TupleShape:
        whole(indices, dims, start, size)
        return TupleShape(sparse_shapes(values.dtype, dims.dims[0]))

    def compute(self, indices: Array, values: Array, dims: Array, start: Array, size: Array) -> tuple[Array, ...]:
        end = np.minimum(start + size, dims)
        kept = ((indices >= start) & (indices < end)).all(1)
        return indices[kept] - start, values[kept], np.maximum(end - start, 0)


@op("tf_sparse_reduce")
class SparseReduce(Operation):
    """The sum or maximum of the entries of a sparse tensor along axes.

    indices int64 [k, r], values [k], extents int64 [r] -> indices, values, extents of the remaining axes (1 for reduced ones if
    `keep`).  Source: TensorFlow SparseReduceSumSparse, SparseReduceMaxSparse.
    """

    how: Literal["sum", "max"]
    axes: tuple[int, ...]
    keep: bool = False

    def infer(self, indices: Shape, values: Shape, dims: Shape) -> TupleShape:
        whole(indices, dims)
        rank = dims.dims[0] if self.keep else dims.dims[0] - len(self.axes)
        return TupleShape(sparse_shapes(values.dtype, rank))

    def compute(self, indices: Array, values: Array, dims: Array) -> tuple[Array, ...]:
        flat_places(indices, dims.tolist())
        places, extents = indices.copy(), dims.copy()
        places[:, list(self.axes)] = 0
        extents[list(self.axes)] = 1
        flat = flat_places(places, extents.tolist())
        left, back = np.unique(flat, return_inverse=True)
        made = np.zeros(len(left), values.dtype)
        if self.how == "sum":
            np.add.at(made, back, values)
        else:
            made[:] = np.iinfo(values.dtype).min if values.dtype.kind in "iu" else -np.inf
            np.maximum.at(made, back, values)
        found = _unflat(left, extents.tolist())
        if not self.keep:
            found, extents = np.delete(found, self.axes, 1), np.delete(extents, self.axes)
        return found, made, extents


@op("tf_sparse_softmax")
class SparseSoftmax(Operation):
    """Softmax over the entries of each row; missing entries do not count.

    indices int64 [k, r], values float [k], extents int64 [r] -> float [k].  Source: TensorFlow SparseSoftmax.
    """

    def infer(self, indices: Shape, values: Shape, dims: Shape) -> Shape:
        whole(indices, dims)
        if not values.dtype.is_float:
            raise ShapeError(f"floats are required, got {values}")
        return values.as_standard()

    def compute(self, indices: Array, values: Array, dims: Array) -> Array:
        rows = np.unique(flat_places(indices[:, :-1], dims[:-1].tolist()), return_inverse=True)[1]
        top = np.full(len(rows), -np.inf)
        np.maximum.at(top, rows, values)
        power = np.exp(values - top[rows])
        total = np.zeros(len(rows))
        np.add.at(total, rows, power)
        return np.asarray(power / total[rows]).astype(values.dtype)
