"""Ops with data-dependent result extents."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import compare, fresh, minimum, product
from ..types.shape import Shape, TupleShape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .scalar import widen

__all__ = ["Compress", "Nonzero", "Unique"]


@op("nonzero", exact=True)
class Nonzero(Operation):
    """The positions of the non-zero elements, as columns in row-major order.

    x: any [d..] -> int64 [rank, found]; a scalar counts as a vector of one.
    Errors: none.  Source: ONNX NonZero-13.
    """

    def infer(self, x: Shape) -> Shape:
        return Shape.of(dt.int64, (max(x.rank, 1), fresh("nonzero", 0, product(x.dims))))

    def compute(self, x: Array) -> Array:
        wide = np.atleast_1d(widen(x))
        return np.stack(np.nonzero(wide != ("" if wide.dtype == object else 0))).astype(np.int64)


@op("compress", exact=True)
class Compress(Operation):
    """Slices of x along `axis` (elements of the flattened x without one) whose condition is true.

    x: any [..], condition: bool [m], m at most the extent; later slices are dropped -> x with fewer slices.
    Errors: ShapeError for a condition that is not a bool vector or too long.  Source: ONNX Compress-11.
    """

    axis: int | None = None

    def infer(self, x: Shape, condition: Shape) -> Shape:
        if condition.dtype is not dt.bool_ or condition.rank != 1:
            raise ShapeError(f"condition must be a bool vector, got {condition}")
        axis = None if self.axis is None else normalize(self.axis, x.rank)
        length = product(x.dims) if axis is None else x.dims[axis]
        if compare(condition.dims[0], ">", length):
            raise ShapeError(f"condition {condition} is longer than the {length} slices of x")
        kept = fresh("kept", 0, minimum(length, condition.dims[0]))
        if axis is None:
            return x.with_dims((kept,))
        return x.with_dims((*x.dims[:axis], kept, *x.dims[axis + 1 :]))

    def compute(self, x: Array, condition: Array) -> Array:
        axis = 0 if self.axis is None else normalize(self.axis, x.ndim)
        rows = x.reshape(-1) if self.axis is None else x
        if len(condition) > rows.shape[axis]:
            raise ShapeError(f"condition has {len(condition)} entries for {rows.shape[axis]} slices")
        return np.take(rows, np.flatnonzero(condition), axis)


def _ranks(rows: Array) -> Array:
    """Returns the rank of each row among the distinct rows, in ascending order."""
    if not rows.size:
        return np.zeros(len(rows), np.int64)
    order = np.lexsort(rows.T[::-1])
    ascending = rows[order]
    changes = np.any(ascending[1:] != ascending[:-1], axis=1)
    ranks = np.zeros(len(rows), np.int64)
    ranks[order[1:]] = np.cumsum(changes)
    return ranks


@op("unique", exact=True)
class Unique(Operation):
    """The distinct elements of x (slices along `axis`), ascending or in order of first occurrence.

    x: any [..] -> (values, int64 first occurrence of each, int64 place in values of each input, int64 count of each);
    without `axis` of the flattened x.  `equal_nan` counts all NaN as one element; False (vectors only) each as another.
    Errors: ShapeError for an axis outside the rank.  Source: ONNX Unique-11.
    """

    axis: int | None = None
    sorted: bool = True
    equal_nan: bool = True

    def infer(self, x: Shape) -> TupleShape:
        axis = None if self.axis is None else normalize(self.axis, x.rank)
        length = product(x.dims) if axis is None else x.dims[axis]
        found = fresh("unique", 1 if compare(length, ">", 0) else 0, length)
        values = (found,) if axis is None else (*x.dims[:axis], found, *x.dims[axis + 1 :])
        each, every = Shape.of(dt.int64, (found,)), Shape.of(dt.int64, (length,))
        return TupleShape((x.with_dims(values), each, every, each))

    def compute(self, x: Array) -> tuple[Array, ...]:
        axis = 0 if self.axis is None else normalize(self.axis, x.ndim)
        items = x.reshape(-1) if self.axis is None else x
        length = items.shape[axis]
        if items.ndim == 1:
            codes = widen(items)
        else:  # elements are mapped to integers of the same order first, then rows, in the same way for every element type
            _, codes = np.unique(widen(items).reshape(-1), return_inverse=True)
            codes = _ranks(np.moveaxis(codes.reshape(items.shape), axis, 0).reshape(length, -1 if items.size else 0))
        _, first, inverse, counts = np.unique(
            codes, return_index=True, return_inverse=True, return_counts=True, equal_nan=self.equal_nan
        )
        inverse = inverse.reshape(-1)
        if not self.sorted:
            order = np.argsort(first, kind="stable")
            place = np.empty_like(order)
            place[order] = np.arange(len(order))
            first, inverse, counts = first[order], place[inverse], counts[order]
        out = (first, inverse, counts)
        return (np.take(items, first, axis), *(v.astype(np.int64) for v in out))
