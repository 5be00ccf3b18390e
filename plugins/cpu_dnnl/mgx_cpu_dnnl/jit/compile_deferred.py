"""Compiles interpreted loops from their descriptions, see `deferred.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.types.shape import Shape

from . import pointwise, reduce
from .deferred import node_of
from .engine import Engine
from .gemm import compile_plan
from .graph import Graph, Node
from .kernel import JitKernel
from .separate_epilogue import deferred_plan

__all__ = ["compile_deferred"]


def compile_deferred(deferred: Sequence[Any], engine: Engine) -> JitKernel:
    """Returns the compiled kernel of a loop that `describe` has described."""
    kind, dims, reduced, nodes, results, inputs, outputs, _, name, details = deferred
    graph = Graph(dims, frozenset(reduced))
    made: list[Node] = []
    for entry in nodes:
        made.append(_node(graph, entry, made))
    graph.outputs = [made[i] for i in results]
    if kind == "product":
        return compile_plan(deferred_plan(graph, made, details), engine, name, *details["work"])
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
    return node_of(graph, kind, dt.of(dtype), [made[i] for i in args], extra)
