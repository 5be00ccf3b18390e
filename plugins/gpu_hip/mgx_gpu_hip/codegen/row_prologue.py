"""Prologue of one-row kernels: a fused reduction over the row, whose result stays in registers."""

from __future__ import annotations

from dataclasses import dataclass

from mgx_core import No
from mgx_core import dtype as dt

from .bodies import Source
from .reduce_rows import MAX_KEPT, MAX_REGISTERS, pass_lines
from .reductions import Plan
from .row_passes import RowShape, RowWriter
from .source import DeviceTraits

__all__ = ["RowPrologue", "row_prologue"]


@dataclass(frozen=True)
class RowPrologue:
    """A reduction over one row, with the surrounding pointwise work, one of whose results is kept in registers.

    held: index of that result; stored: number of results that the kernel stores, the first ones of `plan`.
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
        """Most elements of the row per thread."""
        return MAX_KEPT


def row_prologue(prologue: RowPrologue, threads: int, turns: int, width: int, traits: DeviceTraits) -> list[str] | No:
    """Returns statements that compute a thread's part of `row`: `width` adjacent elements in each of `turns` iterations.

    The first block stores the results to be stored.
    """
    plan = prologue.plan
    if plan.rows != 1 or plan.row_outputs or len(plan.reduced.dims) != 1:
        return No("the reduction is not over one row")
    if turns * width > MAX_KEPT or threads > traits.max_threads:
        return No(f"a row of {plan.length} elements is too long for each block to compute it")
    shape = RowShape(width, threads, turns, turns * threads * width == plan.length)
    writer = RowWriter(plan, traits, shape, True, prologue.held, prologue.held < prologue.stored)
    if (len(writer.kept) + 1) * turns * width > MAX_REGISTERS:
        return No("the reduction needs too many registers for each block to compute the row")
    writer.restart()
    seen: dict[Source, int] = {}
    passes = [writer.element_pass(at, seen) for at in range(plan.last + 1)]
    return [
        "const u32 lane = threadIdx.x;",
        f"float row[{turns * width}] = {{}};",
        *pass_lines(writer, passes, "0u", list(range(prologue.stored)), True, "if (blockIdx.x == 0) "),
    ]
