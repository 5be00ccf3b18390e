"""Products whose epilogue is a loop of its own: they run before LLVM has compiled both as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from mgx_core import dtype as dt
from mgx_core.types.shape import Shape

from .deferred import describe, node_of
from .engine import Engine
from .gemm_epilogue import Epilogue, Product
from .gemm_plan import GemmPlan
from .graph import Graph, Node, read_in_place
from .kernel import JitKernel
from .native_gemm import native_numbers
from .pointwise import build_ready

__all__ = ["Separate", "deferred_plan", "describe_product", "separate"]

PASS_COST: Final = 30  # what reading and writing a sum again costs, in interpreted instructions


class Separate(NamedTuple):
    """Arguments of the native product that stores its sums in the first result, and the loop that applies the epilogue there."""

    args: Sequence[int]
    second: JitKernel


def separate(plan: GemmPlan, numbers: Mapping[str, int], product: Product, engine: Engine) -> Separate | None:
    """Returns the product as two loops that need no LLVM; None if there are none."""
    epilogue, outs = plan.epilogue, product.outs
    if epilogue.graph is None or outs[0].dtype is not dt.float32 or engine.interpreter is None:
        return None
    plain = GemmPlan(
        Epilogue(dt.float32, (dt.float32,), epilogue.steps[:1], None, [], epilogue.at, epilogue.extra, frozenset()),
        plan.weights, plan.ragged, plan.narrow, plan.widened, plan.whole,
    )  # fmt: skip
    args = native_numbers(plain, numbers)
    leading = 2 + plan.ragged
    graph = _on_sums(epilogue.graph, epilogue.at, leading, leading + epilogue.extra, outs[0])
    if args is None or leading + epilogue.extra not in read_in_place(graph, outs):
        return None
    inputs = [product.a] * leading + list(product.extra)
    second = build_ready(graph, inputs, outs, engine, "epilogue")
    return None if second is None else Separate(args, second)


def _on_sums(graph: Graph, at: int, leading: int, sums: int, out: Shape) -> Graph:
    """Returns an epilogue's graph with loads numbered as the buffers of the product; the sums are read from buffer `sums`."""
    made = Graph(graph.dims, graph.reduced)
    nodes: dict[int, Node] = {}
    for node in graph.nodes:
        if node.kind != "load":
            nodes[node.ident] = node_of(made, node.kind, node.dtype, [nodes[a.ident] for a in node.args], node.extra)
        elif node.extra[0] == at:
            nodes[node.ident] = made.load(sums, dt.float32, out.strides())
        else:
            param = node.extra[0]
            nodes[node.ident] = made.load(leading + param - (param > at), node.dtype, graph.steps(node))
    made.outputs = [nodes[n.ident] for n in graph.outputs]
    return made


def describe_product(plan: GemmPlan, product: Product, kernel: JitKernel) -> list[Any]:
    """Returns the product with its epilogue as plain data, see `deferred.py`; kernel: has its partition of the work."""
    epilogue = plan.epilogue
    assert epilogue.graph is not None
    at = {node.ident: i for i, node in enumerate(epilogue.graph.nodes)}
    details = {
        "weights": plan.weights.name,
        "flags": [plan.ragged, plan.narrow, plan.widened, plan.whole, plan.abreast, plan.filled],
        "args": [[name, plan.args.values[place]] for name, place in plan.args.places.items()],
        "outs": [o.name for o in epilogue.outs],
        "steps": list(epilogue.steps),
        "loads": [[at[node.ident], *steps] for node, *steps in epilogue.loads],
        "at": epilogue.at,
        "extra": epilogue.extra,
        "work": [kernel.work, kernel.grain, kernel.scratch_bytes],
    }
    elements = product.outs[0].elements()
    slower = elements * (epilogue.cost + PASS_COST)
    return describe("product", epilogue.graph, (), (), slower, product.a.lens()[0], kernel.name, details)


def deferred_plan(graph: Graph, nodes: Sequence[Node], details: Mapping[str, Any]) -> GemmPlan:
    """Returns the plan that `describe_product` has described; graph: the epilogue; nodes: its nodes in order."""
    loads = [(nodes[i], row, column) for i, row, column in details["loads"]]
    outs = tuple(dt.of(name) for name in details["outs"])
    where = details["at"], details["extra"], frozenset[int]()
    epilogue = Epilogue(dt.float32, outs, list(details["steps"]), graph, loads, *where)
    plan = GemmPlan(epilogue, dt.of(details["weights"]), *details["flags"])
    plan.args.enter(dict(details["args"]))
    return plan
