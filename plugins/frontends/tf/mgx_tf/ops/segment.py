"""Rows combined by segments, and stitched together."""

from __future__ import annotations

from typing import Literal

import numpy as np

from mgx_core import Shape
from mgx_core.errors import ShapeError
from mgx_core.ops.operation import Operation, op
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_room

__all__: list[str] = []


@op("tf_segment")
class Segment(Operation):
    """Rows combined that have the same segment; numbers of segments do not fall.

    x: number [n, *e], segments: int [n] -> [last + 1, *e]; segments without rows are 0 (1 for products).
    Errors: ShapeError for numbers that fall or are negative.  Source: TensorFlow SegmentSum and its like.
    """

    how: Literal["sum", "mean", "sqrtn", "max", "min", "prod"]

    def infer(self, x: Shape, segments: Shape) -> Shape:
        if segments.rank != 1 or x.rank < 1:
            raise ShapeError(f"rows and a vector of segments are needed, got {x} and {segments}")
        return x.with_dims((fresh("segments"), *x.dims[1:]))

    def compute(self, x: Array, segments: Array) -> Array:
        if segments.size and (int(segments.min()) < 0 or (np.diff(segments) < 0).any()):
            raise ShapeError("numbers of segments must not be negative or fall")
        count = int(segments[-1]) + 1 if segments.size else 0
        require_room((count, *x.shape[1:]), x.itemsize)
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
    """Rows put where indices say; of several for one place the last stays.

    indices: int [n], rows: any [n, *e] -> [largest index + 1, *e]; places without a row are 0.
    Errors: ShapeError for negative indices.  Source: TensorFlow DynamicStitch.
    """

    def infer(self, indices: Shape, rows: Shape) -> Shape:
        if indices.rank != 1:
            raise ShapeError(f"a vector of indices is needed, got {indices}")
        return rows.with_dims((fresh("stitched"), *rows.dims[1:]))

    def compute(self, indices: Array, rows: Array) -> Array:
        if indices.size and int(indices.min()) < 0:
            raise ShapeError("indices must not be negative")
        count = int(indices.max(initial=-1)) + 1
        require_room((count, *rows.shape[1:]), rows.itemsize)
        out = np.zeros((count, *rows.shape[1:]), rows.dtype)
        out[indices] = rows
        return out
