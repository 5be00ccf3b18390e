"""Building blocks for the patterns of rules, in addition to Python's ``match`` on instructions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.movement import Transpose
from ..ops.operation import Operation

__all__ = ["certain", "either", "last_two_swapped", "one_user", "op_as", "other"]

Op = TypeVar("Op", bound=Operation)


def op_as(ins: Instruction, cls: type[Op]) -> Op:
    """Returns an instruction's op, cast to a class that it is known to have: the root class of the rule."""
    assert isinstance(ins.op, cls)
    return ins.op


def either(ins: Instruction) -> Sequence[tuple[Instruction, Instruction]]:
    """Returns the two operands of a commutative op in both orders."""
    x, y = ins.inputs
    return (x, y), (y, x)


def other(ins: Instruction, operand: Instruction) -> Instruction | None:
    """Returns the second operand of a commutative op that reads `operand`; None if it does not."""
    x, y = ins.inputs
    return y if x is operand else x if y is operand else None


def one_user(ins: Instruction) -> bool:
    """Returns True if a value has exactly one user, so that a rewrite may remove it."""
    return len(ins.users) == 1


def last_two_swapped(ins: Instruction) -> bool:
    """Returns True for a transpose that swaps the last two axes and nothing else."""
    if not isinstance(ins.op, Transpose) or not ins.shape.ranked or ins.shape.rank < 2:
        return False
    rank = ins.shape.rank
    return ins.op.order(rank) == (*range(rank - 2), rank - 1, rank - 2)


def certain(ins: Instruction) -> bool:
    """Returns False if a value is broadcast to extents that may not fit for some values of the symbols.

    A rule that drops an operand must check this: the dropped broadcast may be the only check that rejects such extents.
    """
    while isinstance(ins.op, Multibroadcast):
        dims = ins.inputs[0].shape.dims
        if len(ins.inputs) > 1 or any(
            n not in (1, m) for n, m in zip(reversed(dims), reversed(ins.shape.dims), strict=False)
        ):
            return False
        ins = ins.inputs[0]
    return True
