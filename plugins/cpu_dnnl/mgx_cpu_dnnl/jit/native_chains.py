"""Selects the native module's loop for pointwise groups that are a short chain of float32 operations."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.types.traced_int import divides, usual

from .native_loop import chain_of, encode_chain
from .pointwise_plan import BLOCK, Plan

__all__ = ["native_numbers"]

MIN_ROW: Final = 64  # elements of a row; the overhead per row dominates in shorter ones
MIN_UNEVEN_ROW: Final = 256  # the same for rows with a partial vector at the end
MAX_AXES: Final = 12


def native_numbers(plan: Plan) -> list[int] | None:
    """Returns the arguments of the native loop (`chain_loop.h`); None for other groups."""
    (result, *more), (out, *_), (*outer, inner) = plan.results, plan.outputs, plan.axes
    if more or out.dtype is not dt.float32 or plan.tile is not None or len(outer) > MAX_AXES:
        return None
    if usual(inner.extent) < (MIN_ROW if divides(16, inner.extent) else MIN_UNEVEN_ROW):
        return None
    if inner.steps[-1] != 1 or any(step not in (0, 1) for step in inner.steps):
        return None
    chain = chain_of(result)
    encoded = None if chain is None or not chain.steps else encode_chain(chain, plan.loads)
    if encoded is None:
        return None
    order, operations = encoded
    steps = (n for axis in (inner, *outer) for n in (*(axis.steps[k] for k in order), axis.steps[-1]))
    return [
        inner.extent, BLOCK if plan.blocks else inner.extent, len(outer), len(order), len(operations) // 3,
        *(axis.extent for axis in outer), *(plan.loads[k].parameter for k in order), plan.inputs,
        *steps, *operations,
    ]  # fmt: skip
