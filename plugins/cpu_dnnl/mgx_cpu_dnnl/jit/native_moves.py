"""Selects the native module's copy loops: contiguous rows, and elements in any order."""

from __future__ import annotations

from typing import Final

from .pointwise_plan import BLOCK, Plan
from .space import Axis

__all__ = ["elements_moved", "rows_copied"]

MAX_AXES: Final = 31


def _is_copy(plan: Plan) -> bool:
    """Returns True if a group only copies an operand that needs no tiled transpose."""
    if plan.inputs != 1 or plan.tile is not None:
        return False
    return plan.nodes == plan.results == plan.loads and plan.loads[0].dtype is plan.outputs[0].dtype


def _part(plan: Plan) -> int:
    """Returns the elements of a row per work item."""
    return BLOCK if plan.blocks else plan.axes[-1].extent


def rows_copied(plan: Plan, least: int) -> list[int] | None:
    """Returns the arguments of the row copy (`copy_loops.cpp`); None for other groups and rows of fewer than `least` bytes."""
    *outer, inner = plan.axes
    size = plan.outputs[0].dtype.size
    if not _is_copy(plan) or inner.steps != (1, 1) or inner.extent * size < least:
        return None
    steps = (n for a in outer for n in (a.extent, *(step * size for step in a.steps)))
    return [len(outer), inner.extent * size, _part(plan) * size, *steps]


def elements_moved(plan: Plan) -> list[int] | None:
    """Returns the arguments of the strided element copy (`move_loop.h`); None for other groups."""
    *outer, inner = plan.axes
    if not _is_copy(plan) or len(outer) > MAX_AXES:
        return None
    outer = outer or [Axis(1, (0, 0))]
    steps = (n for a in outer for n in (a.extent, *a.steps))
    return [len(outer), inner.extent, _part(plan), *inner.steps, *steps]
