"""Convolutions and their parts: forward, transposed, deformable, im2col and its adjoint."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final, Literal

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, ceil_div, compare, may_equal
from ..types.dtype import DType, of
from ..types.shape import Shape
from .builder import Builder, Operand
from .columns import EVERY, fold
from .concat import Concat
from .declaration import op
from .movement import Transpose
from .operation import Operation
from .scalar import convert, widen
from .slice import Slice
from .window import Moves, explicit_padding, extent, padded, per_axis, sides, windows

__all__ = ["Convolution", "ConvolutionBackwards", "ConvolutionWeights", "convolve", "convolve_backwards"]

CHUNK: Final = 1 << 23  # the most elements of unfolded windows in memory at a time


def spatial(x: Shape, w: Shape, group: int, channels: Dim) -> int:
    """Returns the number of spatial axes of x [n, c, *s] and w, after checking that they fit.

    channels: the channels of x that the weights imply.
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
        """Returns the spatial extents of the correlation of x with kernels w [m, c/group, *k]."""
        rank = spatial(x, w, self.group, w.dims[1] * self.group)
        moves = Moves.of(self.stride, self.dilation, self.padding, rank)
        if self.padding_mode == "default":
            return moves.counts(x.dims[2:], w.dims[2:])
        return [ceil_div(n, s) for n, s in zip(x.dims[2:], moves.stride, strict=True)]

    def empty_result(self, x: Array, w: Array, to: DType) -> Array:
        """Returns the correlation of an image without elements, of type `to`: zeros at every position of a window."""
        lens = self.convolved(*(Shape.of(of(v.dtype), v.shape) for v in (x, w)))
        return np.zeros([len(x), len(w), *map(int, lens)], to.numpy)

    def sliding(self, dims: Sequence[int], window: Sequence[int]) -> Moves:
        """Returns strides, dilations and padding for static extents."""
        stride, dilation = (
            per_axis(v, len(dims), n) for n, v in (("stride", self.stride), ("dilation", self.dilation))
        )
        return Moves(
            stride, dilation, *explicit_padding(dims, window, stride, dilation, self.padding, self.padding_mode)
        )


@op("convolution", product="window", linear=(0, 1))
class Convolution(Windowed):
    """Correlation of x with the kernels w, per group of channels.

    x [n, c, *s], w [m, c/group, *k] of one dtype -> [n, m, *o].  `padding`: one number per axis, or all begins then all
    ends; `padding_mode` same_*: o = ceil(s / stride), the odd element of padding first (lower) or last (upper).
    Empty `padding` is 0 on every side, empty `stride` and `dilation` are 1 on every axis.
    Errors: ShapeError if ranks, channels or attributes do not fit.  Source: ONNX Conv-22.
    """

    def infer(self, x: Shape, w: Shape) -> Shape:
        return x.with_dims((x.dims[0], w.dims[0], *self.convolved(x, w)))

    def compute(self, x: Array, w: Array) -> Array:
        if not x.size:
            return self.empty_result(x, w, of(x.dtype))
        stride, dilation, begins, ends = self.sliding(x.shape[2:], w.shape[2:])
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

    For integers, float64 is exact below 2**53 and much faster.
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
    output_padding; with `padding_mode` same_* the padding is such that o = s stride.  Empty `padding` and `output_padding`
    are 0 on every side and axis, empty `stride` and `dilation` are 1.
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
        """Returns stride, dilation, padding before and after, output padding, one number for each axis."""
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
    """Returns the transposed convolution of x [n, c, *s] with w [c, m/group, *k]; `extra` more elements at each end."""
    batch, channels, *dims = x.shape
    inner, kernels, lengths = channels // group, w.shape[1], w.shape[2:]
    matrix = np.swapaxes(w.reshape(group, inner, kernels * math.prod(lengths)), 1, 2)
    columns = np.matmul(matrix, x.reshape(batch, group, inner, math.prod(dims)))
    folded = fold(columns.reshape(batch, group * kernels, *lengths, *dims), stride, dilation)
    begins, ends = sides(padding, len(dims))
    extra = extra or (0,) * len(dims)
    return padded(folded, [-b for b in begins], [p - e for p, e in zip(extra, ends, strict=True)])


