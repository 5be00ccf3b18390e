"""Recognizes softmax and logsoftmax in primitive ops."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.pointwise import Div, Exp, Log, Sub
from ..ops.reduce import Argmax, ReduceMax, ReduceSum
from ..ops.softmax import Logsoftmax, Softmax
from .engine import ROUNDING, Builder, Rules
from .matching import op_as
from .norms import minus_own_reduction, reduced_axes, repeated

__all__ = ["SOFTMAX"]

SOFTMAX: Final = Rules("raise-norms")


def _softmax(
    i: Instruction, b: Builder, powers: Instruction, total: Instruction, shifted: bool
) -> Instruction | No | None:
    if not isinstance(powers.op, Exp):
        return None
    below = repeated(total, ReduceSum, powers)
    if below is None:
        return None
    axes = reduced_axes(below)
    found = minus_own_reduction(powers.inputs[0], ReduceMax)
    if (found is not None) is not shifted:
        return None
    x, own = found or (powers.inputs[0], axes)
    if axes != (i.shape.rank - 1,) or own != axes:
        return No(f"sums over axes {list(axes)}, maxima over {list(own)}; softmax is raised along the last axis")
    return b.add(Softmax(axis=axes[0]), x)


@SOFTMAX.on(Div, changes=ROUNDING)
def softmax_from_quotient(i: Instruction, b: Builder) -> Instruction | No | None:
    """exp(x - max(x)) / sum(exp(x - max(x))) -> softmax(x)."""
    return _softmax(i, b, i.inputs[0], i.inputs[1], True)


@SOFTMAX.on(Div, changes=ROUNDING)
def softmax_from_plain_quotient(i: Instruction, b: Builder) -> Instruction | No | None:
    """exp(x) / sum(exp(x)) -> softmax(x), which does not overflow."""
    return _softmax(i, b, i.inputs[0], i.inputs[1], False)


@SOFTMAX.on(Log, changes=ROUNDING)
def logsoftmax_from_log(i: Instruction, b: Builder) -> Instruction | No | None:
    """log(softmax(x)) -> logsoftmax(x)."""
    inner = i.inputs[0]
    return b.add(Logsoftmax(axis=inner.op.axis), inner.inputs[0]) if isinstance(inner.op, Softmax) else None


@SOFTMAX.on(Sub, changes=ROUNDING)
def logsoftmax_from_difference(i: Instruction, b: Builder) -> Instruction | No | None:
    """(x - max(x)) - log(sum(exp(x - max(x)))) -> logsoftmax(x)."""
    shifted, right = i.inputs
    log = right.inputs[0] if isinstance(right.op, Multibroadcast) and len(right.inputs) == 1 else right
    if not isinstance(log.op, Log):
        return None
    found = minus_own_reduction(shifted, ReduceMax)
    total = log.inputs[0]
    if found is None or not isinstance(total.op, ReduceSum) or not isinstance(total.inputs[0].op, Exp):
        return None
    x, axes = found
    if total.inputs[0].inputs[0] is not shifted or reduced_axes(total) != axes or axes != (i.shape.rank - 1,):
        return No("the sum is not one of the same differences along the last axis")
    return b.add(Logsoftmax(axis=axes[0]), x)


@SOFTMAX.on(Argmax, reads=(Softmax, Logsoftmax), changes=ROUNDING)
def argmax_before_softmax(i: Instruction, b: Builder) -> Instruction | No | None:
    """argmax(softmax(x)) -> argmax(x) along the axis of the softmax, which keeps the order."""
    inner = i.inputs[0]
    if not isinstance(inner.op, (Softmax, Logsoftmax)):
        return None
    rank, axis = i.shape.rank, op_as(i, Argmax).axis
    if inner.op.reduced_axes(rank) != (axis % rank,):
        return No("the softmax is along another axis")
    return b.add(i.op, inner.inputs[0])
