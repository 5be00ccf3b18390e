"""Selects the native module's loop for column sums of a short chain of float32 operations."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt

from .native_loop import chain_of, encode_chain
from .reduce_plan import Plan

__all__ = ["native_numbers"]

MAX_AXES: Final = 12


def native_numbers(plan: Plan) -> list[int] | None:
    """Returns the arguments of the native loop (`column_loop.h`); None for other reductions."""
    (result, *more), (out, *_) = plan.results, plan.outputs
    if not plan.columns or plan.pieces or plan.store or more or out.dtype is not dt.float32:
        return None
    if result.kind != "reduce" or result.word not in ("sum", "mean") or result.dtype is not dt.float32:
        return None
    if any(plan.full) or len(plan.axes) > MAX_AXES or any(step not in (0, 1) for step in plan.kept[-1].steps):
        return None
    chain = chain_of(result.args[0])
    encoded = None if chain is None else encode_chain(chain, plan.loads)
    if encoded is None or not plan.kept[-1].steps[-1]:
        return None
    order, operations = encoded
    steps = []
    for axis in plan.axes:
        steps += [*(axis.steps[k] for k in order), axis.steps[-1]]
    return [
        int(result.word == "mean"), plan.count, plan.width, len(plan.kept), len(plan.reduced), len(order),
        len(operations) // 3,
        *(axis.extent for axis in plan.axes), *(plan.loads[k].parameter for k in order), plan.inputs,
        *steps, *operations,
    ]  # fmt: skip
