"""Merges equal ops on all slices of a tensor into one op before slicing, and on all parts of a concat into one after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.concat import Concat
from ..ops.elementwise import Pointwise
from ..ops.index import Gather
from ..ops.movement import Transpose
from ..ops.reduce import Reduce
from ..ops.reshape import Reshape
from ..ops.slice import Slice
from ..types.dim import Dim, product
from .constants import aligned, is_constant, spread, uniform
from .engine import ROUNDING, Builder, Rules
from .matching import one_user, op_as
from .outline import through_views
from .slices import ranges

__all__ = ["SPLITS"]

SPLITS: Final = Rules("simplify-splits")


class _Cut(NamedTuple):
    """A tensor that is sliced completely along one axis: the slices in order, and the only user of each."""

    x: Instruction
    axis: int
    slices: list[Instruction]

    @property
    def ops(self) -> list[Slice]:
        return [op_as(s, Slice) for s in self.slices]

    @property
    def readers(self) -> list[Instruction]:
        return [s.users[0] for s in self.slices]


def cut_up(mine: Instruction, reader: Instruction) -> _Cut | No | None:
    """Returns the cut that a slice belongs to, if its slices cover a tensor without overlap and each has one user.

    reader: the user of the slice; all others must be the same op.  Called once for each slice: the checks that fail for hundreds
    of different users come first.
    """
    if not reader.users:  # replaced along with the reader of another slice
        return None
    own = ranges(mine)
    if own is None or len(own) != 1:
        return None
    x = mine.inputs[0]
    (axis,) = own
    if len(x.users) < 2 or is_constant(x):
        return None
    found: dict[Instruction, tuple[Dim, Dim]] = {}
    for other in x.users:
        if isinstance(other.op, Slice) and one_user(other) and other.users[0].op != reader.op:
            return No("the users of the slices are not all the same op with equal attributes")
        theirs = ranges(other)
        if theirs is None or list(theirs) != [axis] or theirs[axis][2] != 1:
            return No("x is read otherwise too")
        if other.result == x.result:
            return No("a slice of all of x is dropped first")
        if not one_user(other):
            return No("a slice has more than one user")
        found[other] = theirs[axis][:2]
    order: list[Instruction] = []
    at: Dim = 0
    while found:
        following = next((s for s, f in found.items() if f[0] == at), None)
        if following is None:
            break
        at = found.pop(following)[1]
        order.append(following)
    if found or at != x.shape.dims[axis]:
        return No("the slices overlap, or do not cover x")
    if x.next is None or any(v.parent is not mine.parent for v in (x, *x.users, *(s.users[0] for s in order))):
        return No("x belongs to an enclosing module")
    return _Cut(x, axis, order)


def replace_readers(i: Instruction, cut: _Cut, made: Sequence[Instruction], slices: Sequence[Slice]) -> Instruction:
    """Inserts `made`, which works on the whole tensor, after it, and replaces the users of the slices by slices of its result.

    The replaced users are removed: they would count as users of the tensor for rules that require a single one.
    """
    module, place = i.parent, cut.x.next
    assert module is not None
    assert place is not None
    for ins in made:
        module.move(ins, place)
    mine = None
    for reader, op in zip(cut.readers, slices, strict=True):
        part = module.add(op, made[-1], before=reader, sources=reader.sources)
        if reader is i:
            mine = part
        else:
            module.replace(reader, part)
            module.remove(reader)
    for part in cut.slices:
        if not part.users:
            module.remove(part)
    assert mine is not None
    return mine


@SPLITS.on(Pointwise, reads=Slice)
def work_before_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(slice(x)), f(slice'(x)), .. -> slices of f(x), if the slices cover x; f may have constant operands."""
    return _before_slices(i, b)


@SPLITS.on(Reduce, reads=Slice, changes=ROUNDING)
def reduction_before_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """sum(slice(x)), sum(slice'(x)), .. -> slices of sum(x), if the slices cover x along an axis that is not reduced."""
    return _before_slices(i, b)


def _before_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    at = next((n for n, x in enumerate(i.inputs) if isinstance(x.op, Slice)), None)
    if at is None or len(i.inputs) > 2 or (isinstance(i.op, Reduce) and len(i.inputs) > 1):
        return None
    if len(i.inputs) == 2 and not is_constant(i.inputs[1 - at]):
        return None
    cut = cut_up(i.inputs[at], i)
    if not isinstance(cut, _Cut):
        return cut
    if any(
        len(r.inputs) != len(i.inputs) or r.inputs[at] is not s for r, s in zip(cut.readers, cut.slices, strict=True)
    ):
        return No("the users of the slices are not all the same op of the same operand")
    if isinstance(i.op, Reduce) and (not i.op.axes or cut.axis in i.op.axes):
        return No("the sliced axis is reduced")
    operands, made = [cut.x], []
    if len(i.inputs) == 2:
        constant = _joined(b, [r.inputs[1 - at] for r in cut.readers], cut.x.shape.dims, cut.axis)
        if constant is None:
            return No("the other operands are not all constants that can be joined")
        operands.insert(1 - at, constant[-1])
        made += constant
    made.append(b.add(i.op, *operands))
    return replace_readers(i, cut, made, cut.ops)


