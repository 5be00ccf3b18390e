"""Broadcasts along new or unit axes, as views with stride 0 where possible, and tiling."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, broadcast, fresh, may_equal
from ..types.memory_limit import require_memory
from ..types.shape import Shape
from ..types.tensor_shape import MAX_BYTES
from ..types.traced_int import int_or_traced
from .axes import normalize
from .builder import Builder, Operand
from .declaration import op
from .extents import merge, unknown, vector_length, whole
from .operation import Operation
from .reshape import Reshape

__all__ = ["Broadcast", "BroadcastForDot", "BroadcastWithDims", "Multibroadcast", "Scalar", "Tile", "common_dims"]


def common_dims(*shapes: Sequence[Dim]) -> tuple[Dim, ...]:
    """Broadcasts several lists of extents to one, as numpy does.  Errors: ShapeError if they do not."""
    rank = max((len(s) for s in shapes), default=0)
    out: list[Dim] = [1] * rank
    for dims in shapes:
        for i, d in enumerate(dims, rank - len(dims)):
            out[i] = broadcast(out[i], d)
    return tuple(out)


def _fits(dims: Sequence[Dim], out: Sequence[Dim]) -> None:
    """Errors: ShapeError unless `dims` may be broadcast to `out`."""
    if len(dims) > len(out):
        raise ShapeError(f"{list(dims)} has more axes than {list(out)}")
    for d, o in zip(dims, out[len(out) - len(dims) :], strict=True):
        if not may_equal(d, 1) and not may_equal(d, o):
            raise ShapeError(f"{list(dims)} cannot be broadcast to {list(out)}")


def _repeat(x: Array, dims: Sequence[Dim]) -> Array:
    if math.prod(int(d) for d in dims) * x.itemsize > MAX_BYTES:
        raise ShapeError(f"{list(dims)} of {x.itemsize} bytes each is more than the limit for one tensor")
    require_memory(map(int, dims), x.itemsize)
    try:
        return np.broadcast_to(x, [int(d) for d in dims])
    except ValueError:
        raise ShapeError(f"{list(x.shape)} cannot be broadcast to {list(dims)}") from None


def _repeated(x: Shape, dims: Sequence[Dim]) -> tuple[int, Shape]:
    lens = [d if isinstance(d, int) else int(d) for d in dims]
    steps = [0] * (len(lens) - x.rank) + [
        0 if n == 1 and o != 1 else s for n, s, o in zip(x.lens(), x.strides(), lens[len(lens) - x.rank :], strict=True)
    ]
    return 0, Shape(x.dtype, lens, steps)


@op("multibroadcast", exact=True, aligns=True, moves=True)
class Multibroadcast(Operation):
    """Broadcasts x along missing and unit axes, as numpy does.

    x: any [..] -> out_lens; with further inputs, the common broadcast of all inputs.
    Errors: ShapeError if the extents do not fit.  Source: MIGraphX multibroadcast.
    """

    out_lens: tuple[Dim, ...] = ()

    def infer(self, x: Shape, *others: Shape) -> Shape:
        dims = common_dims(x.dims, *(o.dims for o in others)) if others else self.out_lens
        _fits(x.dims, dims)
        return x.with_dims(dims)

    def compute(self, x: Array, *others: Array) -> Array:
        return _repeat(x, common_dims(x.shape, *(o.shape for o in others)) if others else self.out_lens)

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        return _repeated(inputs[0], self.infer(*inputs).dims)


@op("broadcast", exact=True, aligns=True, moves=True)
class Broadcast(Operation):
    """Maps the axes of x to the result's axes from `axis` on, and broadcasts along all others.

    x: any [d..] -> out_lens, or the dims of a second input; out_lens[axis + i] must equal d[i] (or d[i] be 1).
    Errors: ShapeError if the extents do not fit.  Source: MIGraphX broadcast.
    """

    axis: int = 0
    out_lens: tuple[Dim, ...] = ()

    def infer(self, x: Shape, like: Shape | None = None) -> Shape:
        dims = self.out_lens if like is None else like.dims
        _fits(self._placed(x.dims, dims), dims)
        return x.with_dims(dims)

    def normal(self, *inputs: Shape) -> Operation:
        """Returns the op itself: the axis refers to the result's rank."""
        return self

    def _placed(self, dims: Sequence[Dim], out: Sequence[Dim]) -> tuple[Dim, ...]:
        at = normalize(self.axis, len(out)) if out else 0
        if at + len(dims) > len(out):
            raise ShapeError(f"{list(dims)} does not fit into {list(out)} from axis {at}")
        return (*dims, *(1,) * (len(out) - at - len(dims)))

    def compute(self, x: Array, like: Array | None = None) -> Array:
        dims = self.out_lens if like is None else like.shape
        return _repeat(x.reshape([int(d) for d in self._placed(x.shape, dims)]), dims)

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        x = inputs[0]
        dims = self.infer(*inputs).dims
        placed = [*map(int_or_traced, self._placed(x.dims, dims))]
        steps = [*x.strides(), *(0,) * (len(placed) - x.rank)]
        return _repeated(Shape(x.dtype, placed, steps), dims)


