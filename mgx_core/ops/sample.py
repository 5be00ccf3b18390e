"""Sampling of images at computed coordinates: grid_sample, affine_grid, deform_conv."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, fresh, may_equal, product
from ..types.dtype import float32, float64, of
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .convolution import spatial
from .declaration import op
from .operation import Operation
from .pointwise import Add, Mul
from .reshape import Reshape
from .scalar import convert, widen
from .slice import Slice
from .window import Moves

__all__ = ["AffineGrid", "DeformConv", "GridSample", "cubic_weights"]

Place = Callable[[Array, int], "tuple[Array, Array | None]"]  # indices -> (clamped indices, mask of valid ones)


def within(index: Array, extent: int) -> tuple[Array, Array | None]:
    """Treats positions outside as zero."""
    inside = (index >= 0) & (index < extent)
    return np.where(inside, index, 0), None if inside.all() else inside


def clamped(index: Array, extent: int) -> tuple[Array, Array | None]:
    """Clamps positions outside to the nearest element."""
    return np.clip(index, 0, extent - 1), None


def gather(x: Array, rows: Array, at: Sequence[tuple[Array, Array]], place: Place) -> Array:
    """Returns weighted sums of neighbors.

    x [n, *d, c] with channels last; rows: which n, broadcast against the places [*p]; at: for each axis of d, the
    indices [*p, t] of its t neighbors and their weights [*p, t].  Returns [*p, c].
    """
    total: Array | None = None
    axes = []
    for (index, weight), size in zip(at, x.shape[1:-1], strict=True):
        inner, counts = place(index, size)
        axes.append((inner, weight if counts is None else weight * counts, counts))
    for pick in itertools.product(*(range(index.shape[-1]) for index, _, _ in axes)):
        factor: Array | None = None
        inside: Array | None = None
        for (_, weight, counts), t in zip(axes, pick, strict=True):
            factor = weight[..., t] if factor is None else factor * weight[..., t]
            if counts is not None:
                inside = counts[..., t] if inside is None else inside & counts[..., t]
        if factor is None or (inside is not None and not inside.any()):
            continue
        values = x[(rows, *(index[..., t] for (index, _, _), t in zip(axes, pick, strict=True)))]
        if inside is not None:  # a NaN read in place of an outside element must not contribute
            values = np.where(inside[..., None], values, x.dtype.type(0))
        term = values * factor[..., None].astype(x.dtype)
        total = term if total is None else np.add(total, term, out=total)
    if total is None:
        total = np.zeros((*np.broadcast_shapes(rows.shape, *(i.shape[:-1] for i, _ in at)), x.shape[-1]), x.dtype)
    return total


def neighbors(at: Array, mode: str) -> tuple[Array, Array]:
    """Returns indices and weights of the elements that interpolate each position."""
    if mode == "nearest":
        return np.rint(at).astype(np.int64)[..., None], np.ones((*at.shape, 1), at.dtype)
    low = np.floor(at)
    part = (at - low)[..., None]
    first = low.astype(np.int64)[..., None]
    if mode == "linear":
        return first + np.arange(2), np.concatenate([1 - part, part], -1)
    return first + np.arange(-1, 3), cubic_weights(part - np.arange(-1, 3), -0.75)


def cubic_weights(distance: Array, a: float) -> Array:
    """Returns the weights of Keys' cubic convolution kernel.  Source: R. Keys, 1981, equation 4."""
    d = np.abs(distance)
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = ((d - 5) * d + 8) * d * a - 4 * a
    return np.where(d <= 1, near, np.where(d < 2, far, 0))


def reflected(at: Array, low: float, high: float) -> Array:
    """Reflects positions at `low` and `high` until they are in between."""
    span = high - low
    if span <= 0:
        return np.full_like(at, low)
    phase = np.mod(at - low, 2 * span)
    return low + np.where(phase > span, 2 * span - phase, phase)