def _joined(b: Builder, constants: Sequence[Instruction], dims: tuple[Dim, ...], axis: int) -> list[Instruction] | None:
    """Returns several constants concatenated along an axis, with the extents `dims`, as instructions."""
    if not all(is_constant(c) for c in constants):
        return None
    numbers = [uniform(c) for c in constants]
    before = len(b.made)
    if numbers[0] is not None and len(set(numbers)) == 1 and constants[0].shape.dtype.bits <= 32:
        spread(b, np.asarray(numbers[0]), dims, constants[0])
        return b.made[before:]
    parts = []
    for c in constants:
        value = aligned(c)
        n = c.shape.dims[axis]
        if value is None or not isinstance(n, int):
            return None
        whole = value.reshape((1,) * (len(dims) - value.ndim) + value.shape)
        parts.append(np.broadcast_to(whole, [n if a == axis else e for a, e in enumerate(whole.shape)]))
    rest = {p.shape[:axis] + p.shape[axis + 1 :] for p in parts}
    if len(rest) > 1:
        return None
    spread(b, np.concatenate(parts, axis), dims, constants[0])
    return b.made[before:]


@SPLITS.on(Transpose, reads=Slice)
def transpose_before_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """transpose(slice(x)), transpose(slice'(x)), .. -> slices of transpose(x), if the slices cover x."""
    cut = cut_up(i.inputs[0], i) if isinstance(i.inputs[0].op, Slice) else None
    if not isinstance(cut, _Cut):
        return cut
    axis = op_as(i, Transpose).order(i.shape.rank).index(cut.axis)
    return replace_readers(i, cut, [b.add(i.op, cut.x)], [op.replace(axes=(axis,)) for op in cut.ops])


@SPLITS.on(Reshape, reads=Slice)
def reshape_before_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(slice(x)), reshape(slice'(x)), .. -> slices of reshape(x), if the slices are equal and cover x."""
    cut = cut_up(i.inputs[0], i) if isinstance(i.inputs[0].op, Slice) and len(i.inputs) == 1 else None
    if not isinstance(cut, _Cut):
        return cut
    if any(r.result != i.result for r in cut.readers):
        return No("the slices are not all reshaped in the same way")
    old, new = i.inputs[0].shape.dims, i.shape.dims
    lead = product(old[: cut.axis])
    at = next((n for n in range(len(new)) if product(new[:n]) == lead), None)
    if at is None:
        return No("the sliced axis does not become the leading factor of an axis of the result")
    n, count = new[at], len(cut.slices)
    whole = b.add(Reshape(dims=(*new[:at], n * count, *new[at + 1 :]), allowzero=True), cut.x)
    slices = [Slice(axes=(at,), starts=(n * k,), ends=(n * (k + 1),)) for k in range(count)]
    return replace_readers(i, cut, [whole], slices)


@SPLITS.on(Concat)
def work_after_concat(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(f(x), f(y)) -> f(concat(x, y)) for one pointwise op f, perhaps with constants, that cannot fuse with producers."""
    first = i.inputs[0]
    if not isinstance(first.op, Pointwise) or len(first.inputs) not in (1, 2) or len(i.inputs) < 2:
        return None
    at = next((n for n, x in enumerate(first.inputs) if not is_constant(x)), 0)
    for x in i.inputs:
        if x.op != first.op or not one_user(x) or x.inputs[at].shape.dtype is not first.inputs[at].shape.dtype:
            return No("the operands are not all the same op, or have other users")
        source = through_views(x.inputs[at])
        if not (source.is_param or source.is_literal or isinstance(source.op, (Slice, Concat, Gather))):
            return No("the ops would fuse with their producers")
    operands = [b.add(i.op, *(x.inputs[at] for x in i.inputs))]
    if len(first.inputs) == 2:
        axis: int = op_as(i, Concat).axis % i.shape.rank
        constant = _joined(b, [x.inputs[1 - at] for x in i.inputs], i.shape.dims, axis)
        if constant is None:
            return No("the other operands are not all constants that can be joined")
        operands.insert(1 - at, constant[-1])
    return b.add(first.op, *operands)
