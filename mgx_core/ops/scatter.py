"""Scatter ops."""

from __future__ import annotations

from typing import Any, ClassVar, Final, Literal

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import compare
from ..types.dtype import of
from ..types.shape import Shape
from .axes import normalize
from .declaration import op
from .extents import index_operand, merge, merge_all
from .index import wrapped
from .operation import Operation
from .scalar import convert, widen

__all__ = [
    "SCATTERNDS", "SCATTERS", "ScatterAdd", "ScatterMax", "ScatterMin", "ScatterMul", "ScatterNone", "ScatterndAdd",
    "ScatterndMax", "ScatterndMin", "ScatterndMul", "ScatterndNone", "TensorScatter",
]  # fmt: skip

_REDUCE: dict[str, np.ufunc] = {"add": np.add, "mul": np.multiply, "min": np.minimum, "max": np.maximum}


def _write(data: Array, where: tuple[Any, ...], updates: Array, reduction: str) -> Array:
    """Returns a copy of data with updates written, or combined with the old elements (narrow floats in float32, rounded once)."""
    if reduction == "none":
        out = data.copy()
        out[where] = updates
        return out
    wide = widen(data)
    out = wide.copy() if wide is data else wide
    _REDUCE[reduction].at(out, where, widen(updates))
    return convert(out, of(data.dtype))


def _types(data: Shape, updates: Shape, reduction: str) -> None:
    if updates.dtype is not data.dtype:
        raise ShapeError(f"updates must have the type of data, got {updates.dtype} for {data.dtype}")
    if reduction != "none" and not data.dtype.is_computable:
        raise ShapeError(f"{data.dtype} elements cannot be combined")


@op("")
class _Scatter(Operation):
    """Base of ops that write elements of updates to the position `indices` along `axis`, and their own along other axes."""

    __slots__ = ()

    axis: int = 0
    skip_out_of_bounds: bool = False
    reduction: ClassVar[str] = "none"

    def infer(self, data: Shape, indices: Shape, updates: Shape) -> Shape:
        axis = normalize(self.axis, data.rank)
        _types(data, updates, self.reduction)
        if index_operand(indices, "indices").rank != data.rank:
            raise ShapeError(f"indices must have the rank of data, got {indices} for {data}")
        merge_all(indices.dims, updates.dims, "extents of indices and updates")
        for i, (n, d) in enumerate(zip(indices.dims, data.dims, strict=True)):
            if i != axis and compare(n, ">", d):
                raise ShapeError(f"indices {indices} exceed {data} on axis {i}")
        return data.as_standard()

    def compute(self, data: Array, indices: Array, updates: Array) -> Array:
        axis = normalize(self.axis, data.ndim)
        if indices.shape != updates.shape or any(
            i != axis and n > d for i, (n, d) in enumerate(zip(indices.shape, data.shape, strict=True))
        ):
            raise ShapeError(
                f"indices {list(indices.shape)} do not fit updates {list(updates.shape)} and data {list(data.shape)}"
            )
        where: list[Any] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
        at = indices
        if self.skip_out_of_bounds:
            n = data.shape[axis]
            inside = (at >= -n) & (at < n)
            where = [np.broadcast_to(w, at.shape)[inside] for w in where]
            at, updates = at[inside], updates[inside]
        where[axis] = wrapped(at, data.shape[axis])
        return _write(data, tuple(where), updates, self.reduction)


@op("scatter_none", exact=True, replaces_along_axis=True)
class ScatterNone(_Scatter):
    """Replaces elements of data at positions along one axis; the last of several updates of one element is kept.

    data: any [..], indices: int [..], updates: indices' dims -> data's dims.  Out-of-range positions are an error or,
    with skip_out_of_bounds, ignored.  Errors: ShapeError for unfitting operands.  Source: ONNX ScatterElements-18.
    """


@op("scatter_add", linear=(0, 2))
class ScatterAdd(_Scatter):
    """Adds to elements of data at positions along one axis; operands and errors as `scatter_none`."""

    reduction = "add"


@op("scatter_mul")
class ScatterMul(_Scatter):
    """Multiplies elements of data at positions along one axis; operands and errors as `scatter_none`."""

    reduction = "mul"


@op("scatter_min", exact=True)
class ScatterMin(_Scatter):
    """Takes the minimum with elements of data at positions along one axis; operands and errors as `scatter_none`."""

    reduction = "min"


@op("scatter_max", exact=True)
class ScatterMax(_Scatter):
    """Takes the maximum with elements of data at positions along one axis; operands and errors as `scatter_none`."""

    reduction = "max"


