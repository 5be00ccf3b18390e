"""Gather ops, one-hot encoding and triangular masks."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim, compare, fresh
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from .axes import normalize
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .compare import Equal, LogicalOr
from .convert import Convert
from .declaration import op
from .extents import index_operand, merge, scalar_operand
from .operation import Operation
from .pointwise import Where
from .reshape import Unsqueeze
from .slice import Slice

__all__ = ["Gather", "GatherElements", "Gathernd", "Onehot", "Trilu", "wrapped"]


def wrapped(indices: Array, length: int) -> Array:
    """Returns positions as int64, negative ones counted from the end.  Errors: ShapeError for one outside the axis."""
    if indices.size and (int(indices.min()) < -length or int(indices.max()) >= length):
        bad = indices[(indices < -length) | (indices >= length)].flat[0]
        raise ShapeError(f"indices must lie in [{-length}, {length - 1}], got {bad}")
    at = indices.astype(np.int64)
    return np.asarray(np.where(at < 0, at + length, at))


@op("gather", exact=True, moves=True, picks=True)
class Gather(Operation):
    """Gathers slices of x along `axis`; negative indices count from the end.

    x: any [a.., n, b..], indices: int [i..] -> [a.., i.., b..].
    Errors: ShapeError for positions outside -n..n-1.  Source: ONNX Gather-13.
    """

    axis: int = 0

    def infer(self, x: Shape, indices: Shape) -> Shape:
        axis = normalize(self.axis, x.rank)
        index_operand(indices, "indices")
        if x.dims[axis] == 0 and all(compare(d, ">", 0) for d in indices.dims):
            raise ShapeError(f"axis {axis} of {x} is empty: nothing can be gathered from it")
        return x.with_dims((*x.dims[:axis], *indices.dims, *x.dims[axis + 1 :]))

    def compute(self, x: Array, indices: Array) -> Array:
        axis = normalize(self.axis, x.ndim)
        # numpy would wrap uint64, and checks no positions in an array without elements
        checked = indices.dtype.kind == "i" and x.size > 0
        at = indices if checked else wrapped(indices, x.shape[axis])
        try:  # numpy counts negative positions from the end, too, in a third of the time
            return np.asarray(x.take(at, axis))
        except IndexError:
            wrapped(indices, x.shape[axis])  # names the position
            raise


@op("gather_elements", exact=True, moves=True, picks=True)
class GatherElements(Operation):
    """Gathers elements of x: the index along `axis` is given, the others are those of the result's element.

    x: any [..], indices: int, same rank -> indices' dims.
    Errors: ShapeError for positions outside -n..n-1, indices larger than x off the axis.  Source: ONNX
    GatherElements-13.
    """

    axis: int = 0

    def infer(self, x: Shape, indices: Shape) -> Shape:
        axis = normalize(self.axis, x.rank)
        if index_operand(indices, "indices").rank != x.rank:
            raise ShapeError(f"indices must have the rank of x, got {indices} for {x}")
        for i, (n, d) in enumerate(zip(indices.dims, x.dims, strict=True)):
            if i != axis and compare(n, ">", d):
                raise ShapeError(f"indices {indices} exceed {x} on axis {i}")
        return x.with_dims(indices.dims)

    def compute(self, x: Array, indices: Array) -> Array:
        axis = normalize(self.axis, x.ndim)
        if any(i != axis and n > d for i, (n, d) in enumerate(zip(indices.shape, x.shape, strict=True))):
            raise ShapeError(f"indices of extents {list(indices.shape)} exceed {list(x.shape)}")
        near = x[tuple(slice(None) if i == axis else slice(n) for i, n in enumerate(indices.shape))]
        return np.take_along_axis(near, wrapped(indices, x.shape[axis]), axis)


@op("gathernd", exact=True, moves=True, picks=True)
class Gathernd(Operation):
    """Gathers slices of x at positions along several axes at once.

    x: any [b.., n_1.., n_k, rest..], indices: int [b.., i.., k] -> [b.., i.., rest..]; `batch_dims` axes b are paired.
    Errors: ShapeError for positions outside their axes, k above the rank.  Source: ONNX GatherND-13.
    """

    batch_dims: int = 0

    def infer(self, x: Shape, indices: Shape) -> Shape:
        b = self.batch_dims
        index_operand(indices, "indices")
        if not 0 <= b < min(x.rank, indices.rank):
            raise ShapeError(f"batch_dims must be below both ranks, got {b} for {x} and {indices}")
        batch = [merge(p, q, "batch extents") for p, q in zip(x.dims[:b], indices.dims[:b], strict=True)]
        k = indices.dims[-1]
        if not isinstance(k, int):
            return Shape.unranked(x.dtype)
        if not 1 <= k <= x.rank - b:
            raise ShapeError(f"the last extent of indices must lie in [1, {x.rank - b}], got {k}")
        return x.with_dims((*batch, *indices.dims[b:-1], *x.dims[b + k :]))

    def compute(self, x: Array, indices: Array) -> Array:
        b, k = self.batch_dims, indices.shape[-1]
        where: list[Any] = []
        for axis in range(b):
            if x.shape[axis] != indices.shape[axis]:
                raise ShapeError(f"batch extents must be equal, got {x.shape[axis]} and {indices.shape[axis]}")
            own = np.arange(x.shape[axis])
            where.append(own.reshape([-1 if i == axis else 1 for i in range(indices.ndim - 1)]))
        where += [wrapped(indices[..., j], x.shape[b + j]) for j in range(k)]
        return np.asarray(x[tuple(where)])


@op("onehot", exact=True)
class Onehot(Operation):
    """`values[1]` where the position along a new axis equals the index, `values[0]` elsewhere.

    indices: number [..] in -depth..depth-1 (others match nowhere; fractions are truncated), depth: one element, unless
    it is an attribute, values: any [2] -> [.., depth at `axis`, ..] of the type of values.
    Errors: ShapeError for a negative depth or an axis outside the result's rank.  Source: ONNX OneHot-11.
    """

    axis: int = -1
    depth: Dim | None = None

    def normal(self, *inputs: Shape) -> Operation:
        """Returns the same: the axis counts in the result's rank."""
        return self

    def infer(self, indices: Shape, depth: Shape | None, values: Shape) -> Shape:
        axis = normalize(self.axis, indices.rank + 1)
        if not indices.dtype.is_number:
            raise ShapeError(f"indices must be numbers, got {indices}")
        if values.rank != 1:
            raise ShapeError(f"values must be a vector [off, on], got {values}")
        merge(values.dims[0], 2, "the length of values and 2")
        if self.depth is not None:
            n: Dim = self.depth
        elif depth is not None:
            scalar_operand(depth, "depth")
            n = fresh("depth")
        else:
            raise ShapeError("depth is required, as attribute or as input")
        return values.with_dims((*indices.dims[:axis], n, *indices.dims[axis:]))

    def compute(self, indices: Array, depth: Array | None, values: Array) -> Array:
        if self.depth is None and depth is not None:
            if depth.size != 1:
                raise ShapeError(f"depth must have one element, got {depth.size}")
            n = int(depth.reshape(-1)[0])
        else:
            n = int(self.depth or 0)
        if n < 0:
            raise ShapeError(f"depth must not be negative, got {n}")
        axis = normalize(self.axis, indices.ndim + 1)
        require_memory((*indices.shape, n), max(values.itemsize, 8))
        at = np.expand_dims(indices.astype(np.int64), axis)
        own = np.arange(n).reshape([-1 if i == axis else 1 for i in range(indices.ndim + 1)])
        return np.asarray(values[np.where((at == own) | (at == own - n), 1, 0)])

    def decompose(self, b: Builder, indices: Operand, depth: Operand | None, values: Operand) -> Operand | None:
        if not isinstance(self.depth, int) or indices.shape.dynamic():
            return None
        axis = normalize(self.axis, indices.shape.rank + 1)
        dims = (*indices.shape.dims[:axis], self.depth, *indices.shape.dims[axis:])

        def wide(x: Operand) -> Operand:
            return b.add(Multibroadcast(out_lens=dims), x)

        at = indices if indices.shape.dtype is dt.int64 else b.add(Convert(target_type=dt.int64), indices)
        at = wide(b.add(Unsqueeze(axes=(axis,)), at))
        own = np.arange(self.depth).reshape([-1 if i == axis else 1 for i in range(len(dims))])
        hits = [b.add(Equal(), at, wide(b.literal(o))) for o in (own, own - self.depth)]
        off, on = (wide(b.add(Slice(axes=(0,), starts=(i,), ends=(i + 1,)), values)) for i in (0, 1))
        return b.add(Where(), b.add(LogicalOr(), *hits), on, off)


