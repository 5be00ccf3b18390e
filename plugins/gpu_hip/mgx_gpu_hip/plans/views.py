"""Views: another look at the same memory, or a copy where there is none; and items of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Kernels, Module
from mgx_core.ops.broadcast import Broadcast, BroadcastForDot, Multibroadcast, Scalar
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.fill import Fill
from mgx_core.ops.linear import Diagonal
from mgx_core.ops.movement import Contiguous, Layout, Transpose
from mgx_core.ops.recurrent_states import RnnLastCellOutput
from mgx_core.ops.reshape import Flatten, Reshape, ReshapeLazy, Squeeze, Unsqueeze
from mgx_core.ops.slice import Slice, Step

from ..codegen import movement
from ..codegen.writing import Write, static
from ..emitter import Emitter
from ..kernel import Declined, Results
from .offer import emit_generated, generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


def _view(write: Write, e: Emitter, op: Any, args: Sequence[Any]) -> Results:
    """The operand seen another way, as it lies or laid out row-major; else a copy."""
    x = args[0]
    others = [a.shape for a in args[1:] if a is not None]
    if others and not isinstance(op, (Multibroadcast, Broadcast)):
        raise Declined("an operand that says how to look at it is known only at run time")
    found = op.view(x.shape, *others)
    if found is not None:
        return x.seen_as(*found)
    plain = e.row_major(x)
    found = op.view(plain.shape, *others)
    if found is not None:
        return plain.seen_as(*found)
    return emit_generated(e, write, op, (), args)


@offer(
    PLANS, Multibroadcast, Broadcast, BroadcastForDot, Scalar, Diagonal, Transpose, Contiguous, Reshape, ReshapeLazy,
    Flatten, Squeeze, Unsqueeze, Step, name="view", write=movement.window,
)  # fmt: skip
def emit_view(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return _view(movement.window, e, op, args)


_slice = static(1, movement.slices)


@offer(PLANS, Slice, name="view", write=_slice)
def emit_slice(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    return _view(_slice, e, op, args)


generated(PLANS, movement.window, Layout, Fill)


@offer(PLANS, GetTupleElem, name="item")
def emit_item(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found: Results = args[0][op.index]
    return found


@offer(PLANS, RnnLastCellOutput, name="item")
def emit_last_cell(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found: Results = args[0][1]
    return found
