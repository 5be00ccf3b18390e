"""Convolutions and their parts: forward, transposed, deformable, im2col and its adjoint."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, ceil_div, compare, fresh, may_equal, product
from ..types.dtype import int32, int64, of
from ..types.memory_limit import require_room
from ..types.shape import Shape
from .declaration import op
from .operation import Operation
from .scalar import convert, widen
from .window import explicit_padding, extent, padded, per_axis, sides, windows

__all__ = ["Col2im", "Convolution", "ConvolutionBackwards", "Im2col", "convolve", "convolve_backwards"]

EVERY: Final[Any] = slice(None)
CHUNK: Final = 1 << 23  # elements of unfolded windows that are held at a time


def spatial(x: Shape, w: Shape, group: int, channels: Dim, axis: int = 1) -> int:
    """The number of spatial axes of x [n, c, *s] and w, after checking that they fit.

    channels: what the weight's axis `axis` stands for on x's side, times the group if forward.
    """
    if x.rank < 3 or x.rank != w.rank:
        raise ShapeError(f"x and w need one rank of at least 3, got {x} and {w}")
    if x.dtype is not w.dtype or not (x.dtype.is_float or x.dtype.is_integer):
        raise ShapeError(f"x and w need one number type, got {x.dtype} and {w.dtype}")
    if group < 1:
        raise ShapeError(f"group must be at least 1, got {group}")
    if not may_equal(x.dims[1], channels):
        raise ShapeError(f"w {w} in {group} groups is for {channels} channels, x has {x.dims[1]}")
    for d in (x.dims[1], w.dims[0]):
        if isinstance(d, int) and d % group:
            raise ShapeError(f"{d} channels do not divide into {group} groups")
    return x.rank - 2


@op("")
class Windowed(Operation):
    """Base of the ops that multiply the windows of a tensor [n, c, *s] with kernels, per group of channels."""

    __slots__ = ()

    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1
    padding_mode: Literal["default", "same_lower", "same_upper"] = "default"

    def convolved(self, x: Shape, w: Shape) -> list[Dim]:
        """The spatial extents of the correlation of x with kernels w [m, c/group, *k]."""
        rank = spatial(x, w, self.group, w.dims[1] * self.group)
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        begins, ends = sides(self.padding, rank)
        out: list[Dim] = []
        for n, k, s, d, b, e in zip(x.dims[2:], w.dims[2:], stride, dilation, begins, ends, strict=True):
            same = self.padding_mode != "default"
            out.append(ceil_div(n, s) if same else extent(n, k, s, d, b + e))
        return out


@op("convolution", product="window", linear=(0, 1))
class Convolution(Windowed):
    """Correlation of x with the kernels w, per group of channels.

    x [n, c, *s], w [m, c/group, *k] of one dtype -> [n, m, *o].  `padding`: one number an axis, or all begins then all
    ends; `padding_mode` same_*: o = ceil(s / stride), the odd element of padding first (lower) or last (upper).
    Errors: ShapeError if ranks, channels or attributes do not fit.  Source: ONNX Conv-22.
    """

    def infer(self, x: Shape, w: Shape) -> Shape:
        return x.with_dims((x.dims[0], w.dims[0], *self.convolved(x, w)))

    def compute(self, x: Array, w: Array) -> Array:
        rank = x.ndim - 2
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        begins, ends = explicit_padding(x.shape[2:], w.shape[2:], stride, dilation, self.padding, self.padding_mode)
        out = convolve(widen(x), widen(w), stride, (*begins, *ends), dilation, self.group)
        return convert(out, of(x.dtype))


def convolve(
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    group: int = 1,
    dtype: Any = None,
) -> Array:
    """Correlation of x [n, c, *s] with w [m, c/group, *k], multiplied and summed in `dtype` (x's own if absent).

    For whole numbers, float64 is exact below 2**53 and much faster than integers.
    """
    dtype = x.dtype if dtype is None else np.dtype(dtype)
    x, w = x.astype(dtype, copy=False), w.astype(dtype, copy=False)
    rank = x.ndim - 2
    begins, ends = sides(padding, rank)
    x = padded(x, begins, ends)
    batch, channels, *dims = x.shape
    lengths = w.shape[2:]
    out = [int(extent(n, k, s, d, 0)) for n, k, s, d in zip(dims, lengths, stride, dilation, strict=True)]
    kernels, inner = w.shape[0] // group, channels // group
    places, taps = math.prod(out), math.prod(lengths)
    result = np.zeros((batch, group, kernels, places), dtype)
    if not result.size or not inner * taps:
        return result.reshape(batch, w.shape[0], *out)
    if inner == 1 and group > 1 and kernels * taps <= 256:
        view = windows(x, lengths, stride, dilation, out)
        wide = result.reshape(batch, group, kernels, *out)
        by_tap = w.reshape(group, kernels, *lengths)
        for place in itertools.product(*map(range, lengths)):
            factor = by_tap[(EVERY, EVERY, *place)].reshape(group, kernels, *(1,) * rank)
            wide += view[(EVERY, EVERY, *place)][:, :, None] * factor
        return result.reshape(batch, w.shape[0], *out)
    matrix = np.ascontiguousarray(w.reshape(group, kernels, inner * taps))
    if taps == 1:
        kept: list[Any] = [slice(0, (c - 1) * s + 1, s) for c, s in zip(out, stride, strict=True)]
        x = x[(..., *kept)]
        np.matmul(matrix, x.reshape(batch, group, inner, places), out=result)
        return result.reshape(batch, w.shape[0], *out)
    step = max(1, CHUNK // max(1, channels * taps * places))
    for first in range(0, batch, step):
        part = x[first : first + step]
        columns = windows(part, lengths, stride, dilation, out).reshape(len(part), group, inner * taps, places)
        np.matmul(matrix, columns, out=result[first : first + step])
    return result.reshape(batch, w.shape[0], *out)


@op("convolution_backwards", product="window", linear=(0, 1))
class ConvolutionBackwards(Windowed):
    """Transposed convolution: the adjoint of `convolution` for the same kernels.

    x [n, c, *s], w [c, m/group, *k] of one dtype -> [n, m, *o], o = stride (s - 1) + dilation (k - 1) + 1 - padding +
    output_padding; with `padding_mode` same_* the padding is such that o = s stride.
    Errors: ShapeError if ranks, channels or attributes do not fit.  Source: ONNX ConvTranspose-22.
    """

    output_padding: tuple[int, ...] = ()

    def infer(self, x: Shape, w: Shape) -> Shape:
        rank = spatial(x, w, self.group, w.dims[0])
        stride, dilation, begins, ends, extra = self.plan(rank, w.dims[2:])
        out: list[Dim] = []
        for n, k, s, d, b, e, p in zip(x.dims[2:], w.dims[2:], stride, dilation, begins, ends, extra, strict=True):
            size = n * s if self.padding_mode != "default" else (n - 1) * s + (k - 1) * d + 1 - b - e + p
            if compare(size, "<", 0):
                raise ShapeError(f"padding {b} and {e} leave nothing of the output: extent {size}")
            out.append(size)
        return x.with_dims((x.dims[0], w.dims[1] * self.group, *out))

    def plan(self, rank: int, lengths: Sequence[Dim]) -> tuple[tuple[int, ...], ...]:
        """Stride, dilation, padding before and after, output padding, one number for each axis."""
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        extra = per_axis(self.output_padding, rank, "output_padding", 0)
        if self.padding_mode == "default":
            return stride, dilation, *sides(self.padding, rank), extra
        total = [int((k - 1) * d + 1 + p - s) for k, d, p, s in zip(lengths, dilation, extra, stride, strict=True)]
        extra = tuple(p + max(-t, 0) for p, t in zip(extra, total, strict=True))
        small = tuple(max(t, 0) // 2 for t in total)
        large = tuple(max(t, 0) - h for t, h in zip(total, small, strict=True))
        return stride, dilation, *((large, small) if self.padding_mode == "same_lower" else (small, large)), extra

    def compute(self, x: Array, w: Array) -> Array:
        stride, dilation, begins, ends, extra = self.plan(x.ndim - 2, w.shape[2:])
        out = convolve_backwards(widen(x), widen(w), stride, (*begins, *ends), dilation, self.group, extra)
        return convert(out, of(x.dtype))


def convolve_backwards(
    x: Array,
    w: Array,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    group: int = 1,
    extra: Sequence[int] = (),
) -> Array:
    """Transposed convolution of x [n, c, *s] with w [c, m/group, *k]; `extra` more elements at each end."""
    batch, channels, *dims = x.shape
    inner, kernels, lengths = channels // group, w.shape[1], w.shape[2:]
    matrix = np.swapaxes(w.reshape(group, inner, kernels * math.prod(lengths)), 1, 2)
    columns = np.matmul(matrix, x.reshape(batch, group, inner, math.prod(dims)))
    folded = fold(columns.reshape(batch, group * kernels, *lengths, *dims), stride, dilation)
    begins, ends = sides(padding, len(dims))
    extra = extra or (0,) * len(dims)
    return padded(folded, [-b for b in begins], [p - e for p, e in zip(extra, ends, strict=True)])


def fold(columns: Array, stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """Sum of all windows at their places: [n, c, *k, *o] -> [n, c, *s] without padding."""
    rank = len(stride)
    lengths, counts = columns.shape[2 : 2 + rank], columns.shape[2 + rank :]
    dims = [max(0, (c - 1) * s + (k - 1) * d + 1) for c, k, s, d in zip(counts, lengths, stride, dilation, strict=True)]
    out = np.zeros((*columns.shape[:2], *dims), columns.dtype)
    if not columns.size:
        return out
    for place in itertools.product(*map(range, lengths)):
        steps = zip(place, dilation, counts, stride, strict=True)
        where: list[Any] = [slice(j * d, j * d + (c - 1) * s + 1, s) for j, d, c, s in steps]
        out[(EVERY, EVERY, *where)] += columns[(EVERY, EVERY, *place)]
    return out


@op("im2col", exact=True)
class Im2col(Operation):
    """All windows of an image as columns.

    x [n, c, *s] -> [n, c prod(lengths), windows]; windows in row-major order of their places.
    Errors: ShapeError if a window does not fit.
    """

    lengths: tuple[int, ...]
    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    def infer(self, x: Shape) -> Shape:
        rank = x.rank - 2
        if rank < 1:
            raise ShapeError(f"x needs a batch, channels and spatial axes, got {x}")
        lengths = per_axis(self.lengths, rank, "lengths")
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        begins, ends = sides(self.padding, rank)
        out = [
            extent(n, k, s, d, b + e)
            for n, k, s, d, b, e in zip(x.dims[2:], lengths, stride, dilation, begins, ends, strict=True)
        ]
        return x.with_dims((x.dims[0], x.dims[1] * math.prod(lengths), product(out)))

    def compute(self, x: Array) -> Array:
        rank = x.ndim - 2
        lengths = per_axis(self.lengths, rank, "lengths")
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        x = padded(x, *sides(self.padding, rank))
        out = [int(extent(n, k, s, d, 0)) for n, k, s, d in zip(x.shape[2:], lengths, stride, dilation, strict=True)]
        view = windows(x, lengths, stride, dilation, out)
        return view.reshape(x.shape[0], x.shape[1] * math.prod(lengths), math.prod(out))


@op("col2im", linear=(0,))
class Col2im(Operation):
    """Columns of windows summed back into an image: the adjoint of `im2col`.

    x [n, c prod(block_shape), windows] -> [n, c, *image_shape].  image_shape and block_shape: attributes, or int64
    vectors known at run time.  Errors: ShapeError if the windows do not cover the image as stated.  Source: ONNX Col2Im-18.
    """

    image_shape: tuple[Dim, ...] = ()
    block_shape: tuple[int, ...] = ()
    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    def infer(self, x: Shape, image_shape: Shape | None = None, block_shape: Shape | None = None) -> Shape:
        for s in (image_shape, block_shape):
            if s is not None and (s.dtype not in (int32, int64) or s.rank != 1):
                raise ShapeError(f"image_shape and block_shape must be integer vectors, got {s}")
        if x.rank != 3:
            raise ShapeError(f"x must be [n, c * block, windows], got {x}")
        image: tuple[Dim, ...] = self.image_shape
        if image_shape is not None:
            length = image_shape.dims[0]
            if not isinstance(length, int):
                return Shape.unranked(x.dtype)
            image = tuple(fresh("image") for _ in range(length))
        if not image:
            raise ShapeError("col2im needs image_shape with at least one extent")
        if block_shape is not None:
            return x.with_dims((x.dims[0], fresh("channels", 0, x.dims[1]), *image))
        rank = len(image)
        block = per_axis(self.block_shape, rank, "block_shape")
        if isinstance(x.dims[1], int) and x.dims[1] % math.prod(block):
            raise ShapeError(f"{x.dims[1]} rows do not divide into blocks of {list(block)}")
        if not may_equal(product(self.counts(image, block)), x.dims[2]):
            raise ShapeError(f"x has {x.dims[2]} windows, image {list(image)} has {product(self.counts(image, block))}")
        return x.with_dims((x.dims[0], x.dims[1] // math.prod(block), *image))

    def counts(self, image: Sequence[Dim], block: Sequence[int]) -> list[Dim]:
        """Windows along each axis."""
        rank = len(image)
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        begins, ends = sides(self.padding, rank)
        return [
            extent(n, k, s, d, b + e)
            for n, k, s, d, b, e in zip(image, block, stride, dilation, begins, ends, strict=True)
        ]

    def compute(self, x: Array, image_shape: Array | None = None, block_shape: Array | None = None) -> Array:
        image = [int(d) for d in (self.image_shape if image_shape is None else image_shape)]
        block = per_axis(
            [int(d) for d in (self.block_shape if block_shape is None else block_shape)], len(image), "block_shape"
        )
        counts = [int(c) for c in self.counts(image, block)]
        if math.prod(counts) != x.shape[2] or x.shape[1] % math.prod(block):
            raise ShapeError(f"x {list(x.shape)} does not hold {math.prod(counts)} windows of {list(block)}")
        require_room((x.shape[0], x.shape[1] // math.prod(block), *image), max(x.itemsize, 4))
        rank = len(image)
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        channels = x.shape[1] // math.prod(block)
        whole = fold(widen(x).reshape(x.shape[0], channels, *block, *counts), stride, dilation)
        begins, _ = sides(self.padding, rank)
        ends = [n + b - have for n, b, have in zip(image, begins, whole.shape[2:], strict=True)]
        return convert(padded(whole, [-b for b in begins], ends), of(x.dtype))
