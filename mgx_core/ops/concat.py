"""Concatenation."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim
from ..types.shape import Shape
from .axes import normalize
from .declaration import op
from .extents import merge_all
from .operation import Operation

__all__ = ["Concat"]


@op("concat", exact=True)
class Concat(Operation):
    """Concatenates tensors along `axis`.

    xs: one or more, any [.., n_i, ..] of one type -> [.., sum n_i, ..].
    Errors: ShapeError if types, ranks or other extents differ.  Source: ONNX Concat-13.
    """

    axis: int

    def infer(self, *xs: Shape) -> Shape:
        if not xs:
            raise ShapeError("one input at least is needed")
        first = xs[0]
        axis = normalize(self.axis, first.rank)
        total: Dim = 0
        kept: tuple[Dim, ...] = (*first.dims[:axis], *first.dims[axis + 1 :])
        for i, x in enumerate(xs):
            if x.dtype is not first.dtype:
                raise ShapeError(f"inputs must share one type, got {first.dtype} and {x.dtype} (input {i})")
            if x.rank != first.rank:
                raise ShapeError(f"inputs must share one rank, got {first} and {x} (input {i})")
            kept = merge_all(kept, (*x.dims[:axis], *x.dims[axis + 1 :]), f"extents off axis {axis}")
            total = total + x.dims[axis]
        return first.with_dims((*kept[:axis], total, *kept[axis:]))

    def compute(self, *xs: Array) -> Array:
        return np.concatenate(xs, normalize(self.axis, xs[0].ndim))