@op("trilu", exact=True)
class Trilu(Operation):
    """The upper or lower triangle of each matrix, zeros elsewhere.

    x: any [.., m, n] -> same shape.  k (attribute or run-time input): the bounding diagonal, counted
    upwards from the main one.  Errors: ShapeError for a rank below 2.  Source: ONNX Trilu-14.
    """

    upper: bool = True
    k: int = 0

    def infer(self, x: Shape, k: Shape | None = None) -> Shape:
        if x.rank < 2:
            raise ShapeError(f"x must have a rank of at least 2, got {x}")
        if k is not None:
            scalar_operand(index_operand(k, "k"), "k")
        return x.as_standard()

    def compute(self, x: Array, k: Array | None = None) -> Array:
        diagonal = self.k if k is None else int(k.reshape(-1)[0])
        rows, columns = x.shape[-2:]
        diagonal = max(-rows - 1, min(columns + 1, diagonal))
        above = np.arange(columns)[None, :] - np.arange(rows)[:, None]
        keep = above >= diagonal if self.upper else above <= diagonal
        out = np.zeros(x.shape, x.dtype)
        np.copyto(out, x, where=keep)
        return out

    def decompose(self, b: Builder, x: Operand, k: Operand | None = None) -> Operand | None:
        if k is not None or x.shape.dynamic() or not x.shape.dtype.is_computable:
            return None
        keep = b.literal(Trilu(upper=self.upper, k=self.k).compute(np.ones(x.shape.lens()[-2:], np.bool_)))
        zero = b.literal(np.zeros((), x.shape.dtype.numpy))
        wide = Multibroadcast(out_lens=x.shape.dims)
        return b.add(Where(), b.add(wide, keep), x, b.add(wide, zero))
