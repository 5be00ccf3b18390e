"""im2col and its adjoint, col2im."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from ..errors import ShapeError
from ..named_tuples import NamedTuple
from ..types.argument import Array
from ..types.dim import Dim, fresh, may_equal, product
from ..types.dtype import int32, int64, of
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from .builder import Builder, Operand
from .concat import Concat
from .declaration import op
from .index import Gather
from .movement import Transpose
from .operation import Operation
from .pad import Pad
from .reshape import Reshape, Unsqueeze
from .scalar import convert, widen
from .slice import Slice
from .window import Moves, padded, per_axis, windows

__all__ = ["Col2im", "Im2col", "fold"]

EVERY: Final[Any] = slice(None)
SLICES: Final = 64  # the largest window that is decomposed into slices


def fold(columns: Array, stride: Sequence[int], dilation: Sequence[int]) -> Array:
    """Adds all windows [n, c, *k, *o] at their positions: [n, c, *s] without padding."""
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
    """Unfolds all windows of an image into columns.

    x [n, c, *s] -> [n, c prod(lengths), windows]; windows in row-major order of their positions.
    Empty `padding` is 0 on every side, empty `stride` and `dilation` are 1 on every axis.
    Errors: ShapeError if a window does not fit.
    """

    lengths: tuple[int, ...]
    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()

    def infer(self, x: Shape) -> Shape:
        if x.rank < 3:
            raise ShapeError(f"x needs a batch, channels and spatial axes, got {x}")
        lengths, _, counts = self.geometry(x.dims[2:])
        return x.with_dims((x.dims[0], x.dims[1] * math.prod(lengths), product(counts)))

    def geometry(self, dims: Sequence[Dim]) -> tuple[tuple[int, ...], Moves, list[Dim]]:
        """Returns the windows' lengths, strides and padding, and count along each axis."""
        lengths = per_axis(self.lengths, len(dims), "lengths")
        moves = Moves.of(self.stride, self.dilation, self.padding, len(dims))
        return lengths, moves, moves.counts(dims, lengths)

    def compute(self, x: Array) -> Array:
        lengths, moves, counts = self.geometry(x.shape[2:])
        out = [int(c) for c in counts]
        view = windows(padded(x, moves.begins, moves.ends), lengths, moves.stride, moves.dilation, out)
        return view.reshape(x.shape[0], x.shape[1] * math.prod(lengths), math.prod(out))

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        """Concatenates one slice per tap of the window; uses views for adjacent windows, and gathers for large ones."""
        if any(not isinstance(d, int) for d in x.shape.dims[1:]):
            return None
        channels = int(x.shape.dims[1])
        lengths, (stride, dilation, begins, ends), counts = self.geometry(x.shape.dims[2:])
        out = [int(c) for c in counts]
        if 0 in (channels, *out):
            return None
        if any((*begins, *ends)):
            x = b.add(Pad(pads=(0, 0, *begins, 0, 0, *ends)), x)
        axes = [_Windows(*each) for each in zip(lengths, stride, dilation, out, strict=True)]
        if lengths == stride and set(dilation) == {1}:
            made = _side_by_side(b, x, axes)
        elif math.prod(lengths) <= SLICES:
            made = _sliced(b, x, axes)
        else:
            made = _gathered(b, x, axes)
        return b.add(Reshape(dims=(0, channels * math.prod(lengths), math.prod(out))), made)


class _Windows(NamedTuple):
    """Windows along one axis: length, stride, dilation and count."""

    length: int
    stride: int
    dilation: int
    number: int


def _side_by_side(b: Builder, x: Operand, axes: Sequence[_Windows]) -> Operand:
    """Returns windows [n, c, *k, *o] that are adjacent, without gaps."""
    rank, ends = len(axes), tuple(a.number * a.length for a in axes)
    if ends != x.shape.dims[2:]:
        x = b.add(Slice(axes=tuple(range(2, rank + 2)), starts=(0,) * rank, ends=ends), x)
    x = b.add(Reshape(dims=(0, 0, *(n for a in axes for n in (a.number, a.length)))), x)
    return b.add(Transpose(permutation=_apart(rank, first=1)), x)


def _sliced(b: Builder, x: Operand, axes: Sequence[_Windows]) -> Operand:
    """Returns windows [n, c, prod(k), *o] as one slice per tap."""
    rank, parts = len(axes), []
    for place in itertools.product(*(range(a.length) for a in axes)):
        starts = tuple(j * a.dilation for j, a in zip(place, axes, strict=True))
        ends = tuple(start + (a.number - 1) * a.stride + 1 for start, a in zip(starts, axes, strict=True))
        where = Slice(axes=tuple(range(2, rank + 2)), starts=starts, ends=ends, steps=tuple(a.stride for a in axes))
        parts.append(b.add(Unsqueeze(axes=(2,)), b.add(where, x)))
    return parts[0] if len(parts) == 1 else b.add(Concat(axis=2), *parts)


def _gathered(b: Builder, x: Operand, axes: Sequence[_Windows]) -> Operand:
    """Returns windows [n, c, *k, *o], gathered along one axis after the other."""
    for n, a in reversed(list(enumerate(axes))):
        at = np.arange(a.length)[:, None] * a.dilation + np.arange(a.number) * a.stride
        x = b.add(Gather(axis=n + 2), x, b.literal(at))
    return b.add(Transpose(permutation=_apart(len(axes), first=0)), x)


def _apart(rank: int, first: int) -> tuple[int, ...]:
    """Returns the permutation that moves all tap axes before all window axes; first: the tap axis within each pair."""
    pairs = range(2, 2 + 2 * rank, 2)
    return (0, 1, *(p + first for p in pairs), *(p + 1 - first for p in pairs))


@op("col2im", linear=(0,))
class Col2im(Operation):
    """Sums columns of windows back into an image: the adjoint of `im2col`.

    x [n, c prod(block_shape), windows] -> [n, c, *image_shape].  image_shape and block_shape: attributes, or int64
    vectors known at run time.  Empty `padding` is 0 on every side, empty `stride` and `dilation` are 1 on every axis.
    Errors: ShapeError if the windows do not cover the image as stated.  Source: ONNX Col2Im-18.
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
        """Returns the number of windows along each axis."""
        return self.sliding(len(image)).counts(image, block)

    def sliding(self, rank: int) -> Moves:
        """Returns strides, dilations and padding of the windows."""
        return Moves.of(self.stride, self.dilation, self.padding, rank)

    def compute(self, x: Array, image_shape: Array | None = None, block_shape: Array | None = None) -> Array:
        image = [int(d) for d in (self.image_shape if image_shape is None else image_shape)]
        block = per_axis(
            [int(d) for d in (self.block_shape if block_shape is None else block_shape)], len(image), "block_shape"
        )
        counts = [int(c) for c in self.counts(image, block)]
        if math.prod(counts) != x.shape[2] or x.shape[1] % math.prod(block):
            raise ShapeError(f"x {list(x.shape)} does not hold {math.prod(counts)} windows of {list(block)}")
        require_memory((x.shape[0], x.shape[1] // math.prod(block), *image), max(x.itemsize, 4))
        moves = self.sliding(len(image))
        channels = x.shape[1] // math.prod(block)
        columns = widen(x).reshape(x.shape[0], channels, *block, *counts)
        whole = fold(columns, moves.stride, moves.dilation)
        ends = [n + b - have for n, b, have in zip(image, moves.begins, whole.shape[2:], strict=True)]
        return convert(padded(whole, [-b for b in moves.begins], ends), of(x.dtype))
