"""Recognizes rotary embeddings that exporters decompose into primitive ops."""

from __future__ import annotations

from collections.abc import Sequence
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
    """x cos + concat(-x2, x1) sin -> rotary_embedding(x, cos, sin), x1 and x2 the halves of x, cos and sin with equal halves.

    x is [b, h, s, d], or [b, s, h, d] if axis 2 of the angles has the extent 1, or the same without b or h.
    """
    for straight, turned in either(i):
        if not (isinstance(straight.op, Mul) and isinstance(turned.op, Mul)):
            return None
        for halves, sin in either(turned):
            whole = _swapped(halves)
            if whole is None:
                continue
            for x, cos in either(straight):
                if _span(x) == whole:
                    return _rotary_halves(b, x, cos, sin)
    return None


@ROTARY.on(Concat, reads=Slice)
def rotary_beside_rest(i: Instruction, b: Builder) -> Instruction | None:
    """concat(rotary_embedding(first elements of x), other elements of x) -> rotary_embedding(x)."""
    if len(i.inputs) != 2 or i.shape.rank != 4 or i.op != Concat(axis=i.shape.rank - 1):
        return None
    turned, rest = i.inputs
    order = turned.op.order(4) if isinstance(turned.op, Transpose) else (0, 1, 2, 3)
    inner = turned.inputs[0] if isinstance(turned.op, Transpose) else turned
    x, start, end = _span(rest)
    if x.shape.dims != i.shape.dims or end != i.shape.dims[3] or order[3] != 3:
        return None
    if not isinstance(start, int) or start == 0:
        return None
    from ..ops.rotary import RotaryEmbedding  # most models have no such embeddings

    if not isinstance(inner.op, RotaryEmbedding) or len(inner.inputs) != 3:
        return None
    first, cos, sin = inner.inputs
    if isinstance(turned.op, Transpose):
        if not isinstance(first.op, Transpose) or first.op.order(4) != tuple(map(order.index, range(4))):
            return None
        first = first.inputs[0]
    if _span(first) != (x, 0, start) or cos.shape.dims[-1] * 2 != start:
        return None
    wide = x if inner is turned else b.add(Transpose(permutation=tuple(map(order.index, range(4)))), x)
    made = b.add(inner.op, wide, cos, sin)
    return made if inner is turned else b.add(turned.op, made)


@ROTARY.on(Reshape, reads=Concat, changes=ROUNDING)
def rotary_from_pairs(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(stack(x0 cos - x1 sin, x0 sin + x1 cos)) -> rotary_embedding(x, cos, sin), x0 and x1 alternating in x.

    x is [b, h, s, d], or [b, s, h, d] if axis 2 of the angles has the extent 1, or the same without b or h.
    """
    stack = i.inputs[0]
    if len(i.inputs) > 1 or not isinstance(stack.op, Concat) or stack.shape.rank not in (4, 5) or not i.shape.rank:
        return None
    if not i.shape.dtype.is_float:
        return None
    *lead, half, two = stack.shape.dims
    if stack.op.axis % stack.shape.rank != len(lead) + 1 or two != 2:
        return None
    if not isinstance(half, int) or i.shape.dims[-1] != 2 * half:
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
                whole = even[0] if even[0].shape.dims == dims else b.add(Reshape(dims=dims), even[0])
                made = _rotary(b, whole, (cos, sin), interleaved=True)
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
    return (cut.inputs[0], start) if ins.shape.dims == (*dims[:-1], int(dims[-1]) // 2) else None


def _swapped(ins: Instruction) -> tuple[Instruction, Dim, Dim] | None:
    """Returns the span of x in concat(-second half of x, first half of x) along the last of three or four axes."""
    if not isinstance(ins.op, Concat) or ins.shape.rank not in (3, 4) or len(ins.inputs) != 2:
        return None
    negative, first = ins.inputs
    if ins.op.axis % ins.shape.rank != ins.shape.rank - 1 or not isinstance(negative.op, Neg):
        return None
    second = negative.inputs[0]
    if not ins.shape.dtype.is_float or first.shape.dims != second.shape.dims:
        return None
    (x, start, middle), (same, again, end) = _span(first), _span(second)
    return (x, start, end) if x is same and middle == again else None


def _span(ins: Instruction) -> tuple[Instruction, Dim, Dim]:
    """Returns what a value is cut from along its last axis, with the first and the last place; itself if it is not cut."""
    op, size = ins.op, ins.shape.dims[-1]
    if isinstance(op, Slice) and len(ins.inputs) == 1 and op.steps in ((), (1,)):
        x, rank = ins.inputs[0], ins.shape.rank
        start, stop, whole = op.starts[0], op.ends[0], x.shape.dims[-1]
        if tuple(a % rank for a in op.axes) == (rank - 1,) and isinstance(stop, int) and isinstance(whole, int):
            return x, start, min(stop, whole)
    return ins, 0, size


def _rotary_halves(b: Builder, x: Instruction, cos: Instruction, sin: Instruction) -> Instruction | No:
    """Returns the rotary embedding of x by cosines and sines of the length of x, whose halves are equal."""
    half = int(x.shape.dims[-1]) // 2
    angles = []
    for source in (_unbroadcast(cos), _unbroadcast(sin)):
        if source.shape.dims[-1:] != x.shape.dims[-1:] or not _halves_equal(source, DEEPEST):
            return No("the two halves of the angles are not known to be the same")
        angles.append(b.add(Slice(axes=(source.shape.rank - 1,), starts=(0,), ends=(half,)), source))
    return _rotary(b, x, angles, interleaved=False)


def _rotary(b: Builder, x: Instruction, angles: Sequence[Instruction], interleaved: bool) -> Instruction | No:
    """Returns the rotary embedding of x, which has three or four axes, by cosines and sines as they are multiplied with pairs."""
    from ..ops.rotary import RotaryEmbedding  # most models have no such embeddings

    half = int(x.shape.dims[-1]) // 2
    sources = list(map(_unbroadcast, angles))
    for place in (0, 1)[: 5 - x.shape.rank]:  # of the axis that three axes lack: batch or heads
        dims = _four(x.shape.dims, place)
        own = [_four((*(1,) * (x.shape.rank - s.shape.rank), *s.shape.dims), place) for s in sources]
        for steps, heads in ((2, 1), (1, 2)):
            if not all(
                o[0] in (1, dims[0]) and o[heads] == 1 and o[steps] in (1, dims[steps]) and o[3] == half for o in own
            ):
                continue
            whole = (dims[0], dims[steps])
            placed = [_placed(b, s, (o[0], o[steps]), whole, half) for s, o in zip(sources, own, strict=True)]
            order = (0, heads, steps, 3)
            wide = x if x.shape.dims == dims else b.add(Reshape(dims=dims), x)
            turned = wide if steps == 2 else b.add(Transpose(permutation=order), wide)
            made = b.add(RotaryEmbedding(interleaved=interleaved), turned, *placed)
            back = made if steps == 2 else b.add(Transpose(permutation=order), made)
            return back if wide is x else b.add(Reshape(dims=x.shape.dims), back)
    return No(f"the angles are not [batch or 1, 1, steps or 1, {half}], or the same with heads and steps exchanged")


def _four(dims: tuple[Dim, ...], place: int) -> tuple[Dim, ...]:
    """Returns four extents: with an axis of extent 1 at `place` if there are three."""
    return dims if len(dims) == 4 else (*dims[:place], 1, *dims[place:])


def _unbroadcast(ins: Instruction) -> Instruction:
    """Returns the value that another is broadcast from."""
    return ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins


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
