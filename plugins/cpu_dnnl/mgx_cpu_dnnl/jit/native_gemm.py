"""Selects the native module's GEMM with packed weights, for epilogues that only add terms and clamp."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple

from .gemm_plan import GemmPlan
from .graph import Graph, Node, walk
from .native_loop import Chain, bits_of, chain_of

__all__ = ["native_numbers"]

MAX_BEFORE: Final = 3  # terms that are added before clamping
MAX_AFTER: Final = 1
SLOTS: Final = 4
NUMBERS: Final = (
    "m", "n", "k", "lda", "depth", "rows", "group", "panels", "blocks", "groups", "near", "ahead", "rows_first",
    "lines",
)  # fmt: skip


class _Finish(NamedTuple):
    before: list[Node]
    paired: bool  # the last two terms are added to each other first
    bounds: list[float]  # none, the lower bound, or both
    after: list[Node]


def native_numbers(plan: GemmPlan, numbers: Mapping[str, int]) -> Sequence[int] | None:
    """Returns the arguments of the native loop (`product_loop.h`); None if it does not support the epilogue."""
    epilogue = plan.epilogue
    if epilogue.outs != (dt.float32,) or plan.widened or plan.paired:
        return None
    finish = _Finish([], False, [], []) if epilogue.graph is None else _finish(epilogue.graph, epilogue.at)
    if finish is None:
        return None
    leading = 2 + plan.ragged
    terms = []
    for node in (*finish.before, *finish.after):
        _, step, by_column = next(load for load in epilogue.loads if load[0] is node)
        if by_column != 1:
            return None
        parameter = node.parameter
        terms += [leading + parameter - (parameter > epilogue.at), step]
    bounds = [bits_of(x) for x in finish.bounds]
    return [
        *(numbers[word] for word in NUMBERS), int(plan.whole), int(plan.ragged), int(plan.narrow),
        int(plan.weights is dt.bfloat16), leading + epilogue.extra, epilogue.steps[0],
        len(finish.before), int(finish.paired), len(bounds), len(finish.after), *bounds, *[0] * (2 - len(bounds)),
        *terms, *[0] * (2 * SLOTS - len(terms)),
    ]  # fmt: skip


def _finish(graph: Graph, at: int) -> _Finish | None:
    """Returns the terms added before and after clamping, of a chain that starts from the sums."""
    starts = [n for n in walk(graph.outputs) if n.kind == "load" and n.parameter == at]
    chain = chain_of(graph.outputs[0], starts[0]) if len(starts) == 1 else None
    return None if chain is None else _sorted(chain)


def _sorted(chain: Chain) -> _Finish | None:
    before: list[Node] = []
    bounds: dict[str, float] = {}
    after: list[Node] = []
    paired = False
    for name, operand in chain.steps:
        if name == "add" and isinstance(operand, Node) and not paired:
            paired = operand.kind == "prim"
            (after if bounds else before).extend(operand.args if paired else [operand])
        elif name in ("max", "min") and isinstance(operand, float) and name not in bounds and not after:
            bounds[name] = operand
        else:
            return None
    low, high = bounds.get("max"), bounds.get("min")
    if high is not None and (low is None or not low <= high):  # if low <= high, the order of the bounds does not matter
        return None
    if len(before) > MAX_BEFORE or len(after) > MAX_AFTER or low != low:
        return None
    return _Finish(before, paired, [x for x in (low, high) if x is not None], after)
