"""Recognizes rotary embeddings that exporters decompose into primitive ops."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.elementwise import Pointwise
from ..ops.index import Gather
from ..ops.movement import Transpose
from ..ops.pointwise import Add, Mul, Neg, Sub
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types.dim import Dim
from .constants import same_constant
from .engine import ROUNDING, Builder, Rules
from .matching import either, other

__all__ = ["ROTARY"]

ROTARY: Final = Rules("raise-rotary")
DEEPEST = 12  # the longest chain of ops followed to the source of the angles' halves


@ROTARY.on(Add, reads=Mul, changes=ROUNDING)
def rotary_from_halves(i: Instruction, b: Builder) -> Instruction | No | None:
    """x cos + concat(-x2, x1) sin -> rotary_embedding(x, cos, sin), x1 and x2 the halves of x, cos and sin with equal halves."""
    for straight, turned in either(i):
        if not (isinstance(straight.op, Mul) and isinstance(turned.op, Mul)):
            return None
        for halves, sin in either(turned):
            x = _swapped(halves)
            cos = None if x is None else other(straight, x)
            if x is None or cos is None:
                continue
            angles = [_angles(b, v, x) for v in (cos, sin)]
            for found in angles:
                if isinstance(found, No):
                    return found
            from ..ops.rotary import RotaryEmbedding  # most models have no such embeddings

            return b.add(RotaryEmbedding(), x, *(v for v in angles if isinstance(v, Instruction)))
    return None


@ROTARY.on(Reshape, reads=Concat, changes=ROUNDING)
def rotary_from_pairs(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(stack(x0 cos - x1 sin, x0 sin + x1 cos)) -> rotary_embedding(x, cos, sin), x0 and x1 alternating in x.

    x is [b, h, s, d], or [b, s, h, d] if axis 2 of the angles has the extent 1.
    """
    stack = i.inputs[0]
    if len(i.inputs) > 1 or not isinstance(stack.op, Concat) or stack.shape.rank != 5 or not i.shape.rank:
        return None
    if not i.shape.dtype.is_float:
        return None
    *lead, half, two = stack.shape.dims
    if stack.op.axis % 5 != 4 or two != 2 or not isinstance(half, int) or i.shape.dims[-1] != 2 * half:
        return None
    dims = (*lead, 2 * half)
    if len(stack.inputs) != 2 or not all(isinstance(x.op, (Reshape, Unsqueeze)) for x in stack.inputs):
        return None
    first, second = (x.inputs[0] for x in stack.inputs)
    if not isinstance(first.op, Sub) or not isinstance(second.op, Add):
        return None
    if not all(isinstance(x.op, Mul) for x in (*first.inputs, *second.inputs)):
        return None
    for x0, cos in either(first.inputs[0]):
        for x1, sin in either(first.inputs[1]):
            even, odd = _alternate(x0, dims), _alternate(x1, dims)
            if even is None or odd is None or even[0] is not odd[0] or (even[1], odd[1]) != (0, 1):
                continue
            turned = [(other(m, x0), other(n, x1)) for m, n in either(second)]
            if any(same_constant(s, sin) and same_constant(c, cos) for s, c in turned):
                made = _rotary_pairs(b, even[0], cos, sin, dims)
                return made if isinstance(made, No) or dims == i.shape.dims else b.add(i.op, made)
    return None


