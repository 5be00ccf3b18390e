"""Views, transposes, slices and other data movement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core import dtype as dt
from mgx_core.converting.filling import count_up
from mgx_core.types.dim import Dim, Sym

from ..complex_parts import by_parts
from ..converter import converts
from ..node import Node

__all__ = ["bounded", "from_start", "sliced"]


@by_parts(
    "view.default", "view", "reshape", "_unsafe_view", "view_copy", "flatten", "unflatten", "squeeze", "squeeze_copy",
    "reshape_as", "_reshape_alias", "_reshape_copy", "ravel",
)  # fmt: skip
def view(n: Node, x: Instruction, *_: Any) -> Instruction:
    return n.reshape(x, n.result_dims())


@converts("view.dtype")
def view_dtype(n: Node, x: Instruction, dtype: Any) -> Instruction:
    if n.dtype.bits != x.shape.dtype.bits:
        n.unsupported(f"a view of {x.shape.dtype} as {n.dtype}, which has another width")
    return n.add("bit_cast", x, target_type=n.dtype)


@by_parts("unsqueeze", "unsqueeze_copy")
def unsqueeze(n: Node, x: Instruction, dim: int) -> Instruction:
    return n.unsqueeze(x, [n.axis(dim, x.shape.rank + 1)])


@by_parts("permute", "permute_copy")
def permute(n: Node, x: Instruction, dims: Sequence[int]) -> Instruction:
    return n.transpose(x, n.axes(dims, x.shape.rank))


@by_parts("transpose.int", "transpose", "swapaxes", "swapdims", "transpose_copy")
def transpose(n: Node, x: Instruction, first: int, second: int) -> Instruction:
    if not x.shape.rank:
        return x
    order = list(range(x.shape.rank))
    a, b = n.axis(first, len(order)), n.axis(second, len(order))
    order[a], order[b] = order[b], order[a]
    return n.transpose(x, order)


@by_parts("t", "numpy_T", "mT", "adjoint", "t_copy")
def flipped_axes(n: Node, x: Instruction) -> Instruction:
    rank = x.shape.rank
    return n.transpose(x, [*range(rank - 2), rank - 1, rank - 2]) if rank > 1 else x


@by_parts("movedim.int", "movedim", "moveaxis")
def movedim(n: Node, x: Instruction, source: Any, target: Any) -> Instruction:
    rank = x.shape.rank
    from_ = n.axes([source] if isinstance(source, int) else source, rank)
    to = n.axes([target] if isinstance(target, int) else target, rank)
    rest = iter([a for a in range(rank) if a not in from_])
    return n.transpose(x, [from_[to.index(a)] if a in to else next(rest) for a in range(rank)])


@by_parts("expand", "expand_as", "broadcast_to", "expand_copy")
def expand(n: Node, x: Instruction, *_: Any) -> Instruction:
    return n.broadcast_to(x, n.result_dims())


def bounded(value: Any, length: Dim, absent: Dim) -> Dim:
    """Returns a slice bound normalized as in torch: negative ones count from the end, then clamped."""
    if value is None:
        return absent
    if isinstance(value, int) and value < 0:
        value = dims_.maximum(length + value, 0)
    if isinstance(value, int) and value >= 1 << 62:
        return length
    return dims_.minimum(value, length)


def sliced(n: Node, x: Instruction, dim: int, start: Any, end: Any, step: int) -> Instruction:
    axis = n.axis(dim, x.shape.rank)
    length = x.shape.dims[axis]
    if isinstance(start, Instruction) or isinstance(end, Instruction):
        n.unsupported("a slice with data-dependent bounds")
    low, high = bounded(start, length, 0), bounded(end, length, length)
    if step == 1:
        if low == 0 and high == length:
            return x
        wanted = n.result().shape[axis]
        if isinstance(wanted, int) and not isinstance(low, Sym):
            high = low + wanted
        return n.slice(x, [axis], [low], [dims_.maximum(low, high)])
    return n.add("slice", x, axes=(axis,), starts=(low,), ends=(high,), steps=(step,))


@by_parts("slice.Tensor", "slice", "slice_copy")
def slice_(n: Node, x: Instruction, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Instruction:
    return sliced(n, x, dim, start, end, step)


@by_parts("narrow", "narrow_copy")
def narrow(n: Node, x: Instruction, dim: int, start: Any, length: Any) -> Instruction:
    axis = n.axis(dim, x.shape.rank)
    low = start + x.shape.dims[axis] if isinstance(start, int) and start < 0 else start
    return n.slice(x, [axis], [low], [low + length])


def from_start(place: Dim, length: Dim) -> Dim:
    """Returns a nonnegative element index; negative ones count from the end."""
    negative = dims_.minimum(dims_.maximum(-place, 0), 1)
    return place + length * negative


@by_parts("select.int", "select", "select_copy")
def select(n: Node, x: Instruction, dim: int, index: Any) -> Instruction:
    axis = n.axis(dim, x.shape.rank)
    if isinstance(index, Instruction):
        return n.add("gather", x, n.reshape(index, ()), axis=axis)
    at = from_start(index, x.shape.dims[axis])
    return n.squeeze(n.slice(x, [axis], [at], [at + 1]), [axis])


@by_parts("flip")
def flip(n: Node, x: Instruction, dims: Sequence[int]) -> Instruction:
    return n.add("reverse", x, axes=n.axes(dims, x.shape.rank)) if dims and x.shape.rank else x


@by_parts("roll")
def roll(n: Node, x: Instruction, shifts: Any, dims: Any = ()) -> Instruction:
    shifts, axes = ([v] if not isinstance(v, (list, tuple)) else list(v) for v in (shifts, dims))
    if not axes:
        flat = n.reshape(x, (n.size(x, range(x.shape.rank)),))
        return n.reshape(_rolled(n, flat, shifts[0], 0), x.shape.dims)
    for shift, dim in zip(shifts, axes, strict=True):
        x = _rolled(n, x, shift, n.axis(dim, x.shape.rank))
    return x


def _rolled(n: Node, x: Instruction, shift: Any, axis: int) -> Instruction:
    length = x.shape.dims[axis]
    if length == 0 or shift == 0:
        return x
    cut = (-shift) % length
    if cut == 0:
        return x
    return n.add("concat", n.slice(x, [axis], [cut], [length]), n.slice(x, [axis], [0], [cut]), axis=axis)


@by_parts("diagonal", "diagonal_copy")
def diagonal(n: Node, x: Instruction, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Instruction:
    rank = x.shape.rank
    a, b = n.axis(dim1, rank), n.axis(dim2, rank)
    rows, columns = x.shape.dims[a], x.shape.dims[b]
    length = n.result_dims()[-1]
    r, c = max(-offset, 0), max(offset, 0)
    x = n.slice(x, [a, b], [r, c], [r + length, c + length]) if (rows, columns) != (length, length) else x
    out = n.add("diagonal", x, axis1=a, axis2=b)
    place = a - (1 if b < a else 0)
    return n.transpose(out, [*(i for i in range(rank - 1) if i != place), place])


def triangle(upper: bool) -> Any:
    def convert(n: Node, x: Instruction, diagonal: Dim = 0) -> Instruction:
        rows, columns = x.shape.dims[-2:]
        number = x.shape.dtype is not dt.bool_
        if number and isinstance(rows, int) and isinstance(columns, int) and isinstance(diagonal, int):
            off_ = np.arange(columns)[None, :] - np.arange(rows)[:, None]
            keep = n.literal(off_ >= diagonal if upper else off_ <= diagonal)
        else:
            row = n.unsqueeze(_count(n, rows), [1])
            off = n.pointwise("sub", _count(n, columns), row)
            keep = n.pointwise("greater_or_equal" if upper else "less_or_equal", off, n.graph.scalar(n, diagonal))
        return n.add("where", n.broadcast_to(keep, x.shape.dims), x, n.full_like(x, 0))

    return convert


def _count(n: Node, length: Dim) -> Instruction:
    return count_up(n, n.graph.scalar(n, length), length)


by_parts("tril")(triangle(False))
by_parts("triu")(triangle(True))


@by_parts("pixel_shuffle")
def pixel_shuffle(n: Node, x: Instruction, factor: int) -> Instruction:
    *batch, c, h, w = x.shape.dims
    k = len(batch)
    x = n.reshape(x, [*batch, c // factor**2, factor, factor, h, w])
    x = n.transpose(x, [*range(k), k, k + 3, k + 1, k + 4, k + 2])
    return n.reshape(x, n.result_dims())


@by_parts("pixel_unshuffle")
def pixel_unshuffle(n: Node, x: Instruction, factor: int) -> Instruction:
    *batch, c, h, w = x.shape.dims
    k = len(batch)
    x = n.reshape(x, [*batch, c, h // factor, factor, w // factor, factor])
    x = n.transpose(x, [*range(k), k, k + 2, k + 4, k + 1, k + 3])
    return n.reshape(x, n.result_dims())


@by_parts("channel_shuffle", "native_channel_shuffle")
def channel_shuffle(n: Node, x: Instruction, groups: int) -> Instruction:
    b, c, *rest = x.shape.dims
    x = n.reshape(x, [b, groups, c // groups, *rest])
    return n.reshape(n.transpose(x, [0, 2, 1, *range(3, x.shape.rank)]), n.result_dims())


@by_parts("unfold")
def unfold(n: Node, x: Instruction, dim: int, size: int, step: int) -> Instruction:
    if not x.shape.rank:
        return n.reshape(x, n.result_dims())
    axis = n.axis(dim, x.shape.rank)
    first = n.pointwise("mul", _count(n, n.result_dims()[axis]), n.literal(step, dt.int64))
    places = n.pointwise("add", n.unsqueeze(first, [1]), n.literal(np.arange(size), dt.int64))
    out = n.add("gather", x, places, axis=axis)
    return n.transpose(out, [*(a for a in range(out.shape.rank) if a != axis + 1), axis + 1])
