"""Compiles interpreted loops from their descriptions, see `deferred.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.types.shape import Shape

from . import pointwise, reduce
from .byte_channels import Channels as FourChannels
from .byte_channels import FourPlan
from .byte_gemm_loops import BytePlan, ByteTiles
from .byte_pairs_loops import ChannelPlan, Channels, FilterPlan, Filters, PairPlan, Pairs
from .code import Code
from .deferred import Deferred, node_of
from .engine import Engine
from .gemm_epilogue import Epilogue, ProductPlan
from .gemm_loops import write
from .gemm_plan import GemmPlan, key_of
from .graph import Graph, Node
from .kernel import JitKernel
from .separate_epilogue import deferred_epilogue
from .space import Args

__all__ = ["compile_deferred"]

# plans of byte products and the writers of their code, by kind
PRODUCTS: Final[dict[str, tuple[Any, Any]]] = {
    BytePlan.kind: (BytePlan, ByteTiles),
    FourPlan.kind: (FourPlan, FourChannels),
    PairPlan.kind: (PairPlan, Pairs),
    ChannelPlan.kind: (ChannelPlan, Channels),
    FilterPlan.kind: (FilterPlan, Filters),
}


def compile_deferred(deferred: Sequence[Any], engine: Engine) -> JitKernel:
    """Returns the compiled kernel of a loop; deferred: from `describe`, or its fields as a program file has them."""
    loop = Deferred(*deferred)
    graph = Graph(loop.dims, frozenset(loop.reduced))
    made: list[Node] = []
    for entry in loop.nodes:
        made.append(_node(graph, entry, made))
    graph.outputs = [made[i] for i in loop.results]
    details = loop.details
    if loop.kind in PRODUCTS:
        plan_type, writer = PRODUCTS[loop.kind]
        plan = plan_type(*deferred_epilogue(graph, made, details), **details["flags"])
        return _product(plan.key, lambda c: writer(c, plan).write(), plan, engine, loop.name, details["work"])
    if loop.kind == "gemm":
        return _gemm(*deferred_epilogue(graph, made, details), details, engine, loop.name)
    read, written = ([Shape(dt.of(t), lens, strides) for t, lens, strides in e] for e in (loop.inputs, loop.outputs))
    build = pointwise.build if loop.kind == "pointwise" else reduce.build
    kernel = build(graph, read, written, engine, loop.name, interpret=False)
    assert not isinstance(kernel, No)
    return kernel


def _gemm(epilogue: Epilogue, args: Args, details: Mapping[str, Any], engine: Engine, name: str) -> JitKernel:
    flags = details["flags"]
    plan = GemmPlan(epilogue, **{**flags, "weights": dt.of(flags["weights"])}, args=args)
    return _product(key_of(plan, engine.lanes), lambda c: write(c, plan), plan, engine, name, details["work"])


def _product(
    key: str,
    build: Callable[[Code], None],
    plan: GemmPlan | ProductPlan,
    engine: Engine,
    name: str,
    work: Sequence[int],
) -> JitKernel:
    """Returns a product with its epilogue as a kernel; the step that it replaces knows its inputs and outputs."""
    count, grain, scratch_bytes = work
    return JitKernel(
        name, engine.function(key, build), count, grain, tuple(plan.args.values), scratch_bytes, inputs=0, outputs=0
    )


def _node(graph: Graph, entry: Sequence[Any], made: Sequence[Node]) -> Node:
    kind, dtype, args, rest = entry
    if kind == "load":
        param, *steps = rest
        return graph.load(param, dt.of(dtype), steps)
    return node_of(graph, kind, dt.of(dtype), [made[i] for i in args], rest)