@op("grid_sample")
class GridSample(Operation):
    """Interpolates x at the positions of a grid.

    x [n, c, *d] of any number type, grid float [n, *o, r] with r = len(d), coordinates -1..1, the last axis of d first
    -> [n, c, *o].  Errors: ShapeError if ranks or extents do not fit.  Source: ONNX GridSample-22.
    """

    mode: Literal["linear", "nearest", "cubic"] = "linear"
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros"
    align_corners: bool = False

    def infer(self, x: Shape, grid: Shape) -> Shape:
        if x.rank < 3 or grid.rank != x.rank:
            raise ShapeError(f"x and grid need one rank of at least 3, got {x} and {grid}")
        if not may_equal(grid.dims[-1], x.rank - 2):
            raise ShapeError(f"the last extent of grid must be {x.rank - 2}, got {grid}")
        if not grid.dtype.is_float or not (x.dtype.is_number or x.dtype.kind == "b"):
            raise ShapeError(f"x must be numbers and grid floats, got {x.dtype} and {grid.dtype}")
        if not may_equal(x.dims[0], grid.dims[0]):
            raise ShapeError(f"x and grid need one batch extent, got {x.dims[0]} and {grid.dims[0]}")
        return x.with_dims((*x.dims[:2], *grid.dims[1:-1]))

    def compute(self, x: Array, grid: Array) -> Array:
        if len(x) != len(grid):
            raise ShapeError(f"x and grid need one batch extent, got {len(x)} and {len(grid)}")
        wide = widen(x)
        if wide.dtype.kind not in "fc":
            wide = wide.astype(np.float64)
        places = widen(grid)[..., ::-1]
        rank = x.ndim - 2
        if 0 in x.shape:
            if grid.size and 0 in x.shape[2:]:
                raise ShapeError(f"x {list(x.shape)} has no elements to sample")
            return np.zeros((*x.shape[:2], *grid.shape[1:-1]), x.dtype)
        at = [self.source(places[..., a], x.shape[2 + a]) for a in range(rank)]
        rows = np.arange(x.shape[0]).reshape(-1, *(1,) * (grid.ndim - 2))
        last = np.moveaxis(wide, 1, -1)
        out = gather(last, rows, [neighbors(p, self.mode) for p in at], self.place)
        moved = np.moveaxis(out, -1, 1)
        return convert(np.rint(moved) if of(x.dtype).is_integer and self.mode == "nearest" else moved, of(x.dtype))

    def source(self, at: Array, size: int) -> Array:
        """Converts coordinates -1..1 to positions on an axis of `size` elements."""
        low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
        at = (at + 1) / 2 * (size - 1) if self.align_corners else ((at + 1) * size - 1) / 2
        at = np.where(np.isfinite(at), np.clip(at, -(2.0**30), 2.0**30), at.dtype.type(-2))
        if self.mode == "nearest":
            at = np.rint(at)
        if self.padding_mode == "zeros" or self.mode == "cubic":
            return at
        outside = (at < low) | (at > high)
        if self.padding_mode == "border":
            return np.where(outside, np.clip(at, 0, size - 1), at)
        return np.where(outside, reflected(at, low, high), at)

    def place(self, index: Array, size: int) -> tuple[Array, Array | None]:
        if self.padding_mode == "zeros":
            return within(index, size)
        if self.padding_mode == "border":
            return clamped(index, size)
        low, high = (0.0, size - 1.0) if self.align_corners else (-0.5, size - 0.5)
        return clamped(np.rint(reflected(index.astype(np.float64), low, high)).astype(np.int64), size)


@op("affine_grid")
class AffineGrid(Operation):
    """The grid of coordinates of an image under affine maps, for `grid_sample`.

    theta: float [n, r, r + 1]; the image's dims [n, c, *d] from attribute `size` or an int64 vector known at run time
    -> [n, *d, r], coordinates -1..1, the last axis of d first.  Errors: ShapeError if they do not fit.
    Source: ONNX AffineGrid-20.
    """

    size: tuple[Dim, ...] = ()
    align_corners: bool = False

    def infer(self, theta: Shape, size: Shape | None = None) -> Shape:
        if theta.rank != 3 or not theta.dtype.is_float or not may_equal(theta.dims[1] + 1, theta.dims[2]):
            raise ShapeError(f"theta must be float [n, r, r + 1], got {theta}")
        rank = theta.dims[1]
        if not isinstance(rank, int):
            return Shape.unranked(theta.dtype)
        if size is not None:
            if size.rank != 1 or not may_equal(size.dims[0], rank + 2):
                raise ShapeError(f"size must be a vector of {rank + 2} extents, got {size}")
            return theta.with_dims((theta.dims[0], *(fresh("grid") for _ in range(rank)), rank))
        if len(self.size) != rank + 2 or not may_equal(self.size[0], theta.dims[0]):
            raise ShapeError(f"size must be [{theta.dims[0]}, c] and {rank} more extents, got {list(self.size)}")
        return theta.with_dims((theta.dims[0], *self.size[2:], rank))

    def compute(self, theta: Array, size: Array | None = None) -> Array:
        dims = [int(d) for d in (self.size if size is None else size)]
        rank = theta.shape[1]
        if len(dims) != rank + 2 or dims[0] != theta.shape[0] or min(dims) < 0:
            raise ShapeError(f"size must be [{theta.shape[0]}, c] and {rank} more extents, got {dims}")
        require_memory((max(dims[0], 1), *dims[2:], rank + 1), 8)
        axes = [self._coordinates(n) for n in dims[2:]]
        mesh = [*reversed(np.meshgrid(*axes, indexing="ij")), np.ones(dims[2:])]
        points = np.stack(mesh, -1).reshape(-1, rank + 1)
        out = np.matmul(points, np.swapaxes(widen(theta).astype(np.float64), 1, 2))
        return convert(out.reshape(dims[0], *dims[2:], rank), of(theta.dtype))

    def _coordinates(self, n: int) -> Array:
        """Returns the coordinates along an axis of the image, in float64."""
        steps = np.arange(n, dtype=np.float64)
        if self.align_corners:
            return steps * 2 / (n - 1) - 1 if n > 1 else np.zeros(n)
        return (steps * 2 + 1) / max(n, 1) - 1

    def decompose(self, b: Builder, theta: Operand, size: Operand | None = None) -> Operand | None:
        """Decomposes into products of theta's columns with each axis' coordinates, summed with the last column."""
        n, rank, _ = theta.shape.dims
        extents = [d for d in self.size[2:] if isinstance(d, int)]
        if size is not None or not isinstance(rank, int) or len(extents) != rank:
            return None
        dims = (n, *extents, rank)
        dtype = theta.shape.dtype
        working = float64 if dtype is float64 else float32
        wide = theta if dtype is working else b.add(Convert(target_type=working), theta)

        def column(at: int) -> Operand:
            one = b.add(Slice(axes=(2,), starts=(at,), ends=(at + 1,)), wide)
            apart = b.add(Reshape(dims=(n, *(1 for _ in extents), rank)), one)
            return b.add(Multibroadcast(out_lens=dims), apart)

        total = column(rank)
        for axis, length in enumerate(extents):
            lens = [length if a == axis else 1 for a in range(rank)]
            line = b.literal(self._coordinates(length).astype(working.numpy).reshape(1, *lens, 1))
            total = b.add(
                Add(), total, b.add(Mul(), column(rank - 1 - axis), b.add(Multibroadcast(out_lens=dims), line))
            )
        return total if dtype is working else b.add(Convert(target_type=dtype), total)


