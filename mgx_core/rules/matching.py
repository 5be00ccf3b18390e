"""What patterns of rules are written with, beside Python's ``match`` on instructions."""

from __future__ import annotations

from collections.abc import Iterator

from ..ir.instruction import Instruction

__all__ = ["either", "one_user", "other"]


def either(ins: Instruction) -> Iterator[tuple[Instruction, Instruction]]:
    """The two operands of a commutative op in both orders."""
    x, y = ins.inputs
    yield x, y
    yield y, x


def other(ins: Instruction, operand: Instruction) -> Instruction | None:
    """The second operand of a commutative op that reads `operand`; None if it does not."""
    return next((y for x, y in either(ins) if x is operand), None)


def one_user(ins: Instruction) -> bool:
    """True if exactly one instruction reads a value, so that a rewrite may take it away."""
    return len(ins.users) == 1
