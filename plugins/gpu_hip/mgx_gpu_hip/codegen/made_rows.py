"""Rows that a kernel makes for itself: the passes of a fused reduction over one row, its result left in registers."""

from __future__ import annotations

from dataclasses import dataclass

from mgx_core import No
from mgx_core import dtype as dt

from .bodies import Source
from .reduce_rows import MOST_KEPT, MOST_REGISTERS, pass_lines
from .reductions import Plan
from .row_passes import RowShape, RowWriter
from .source import DeviceTraits

__all__ = ["MadeRow", "made_row"]


@dataclass(frozen=True)
class MadeRow:
    """A reduction over one row, with the work before and behind it, one of whose results is wanted in registers.

    held: the number of that result; stored: the kernel stores so many, the first ones of `plan`.
    """

    plan: Plan
    held: int
    stored: int

    @property
    def operands(self) -> int:
        return len(self.plan.inputs)

    @property
    def dtype(self) -> dt.DType:
        return self.plan.outputs[self.held].dtype

    @property
    def most(self) -> int:
        """Elements of the row that a thread can have."""
        return MOST_KEPT


def made_row(made: MadeRow, threads: int, turns: int, width: int, traits: DeviceTraits) -> list[str] | No:
    """Returns statements that leave a thread's elements in `row`: `width` neighbours in each of `turns` turns of all threads.

    The first block stores the results that are to be stored.
    """
    plan = made.plan
    if plan.rows != 1 or plan.row_outputs or len(plan.reduced.dims) != 1:
        return No("the reduction is not over one row")
    if turns * width > MOST_KEPT or threads > traits.max_threads:
        return No(f"a row of {plan.length} elements is too long to be made by each block")
    shape = RowShape(width, threads, turns, turns * threads * width == plan.length)
    writer = RowWriter(plan, traits, shape, True, made.held, made.held < made.stored)
    if (len(writer.kept) + 1) * turns * width > MOST_REGISTERS:
        return No("the reduction keeps too many values for each block to make the row")
    writer.restart()
    seen: dict[Source, int] = {}
    passes = [writer.element_pass(at, seen) for at in range(plan.last + 1)]
    return [
        "const u32 lane = threadIdx.x;",
        f"float row[{turns * width}] = {{}};",
        *pass_lines(writer, passes, "0u", list(range(made.stored)), True, "if (blockIdx.x == 0) "),
    ]
