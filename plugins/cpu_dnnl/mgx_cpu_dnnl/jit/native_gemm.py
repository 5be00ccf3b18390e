"""Products with packed weights by the native module: where terms and bounds are all that is put on the sums."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mgx_core import dtype as dt

from .gemm_plan import GemmPlan
from .graph import Graph, Node, walk
from .native_loop import Chain, bits_of, chain_of

__all__ = ["native_numbers"]

MOST_BEFORE: Final = 3  # terms that are added before bounds are put on the sums
MOST_AFTER: Final = 1
SLOTS: Final = 4
NUMBERS: Final = (
    "m", "n", "k", "lda", "depth", "rows", "group", "panels", "blocks", "groups", "near", "ahead", "rows_first",
    "lines",
)  # fmt: skip


class _Finish(NamedTuple):
    before: list[Node]
    paired: bool  # the last two of them are added to each other first
    bounds: list[float]  # none, the lower one, or both
    after: list[Node]


def native_numbers(plan: GemmPlan, numbers: Mapping[str, int]) -> Sequence[int] | None:
    """Returns what the native loop is told, in its order (`product_loop.h`); None for work that it does not do."""
    behind = plan.behind
    if behind.outs != (dt.float32,) or plan.widened:
        return None
    finish = _Finish([], False, [], []) if behind.graph is None else _finish(behind.graph, behind.at)
    if finish is None:
        return None
    beside = 2 + plan.ragged
    terms = []
    for node in (*finish.before, *finish.after):
        _, step, by_column = next(load for load in behind.loads if load[0] is node)
        if by_column != 1:
            return None
        parameter = node.extra[0]
        terms += [beside + parameter - (parameter > behind.at), step]
    bounds = [bits_of(x) for x in finish.bounds]
    return [
        *(numbers[word] for word in NUMBERS), int(plan.whole), int(plan.ragged), int(plan.narrow),
        int(plan.weights is dt.bfloat16), beside + behind.extra, behind.steps[0],
        len(finish.before), int(finish.paired), len(bounds), len(finish.after), *bounds, *[0] * (2 - len(bounds)),
        *terms, *[0] * (2 * SLOTS - len(terms)),
    ]  # fmt: skip


def _finish(graph: Graph, at: int) -> _Finish | None:
    """Returns the terms before and behind the bounds of a chain that begins with the sums."""
    starts = [n for n in walk(graph.outputs) if n.kind == "load" and n.extra[0] == at]
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
    if high is not None and (low is None or not low <= high):  # with both in order it is all one which comes first
        return None
    if len(before) > MOST_BEFORE or len(after) > MOST_AFTER or low != low:
        return None
    return _Finish(before, paired, [x for x in (low, high) if x is not None], after)