@op("broadcast_for_dot", exact=True, moves=True)
class BroadcastForDot(Operation):
    """Broadcasts the batch axes to match the other operand of a matrix product; the last two axes are unchanged.

    x: any [.., m, k], other [.., k, n] -> [batch.., m, k].
    Errors: ShapeError for ranks below 2 or batches that do not broadcast.  Source: MIGraphX broadcast_for_dot.
    """

    def infer(self, x: Shape, other: Shape) -> Shape:
        if x.rank < 2 or other.rank < 2:
            raise ShapeError(f"both operands need a rank of at least 2, got {x} and {other}")
        return x.with_dims((*common_dims(x.dims[:-2], other.dims[:-2]), *x.dims[-2:]))

    def compute(self, x: Array, other: Array) -> Array:
        return _repeat(x, (*common_dims(x.shape[:-2], other.shape[:-2]), *x.shape[-2:]))

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        return _repeated(inputs[0], self.infer(*inputs).dims)


@op("broadcast_with_dims", exact=True)
class BroadcastWithDims(Operation):
    """Broadcasts x against run-time extents.

    x: any [..], dims: int [k] -> [max(rank, k) axes].
    Errors: ShapeError at run time if they do not broadcast.  Source: MIGraphX broadcast_with_dims, ONNX Expand-13.
    """

    def infer(self, x: Shape, dims: Shape) -> Shape:
        count = vector_length(dims, "dims")
        if not isinstance(count, int) or not x.ranked:
            return Shape.unranked(x.dtype)
        out = list(unknown(x, max(count, x.rank)).dims)
        for i, d in enumerate(x.dims, len(out) - x.rank):
            if not may_equal(d, 1) or i < len(out) - count:  # an extent other than 1 is unchanged
                out[i] = d
        return x.with_dims(out)

    def compute(self, x: Array, dims: Array) -> Array:
        wanted = whole(dims)
        if any(d < 0 for d in wanted):
            raise ShapeError(f"dims must not be negative, got {wanted}")
        return _repeat(x, common_dims(x.shape, wanted))


@op("scalar", exact=True)
class Scalar(Operation):
    """Broadcasts one element over all axes.

    x: any, one element -> scalar_bcst_dims.  Errors: ShapeError if x has more.  Source: MIGraphX scalar.
    """

    scalar_bcst_dims: tuple[Dim, ...] = ()

    def infer(self, x: Shape) -> Shape:
        for d in x.dims:
            merge(d, 1, "the extents of x and 1")
        return x.with_dims(self.scalar_bcst_dims)

    def compute(self, x: Array) -> Array:
        return _repeat(x.reshape(()), self.scalar_bcst_dims)

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        lens = [int(d) for d in self.scalar_bcst_dims]
        return 0, Shape(inputs[0].dtype, lens, [0] * len(lens))


@op("tile", exact=True, moves=True)
class Tile(Operation):
    """Repeats x along each axis.

    x: any [d..] -> [d * repeats..]; one repeat per axis, as attribute or as run-time input.
    Errors: ShapeError for a wrong number of repeats or negative ones.  Source: ONNX Tile-13.
    """

    repeats: tuple[Dim, ...] = ()

    def infer(self, x: Shape, repeats: Shape | None = None) -> Shape:
        if repeats is not None:
            merge(vector_length(repeats, "repeats"), x.rank, "the number of repeats and the rank")
            return x.with_dims(0 if d == 0 else fresh("d") for d in x.dims)
        self._count(len(self.repeats), x.rank)
        return x.with_dims(d * r for d, r in zip(x.dims, self.repeats, strict=True))

    @staticmethod
    def _count(repeats: int, rank: int) -> None:
        if repeats != rank:
            raise ShapeError(f"one repeat per axis is required, got {repeats} for rank {rank}")

    def compute(self, x: Array, repeats: Array | None = None) -> Array:
        times = [int(r) for r in self.repeats] if repeats is None else whole(repeats)
        self._count(len(times), x.ndim)
        if any(r < 0 for r in times):
            raise ShapeError(f"repeats must not be negative, got {times}")
        require_memory((r * d for r, d in zip(times, x.shape, strict=True)), x.itemsize)
        inner = [n for r, d in zip(times, x.shape, strict=True) for n in (r, d)]
        spread = x.reshape([n for d in x.shape for n in (1, d)])
        return np.broadcast_to(spread, inner).reshape([r * d for r, d in zip(times, x.shape, strict=True)])

    def decompose(self, b: Builder, x: Operand, repeats: Operand | None = None) -> Operand | None:
        if repeats is not None:
            return None
        dims = x.shape.dims
        spread = b.add(Reshape(dims=tuple(n for d in dims for n in (1, d)), allowzero=True), x)
        wide = tuple(n for r, d in zip(self.repeats, dims, strict=True) for n in (r, d))
        out = self.infer(x.shape).dims
        return b.add(Reshape(dims=out, allowzero=True), b.add(Multibroadcast(out_lens=wide), spread))
