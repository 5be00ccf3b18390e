"""Recognizes loops that list the positions at which a condition holds."""

from __future__ import annotations

from ..ir.instruction import Instruction
from ..ops.compare import Less
from ..ops.concat import Concat
from ..ops.control import GetTupleElem, If, Loop
from ..ops.reshape import Reshape, Unsqueeze
from ..records import dataclass
from ..types import dtype as dt
from ..types.shape import Shape
from .iterations import step

__all__ = ["Listing", "listing"]


@dataclass(frozen=True)
class Listing:
    """A loop over the positions from `start` to `end` (exclusive) that appends to a list those at which a condition holds.

    item: the list's index in the loop's results; position, condition: values in the body; holds: the condition's value at
    listed positions; start, end: int64 scalars from outside the loop.
    """

    item: int
    position: Instruction
    condition: Instruction
    holds: bool
    start: Instruction
    end: Instruction


def listing(loop: Instruction) -> Listing | None:
    """Returns what a loop lists, if that is all that it does and only the list is used.

    So torch's exporter lists the elements of a bag that are not padding.
    """
    (body,) = loop.modules
    counts = isinstance(loop.op, Loop) and len(loop.inputs) == 4 and len(body.outputs) == 3
    if not counts or not loop.inputs[0].is_absent:
        return None
    return _listing(loop, 0) or _listing(loop, 1)


def _listing(loop: Instruction, item: int) -> Listing | None:
    """Returns what a loop lists in one of its two states, if the other one is the position."""
    (body,) = loop.modules
    going, *after = body.outputs
    *_, before, other = body.parameters.values()
    position, listed = (before, other) if item else (other, before)
    first, empty = loop.inputs[3 - item], loop.inputs[2 + item]
    following = after[1 - item]
    if any(p.result != Shape.of(dt.int64, ()) for p in (position, first)) or empty.result != Shape.of(dt.int64, (0,)):
        return None
    if step(position, following) != 1:
        return None
    start, last = _operands_of_less(loop.inputs[1])
    then, end = _operands_of_less(going)
    if start is not first or then is not following or end is None or end is not last or end.parent is body:
        return None
    if any(not isinstance(u.op, GetTupleElem) or u.op.index != item for u in loop.users):
        return None
    condition, holds = _appended(after[item], listed, position)
    return None if condition is None else Listing(item, position, condition, holds, first, end)


def _operands_of_less(ins: Instruction) -> tuple[Instruction | None, Instruction | None]:
    """Returns the operands of a comparison, None for anything else."""
    return (ins.inputs[0], ins.inputs[1]) if isinstance(ins.op, Less) else (None, None)


def _appended(after: Instruction, before: Instruction, item: Instruction) -> tuple[Instruction | None, bool]:
    """Returns the condition on which an item is appended to a list, and the value for which it is; None if it is not."""
    branch = after.inputs[0] if isinstance(after.op, GetTupleElem) else None
    if branch is None or not isinstance(branch.op, If) or any(len(m.outputs) != 1 for m in branch.modules):
        return None, False
    then, otherwise = (m.outputs[0] for m in branch.modules)
    for holds, longer, same in ((True, then, otherwise), (False, otherwise, then)):
        if same is before and isinstance(longer.op, Concat) and longer.inputs[0] is before and len(longer.inputs) == 2:
            one = longer.inputs[1]
            if isinstance(one.op, (Reshape, Unsqueeze)) and one.inputs[0] is item and one.shape.dims == (1,):
                return branch.inputs[0], holds
    return None, False
