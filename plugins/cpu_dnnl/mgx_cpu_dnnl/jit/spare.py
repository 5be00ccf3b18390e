"""Loops that the machine runs, as plain data from which they are compiled later, by any process that has the program."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core.types.shape import Shape

from .graph import Graph

__all__ = ["excess_of", "spare_of"]

LANE: Final = 0.01  # nanoseconds that the machine takes longer for an instruction on one element, and for a row
ROW: Final = 100.0


def spare_of(
    kind: str, graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], work: int, rows: int, name: str
) -> list[Any]:
    """Returns a loop as plain data; work: its instructions, each on one element; rows: what its items are."""
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
    return [kind, list(graph.dims), sorted(graph.reduced), nodes, results, *shapes, int(work * LANE + rows * ROW), name]


def excess_of(spare: Sequence[Any]) -> int:
    """Returns about how many nanoseconds the machine takes longer for a run than the compiled loop."""
    return int(spare[7])
