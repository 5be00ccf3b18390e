"""Reductions along axes, and the positions of extremes."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from ..errors import ShapeError
from ..types import dim
from ..types import dtype as dt
from ..types.argument import Array
from ..types.shape import Shape
from .axes import normalize, normalize_all
from .declaration import op
from .operation import Operation
from .scalar import convert, widen

__all__ = [
    "Argmax", "Argmin", "Reduce", "ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum",
]  # fmt: skip

LONG = 1024  # sums of more elements accumulate in float64, so that their order does not matter to float32


@op("")
class Reduce(Operation):
    """Base of the reductions; reduced axes are kept with extent 1.

    x: [d0, ..], axes: optional int64 [k] known at run time (instead of the attribute) -> x's dims with 1 at the axes.
    Without axes, all are reduced, unless `axes` is empty at run time and `noop_with_empty_axes` is set.
    Errors: ShapeError for axes outside the rank, or duplicates in the attribute.
    """

    __slots__ = ()

    accepts: ClassVar[str] = "iuf"
    axes: tuple[int, ...] = ()
    noop_with_empty_axes: bool = False

    def infer(self, x: Shape, axes: Shape | None = None) -> Shape:
        if x.dtype.kind not in self.accepts:
            raise ShapeError(f"x must not be of type {x.dtype}")
        if axes is not None:
            if axes.dtype not in (dt.int64, dt.int32) or (axes.ranked and axes.rank > 1):
                raise ShapeError(f"axes must be a vector of int64, got {axes}")
            return x.with_dims([1 if d == 1 else dim.fresh("r", 0, dim.maximum(d, 1)) for d in x.dims])
        reduced = normalize_all(self.axes, x.rank) or range(x.rank)
        return x.with_dims([1 if i in reduced else d for i, d in enumerate(x.dims)])

    def compute(self, x: Array, axes: Array | None = None) -> Array:
        if axes is None:
            chosen = normalize_all(self.axes, x.ndim) or tuple(range(x.ndim))
        else:
            chosen = tuple(dict.fromkeys(normalize(int(a), x.ndim, "axes") for a in axes.reshape(-1)))
            if not chosen and not self.noop_with_empty_axes:
                chosen = tuple(range(x.ndim))
        return self.reduce(x, chosen)

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        return tuple(sorted(normalize_all(self.axes, rank))) or tuple(range(rank))

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        """Returns the reduction along non-negative axes, keeping them; `axes` may be empty."""
        raise NotImplementedError


def count(x: Array, axes: tuple[int, ...]) -> int:
    """Returns the number of elements reduced to each result."""
    return math.prod(x.shape[a] for a in axes)


def total(x: Array, axes: tuple[int, ...]) -> Array:
    """Returns the sum along axes, in float32 or float64 for floats, in the operand's own type for integers."""
    wide = widen(x)
    kind: Any = wide.dtype
    if kind == np.float32 and count(x, axes) > LONG:
        kind = np.float64
    return np.asarray(np.sum(wide, axis=axes, keepdims=True, dtype=kind))


def rounded(x: Array, like: Array) -> Array:
    """Returns a wide result in the type of the operand."""
    return convert(x, dt.of(like.dtype))