def _alternate(ins: Instruction, dims: tuple[Dim, ...]) -> tuple[Instruction, Dim] | None:
    """Returns x and 0 or 1 for every other element of x [.., d], starting there; x may be grouped to [.., d / 2, 2]."""
    if isinstance(ins.op, (Reshape, Squeeze)) and len(ins.inputs) == 1 and isinstance(ins.inputs[0].op, Slice):
        cut = ins.inputs[0]
        shape: tuple[Dim, ...] = (*ins.shape.dims, 2)
    else:
        cut, shape = ins, dims
    op, step = cut.op, 2 if cut is ins else 1
    if not isinstance(op, Slice) or len(cut.inputs) != 1 or cut.inputs[0].shape.dims != shape:
        return None
    rank = len(shape)
    start = op.starts[0]
    if tuple(a % rank for a in op.axes) != (rank - 1,) or (op.steps or (1,)) != (step,) or start not in (0, 1):
        return None
    return (cut.inputs[0], start) if ins.shape.dims == (*dims[:3], int(dims[3]) // 2) else None


def _rotary_pairs(
    b: Builder, x: Instruction, cos: Instruction, sin: Instruction, dims: tuple[Dim, ...]
) -> Instruction | No:
    """Returns the rotary embedding of x, with these four extents, by cosines and sines as they are multiplied with pairs."""
    from ..ops.rotary import RotaryEmbedding  # most models have no such embeddings

    half = int(dims[3]) // 2
    whole = x if x.shape.dims == dims else b.add(Reshape(dims=dims), x)
    for steps, heads in ((2, 1), (1, 2)):
        angles = []
        for source, own in map(_unbroadcast, (cos, sin)):
            if own[0] in (1, dims[0]) and own[heads] == 1 and own[steps] in (1, dims[steps]) and own[3] == half:
                angles.append(_placed(b, source, (own[0], own[steps]), (dims[0], dims[steps]), half))
        if len(angles) == 2:
            order = (0, heads, steps, 3)
            turned = whole if steps == 2 else b.add(Transpose(permutation=order), whole)
            made = b.add(RotaryEmbedding(interleaved=True), turned, *angles)
            return made if steps == 2 else b.add(Transpose(permutation=order), made)
    return No(f"the angles are not [batch or 1, 1, steps or 1, {half}], or the same with heads and steps exchanged")


def _swapped(ins: Instruction) -> Instruction | None:
    """x in concat(-second half of x, first half of x) along the last of four axes."""
    if not isinstance(ins.op, Concat) or ins.shape.rank != 4 or ins.op.axis % 4 != 3 or len(ins.inputs) != 2:
        return None
    negative, first = ins.inputs
    if not isinstance(negative.op, Neg):
        return None
    second = negative.inputs[0]
    size = ins.shape.dims[3]
    if not isinstance(size, int) or size % 2 or not ins.shape.dtype.is_float:
        return None
    x = first.inputs[0] if isinstance(first.op, Slice) else None
    if x is None or x.shape.dims != ins.shape.dims:
        return None
    halves = _is_half(first, x, 0, size // 2) and _is_half(second, x, size // 2, size)
    return x if halves else None


def _is_half(ins: Instruction, x: Instruction, start: int, end: int) -> bool:
    op = ins.op
    if not isinstance(op, Slice) or len(ins.inputs) != 1 or ins.inputs[0] is not x:
        return False
    if tuple(a % 4 for a in op.axes) != (3,) or op.steps not in ((), (1,)):
        return False
    stop, size = op.ends[0], x.shape.dims[3]
    return op.starts == (start,) and isinstance(stop, int) and isinstance(size, int) and min(stop, size) == end


def _angles(b: Builder, ins: Instruction, x: Instruction) -> Instruction | No:
    """Returns the first half of the cosines or sines that x [b, h, s, d] is multiplied by, as [b, s, d / 2]."""
    batch, _, steps, size = x.shape.dims
    source, dims = _unbroadcast(ins)
    if dims[0] not in (1, batch) or dims[1] != 1 or dims[2] not in (1, steps) or dims[3] != size:
        return No(f"angles {list(dims)} are not [batch or 1, 1, steps or 1, {size}]")
    if not _halves_equal(source, DEEPEST):
        return No("the two halves of the angles are not known to be the same")
    half = int(size) // 2
    axis = source.shape.rank - 1
    cut = b.add(Slice(axes=(axis,), starts=(0,), ends=(half,)), source)
    return _placed(b, cut, (dims[0], dims[2]), (batch, steps), half)


def _unbroadcast(ins: Instruction) -> tuple[Instruction, tuple[Dim, ...]]:
    """Returns the value that another is broadcast from, and its extents as four axes."""
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    return source, (*(1,) * (4 - source.shape.rank), *source.shape.dims)


def _placed(b: Builder, angles: Instruction, own: tuple[Dim, Dim], whole: tuple[Dim, Dim], half: int) -> Instruction:
    """Returns angles of `own` batches and steps as [b, s, d / 2] for `whole` ones."""
    made = b.add(Reshape(dims=(*own, half)), angles)
    return made if own == whole else b.add(Multibroadcast(out_lens=(*whole, half)), made)


def _halves_equal(ins: Instruction, deep: int) -> bool:
    """Returns True if both halves along the last axis are known to be equal."""
    if not deep or not ins.shape.rank:
        return False
    if ins.literal is not None:
        value = ins.literal.value
        if not isinstance(value, np.ndarray):
            return False
        first, second = np.split(value, 2, axis=-1)
        return np.array_equal(first, second)
    last, op = ins.shape.dims[-1], ins.op
    if isinstance(op, Pointwise):
        return all(_halves_equal(v, deep - 1) for v in ins.inputs)
    if isinstance(op, Concat):
        return op.axis % ins.shape.rank == ins.shape.rank - 1 and len(ins.inputs) == 2 and len(set(ins.inputs)) == 1
    if not ins.inputs:
        return False
    (x, *more) = ins.inputs
    if isinstance(op, Multibroadcast) and not more:
        return not x.shape.rank or x.shape.dims[-1] == 1 or (x.shape.dims[-1] == last and _halves_equal(x, deep - 1))
    kept = x.shape.rank > 0 and x.shape.dims[-1] == last and _halves_equal(x, deep - 1)
    if isinstance(op, (Reshape, Squeeze, Unsqueeze)):
        return kept and isinstance(last, int)
    if isinstance(op, Transpose):
        return kept and op.permutation[-1] == x.shape.rank - 1
    if isinstance(op, Gather):
        return kept and x.shape.rank > 1 and op.axis % x.shape.rank != x.shape.rank - 1
    return isinstance(op, Slice) and kept and (x.shape.rank - 1) not in [a % x.shape.rank for a in op.axes]
