"""Replaces the concatenation of a sequence whose items are all known by a concat of tensors."""

from __future__ import annotations

from ..errors import MgxError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.concat import Concat
from ..ops.reshape import Unsqueeze
from ..ops.sequence import ConcatFromSequence, SequenceConstruct, SequenceEmpty, SequenceInsert
from ..types.shape import Shape

__all__ = ["joined"]


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
    for user in list(ins.users):
        (user.parent or module).rewire(user, [whole if i is ins else i for i in user.inputs])
    module.remove(ins)
    return True


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
