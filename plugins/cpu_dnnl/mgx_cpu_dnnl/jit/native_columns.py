"""Sums of columns by the native module: of one float32 value that a few operations make of loads."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt

from .graph import Node
from .native_loop import bits_of, chain_of
from .reduce_plan import Plan

__all__ = ["native_numbers"]

KINDS: Final = {"add": 0, "mul": 1, "max": 2, "min": 3}
MOST_LOADS: Final = 7
MOST_AXES: Final = 12


def native_numbers(plan: Plan) -> list[int] | None:
    """Returns what the native loop is told, in its order (`column_loop.h`); None for other reductions."""
    (result, *more), (out, *_) = plan.results, plan.outputs
    if not plan.columns or plan.pieces or plan.store or more or out.dtype is not dt.float32:
        return None
    if result.kind != "reduce" or result.extra not in ("sum", "mean") or result.dtype is not dt.float32:
        return None
    if any(node.dtype is not dt.float32 for node in plan.loads) or any(plan.full):
        return None
    if len(plan.axes) > MOST_AXES or any(step not in (0, 1) for step in plan.kept[-1].steps):
        return None
    chain = chain_of(result.args[0])
    if chain is None or any(isinstance(o, Node) and o.kind != "load" for _, o in chain.steps):
        return None
    if len(plan.loads) > MOST_LOADS or not plan.kept[-1].steps[-1]:
        return None
    order = [plan.loads.index(chain.start)]  # the loop begins with its first load
    order += [k for k in range(len(plan.loads)) if k != order[0]]
    place = {plan.loads[k].ident: i for i, k in enumerate(order)}
    steps = []
    for axis in plan.axes:
        steps += [*(axis.steps[k] for k in order), axis.steps[-1]]
    operations = []
    for name, operand in chain.steps:
        at = (place[operand.ident], 0) if isinstance(operand, Node) else (-1, bits_of(operand))
        operations += [KINDS[name], *at]
    return [
        int(result.extra == "mean"), plan.count, plan.width, len(plan.kept), len(plan.reduced), len(order), len(chain.steps),
        *(axis.extent for axis in plan.axes), *(plan.loads[k].extra[0] for k in order), plan.inputs,
        *steps, *operations,
    ]  # fmt: skip
