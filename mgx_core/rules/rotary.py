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
from ..ops.pointwise import Add, Mul, Neg
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types.dim import Dim
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
    source = ins.inputs[0] if isinstance(ins.op, Multibroadcast) and len(ins.inputs) == 1 else ins
    dims: tuple[Dim, ...] = (*(1,) * (4 - source.shape.rank), *source.shape.dims)
    if dims[0] not in (1, batch) or dims[1] != 1 or dims[2] not in (1, steps) or dims[3] != size:
        return No(f"angles {list(dims)} are not [batch or 1, 1, steps or 1, {size}]")
    if not _halves_equal(source, DEEPEST):
        return No("the two halves of the angles are not known to be the same")
    half = int(size) // 2
    axis = source.shape.rank - 1
    cut = b.add(Slice(axes=(axis,), starts=(0,), ends=(half,)), source)
    made = b.add(Reshape(dims=(dims[0], dims[2], half)), cut)
    if (dims[0], dims[2]) != (batch, steps):
        made = b.add(Multibroadcast(out_lens=(batch, steps, half)), made)
    return made


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
