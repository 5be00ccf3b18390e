"""Views: another look at the same memory, or a copy where there is none; and items of tuples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core import Kernels, Module
from mgx_core.ops.broadcast import Broadcast, BroadcastForDot, Multibroadcast, Scalar
from mgx_core.ops.control import GetTupleElem
from mgx_core.ops.fill import Fill
from mgx_core.ops.linear import Diagonal
from mgx_core.ops.movement import Contiguous, Layout, Transpose
from mgx_core.ops.recurrent_states import RnnLastCellOutput
from mgx_core.ops.reshape import Flatten, Reshape, ReshapeLazy, Squeeze, Unsqueeze
from mgx_core.ops.slice import Slice, Step
from mgx_core.targets.kernel_emission import Results, emit_view

from ..codegen import movement
from ..codegen.writing import static
from ..emitter import GpuEmitter
from .offer import generated, offer

__all__ = ["PLANS"]

PLANS = Kernels("gpu")


VIEWS: Final = (
    Multibroadcast, Broadcast, BroadcastForDot, Scalar, Diagonal, Transpose, Contiguous, Reshape, ReshapeLazy, Flatten,
    Squeeze, Unsqueeze, Step,
)  # fmt: skip

offer(PLANS, *VIEWS, Slice, name="view")(emit_view)
generated(PLANS, movement.window, *VIEWS)
generated(PLANS, static(1, movement.slices), Slice)
generated(PLANS, movement.window, Layout, Fill)


@offer(PLANS, GetTupleElem, name="item")
def emit_item(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found: Results = args[0][op.index]
    return found


@offer(PLANS, RnnLastCellOutput, name="item")
def emit_last_cell(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    found: Results = args[0][1]
    return found
