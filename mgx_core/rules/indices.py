"""Simplifies gathers by and comparisons of consecutive positions, as exporters write masks and position embeddings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.broadcast import Multibroadcast
from ..ops.compare import Greater, GreaterOrEqual, Less, LessOrEqual, LogicalAnd, LogicalOr
from ..ops.concat import Concat
from ..ops.convert import Convert
from ..ops.fill import DynamicRange
from ..ops.index import Gather, Gathernd
from ..ops.movement import Transpose
from ..ops.operation import Operation
from ..ops.pointwise import Add
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types.argument import Array
from ..types.dim import Dim, bounds, compare
from ..types.shape import Shape
from .constants import LARGEST, aligned, decided, split, spread, whole
from .engine import Builder, Rules
from .matching import either, op_as
from .slices import cut, ranges

__all__ = ["INDICES", "Count", "count"]

INDICES: Final = Rules("simplify-indices")

DEEPEST: Final = 12  # the longest chain of views that is followed
FLIPPED: Final[dict[type, type]] = {
    Less: Greater,
    Greater: Less,
    LessOrEqual: GreaterOrEqual,
    GreaterOrEqual: LessOrEqual,
}


class Count(NamedTuple):
    """Consecutive integers along an axis, starting at `first`, constant along all other axes (an iota)."""

    axis: int
    first: int


def count(ins: Instruction, depth: int = DEEPEST) -> Count | None:
    """Returns an integer tensor as a `Count` if it is one (a range or constant, possibly through views), else None."""
    if depth == 0 or not isinstance(ins.result, Shape) or not ins.shape.ranked or not ins.shape.dtype.is_integer:
        return None
    if ins.literal is not None:
        return _of_numbers(np.asarray(ins.literal.value))
    if isinstance(ins.op, DynamicRange):
        start, step = ins.inputs[0], ins.inputs[2]
        if start.literal is None or step.literal is None or np.asarray(step.literal.value).item() != 1:
            return None
        return Count(0, np.asarray(start.literal.value).item())
    if isinstance(ins.op, Add):
        parts = split(ins)
        inner, offset = (None, None) if parts is None else (count(parts[0], depth - 1), whole(parts[1]))
        return None if inner is None or offset is None else _held(ins, Count(inner.axis, inner.first + offset))
    seen = _VIEWS.get(type(ins.op))
    if seen is None or len(ins.inputs) != 1:
        return None
    inner = count(ins.inputs[0], depth - 1)
    return None if inner is None else seen(ins, inner)


def _held(ins: Instruction, found: Count) -> Count | None:
    """Returns a count if the element type represents all its numbers (others would wrap around), else None."""
    dtype, last = ins.shape.dtype, found.first + bounds(ins.shape.dims[found.axis])[1] - 1
    return found if dtype.lowest <= found.first and last <= dtype.highest else None


def _of_numbers(value: Array) -> Count | None:
    if not 1 < value.size <= LARGEST or value.dtype.kind not in "iu":
        return None
    longer = [a for a in range(value.ndim) if value.shape[a] > 1]
    first = value.flat[0].item()
    for axis in longer:
        line = [1] * value.ndim
        line[axis] = value.shape[axis]
        if np.array_equal(
            value, np.broadcast_to(np.arange(first, first + value.shape[axis]).reshape(line), value.shape)
        ):
            return Count(axis, first)
    return None


def _broadcast(ins: Instruction, inner: Count) -> Count | None:
    source, dims = ins.inputs[0].shape.dims, ins.shape.dims
    axis = inner.axis + len(dims) - len(source)
    return Count(axis, inner.first) if dims[axis] == source[inner.axis] else None


def _regrouped(ins: Instruction, inner: Count) -> Count | None:
    """Follows a reshape that only inserts and removes axes of extent 1."""
    source, dims = ins.inputs[0].shape.dims, ins.shape.dims
    before = [a for a, d in enumerate(source) if d != 1]
    after = [a for a, d in enumerate(dims) if d != 1]
    if inner.axis not in before or [source[a] for a in before] != [dims[a] for a in after]:
        return None
    return Count(after[before.index(inner.axis)], inner.first)


def _transposed(ins: Instruction, inner: Count) -> Count | None:
    return Count(op_as(ins, Transpose).order(ins.shape.rank).index(inner.axis), inner.first)


def _sliced(ins: Instruction, inner: Count) -> Count | None:
    own = ranges(ins)
    if own is None or inner.axis not in own:
        return None if own is None else inner
    start, _, step = own[inner.axis]
    return Count(inner.axis, inner.first + start) if isinstance(start, int) and step == 1 else None


_VIEWS: Final[dict[type, Callable[[Instruction, Count], Count | None]]] = {
    Convert: _held,
    Multibroadcast: _broadcast,
    Reshape: _regrouped,
    Slice: _sliced,
    Squeeze: _regrouped,
    Transpose: _transposed,
    Unsqueeze: _regrouped,
}


# gathers --------------------------------------------------------------------------------------------------------------


@INDICES.on(Gather)
def gather_in_order(i: Instruction, b: Builder) -> Instruction | No | None:
    """gather(x, consecutive indices) -> a slice of x."""
    x, indices = i.inputs
    found = count(indices) if aligned(indices) is None else None  # known values and bounds: see `gather_of_range`
    if found is None or not x.shape.ranked:
        return None
    op = op_as(i, Gather)
    axis = op.axis % x.shape.rank
    part = _part(b, x, axis, found.first, indices.shape.dims[found.axis])
    if part is None:
        return No("the positions may lie outside")
    return _placed(b, part, i, [*range(axis), axis + found.axis, *range(axis + indices.shape.rank, i.shape.rank)])


@INDICES.on(Gathernd)
def gather_in_order_of_axes(i: Instruction, b: Builder) -> Instruction | No | None:
    """gathernd(x, consecutive indices, each along its own axis) -> a slice of x."""
    x, indices = i.inputs
    op = op_as(i, Gathernd)
    if op.batch_dims or not (x.shape.ranked and indices.shape.ranked and i.shape.ranked):
        return None
    columns = _columns(indices)
    if columns is None:
        return None
    axes = [c.axis for c in columns if isinstance(c, Count)]
    if axes != sorted(set(axes)):
        return No("the indices are consecutive along the same axis, or in another order")
    for n, found in enumerate(columns):
        first, length = (found, 1) if isinstance(found, int) else (found.first, indices.shape.dims[found.axis])
        part = _part(b, x, n, first, length)
        if part is None:
            return No("the positions may lie outside")
        x = part
    single = tuple(n for n, c in enumerate(columns) if isinstance(c, int))
    x = b.add(Squeeze(axes=single), x) if single else x
    return _placed(b, x, i, [*axes, *range(indices.shape.rank - 1, i.shape.rank)])


@INDICES.on(Gathernd)
def gather_of_single_indices(i: Instruction, b: Builder) -> Instruction | No | None:
    """gathernd(x, indices [.., 1]) -> gather(x, indices [..]) along the first axis."""
    x, indices = i.inputs
    if op_as(i, Gathernd).batch_dims or not x.shape.ranked or not indices.shape.ranked or indices.shape.dims[-1] != 1:
        return None
    if indices.shape.dynamic():
        return No("the indices may be those of a mask's elements, which are recognized by them")
    if 0 in (*x.shape.dims, *indices.shape.dims):
        return No("an extent is 0")
    return b.add(Gather(), x, b.add(Squeeze(axes=(indices.shape.rank - 1,)), indices))


def _columns(indices: Instruction) -> list[Count | int] | None:
    """Splits the last axis of the indices of `gathernd`: returns each component as a number or a `Count`."""
    last = indices.shape.rank - 1
    found: list[Count | int | None]
    if indices.literal is not None:
        if np.size(indices.literal.value) > LARGEST:
            return None
        values = np.moveaxis(np.asarray(indices.literal.value), -1, 0)
        found = [v.flat[0].item() if v.size and (v == v.flat[0]).all() else _of_numbers(v) for v in values]
    elif isinstance(indices.op, Concat) and indices.op.axis % indices.shape.rank == last:
        if any(p.shape.dims[last] != 1 for p in indices.inputs):
            return None
        found = [count(p) if (one := whole(p)) is None else one for p in indices.inputs]
    else:
        found = [count(indices)] if indices.shape.dims[last] == 1 else []
    known = [c for c in found if isinstance(c, int) or (c is not None and c.axis != last)]
    return known if known and len(known) == len(found) else None


def _part(b: Builder, x: Instruction, axis: int, first: int, length: Dim) -> Instruction | None:
    """Returns a slice of x along an axis; None unless all its elements exist."""
    if first < 0 or not compare(length + first, "<=", x.shape.dims[axis]):
        return None
    return cut(b, x, {axis: (first, length + first, 1)})


def _placed(b: Builder, x: Instruction, i: Instruction, axes: list[int]) -> Instruction:
    """Returns x with its axes at `axes` of the result, broadcast along all others."""
    others = tuple(a for a in range(i.shape.rank) if a not in axes)
    wide = b.add(Unsqueeze(axes=others), x) if others else x
    return wide if wide.shape.dims == i.shape.dims else b.add(Multibroadcast(out_lens=i.shape.dims), wide)


# comparisons ----------------------------------------------------------------------------------------------------------


@INDICES.on(Less, LessOrEqual, Greater, GreaterOrEqual)
def comparison_of_count(i: Instruction, b: Builder) -> Instruction | No | None:
    """consecutive integers compared with a constant -> true or false, if the result is the same for all."""
    x, y = i.inputs
    found, limit, relation = count(x), whole(y), type(i.op)
    if found is None:
        found, limit, relation, x = count(y), whole(x), FLIPPED[relation], y
    if found is None or limit is None:
        return None
    least, most = found.first, found.first + bounds(x.shape.dims[found.axis])[1] - 1
    answers: dict[type[Operation], tuple[bool, bool]] = {
        Less: (most < limit, least >= limit),
        LessOrEqual: (most <= limit, least > limit),
        Greater: (least > limit, most <= limit),
        GreaterOrEqual: (least >= limit, most < limit),
    }
    always, never = answers[relation]
    if not (always or never):
        return No("the result depends on the position")
    return spread(b, np.asarray(always), i.shape.dims)


@INDICES.on(LogicalAnd, LogicalOr)
def known_condition(i: Instruction, b: Builder) -> Instruction | No | None:
    """x and true -> x; x and false -> false; x or false -> x; x or true -> true; x and x -> x."""
    x, y = i.inputs
    if x is y:
        return x
    for known, other in either(i):
        answer = decided(known)
        if answer is not None:
            return other if answer == isinstance(i.op, LogicalAnd) else known
    return None
