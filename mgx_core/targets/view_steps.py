"""Views: values that alias their operand's memory with another shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.broadcast import Broadcast, BroadcastForDot, Multibroadcast, Scalar
from ..ops.linear import Diagonal
from ..ops.movement import Contiguous, Transpose
from ..ops.operation import Operation
from ..ops.reshape import Flatten, Reshape, ReshapeLazy, Squeeze, Unsqueeze
from ..ops.slice import Slice, SlidingWindows, Step
from .step_list import StepList
from .values import Value

__all__ = ["VIEWS", "emit_item", "emit_view", "viewed"]

# by name, since iterating over `STANDARD` would import every family
VIEWS: Final = (
    Broadcast, BroadcastForDot, Contiguous, Diagonal, Flatten, Multibroadcast, Reshape, ReshapeLazy, Scalar, Slice,
    SlidingWindows, Squeeze, Step, Transpose, Unsqueeze,
)  # fmt: skip


def emit_view(e: StepList, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Value | No:
    """Emits ops with a view: a view of the operand, copied to row-major order first if necessary."""
    x, *others = args
    if not isinstance(x, Value):
        return No("the operand is not a tensor")
    if any(o is not None for o in others) and not isinstance(op, (Broadcast, BroadcastForDot, Multibroadcast)):
        return No("an operand that defines the view is known only at run time")
    found = e.view_of(op, x, others)
    if found is None:
        found = e.view_of(op, e.row_major(x), others)
    return No("the elements must be moved") if found is None else found


def emit_item(e: StepList, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Value | tuple[Any, ...]:
    """Emits tuple element accesses."""
    item: Value | tuple[Any, ...] = args[0][op.index]
    return item


def viewed(e: StepList, ins: Instruction, env: Mapping[Instruction, Any]) -> Value | None:
    """Returns the value of an instruction in `env`, of a literal, or of a view of one; None for values computed by steps."""
    if ins in env:
        found: Value = env[ins]
        return found
    if ins.literal is not None:
        return e.literal(ins.literal.to_numpy())
    view = ins.op.view
    if view is None or len(ins.inputs) != 1:
        return None
    source = viewed(e, ins.inputs[0], env)
    seen = None if source is None else view(source.shape)
    return None if source is None or seen is None else source.view_at(*seen)