@op("deform_conv", linear=(0, 1, 3, 4))
class DeformConv(Operation):
    """Convolution with a sampling offset for each tap, optionally weighted by a mask.

    x [n, c, *s], w [m, c/group, *k], offset [n, offset_group prod(k) r, *o] with r = len(s), bias [m], mask
    [n, offset_group prod(k), *o] -> [n, m, *o]; linear interpolation, zeros outside.
    Empty `padding` is 0 on every side, empty `stride` and `dilation` are 1 on every axis.
    Errors: ShapeError if ranks, channels or extents do not fit.  Source: ONNX DeformConv-22.
    """

    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1
    offset_group: int = 1

    def infer(self, x: Shape, w: Shape, offset: Shape, bias: Shape | None = None, mask: Shape | None = None) -> Shape:
        rank = spatial(x, w, self.group, w.dims[1] * self.group)
        out = Moves.of(self.stride, self.dilation, self.padding, rank).counts(x.dims[2:], w.dims[2:])
        if isinstance(x.dims[1], int) and (self.offset_group < 1 or x.dims[1] % self.offset_group):
            raise ShapeError(f"{x.dims[1]} channels do not divide into {self.offset_group} offset groups")
        points = product(w.dims[2:]) * self.offset_group
        for name, given, channels in (("offset", offset, points * rank), ("mask", mask, points)):
            if given is None:
                continue
            wanted = (x.dims[0], channels, *out)
            if given.rank != len(wanted) or not all(map(may_equal, given.dims, wanted)):
                raise ShapeError(f"{name} must have dims {list(wanted)}, got {given}")
        if bias is not None and (bias.rank != 1 or not may_equal(bias.dims[0], w.dims[0])):
            raise ShapeError(f"bias must have dims [{w.dims[0]}], got {bias}")
        return x.with_dims((x.dims[0], w.dims[0], *out))

    def compute(self, x: Array, w: Array, offset: Array, bias: Array | None = None, mask: Array | None = None) -> Array:
        rank, og = x.ndim - 2, self.offset_group
        stride, dilation, begins, _ = Moves.of(self.stride, self.dilation, self.padding, rank)
        batch, channels, lengths, out = x.shape[0], x.shape[1], w.shape[2:], offset.shape[2:]
        inner = channels // og
        moves = widen(offset).reshape(batch, og, *lengths, rank, *out)
        at = []
        for a, (k, s, d, b, o) in enumerate(zip(lengths, stride, dilation, begins, out, strict=True)):
            taps = np.arange(k).reshape(-1, *(1,) * (rank - 1 - a), *(1,) * rank) * d
            starts = np.arange(o).reshape(-1, *(1,) * (rank - 1 - a)) * s - b
            at.append(np.take(moves, a, axis=2 + rank) + (taps + starts).astype(moves.dtype))
        image = np.moveaxis(widen(x).reshape(batch * og, inner, *x.shape[2:]), 1, -1)
        rows = np.arange(batch * og).reshape(batch, og, *(1,) * (2 * rank))
        columns = gather(image, rows, [neighbors(np.clip(p, -2.0, 2.0**30), "linear") for p in at], within)
        if mask is not None:
            columns = columns * widen(mask).reshape(batch, og, *lengths, *out, 1)
        points, places = math.prod(lengths), math.prod(out)
        columns = np.moveaxis(columns, -1, 2).reshape(batch, self.group, channels // self.group * points, places)
        matrix = widen(w).reshape(self.group, w.shape[0] // self.group, -1)
        result = np.matmul(matrix, columns).reshape(batch, w.shape[0], *out)
        if bias is not None:
            result = result + widen(bias).reshape(-1, *(1,) * rank)
        return convert(result, of(x.dtype))
