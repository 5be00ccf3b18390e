"""The k largest or smallest elements along one axis."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..types import dim
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim
from ..types.shape import Shape, TupleShape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .scalar import widen

__all__ = ["Topk"]


@op("topk", exact=True)
class Topk(Operation):
    """The k largest (or smallest) elements along one axis, in order, with their indices.

    x: [.., n, ..], k: optional int64 [1] known at run time (instead of the attribute) -> ([.., k, ..], int64 [..]).
    Of equal elements the one with the lower index comes first; NaN counts as larger than all.
    Errors: ShapeError if `axis` is outside the rank of x or k outside 0..n.  Source: ONNX TopK-24.
    """

    k: Dim = 1
    axis: int = -1
    largest: bool = True
    sorted: bool = True

    def infer(self, x: Shape, k: Shape | None = None) -> TupleShape:
        if x.dtype.kind not in "biuf":
            raise ShapeError(f"x must not be of type {x.dtype}")
        axis = normalize(self.axis, x.rank)
        n = x.dims[axis]
        taken: Dim = self.k
        if k is not None:
            if k.dtype not in (dt.int64, dt.int32) or (not k.dynamic() and k.elements() != 1):
                raise ShapeError(f"k must be one int64, got {k}")
            taken = dim.fresh("k", 0, n)
        elif dim.compare(taken, ">", n) or dim.compare(taken, "<", 0):
            raise ShapeError(f"k must lie in [0, {n}], the extent of axis {axis}, got {taken}")
        dims = [taken if i == axis else d for i, d in enumerate(x.dims)]
        return TupleShape([x.with_dims(dims), Shape.of(dt.int64, dims)])

    def compute(self, x: Array, k: Array | None = None) -> tuple[Array, Array]:
        axis = normalize(self.axis, x.ndim)
        n = x.shape[axis]
        taken = int(self.k if k is None else k.reshape(-1)[0])
        if not 0 <= taken <= n:
            raise ShapeError(f"k must lie in [0, {n}], the extent of axis {axis}, got {taken}")
        keys = np.moveaxis(widen(x), axis, -1)
        if self.largest:  # a stable sort of the mirrored line, read backward, keeps lower indices first
            order = n - 1 - np.argsort(keys[..., ::-1], axis=-1, kind="stable")[..., ::-1]
        else:
            order = np.argsort(keys, axis=-1, kind="stable")
        indices = np.ascontiguousarray(np.moveaxis(order[..., :taken], -1, axis)).astype(np.int64)
        return np.take_along_axis(x, indices, axis), indices
