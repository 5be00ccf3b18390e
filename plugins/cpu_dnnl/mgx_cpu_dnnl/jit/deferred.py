"""Deferred compilation: serializes an interpreted loop so that any process that loads the program can compile it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from mgx_core.types.dtype import DType
    from mgx_core.types.shape import Shape

    from .graph import Graph, Node

__all__ = ["describe", "excess_of", "node_of"]

# nanoseconds that the interpreter takes longer than compiled code: for an instruction on one element, and to start a row
ELEMENT_NS: Final = 0.01
ROW_NS: Final = 100.0


def describe(
    kind: str,
    graph: Graph,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    work: int,
    rows: int,
    name: str,
    details: Mapping[str, Any] | None = None,
) -> list[Any]:
    """Returns a loop as plain data, from which `compile_deferred` makes the compiled loop.

    work: instructions times elements; rows: how many the loop starts; details: what products need beside the graph.
    """
    at = {node.ident: i for i, node in enumerate(graph.nodes)}
    nodes = [
        [
            n.kind,
            n.dtype.name,
            [at[a.ident] for a in n.args],
            [n.extra[0], *graph.steps(n)] if n.kind == "load" else n.extra,
        ]
        for n in graph.nodes
    ]
    shapes = [[[s.dtype.name, list(s.lens()), list(s.strides())] for s in each] for each in (inputs, outputs)]
    results = [at[node.ident] for node in graph.outputs]
    excess = int(work * ELEMENT_NS + rows * ROW_NS)
    return [kind, list(graph.dims), sorted(graph.reduced), nodes, results, *shapes, excess, name, dict(details or {})]


def node_of(graph: Graph, kind: str, dtype: DType, operands: Sequence[Node], extra: Any) -> Node:
    """Adds a node to the graph, and returns it; not for loads, which depend on strides."""
    axes = frozenset[int]().union(*(a.axes for a in operands))
    level = max((a.level for a in operands), default=0)
    if kind == "reduce":
        axes, level = axes - graph.reduced, level + 1
    return graph.node(kind, dtype, tuple(operands), extra, axes, level)


def excess_of(deferred: Sequence[Any]) -> int:
    """Returns roughly how many nanoseconds slower than the compiled loop the interpreter is, per run."""
    return int(deferred[7])
