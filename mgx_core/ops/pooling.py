"""Pooling over sliding windows, with indices, and its inverse."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, Literal, Self

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, ceil_div, fresh
from ..types.dtype import float32, int64, of
from ..types.memory_limit import require_memory
from ..types.shape import Shape, TupleShape
from .builder import Builder, Operand
from .declaration import op
from .operation import Operation
from .pooling_parts import power_parts, quotient_parts, root_parts, sum_parts
from .reduce import ReduceMean, ReduceSum
from .scalar import convert, widen
from .window import explicit_padding, extent, padded, per_axis, sides, taps, windows

__all__ = ["MaxPoolIndices", "MaxUnpool", "Pooling", "Windows"]


class Windows(Operation):
    """Base of the pooling ops: attributes of the windows and the resulting extents."""

    __slots__ = ()

    lengths: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]
    dilations: tuple[int, ...]
    padding_mode: str
    ceil_mode: bool

    def numbers(self, rank: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """Returns lengths, stride and dilations of each spatial axis."""
        if len(self.lengths) != rank:
            raise ShapeError(f"lengths needs {rank} numbers for {rank} spatial axes, got {list(self.lengths)}")
        return (
            per_axis(self.lengths, rank, "lengths"),
            per_axis(self.stride, rank, "stride"),
            per_axis(self.dilations, rank, "dilations"),
        )

    def counts(self, dims: Sequence[Dim]) -> list[Dim]:
        """Returns the number of windows along each spatial axis."""
        lengths, stride, dilation = self.numbers(len(dims))
        if self.padding_mode != "default":
            return [ceil_div(n, s) for n, s in zip(dims, stride, strict=True)]
        begins, ends = sides(self.padding, len(dims))
        if min((*begins, *ends), default=0) < 0:
            raise ShapeError(f"padding must not be negative, got {list(self.padding)}")
        return [
            extent(n, k, s, d, b + e, b, self.ceil_mode)
            for n, k, s, d, b, e in zip(dims, lengths, stride, dilation, begins, ends, strict=True)
        ]

    def fitted(self, dims: Sequence[Dim]) -> Self:
        """Returns the op with windows shortened to the padded axis where an axis has only one."""
        if self.padding_mode != "default":
            return self
        lengths, stride, dilation = self.numbers(len(dims))
        begins, ends = sides(self.padding, len(dims))
        fitting = list(lengths)
        for axis, (n, c, s, d) in enumerate(zip(dims, self.counts(dims), stride, dilation, strict=True)):
            around = begins[axis] + ends[axis]
            if c == 1 and isinstance(n, int):
                inside = max(1, -(-(n + around) // d))
                alone = extent(n, inside, s, d, around, begins[axis], self.ceil_mode) == 1
                fitting[axis] = min(lengths[axis], inside if alone else inside + 1)  # no padding remains after it
        return self if tuple(fitting) == lengths else self.replace(lengths=tuple(fitting))

    def around(self, dims: Sequence[int], counts: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...], list[int]]:
        """Returns padding before and after each axis of static extents, and by how much the last window extends beyond that."""
        lengths, stride, dilation = self.numbers(len(dims))
        begins, ends = explicit_padding(dims, lengths, stride, dilation, self.padding, self.padding_mode)
        over = [
            max(0, (c - 1) * s + (k - 1) * d + 1 - n - b - e)
            for n, c, k, s, d, b, e in zip(dims, counts, lengths, stride, dilation, begins, ends, strict=True)
        ]
        return begins, ends, over


def image(x: Shape, kinds: str = "f") -> tuple[Dim, ...]:
    """Returns the spatial extents of x [n, c, *s].  Errors: ShapeError for lower ranks or other kinds of types."""
    if x.rank < 3:
        raise ShapeError(f"x needs a batch, channels and at least one spatial axis, got {x}")
    if x.dtype.kind not in kinds:
        raise ShapeError(f"x must not be of type {x.dtype}")
    return x.dims[2:]


def lowest(dtype: np.dtype[Any]) -> Any:
    """Returns the identity of a maximum."""
    return -np.inf if dtype.kind == "f" else of(dtype).lowest


def windowed(
    x: Array, reduce: Any, lengths: Sequence[int], stride: Sequence[int], dilation: Sequence[int], counts: Sequence[int]
) -> Array:
    """Returns a reduction over windows on the last axes, one axis after the other (reduce: a binary ufunc)."""
    lead = x.ndim - len(lengths)
    for i, (k, s, d, c) in enumerate(zip(lengths, stride, dilation, counts, strict=True)):
        first, *others = taps(lead + i, x.ndim, k, s, d, c)
        out = x[first].copy()
        for where in others:
            reduce(out, x[where], out=out)
        x = out
    return x


@op("pooling")
class Pooling(Windows):
    """Average, maximum or Lp norm of each window.

    x: [n, c, *s] -> [n, c, *o].  `padding`: one number per axis, or all begins then all ends; `ceil_mode` lets the last
    window extend beyond the end; averages count padding only with `count_include_pad`; `dyn_global`: one window of everything.
    Maxima accept integers, and are NaN if a window contains one, as in numpy and torch (ONNX's evaluator represents padding
    by NaN, and so ignores NaN).  Empty `padding` is 0 on every side, empty `stride` and `dilations` are 1 on every axis.
    Errors: ShapeError if a window does not fit.
    Source: ONNX MaxPool-12, AveragePool-22, LpPool-22.
    """

    mode: Literal["average", "max", "lpnorm"]
    padding: tuple[int, ...] = ()
    padding_mode: Literal["default", "same_lower", "same_upper"] = "default"
    stride: tuple[int, ...] = ()
    lengths: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False
    count_include_pad: bool = False
    lp_order: int = 2
    dyn_global: bool = False

    @property
    def exact(self) -> bool:
        return self.mode == "max"

    @property
    def linear(self) -> tuple[int, ...]:
        return (0,) if self.mode == "average" else ()

    def check(self) -> None:
        if self.lp_order < 1:
            raise ParameterError(f"lp_order must be at least 1, got {self.lp_order}")

    def infer(self, x: Shape) -> Shape:
        dims = image(x, "iuf" if self.mode == "max" else "f")
        out = [1] * len(dims) if self.dyn_global else self.counts(dims)
        return x.with_dims((*x.dims[:2], *out))

    def compute(self, x: Array) -> Array:
        wide = widen(x)
        out = self.whole(wide) if self.dyn_global else self.fitted(x.shape[2:]).sliding(wide)
        return convert(out, of(x.dtype))

    def whole(self, x: Array) -> Array:
        axes = tuple(range(2, x.ndim))
        if self.mode == "max":
            return np.asarray(x.max(axes, keepdims=True, initial=lowest(x.dtype)))
        if self.mode == "average":
            return np.asarray(x.sum(axes, keepdims=True) / x.dtype.type(math.prod(x.shape[2:])))
        return self.root(np.asarray(self.power(x).sum(axes, keepdims=True)))

    def power(self, x: Array) -> Array:
        return np.abs(x) if self.lp_order == 1 else np.square(x) if self.lp_order == 2 else np.abs(x) ** self.lp_order

    def root(self, x: Array) -> Array:
        if self.lp_order == 1:
            return x
        return np.sqrt(x) if self.lp_order == 2 else np.asarray(x ** (1 / self.lp_order), x.dtype)

    def sliding(self, x: Array) -> Array:
        lengths, stride, dilation = self.numbers(x.ndim - 2)
        counts = [int(c) for c in self.counts(x.shape[2:])]
        if 0 in counts:
            return np.zeros((*x.shape[:2], *counts), x.dtype)
        begins, ends, over = self.around(x.shape[2:], counts)
        filled = [e + o for e, o in zip(ends, over, strict=True)]
        if self.mode == "max":
            return windowed(padded(x, begins, filled, lowest(x.dtype)), np.maximum, lengths, stride, dilation, counts)
        if self.mode == "lpnorm":
            total = windowed(padded(self.power(x), begins, filled), np.add, lengths, stride, dilation, counts)
            return self.root(total)
        total = windowed(padded(x, begins, filled), np.add, lengths, stride, dilation, counts)
        for share in self.shares(x.shape[2:], x.dtype):
            total /= share
        return total

    def shares(self, dims: Sequence[int], dtype: np.dtype[Any]) -> list[Array]:
        """Returns the factors of the number of elements that an average counts, one per axis, which broadcast over results."""
        lengths, stride, dilation = self.numbers(len(dims))
        counts = [int(c) for c in self.counts(dims)]
        begins, ends, over = self.around(dims, counts)
        found: list[Array] = []
        for axis, (n, k, s, d, b, e, o, c) in enumerate(
            zip(dims, lengths, stride, dilation, begins, ends, over, counts, strict=True)
        ):
            counted = np.ones(b + n + e, dtype) if self.count_include_pad else padded(np.ones(n, dtype), [b], [e])
            share = windowed(padded(counted, [0], [o]), np.add, [k], [s], [d], [c])
            found.append(np.maximum(share, 1).reshape((-1,) + (1,) * (len(dims) - 1 - axis)))
        return found

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        """Decomposes averages and norms of float32 windows of static extents into depthwise convolutions."""
        if self.mode == "max" or x.shape.dtype is not float32 or x.shape.dynamic() or not x.shape.elements():
            return None
        norm, dims = self.mode == "lpnorm", [int(n) for n in x.shape.dims[2:]]
        terms = power_parts(b, x, self.lp_order) if norm else x
        if self.dyn_global:
            axes = tuple(range(2, x.shape.rank))
            sums = b.add(ReduceSum(axes=axes) if norm else ReduceMean(axes=axes), terms)
            return root_parts(b, sums, self.lp_order) if norm else sums
        one = self.fitted(dims)
        counts = [int(n) for n in one.counts(dims)]
        if 0 in counts:
            return None
        lengths, stride, dilation = one.numbers(len(dims))
        begins, _, _ = one.around(dims, counts)
        ends = [  # up to the last window: those that would begin in the padding at the end are left out with `ceil_mode`
            max(0, (c - 1) * s + (k - 1) * d + 1 - n - before)
            for n, c, k, s, d, before in zip(dims, counts, lengths, stride, dilation, begins, strict=True)
        ]
        sums = sum_parts(b, terms, lengths, stride, dilation, (*begins, *ends))
        if norm:
            return root_parts(b, sums, self.lp_order)
        return quotient_parts(b, sums, reduce(np.multiply, one.shares(dims, np.dtype(np.float32))))


@op("max_pool_indices", exact=True)
class MaxPoolIndices(Windows):
    """The maximum of each window and its position.

    x: [n, c, *s] -> ([n, c, *o] of x's type, int64 [n, c, *o]: index of the first maximum in x as a flat list; with
    `storage_order` 1 the spatial axes count column-major).  Empty `padding` is 0 on every side, empty `stride` and `dilations`
    are 1 on every axis.  Errors: ShapeError if a window does not fit.
    Source: ONNX MaxPool-12.
    """

    padding: tuple[int, ...] = ()
    padding_mode: Literal["default", "same_lower", "same_upper"] = "default"
    stride: tuple[int, ...] = ()
    lengths: tuple[int, ...]
    dilations: tuple[int, ...] = ()
    ceil_mode: bool = False
    storage_order: Literal[0, 1] = 0

    def infer(self, x: Shape) -> TupleShape:
        out = x.with_dims((*x.dims[:2], *self.counts(image(x, "iuf"))))
        return TupleShape([out, out.with_dtype(int64)])

    def compute(self, x: Array) -> tuple[Array, Array]:
        return self.fitted(x.shape[2:]).found(x)

    def found(self, x: Array) -> tuple[Array, Array]:
        dims = x.shape[2:]
        rank = len(dims)
        lengths, stride, dilation = self.numbers(rank)
        counts = [int(c) for c in self.counts(dims)]
        begins, ends, over = self.around(dims, counts)
        filled = [e + o for e, o in zip(ends, over, strict=True)]
        wide = widen(x)
        if not wide.size or not math.prod(counts):
            return np.zeros((*x.shape[:2], *counts), x.dtype), np.zeros((*x.shape[:2], *counts), np.int64)
        steps = [math.prod(dims[a + 1 :]) if self.storage_order == 0 else math.prod(dims[:a]) for a in range(rank)]
        places = np.zeros(dims, np.int64)
        for axis, (n, step) in enumerate(zip(dims, steps, strict=True)):
            places += (np.arange(n) * step).reshape((-1,) + (1,) * (rank - 1 - axis))
        values = windows(padded(wide, begins, filled, lowest(wide.dtype)), lengths, stride, dilation, counts)
        values = values.reshape(*x.shape[:2], math.prod(lengths), *counts)
        inside = windows(padded(places, begins, filled, -1), lengths, stride, dilation, counts)
        inside = inside.reshape(math.prod(lengths), *counts)
        hits = (values == values.max(axis=2, keepdims=True)) | (values != values)
        best = np.argmax(hits & (inside >= 0), axis=2)  # padding is none, though it equals elements of minus infinity
        maxima = np.take_along_axis(values, best[:, :, None], axis=2)[:, :, 0]
        found = np.take_along_axis(inside[None, None], best[:, :, None], axis=2)[:, :, 0]
        images = np.arange(math.prod(x.shape[:2])).reshape(*x.shape[:2], *(1,) * rank) * math.prod(dims)
        return convert(maxima, of(x.dtype)), found + images


@op("max_unpool", exact=True)
class MaxUnpool(Operation):
    """Scatters values to the positions where max pooling found them; zeros elsewhere.

    x [n, c, *s], indices int64 [n, c, *s] into the flat result without `output_shape` -> [n, c, *o], o = stride (s - 1)
    + lengths - padding, or `output_shape` (attribute, or int64 vector known at run time), which appends zeros.
    Empty `padding` is 0 on every side, empty `stride` is 1 on every axis; empty `output_shape` is the extents above.
    Errors: ShapeError for an index outside the result or an output_shape that is smaller.  Source: ONNX MaxUnpool-22.
    """

    lengths: tuple[int, ...]
    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    output_shape: tuple[Dim, ...] = ()

    def infer(self, x: Shape, indices: Shape, output_shape: Shape | None = None) -> Shape:
        dims = image(x, "iuf")
        if indices.dtype is not int64 or indices.rank != x.rank:
            raise ShapeError(f"indices must be int64 of x's dims, got {indices} for {x}")
        if output_shape is not None:
            return x.with_dims([*x.dims[:2], *(fresh("unpooled") for _ in dims)])
        if self.output_shape:
            if len(self.output_shape) != x.rank:
                raise ShapeError(f"output_shape needs {x.rank} extents, got {list(self.output_shape)}")
            return x.with_dims(self.output_shape)
        return x.with_dims((*x.dims[:2], *self.natural(dims)))

    def natural(self, dims: Sequence[Dim]) -> list[Dim]:
        """Returns the spatial extents of the input that pooling would have reduced to x's."""
        rank = len(dims)
        lengths, stride = per_axis(self.lengths, rank, "lengths"), per_axis(self.stride, rank, "stride")
        begins, ends = sides(self.padding, rank)
        return [(n - 1) * s + k - b - e for n, k, s, b, e in zip(dims, lengths, stride, begins, ends, strict=True)]

    def compute(self, x: Array, indices: Array, output_shape: Array | None = None) -> Array:
        dims = [*x.shape[:2], *(int(d) for d in self.natural(x.shape[2:]))]
        if x.shape != indices.shape:
            raise ShapeError(f"indices must have x's dims {list(x.shape)}, got {list(indices.shape)}")
        size = math.prod(dims)
        require_memory(dims, x.itemsize)
        if indices.size and (indices.min() < 0 or indices.max() >= size):
            raise ShapeError(f"indices must lie in [0, {size - 1}], got {indices.min()} to {indices.max()}")
        out = np.zeros(size, x.dtype)
        out[indices.reshape(-1)] = x.reshape(-1)
        out = out.reshape(dims)
        target = [int(d) for d in (self.output_shape if output_shape is None else output_shape)] or dims
        if len(target) != len(dims) or any(t < d for t, d in zip(target, dims, strict=True)):
            raise ShapeError(f"output_shape must be at least {dims}, got {target}")
        require_memory(target, x.itemsize)
        return padded(out, [0] * x.ndim, [t - d for t, d in zip(target, dims, strict=True)])
