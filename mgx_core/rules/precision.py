"""Removes conversions to a narrow float type and back, and prevents overflow in float16."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from ..ops.pointwise import Div, Mul, Pow
from ..types import dtype as dt
from .constants import is_constant, uniform
from .converts import holds_all
from .engine import ROUNDING, Builder, Rules

__all__ = ["LOW_PRECISION", "PRECISION"]

PRECISION: Final = Rules("propagate-precision")


@PRECISION.on(Convert, changes=ROUNDING)
def compute_in_wider_type(i: Instruction, b: Builder) -> Instruction | No | None:
    """wide(f(narrow(x), constant)) -> f(x, wide(constant)) for floats."""
    work = i.inputs[0]
    wide, narrow = i.shape.dtype, work.shape.dtype
    if not isinstance(work.op, Pointwise) or isinstance(work.op, Convert) or not (wide.is_float and narrow.is_float):
        return None
    if (
        wide.bits <= narrow.bits
        or not holds_all(wide, narrow)
        or not any(isinstance(x.op, Convert) for x in work.inputs)
    ):
        return None
    if len(work.users) > 1:
        return No("the narrow result has other users")
    operands = []
    for x in work.inputs:
        if isinstance(x.op, Convert) and x.inputs[0].shape.dtype is wide and x.shape.dtype is narrow:
            operands.append(x.inputs[0])
        elif x.shape.dtype is narrow and is_constant(x):
            operands.append(_converted(b, x, i))
        else:
            return No(f"an operand does not come from {wide}")
    return b.add(work.op, *operands)


def _converted(b: Builder, x: Instruction, like: Instruction) -> Instruction:
    """Returns a constant in a wider type, converted before it is broadcast."""
    if isinstance(x.op, Multibroadcast):
        return b.add(Multibroadcast(out_lens=x.shape.dims), _converted(b, x.inputs[0], like))
    return b.add(Convert(target_type=like.shape.dtype), x)


LOW_PRECISION: Final = Rules("rewrite-low-precision")


@LOW_PRECISION.on(Div, Mul, reads=(Mul, Pow), changes=ROUNDING)
def scale_before_square(i: Instruction, b: Builder) -> Instruction | No | None:
    """x * x / c -> x * (x / c), c > 1, in float16, where x * x might overflow; also for products with a small constant."""
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
        return No("the square has other users")
    return b.add(Mul(), x, b.add(i.op, x, other))