class _Scatternd(Operation):
    """Base of ops that write slices of updates to the positions of the leading axes in the rows of indices."""

    __slots__ = ()

    reduction: ClassVar[str] = "none"

    def infer(self, data: Shape, indices: Shape, updates: Shape) -> Shape:
        _types(data, updates, self.reduction)
        if index_operand(indices, "indices").rank < 1 or data.rank < 1:
            raise ShapeError(f"data and indices need a rank of at least 1, got {data} and {indices}")
        k = indices.dims[-1]
        if isinstance(k, int):
            if not 1 <= k <= data.rank:
                raise ShapeError(f"the last extent of indices must lie in [1, {data.rank}], got {k}")
            merge_all(updates.dims, (*indices.dims[:-1], *data.dims[k:]), "extents of updates")
        return data.as_standard()

    def compute(self, data: Array, indices: Array, updates: Array) -> Array:
        k = indices.shape[-1]
        if not 1 <= k <= data.ndim or updates.shape != (*indices.shape[:-1], *data.shape[k:]):
            raise ShapeError(
                f"updates {list(updates.shape)} do not fit indices {list(indices.shape)} and data {list(data.shape)}"
            )
        where = tuple(wrapped(indices[..., j], data.shape[j]) for j in range(k))
        return _write(data, where, updates, self.reduction)


@op("scatternd_none", exact=True, replaces=True)
class ScatterndNone(_Scatternd):
    """Replaces slices of data at positions of its leading axes; the last of several updates of one slice is kept.

    data: any [n_1.., n_k, rest..], indices: int [i.., k], updates: [i.., rest..] -> data's dims.
    Errors: ShapeError for unfitting operands and positions outside.  Source: ONNX ScatterND-18.
    """


@op("scatternd_add", linear=(0, 2))
class ScatterndAdd(_Scatternd):
    """Adds to slices of data at positions of its leading axes; operands and errors as `scatternd_none`."""

    reduction = "add"


@op("scatternd_mul")
class ScatterndMul(_Scatternd):
    """Multiplies slices of data at positions of its leading axes; operands and errors as `scatternd_none`."""

    reduction = "mul"


@op("scatternd_min", exact=True)
class ScatterndMin(_Scatternd):
    """Takes the minimum with slices of data at positions of its leading axes; operands and errors as `scatternd_none`."""

    reduction = "min"


@op("scatternd_max", exact=True)
class ScatterndMax(_Scatternd):
    """Takes the maximum with slices of data at positions of its leading axes; else as `scatternd_none`."""

    reduction = "max"


SCATTERS: Final = (ScatterNone, ScatterAdd, ScatterMul, ScatterMin, ScatterMax)
SCATTERNDS: Final = (ScatterndNone, ScatterndAdd, ScatterndMul, ScatterndMin, ScatterndMax)


@op("tensor_scatter", exact=True)
class TensorScatter(Operation):
    """Writes new entries to a cache along `axis`, starting at a position per batch entry.

    cache: any [b, .., n, ..], update: [b, .., m, ..], write_indices: int [b] (0 if absent) -> cache's dims.  Circular
    mode wraps around at the end of the axis.
    Errors: ShapeError for unfitting operands, and in linear mode entries beyond the end of the axis.  Source: ONNX
    TensorScatter-24.
    """

    axis: int = -2
    mode: Literal["linear", "circular"] = "linear"

    def infer(self, cache: Shape, update: Shape, write_indices: Shape | None = None) -> Shape:
        axis = normalize(self.axis, cache.rank)
        if axis == 0:
            raise ShapeError("axis must not be 0, the batch")
        if update.dtype is not cache.dtype or update.rank != cache.rank:
            raise ShapeError(f"update must have the type and rank of the cache, got {update} for {cache}")
        for i, (n, d) in enumerate(zip(update.dims, cache.dims, strict=True)):
            if i != axis:
                merge(n, d, f"extents of cache and update on axis {i}")
            elif compare(n, ">", d):
                raise ShapeError(f"update {update} exceeds {cache} on axis {i}")
        if write_indices is not None:
            if index_operand(write_indices, "write_indices").rank != 1:
                raise ShapeError(f"write_indices must be a vector, got {write_indices}")
            merge(write_indices.dims[0], cache.dims[0], "the length of write_indices and the batch")
        return cache.as_standard()

    def compute(self, cache: Array, update: Array, write_indices: Array | None = None) -> Array:
        axis = normalize(self.axis, cache.ndim)
        n, m = cache.shape[axis], update.shape[axis]
        start = np.zeros(cache.shape[0], np.int64) if write_indices is None else write_indices.astype(np.int64)
        at = start[:, None] + np.arange(m)[None, :]
        if self.mode == "circular":
            at = at % max(n, 1)
        elif at.size and (int(at.min()) < 0 or int(at.max()) >= n):
            raise ShapeError(f"write_indices {start.tolist()} with {m} entries leave the {n} of the cache")
        if m > n:
            raise ShapeError(f"an update of {m} entries exceeds the {n} of the cache")
        out = cache.copy()
        np.moveaxis(out, axis, 1)[np.arange(cache.shape[0])[:, None], at] = np.moveaxis(update, axis, 1)
        return out