@op("convolution_weights", linear=(0, 1))
class ConvolutionWeights(Operation):
    """Gradient of a convolution's kernels: for each tap, the sum over all windows of the element under it times their gradient.

    x [n, c, *s], gradient [n, m, *o] of one dtype -> [m, c/group, *lengths].  `padding`, `stride`, `dilation`: as of
    `convolution`, whose windows over x must be as many as the gradient's elements.  Empty `padding` is 0 on every side, empty
    `stride` and `dilation` are 1 on every axis.
    Errors: ShapeError if ranks, channels, windows or attributes do not fit.  Source: PyTorch convolution_backward.
    """

    lengths: tuple[int, ...]
    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1

    def infer(self, x: Shape, gradient: Shape) -> Shape:
        channels = x.dims[1] // self.group if x.rank > 1 and self.group > 0 else 0
        dims = (gradient.dims[1] if gradient.rank > 1 else 0, channels, *self.lengths)
        rank = spatial(x, x.with_dims(dims), self.group, channels * self.group)
        counts = self.sliding(rank).counts(x.dims[2:], self.lengths)
        if gradient.dtype is not x.dtype or gradient.rank != x.rank:
            raise ShapeError(f"x and gradient need one type and rank, got {x} and {gradient}")
        for given, count in zip(gradient.dims, (x.dims[0], dims[0], *counts), strict=True):
            if not may_equal(given, count):
                raise ShapeError(f"{counts} windows of {x.dims[0]} images need as many gradients, got {gradient}")
        return x.with_dims(dims)

    def sliding(self, rank: int) -> Moves:
        """Returns the windows' strides, dilations and padding."""
        return Moves.of(self.stride, self.dilation, self.padding, rank)

    def compute(self, x: Array, gradient: Array) -> Array:
        group, moves, lens = self.group, self.sliding(x.ndim - 2), gradient.shape[2:]
        wide = windows(padded(widen(x), moves.begins, moves.ends), self.lengths, moves.stride, moves.dilation, lens)
        batch, m, channels = len(x), gradient.shape[1] // group, x.shape[1] // group
        grads = widen(gradient).reshape(batch, group, m, math.prod(lens))
        out = np.zeros((group, m, channels, *self.lengths), grads.dtype)
        for place in itertools.product(*map(range, self.lengths)):
            tap = wide[(EVERY, EVERY, *place)].reshape(batch, group, channels, math.prod(lens))
            out[(EVERY, EVERY, EVERY, *place)] = np.matmul(grads, np.swapaxes(tap, 2, 3)).sum(0)
        return convert(out.reshape(group * m, channels, *self.lengths), of(x.dtype))

    def decompose(self, b: Builder, x: Operand, gradient: Operand) -> Operand:
        """Returns convolutions of x with the gradient as kernels, one for each group: images are channels, strides dilations."""
        axes = range(2, x.shape.rank)
        swapped = Transpose(permutation=(1, 0, *axes))
        stride, dilation, begins, ends = self.sliding(len(axes))
        op = Convolution(stride=dilation, dilation=stride, padding=(*begins, *ends))
        parts = []
        for n in range(self.group):
            image, kernels = (b.add(swapped, self._of_group(b, v, n)) for v in (x, gradient))
            made = b.add(swapped, b.add(op, image, kernels))
            if made.shape.dims[2:] != self.lengths:  # windows that strides left out
                made = b.add(Slice(axes=tuple(axes), starts=(0,) * len(axes), ends=self.lengths), made)
            parts.append(made)
        return parts[0] if len(parts) == 1 else b.add(Concat(axis=0), *parts)

    def _of_group(self, b: Builder, x: Operand, index: int) -> Operand:
        if self.group == 1:
            return x
        width = int(x.shape.dims[1]) // self.group
        return b.add(Slice(axes=(1,), starts=(index * width,), ends=((index + 1) * width,)), x)
