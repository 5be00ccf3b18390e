"""Removes conversions to a narrow type and back: the ops between run in the wider type."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from .constants import is_constant
from .converts import holds_all
from .engine import ROUNDING, Builder, Rules

__all__ = ["PRECISION"]

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
        return No("the narrow result is read elsewhere too")
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
    """Returns a constant in a wider type, converted before it is repeated."""
    if isinstance(x.op, Multibroadcast):
        return b.add(Multibroadcast(out_lens=x.shape.dims), _converted(b, x.inputs[0], like))
    return b.add(Convert(target_type=like.shape.dtype), x)
