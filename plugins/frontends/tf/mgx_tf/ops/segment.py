"""Segment reductions, dynamic stitch and bincount."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_memory

__all__: list[str] = []


@op("tf_segment")
class Segment(Operation):
    """Segment reduction with sorted segment ids.

    x: number [n, *e], segments: int [n] -> [last + 1, *e]; empty segments are 0 (1 for products).
    Errors: ShapeError for descending or negative ids.  Source: TensorFlow SegmentSum, SegmentMean, SegmentProd ...
    """

    how: Literal["sum", "mean", "sqrtn", "max", "min", "prod"]

    def infer(self, x: Shape, segments: Shape) -> Shape:
        if segments.rank != 1 or x.rank < 1:
            raise ShapeError(f"rows and a vector of segments are required, got {x} and {segments}")
        return x.with_dims((fresh("segments"), *x.dims[1:]))

    def compute(self, x: Array, segments: Array) -> Array:
        if segments.size and (int(segments.min()) < 0 or (np.diff(segments) < 0).any()):
            raise ShapeError("segment ids must be nonnegative and ascending")
        count = int(segments[-1]) + 1 if segments.size else 0
        require_memory((count, *x.shape[1:]), x.itemsize)
        out = np.full((count, *x.shape[1:]), 1 if self.how == "prod" else 0, x.dtype)
        for k in np.unique(segments):
            rows = x[segments == k]
            match self.how:
                case "sum":
                    out[k] = rows.sum(0)
                case "mean":
                    out[k] = rows.sum(0) / x.dtype.type(len(rows))
                case "sqrtn":
                    out[k] = rows.sum(0) / np.sqrt(x.dtype.type(len(rows)))
                case "max":
                    out[k] = rows.max(0)
                case "min":
                    out[k] = rows.min(0)
                case _:
                    out[k] = rows.prod(0)
        return out


@op("tf_dynamic_stitch", exact=True)
class DynamicStitch(Operation):
    """Rows scattered to indices; of several with one index, the last wins.

    indices: int [n], rows: any [n, *e] -> [largest index + 1, *e]; indices without a row are 0.
    Errors: ShapeError for negative indices.  Source: TensorFlow DynamicStitch.
    """

    def infer(self, indices: Shape, rows: Shape) -> Shape:
        if indices.rank != 1:
            raise ShapeError(f"a vector of indices is required, got {indices}")
        return rows.with_dims((fresh("stitched"), *rows.dims[1:]))

    def compute(self, indices: Array, rows: Array) -> Array:
        if indices.size and int(indices.min()) < 0:
            raise ShapeError("indices must not be negative")
        count = int(indices.max(initial=-1)) + 1
        require_memory((count, *rows.shape[1:]), rows.itemsize)
        out = np.zeros((count, *rows.shape[1:]), rows.dtype)
        out[indices] = rows
        return out


@op("tf_bincount")
class Bincount(Operation):
    """A histogram of the values of a vector or of each matrix row, optionally weighted.

    x: int64 [n] or [b, n], size: int64 scalar, weights: number of the extents of x, or empty for ones -> [size] or [b, size] of
    the type of weights; values >= size are not counted.  marks: 1 for values that occur, instead of counts.
    Errors: ShapeError for negative values or other ranks.  Source: TensorFlow DenseBincount.
    """

    marks: bool = False

    def infer(self, x: Shape, size: Shape, weights: Shape) -> Shape:
        if x.rank not in (0, 1, 2) or x.dtype is not dt.int64:
            raise ShapeError(f"a vector or a matrix of int64 is required, got {x}")
        return weights.with_dims((*(x.dims[:1] if x.rank == 2 else ()), fresh("bins")))

    def compute(self, x: Array, size: Array, weights: Array) -> Array:
        count = int(size.reshape(()))
        if count < 0 or (x.size and int(x.min()) < 0):
            raise ShapeError("values and the number of bins must not be negative")
        lines = len(x) if x.ndim == 2 else 1
        out = counted(np.repeat(np.arange(lines), x.size // max(lines, 1)), x, weights, (lines, count), self.marks)
        return out if x.ndim == 2 else out[0]


def counted(rows: Array, x: Array, weights: Array, extents: tuple[int, int], marks: bool) -> Array:
    """Returns the counts, or sums of weights, of the values in each row."""
    require_memory(extents, weights.itemsize)
    out = np.zeros(extents, weights.dtype)
    flat = x.reshape(-1)
    inside = flat < extents[1]
    if marks:
        out[rows[inside], flat[inside]] = 1
    else:
        given = weights.reshape(-1)[inside] if weights.size else np.ones(int(inside.sum()), weights.dtype)
        np.add.at(out, (rows[inside], flat[inside]), given)
    return out


@op("tf_ragged_bincount")
class RaggedBincount(Operation):
    """A histogram of the values of each row of a ragged tensor, optionally weighted.

    splits: int64 [rows + 1], x: int64 [n], size: int64 scalar, weights: number [n], or empty for ones -> [rows, size]; values >=
    size are not counted.  marks: 1 for values that occur, instead of counts.
    Errors: ShapeError for negative values or descending splits.  Source: TensorFlow RaggedBincount.
    """

    marks: bool = False

    def infer(self, splits: Shape, x: Shape, size: Shape, weights: Shape) -> Shape:
        if splits.rank != 1 or x.rank != 1:
            raise ShapeError(f"vectors are required, got {splits} and {x}")
        return weights.with_dims((splits.dims[0] - 1, fresh("bins")))

    def compute(self, splits: Array, x: Array, size: Array, weights: Array) -> Array:
        count, lengths = int(size.reshape(())), np.diff(splits)
        if count < 0 or (x.size and int(x.min()) < 0) or (lengths < 0).any() or int(lengths.sum()) != x.size:
            raise ShapeError("values must not be negative, and splits must ascend to their number")
        return counted(np.repeat(np.arange(len(lengths)), lengths), x, weights, (len(lengths), count), self.marks)
