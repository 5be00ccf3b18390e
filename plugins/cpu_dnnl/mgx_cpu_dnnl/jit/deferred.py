"""Deferred compilation: serializes an interpreted loop so that any process that loads the program can compile it later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from mgx_core.named_tuples import NamedTuple
from mgx_core.types.traced_int import value_of

if TYPE_CHECKING:
    from mgx_core.types.dtype import DType
    from mgx_core.types.shape import Shape

    from .graph import Graph, Node

__all__ = ["Deferred", "describe", "node_of"]

# nanoseconds that the interpreter takes longer than compiled code: for an instruction on one element, and to start a row
ELEMENT_NS: Final = 0.01
ROW_NS: Final = 100.0


class Deferred(NamedTuple):
    """A loop as plain data, which program files store as a list.

    kind: the compiler of the loop; reduced: axes that are summed; nodes: kind, type, operands and details of each, operands as
    positions in this list, like `results`; inputs, outputs: type, extents and strides of each; excess: nanoseconds that a run
    interpreted takes longer than compiled, roughly; details: what products need beside the graph.
    """

    kind: str
    dims: list[int]
    reduced: list[int]
    nodes: list[list[Any]]
    results: list[int]
    inputs: list[list[Any]]
    outputs: list[list[Any]]
    excess: int
    name: str
    details: dict[str, Any]


def describe(
    kind: str,
    graph: Graph,
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    work: int,
    rows: int,
    name: str,
    details: Mapping[str, Any] | None = None,
) -> Deferred:
    """Returns the description of a loop; work: instructions times elements; rows: how many the loop starts."""
    at = {node.ident: i for i, node in enumerate(graph.nodes)}
    nodes = [
        [
            n.kind,
            n.dtype.name,
            [at[a.ident] for a in n.args],
            [n.parameter, *graph.steps(n)] if n.kind == "load" else n.word,
        ]
        for n in graph.nodes
    ]
    read, written = ([[s.dtype.name, list(s.lens()), list(s.strides())] for s in each] for each in (inputs, outputs))
    results = [at[node.ident] for node in graph.outputs]
    excess = int(value_of(work) * ELEMENT_NS + value_of(rows) * ROW_NS)  # an estimate for the current extents
    reduced, own = sorted(graph.reduced), dict(details or {})
    return Deferred(kind, list(graph.dims), reduced, nodes, results, read, written, excess, name, own)


def node_of(graph: Graph, kind: str, dtype: DType, operands: Sequence[Node], word: str) -> Node:
    """Adds a node to the graph, and returns it; not for loads, which depend on strides."""
    axes = frozenset[int]().union(*(a.axes for a in operands))
    level = max((a.level for a in operands), default=0)
    if kind == "reduce":
        axes, level = axes - graph.reduced, level + 1
    return graph.node(kind, dtype, tuple(operands), word, axes, level)
