"""Products whose epilogue is a loop of its own: they run before LLVM has compiled both as one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, Final, Protocol

from mgx_core import dtype as dt
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape
from mgx_core.types.traced_int import value_of

from .code import Code
from .deferred import Deferred, describe, node_of
from .engine import Engine, Function
from .gemm_epilogue import Epilogue, Product, ProductPlan
from .gemm_plan import GemmPlan
from .graph import Graph, Node
from .kernel import JitKernel
from .native_gemm import native_numbers
from .native_loop import NativeLoop
from .pointwise import build_ready
from .space import Args

__all__ = ["Separate", "byte_kernel", "deferred_epilogue", "describe_product", "separate"]

FLAGS: Final = ("ragged", "narrow", "widened", "whole", "abreast", "filled")
SUM_BYTES: Final = 4  # bytes of a sum
PASS_COST: Final = 30  # what reading and writing a sum again costs, in interpreted instructions


class Writer(Protocol):
    """Generates the code of a plan."""

    def write(self) -> None: ...


class Separate(NamedTuple):
    """A product that stores its sums in the workspace, its arguments, and the loop that applies the epilogue to them."""

    first: Function | NativeLoop
    args: Sequence[int]
    second: JitKernel

    def install(self, kernel: JitKernel, product: Product, deferred: Deferred) -> None:
        """Completes the kernel of a product that has the first loop's code; deferred: describes both as one."""
        kernel.deferred, kernel.second = deferred, self.second
        kernel.inplace &= self.second.inplace
        kernel.scratch_bytes = max(kernel.scratch_bytes, self.second.scratch_bytes)
        kernel.workspace_bytes = product.outs[0].elements() * SUM_BYTES


def separate(plan: GemmPlan, numbers: Mapping[str, int], product: Product, engine: Engine) -> Separate | None:
    """Returns a float product as two loops that need no LLVM; None if there are none."""
    leading = 2 + plan.ragged
    plain = GemmPlan(_plain(product, plan.epilogue), plan.weights, plan.ragged, plan.narrow, plan.widened, plan.whole)
    args = native_numbers(plain, numbers)
    second = None if args is None else _second(product, plan.epilogue, leading, engine)
    return None if second is None else Separate(NativeLoop(f"packed_product_{engine.isa}"), args or (), second)


def _plain(product: Product, epilogue: Epilogue) -> Epilogue:
    """Returns the epilogue that stores the sums in the workspace, the last buffer."""
    others = epilogue.extra + len(epilogue.outs)
    return Epilogue(epilogue.sums, (epilogue.sums,), [product.columns], None, [], 0, others, frozenset())


def _second(product: Product, epilogue: Epilogue, leading: int, engine: Engine) -> JitKernel | None:
    """Returns the loop that applies an epilogue to the sums; None if there is none or LLVM would have to compile it."""
    if epilogue.graph is None or engine.interpreter is None:
        return None
    workspace = leading + epilogue.extra + len(epilogue.outs)
    graph = _on_sums(epilogue.graph, epilogue.at, leading, workspace, _sums_shape(product, epilogue.sums))
    return build_ready(graph, [product.a] * leading + list(product.extra), product.outs, engine, "epilogue")


def _on_sums(graph: Graph, at: int, leading: int, sums: int, out: Shape) -> Graph:
    """Returns an epilogue's graph with loads numbered as the buffers of the product; the sums are read from buffer `sums`."""
    made = Graph(graph.dims, graph.reduced)
    nodes: dict[int, Node] = {}
    for node in graph.nodes:
        if node.kind != "load":
            found = node_of(made, node.kind, node.dtype, [nodes[a.ident] for a in node.args], node.word)
            # loops over rows divide by a value of the row by its reciprocal, products do not
            by_value = node.kind == "prim" and node.args[-1].kind != "const"
            nodes[node.ident] = made.exact(found) if by_value else found
        elif node.parameter == at:
            nodes[node.ident] = made.load(sums, node.dtype, out.strides())
        else:
            param = node.parameter
            nodes[node.ident] = made.load(leading + param - (param > at), node.dtype, graph.steps(node))
    made.outputs = [nodes[n.ident] for n in graph.outputs]
    return made


