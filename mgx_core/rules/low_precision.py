"""Intermediate values that would overflow a narrow float."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.pointwise import Div, Mul, Pow
from ..types import dtype as dt
from .constants import uniform
from .engine import ROUNDING, Builder, Rules

__all__ = ["LOW_PRECISION"]

LOW_PRECISION: Final = Rules("rewrite-low-precision")


@LOW_PRECISION.on(Div, Mul, changes=ROUNDING)
def scale_before_square(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * x / c -> x * (x / c), c > 1, in float16, where x * x might overflow; products with a small constant likewise."""
    if i.shape.dtype is not dt.float16:
        return None
    at = 0 if isinstance(i.op, Div) or uniform(i.inputs[0]) is None else 1
    power, other = i.inputs[at], i.inputs[1 - at]
    c = uniform(other)
    squared = isinstance(power.op, Pow) and uniform(power.inputs[1]) == 2
    if not squared and not (isinstance(power.op, Mul) and power.inputs[0] is power.inputs[1]):
        return None
    x = power.inputs[0]
    if c is None or not (c > 1 if isinstance(i.op, Div) else 0 < c < 1):
        return No("the other operand is not a constant that makes it smaller")
    if len(power.users) > 1:
        return No("the square is read elsewhere too")
    return b.add(Mul(), x, b.add(i.op, x, other))
