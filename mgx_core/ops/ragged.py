"""Reductions of slices of different lengths."""

from __future__ import annotations

from typing import Final, Literal

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.shape import Shape
from .declaration import op
from .extents import merge, vector_length, whole
from .operation import Operation
from .reduce import Reduce, ReduceMax, ReduceMean, ReduceMin, ReduceSum

__all__ = ["REDUCTIONS", "ReduceSlices"]

REDUCTIONS: Final[dict[str, type[Reduce]]] = {
    "sum": ReduceSum,
    "mean": ReduceMean,
    "max": ReduceMax,
    "min": ReduceMin,
}


@op("reduce_slices")
class ReduceSlices(Operation):
    """Reduces slices of x along the first axis; slices may differ in length, overlap and be empty.

    x: [n, ..], starts, ends: int [k] -> [k, ..]; row i is the reduction of x[starts[i]:ends[i]].  As in `slice`, negative
    positions count from the end, and positions outside are clipped; no elements are reduced as by the op `reduce_<reduction>`.
    Errors: ShapeError for a scalar x, a type that the reduction does not accept, or vectors of different lengths.
    Source: torch.nn.EmbeddingBag.
    """

    reduction: Literal["sum", "mean", "max", "min"] = "sum"

    def infer(self, x: Shape, starts: Shape, ends: Shape) -> Shape:
        if not x.rank or x.dtype.kind not in REDUCTIONS[self.reduction].accepts:
            raise ShapeError(f"x must have at least one axis, and a type with reduce_{self.reduction}, got {x}")
        length = merge(vector_length(starts, "starts"), vector_length(ends, "ends"), "the numbers of starts and ends")
        return Shape.of(x.dtype, (length, *x.dims[1:]))

    def compute(self, x: Array, starts: Array, ends: Array) -> Array:
        reduce, places = REDUCTIONS[self.reduction](), zip(whole(starts), whole(ends), strict=True)
        rows = [reduce.reduce(x[start:end], (0,)) for start, end in places]
        return np.concatenate([x[:0], *rows])