def byte_kernel(
    product: Product,
    plan: ProductPlan,
    engine: Engine,
    writer: Callable[[Code, Any], Writer],
    name: str,
    *,
    leading: int,
    work: int,
    grain: int,
    scratch_bytes: int,
    weights: int,
    taps: int = 0,
) -> JitKernel:
    """Returns a product of bytes as a kernel; if LLVM would have to compile it, the epilogue is a loop of its own.

    plan.args: all but the epilogue's; writer: makes the generator of a plan's code; the rest as in `Product.kernel`.
    """
    before = Args(plan.args)
    epilogue = plan.epilogue
    epilogue.number(plan.args)
    code: Function | NativeLoop | None = engine.found(plan.key, lambda c: writer(c, plan).write())
    apart = _separate_bytes(product, plan, before, engine, writer, leading) if code is None else None
    if apart is not None:
        code = apart.first
    kernel = product.kernel(
        name, code or engine.function(plan.key, lambda c: writer(c, plan).write()), epilogue,
        plan.args.values if apart is None else apart.args, leading=leading, work=work, grain=grain,
        scratch_bytes=scratch_bytes, weights=weights, taps=taps,
    )  # fmt: skip
    if apart is not None:
        flags = {f.name: getattr(plan, f.name) for f in fields(plan) if f.name not in ("epilogue", "args")}
        apart.install(kernel, product, _described(plan.kind, flags, epilogue, plan.args, product, kernel))
    return kernel


def _separate_bytes(
    product: Product, plan: ProductPlan, args: Args, engine: Engine, writer: Callable[[Code, Any], Writer], leading: int
) -> Separate | None:
    """Returns a product of bytes as two loops that need no LLVM; None if there are none."""
    plain = _plain(product, plan.epilogue)
    plain.number(args)
    simple = replace(plan, epilogue=plain, args=args)
    first = engine.found(simple.key, lambda c: writer(c, simple).write())
    second = None if first is None else _second(product, plan.epilogue, leading, engine)
    return None if first is None or second is None else Separate(first, args.values, second)


def _sums_shape(product: Product, dtype: DType) -> Shape:
    """Returns the shape of the sums: the results' extents, contiguous along the columns, then row-major."""
    lens = product.outs[0].lens()
    strides, step = [0] * len(lens), 1
    column = product.axis % len(lens)
    for axis in (column, *(a for a in reversed(range(len(lens))) if a != column)):
        strides[axis] = step
        step *= lens[axis]
    return Shape(dtype, lens, strides)


def describe_product(plan: GemmPlan, product: Product, kernel: JitKernel) -> Deferred:
    """Returns a float product with its epilogue as plain data, see `deferred.py`; kernel: has its partition of the work."""
    flags = {"weights": plan.weights.name} | {f: getattr(plan, f) for f in FLAGS}
    return _described("gemm", flags, plan.epilogue, plan.args, product, kernel)


def _described(
    kind: str, flags: dict[str, Any], epilogue: Epilogue, args: Args, product: Product, kernel: JitKernel
) -> Deferred:
    graph = epilogue.graph
    assert graph is not None
    at = {node.ident: i for i, node in enumerate(graph.nodes)}
    details = {
        "flags": flags,
        "values": [int(value_of(value)) for value in args.values],
        "places": dict(args.places),
        "sums": epilogue.sums.name,
        "outs": [o.name for o in epilogue.outs],
        "steps": list(epilogue.steps),
        "loads": [[at[node.ident], *steps] for node, *steps in epilogue.loads],
        "numbers": [at[node.ident] for node in epilogue.numbers],
        "at": epilogue.at,
        "extra": epilogue.extra,
        "work": [kernel.work, kernel.grain, kernel.scratch_bytes],
    }
    slower = product.outs[0].elements() * (epilogue.cost + PASS_COST)
    return describe(kind, graph, (), (), slower, product.a.lens()[0], kernel.name, details)


def deferred_epilogue(graph: Graph, nodes: Sequence[Node], details: Mapping[str, Any]) -> tuple[Epilogue, Args]:
    """Returns the epilogue and the arguments of a described product; nodes: the epilogue's, in order."""
    loads = [(nodes[i], row, column) for i, row, column in details["loads"]]
    outs = tuple(dt.of(name) for name in details["outs"])
    where = details["at"], details["extra"], frozenset[int](), [nodes[i] for i in details["numbers"]]
    args = Args()
    args.values, args.places = list(details["values"]), dict(details["places"])
    return Epilogue(dt.of(details["sums"]), outs, list(details["steps"]), graph, loads, *where), args