@op("reduce_sum", combine="add", linear=(0,), accepts="iufc")
class ReduceSum(Reduce):
    """Sum; 0 over no elements; integers wrap.  Source: ONNX ReduceSum-13."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        return rounded(total(x, axes), x)


@op("reduce_mean", combine="add", linear=(0,), accepts="iufc")
class ReduceMean(Reduce):
    """Mean; NaN over no elements; means of integers round toward zero.  Source: ONNX ReduceMean-18."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        n = count(x, axes)
        if widen(x).dtype.kind in "iu":
            if n == 0:
                raise ShapeError(f"the mean of no {dt.of(x.dtype)} is not defined")
            sums = np.sum(widen(x), axis=axes, keepdims=True, dtype=np.uint64 if x.dtype.kind == "u" else np.int64)
            return rounded(np.asarray(np.sign(sums) * (np.abs(sums) // n)).astype(sums.dtype), x)
        sums = total(x, axes)
        return rounded(np.asarray(sums / sums.dtype.type(n)), x)


@op("reduce_prod", combine="mul", accepts="iufc")
class ReduceProd(Reduce):
    """Product; 1 over no elements; integers wrap.  Source: ONNX ReduceProd-18."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        wide = widen(x)
        return rounded(np.asarray(np.prod(wide, axis=axes, keepdims=True, dtype=wide.dtype)), x)


@op("reduce_max", exact=True, combine="max", accepts="biuf")
class ReduceMax(Reduce):
    """Largest; NaN if one is; over no elements minus infinity or the lowest value.  Source: ONNX ReduceMax-20."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        if count(x, axes) == 0:
            return _fill(x, axes, "-inf")
        return rounded(np.asarray(np.max(widen(x), axis=axes, keepdims=True)), x)


@op("reduce_min", exact=True, combine="min", accepts="biuf")
class ReduceMin(Reduce):
    """Smallest; NaN if one is; over no elements infinity or the highest value.  Source: ONNX ReduceMin-20."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        if count(x, axes) == 0:
            return _fill(x, axes, "inf")
        return rounded(np.asarray(np.min(widen(x), axis=axes, keepdims=True)), x)


def _fill(x: Array, axes: tuple[int, ...], infinity: str) -> Array:
    dtype = dt.of(x.dtype)
    value = dtype.lowest if infinity == "-inf" else dtype.highest
    if dtype.is_float and np.isinf(np.asarray(float(infinity)).astype(x.dtype).astype(np.float32)):
        value = float(infinity)
    return np.full([1 if i in axes else n for i, n in enumerate(x.shape)], value).astype(x.dtype)


@op("reduce_any", exact=True, accepts="biuf")
class ReduceAny(Reduce):
    """True if any element is not zero; false over no elements."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.any(widen(x) != 0, axis=axes, keepdims=True)).astype(x.dtype)


@op("reduce_all", exact=True, accepts="biuf")
class ReduceAll(Reduce):
    """True if no element is zero; true over no elements."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Array:
        return np.asarray(np.all(widen(x) != 0, axis=axes, keepdims=True)).astype(x.dtype)


# argmax, argmin-------------------------------------------------------------------------------------------------------


@op("")
class Position(Operation):
    """Base of argmax and argmin: the axis is kept with extent 1; of equal elements the first is selected, or the last."""

    __slots__ = ()

    axis: int = 0
    select_last_index: bool = False

    def reduced_axes(self, rank: int) -> tuple[int, ...]:
        return (normalize(self.axis, rank),)

    def infer(self, x: Shape) -> Shape:
        if x.dtype.kind not in "biuf":
            raise ShapeError(f"x must not be of type {x.dtype}")
        axis = normalize(self.axis, x.rank)
        if not dim.bounds(x.dims[axis])[1]:
            raise ShapeError(f"axis {axis} must not be empty, got {x}")
        return Shape.of(dt.int64, [1 if i == axis else d for i, d in enumerate(x.dims)])

    def search(self, x: Array, function: Any) -> Array:
        axis = normalize(self.axis, x.ndim)
        n = x.shape[axis]
        if n == 0:
            raise ShapeError(f"axis {axis} must not be empty, got {list(x.shape)}")
        wide = widen(x)
        if self.select_last_index:
            return np.asarray(n - 1 - function(np.flip(wide, axis), axis=axis, keepdims=True)).astype(np.int64)
        return np.asarray(function(wide, axis=axis, keepdims=True)).astype(np.int64)


@op("argmax", exact=True)
class Argmax(Position):
    """Index of the largest element along one axis; NaN counts as larger than all.

    x: [.., n, ..] -> int64 [.., 1, ..].
    Errors: ShapeError if `axis` is outside the rank or empty.  Source: ONNX ArgMax-13.
    """

    def compute(self, x: Array) -> Array:
        return self.search(x, np.argmax)


@op("argmin", exact=True)
class Argmin(Position):
    """Index of the smallest element along one axis; NaN counts as smaller than all.

    x: [.., n, ..] -> int64 [.., 1, ..].
    Errors: ShapeError if `axis` is outside the rank or empty.  Source: ONNX ArgMin-13.
    """

    def compute(self, x: Array) -> Array:
        return self.search(x, np.argmin)
