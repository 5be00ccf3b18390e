"""Replaces uses of sequences whose items are known: their concatenation, their items and their number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.symbols import found_extents
from ..ops.axes import normalize
from ..ops.concat import Concat
from ..ops.reshape import Unsqueeze
from ..ops.sequence import (
    ConcatFromSequence,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from ..ops.slice import Slice
from ..rules.constants import aligned, whole
from ..types.shape import Shape

__all__ = ["joined", "lengths_of", "picked"]


def joined(module: Module, ins: Instruction) -> bool:
    """Replaces a joined sequence whose items are all known by a concat; returns False for other instructions."""
    op = ins.op
    if not isinstance(op, ConcatFromSequence):
        return False
    items = _items(ins.inputs[0])
    if not items or any(not isinstance(i.result, Shape) or not i.shape.ranked for i in items):
        return False
    rank = items[0].shape.rank + op.new_axis
    axis = op.axis % rank if -rank <= op.axis < rank else op.axis
    try:
        if op.new_axis:
            items = [module.add(Unsqueeze(axes=(axis,)), i, before=ins, sources=ins.sources) for i in items]
        whole = module.add(Concat(axis=axis), *items, before=ins, sources=ins.sources)
    except MgxError:
        return False  # the error is raised at run time
    _replace(module, ins, whole)
    return True


def picked(module: Module, ins: Instruction) -> bool:
    """Replaces an item of a sequence at a known position, or the number of items; returns False for other instructions."""
    if not isinstance(ins.op, (SequenceAt, SequenceLength)):
        return False
    sequence, *position = ins.inputs
    lengths = lengths_of(sequence)
    items = _items(sequence) if lengths is None else []
    if items is None:
        return False
    count = len(items if lengths is None else lengths)
    if isinstance(ins.op, SequenceLength):
        _replace(module, ins, module.add_literal(np.asarray(count, np.int64), before=ins))
        return True
    at = whole(position[0])
    if at is None or not -count <= at < count:
        return False
    _replace(module, ins, items[at] if lengths is None else _part(module, ins, lengths, at % count))
    return True


def _part(module: Module, ins: Instruction, lengths: Sequence[int], at: int) -> Instruction:
    """Returns a part of a split tensor as a slice, inserted before its use."""
    sequence, first = ins.inputs[0], sum(lengths[:at])
    assert isinstance(sequence.op, SplitToSequence)
    x, axis = sequence.inputs[0], normalize(sequence.op.axis, sequence.inputs[0].shape.rank)
    cut = Slice(axes=(axis,), starts=(first,), ends=(first + lengths[at],))
    return module.add(cut, x, before=ins, sources=ins.sources)


def lengths_of(sequence: Instruction) -> list[int] | None:
    """Returns the lengths of the parts of a split tensor, if they are known."""
    op, x = sequence.op, sequence.inputs[0] if sequence.inputs else None
    if not isinstance(op, SplitToSequence) or x is None or len(sequence.inputs) < 2 or not x.shape.ranked:
        return None
    extent, known = x.shape.dims[op.axis], aligned(sequence.inputs[1])
    if known is None or not isinstance(extent, int):
        return None
    if known.ndim:
        lengths = [int(n) for n in known.tolist()]
    else:
        step = int(known)
        lengths = [min(step, extent - n) for n in range(0, extent, step)] if step > 0 else [-1]
    return lengths if min(lengths, default=0) >= 0 and sum(lengths) == extent else None  # fails at run time otherwise


def _replace(module: Module, ins: Instruction, by: Instruction) -> None:
    if isinstance(ins.result, Shape) and isinstance(by.result, Shape):
        module.substitute(found_extents(ins.result, by.result))
    for user in list(ins.users):
        (user.parent or module).rewire(user, [by if i is ins else i for i in user.inputs])
    module.remove(ins)


def _items(sequence: Instruction) -> list[Instruction] | None:
    """Returns the items of a sequence, if they are all known."""
    later: list[Instruction] = []
    while isinstance(sequence.op, SequenceInsert):
        sequence, item, *position = sequence.inputs
        if any(not p.is_absent for p in position):
            return None
        later.append(item)
    if isinstance(sequence.op, SequenceEmpty):
        return later[::-1]
    return [*sequence.inputs, *later[::-1]] if isinstance(sequence.op, SequenceConstruct) else None
