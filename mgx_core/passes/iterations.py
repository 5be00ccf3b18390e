"""Decides whether the iterations of a loop are computed together: limits, and loops that reduce slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from ..ir.instruction import Instruction
from ..ir.module import within
from ..ops.control import Loop
from ..ops.pointwise import Add
from ..ops.reduce import Reduce
from ..ops.slice import Slice
from ..rules.constants import whole
from ..types.dim import Dim

__all__ = ["MOST", "counted", "reduces_slices", "step"]

MOST: Final = 1 << 18  # the most elements of a value in the body, for all iterations, that are not counted by a symbol


def reduces_slices(loop: Instruction) -> bool:
    """Returns True for a loop whose body has reductions, and slices with computed bounds or a loop, which may list positions."""
    members = list(within(loop))
    sliced = any((isinstance(i.op, Slice) and len(i.inputs) > 1) or isinstance(i.op, Loop) for i in members)
    return sliced and any(isinstance(i.op, Reduce) for i in members)


def counted(dims: Sequence[Dim]) -> int:
    """Returns the product of the static extents."""
    count = 1
    for d in dims:
        count *= d if isinstance(d, int) else 1
    return count


def step(before: Instruction, after: Instruction) -> int | None:
    """Returns the constant that an iteration adds to a state, None for other changes."""
    others: Iterable[Instruction] = [i for i in after.inputs if i is not before]
    steps = [whole(i) for i in others] if isinstance(after.op, Add) else []
    return steps[0] if len(steps) == 1 else None
