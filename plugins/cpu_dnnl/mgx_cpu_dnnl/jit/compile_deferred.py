"""Compiles interpreted loops from their descriptions, see `deferred.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.types.shape import Shape

from . import pointwise, reduce
from .engine import Engine
from .graph import Graph, Node
from .kernel import JitKernel

__all__ = ["compile_deferred"]


def compile_deferred(deferred: Sequence[Any], engine: Engine) -> JitKernel:
    """Returns the compiled kernel of a loop that `describe` has described."""
    kind, dims, reduced, nodes, results, inputs, outputs, _, name = deferred
    graph = Graph(dims, frozenset(reduced))
    made: list[Node] = []
    for entry in nodes:
        made.append(_node(graph, entry, made))
    graph.outputs = [made[i] for i in results]
    read, written = ([Shape(dt.of(t), lens, strides) for t, lens, strides in each] for each in (inputs, outputs))
    build = pointwise.build if kind == "pointwise" else reduce.build
    kernel = build(graph, read, written, engine, name, interpret=False)
    assert not isinstance(kernel, No)
    return kernel


def _node(graph: Graph, entry: Sequence[Any], made: Sequence[Node]) -> Node:
    kind, dtype, args, extra = entry
    if kind == "load":
        param, *steps = extra
        return graph.load(param, dt.of(dtype), steps)
    operands = tuple(made[i] for i in args)
    axes = frozenset[int]().union(*(a.axes for a in operands))
    level = max((a.level for a in operands), default=0)
    if kind == "reduce":
        axes, level = axes - graph.reduced, level + 1
    return graph.node(kind, dt.of(dtype), operands, extra, axes, level)
