"""Kernels for reductions fused with pointwise ops before and after them, vectorized along or across rows.

Rows: the contiguous axis is reduced; an item is a row, vectors run along it, lanes are reduced at its end.
Columns: the contiguous axis is kept; an item is a vector of adjacent rows, whose lanes are independent.
Reductions that depend on each other run in successive passes; expensive values are stored in scratch memory between passes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from mgx_core import dtype as dt
from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.types.shape import Shape

from .body import prepared
from .code import BITS, Code
from .cost import grain_for
from .deferred import describe
from .element import elem_of, supported
from .engine import Engine, Function
from .graph import Graph, Node, read_in_place, walk
from .integral_floats import keep_integral
from .kernel import Interpreted, JitKernel, code_of
from .native_columns import native_numbers
from .native_loop import NativeLoop
from .reduce_plan import Plan, items_of, make_plan, padded

__all__ = ["compile_reduce", "simplify"]

GRAIN = 24576


def compile_reduce(
    body: Module,
    axes: Sequence[int],
    inputs: Sequence[Shape],
    outputs: Sequence[Shape],
    engine: Engine,
    name: str = "",
) -> JitKernel | No:
    """Returns a kernel for reductions over `axes` and pointwise ops, or `No`; shapes have the strides of the memory."""
    if any(not supported(o.dtype) for o in outputs):
        return No(f"loops do not support the types of the outputs: {', '.join(map(str, outputs))}")
    dims = _space(body, inputs)
    if dims is None:
        return No("the group has no reduction")
    axes = tuple(a % len(dims) for a in axes) or tuple(range(len(dims)))
    try:
        graph = prepared(body, inputs, dims, axes, simplify, keep_integral)
    except Refused as error:
        return error.no
    return build(graph, inputs, outputs, engine, name or body.name)


def _space(body: Module, inputs: Sequence[Shape]) -> list[int] | None:
    """Returns the dims of the reductions' operands."""
    parameters = body.parameters
    if any(p.shape.dims != x.dims for p, x in zip(parameters.values(), inputs, strict=True)):
        body = body.clone(parameters={n: x.as_standard() for n, x in zip(parameters, inputs, strict=True)})
    for ins in body:
        if ins.op.combine:
            return ins.inputs[0].shape.lens()
    return None


def build(
    graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str, interpret: bool = True
) -> JitKernel | No:
    """Returns a kernel for a graph; interpret: allows the bytecode interpreter if LLVM would have to compile it."""
    plan = make_plan(graph, inputs, outputs, engine)
    if isinstance(plan, No):
        return plan
    rows = math.prod(a.extent for a in plan.kept)
    cost = max(1, sum(n.cost + 1 for n in plan.nodes))
    lanes = plan.width
    work = items_of(plan)
    row = plan.count * lanes
    encoded = native_numbers(plan)
    code: Function | NativeLoop = NativeLoop(f"column_sums_{engine.isa}")
    found = None
    if encoded is None:
        key = f"{plan.key} {'first' if plan.pieces else 'whole'}"
        write = partial(_write, plan=plan, phase=int(plan.pieces > 0))
        code, found = code_of(engine, key, write, partial(_interpreted, plan, engine) if interpret else None)
    if found is not None:
        encoded = found.numbers
    deferred = describe("reduce", graph, inputs, outputs, rows * plan.count * cost, work, name) if found else None
    moved = sum(i.element_space() * i.dtype.size for i in inputs) + sum(o.elements() * o.dtype.size for o in outputs)
    wide = max((BITS[elem_of(n.dtype)] for n in plan.store), default=0) // 8
    after: tuple[JitKernel, ...] = ()
    if plan.pieces:
        last = engine.function(f"{plan.key} last", lambda c: _write(c, plan, 2))
        args = tuple(plan.args.values)
        after = (JitKernel(f"{name} join", last, work, 1 << 20, args, 0, len(inputs), len(outputs)),)
        slots = sum(n.kind == "reduce" for n in plan.nodes) * work * plan.pieces * plan.width
        work, row = work * plan.pieces, row // plan.pieces
    return JitKernel(
        name=name,
        code=code,
        work=work,
        grain=grain_for(GRAIN, row * (1 + cost // 4)),
        args=tuple(plan.args.values if encoded is None else encoded),
        scratch_bytes=max(padded(row) * max(wide, 1) * len(plan.store) + 256, found.scratch_bytes if found else 0),
        inputs=len(inputs),
        outputs=len(outputs),
        flops=rows * plan.count * cost,
        bytes=moved,
        inplace=frozenset() if plan.pieces and not plan.stored_at_once else read_in_place(graph, outputs),
        after=after,
        workspace_bytes=8 * slots if after else 0,
        deferred=deferred,
    )


def _write(c: Code, plan: Plan, phase: int) -> None:
    """Generates the code; imports the generator lazily, since most processes never need it."""
    from .reduce_loops import write

    write(c, plan, phase)


def _interpreted(plan: Plan, engine: Engine) -> Interpreted | None:
    """Encodes the loop as bytecode; imports the encoder lazily."""
    from .bytecode import encode_reduce

    return encode_reduce(plan, engine.lanes)


def simplify(graph: Graph) -> None:
    """Specializes softmax: exponentials of values <= 0, a sum that is at least 1, and a maximum that ignores NaN.

    With M the maximum of a, and S the sum of exp(a - M): the exponents are <= 0 and one of them is 0, so S is at least 1
    (or NaN).  A NaN in a makes S NaN, so the maximum may ignore it if all outputs depend on S.
    """
    sums = [n for n in walk(graph.outputs) if _is_softmax_sum(n)]
    if not sums:
        return
    exponentials = {n.args[0].ident for n in sums}
    totals = {n.ident for n in sums}
    tops = {n.args[0].args[0].args[1].ident for n in sums if all(any(m is n for m in walk([o])) for o in graph.outputs)}
    rewritten: dict[int, Node] = {}
    for node in walk(graph.outputs):
        args = tuple(rewritten[a.ident] for a in node.args)
        word = node.word
        if node.ident in exponentials:
            word = "exp_negative"
        elif node.ident in totals:
            word = "total"
        elif node.ident in tops:
            word = "top"
        if word == node.word and all(a is b for a, b in zip(args, node.args, strict=True)):
            rewritten[node.ident] = node
        else:
            rewritten[node.ident] = graph.node(node.kind, node.dtype, args, word, node.axes, node.level)
    graph.outputs = [rewritten[o.ident] for o in graph.outputs]


def _is_softmax_sum(node: Node) -> bool:
    if node.kind != "reduce" or node.word != "sum" or node.dtype is not dt.float32:
        return False
    e = node.args[0]
    if e.kind != "prim" or e.word != "exp":
        return False
    d = e.args[0]
    if d.kind != "prim" or d.word != "sub":
        return False
    a, top = d.args
    return top.kind == "reduce" and top.word == "max" and top.args[0] is a
