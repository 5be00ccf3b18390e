"""Selects the native module's copy loops: contiguous rows, elements in any order, and transposed tiles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core.types.traced_int import usual

from .pointwise_plan import BLOCK, Plan
from .space import Axis

__all__ = ["elements_moved", "rows_copied", "tiles_transposed"]

MAX_AXES: Final = 31
MIN_COPIED: Final = 16  # bytes of a row that the row copy requires
TRANSPOSED_SIZE: Final = 4  # bytes of an element that the native module transposes in registers


def _is_copy(plan: Plan) -> bool:
    """Returns True if a group only copies an operand."""
    if plan.inputs != 1:
        return False
    return plan.nodes == plan.results == plan.loads and plan.loads[0].dtype is plan.outputs[0].dtype


def _part(plan: Plan) -> int:
    """Returns the elements of a row per work item."""
    return BLOCK if plan.blocks else plan.axes[-1].extent


def rows_copied(plan: Plan, least: int) -> list[int] | None:
    """Returns the arguments of the row copy (`copy_loops.cpp`); None for other groups and rows of fewer than `least` bytes."""
    *outer, inner = plan.axes
    size = plan.outputs[0].dtype.size
    if plan.tile is not None or not _is_copy(plan) or inner.steps != (1, 1):
        return None
    if usual(inner.extent) * size < least or inner.extent * size < MIN_COPIED:
        return None
    steps = (n for a in outer for n in (a.extent, *(step * size for step in a.steps)))
    return [len(outer), inner.extent * size, _part(plan) * size, *steps]


def elements_moved(plan: Plan) -> list[int] | None:
    """Returns the arguments of the strided element copy (`move_loop.h`); None for other groups."""
    *outer, inner = plan.axes
    if plan.tile is not None or not _is_copy(plan) or len(outer) > MAX_AXES:
        return None
    return [max(1, len(outer)), inner.extent, _part(plan), *inner.steps, *_outer_steps(outer)]


def tiles_transposed(plan: Plan) -> list[int] | None:
    """Returns the arguments of the transposing copy (`move_loop.h`); None for other groups."""
    if plan.tile is None or not _is_copy(plan) or plan.outputs[0].dtype.size != TRANSPOSED_SIZE:
        return None
    *outer, inner = plan.axes
    across = outer.pop(plan.tile)
    if len(outer) > MAX_AXES:
        return None
    numbers = [across.extent, inner.extent, inner.steps[0], across.steps[1]]
    return [max(1, len(outer)), *numbers, *_outer_steps(outer)]


def _outer_steps(outer: Sequence[Axis]) -> list[int]:
    """Returns the extent and the strides of each outer axis, of which there is at least one."""
    return [n for a in outer or [Axis(1, (0, 0))] for n in (a.extent, *a.steps)]
