"""Kernels for fused pointwise ops: any broadcasts and strides, vectorized along the outputs' contiguous axis."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.types.shape import Shape

from .body import prepared
from .code import Code
from .deferred import describe
from .element import raw_type, supported
from .engine import Engine, Function
from .graph import Graph, read_in_place
from .integral_floats import keep_integral
from .interleave import compile_interleave
from .kernel import Interpreted, JitKernel, code_of
from .native_chains import native_numbers
from .native_loop import NativeLoop
from .native_moves import elements_moved, rows_copied, tiles_transposed
from .pointwise_plan import BLOCK, Plan, make_plan

__all__ = ["compile_copy", "compile_pointwise"]

GATHER_COST = 30  # what the interpreter takes to gather an operand that compiled loops transpose, in instructions
GRAIN = 24576  # minimum lane operations per thread
# minimum bytes of rows that the native module copies; AVX2 has no fast masked stores for loops over shorter tails
MIN_ROW, MIN_ROW_WIDE = 16, 128


def compile_pointwise(
    body: Module, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str = ""
) -> JitKernel | No:
    """Returns a kernel for a body of pointwise ops and views, or `No`; shapes have the strides of the memory."""
    dims = outputs[0].lens()
    if any(o.lens() != dims for o in outputs) or any(not supported(o.dtype) for o in outputs):
        return No(f"the outputs must have equal dims and supported types, got {', '.join(map(str, outputs))}")
    try:
        graph = prepared(body, inputs, dims, (), keep_integral)
    except Refused as error:
        return error.no
    return build(graph, inputs, outputs, engine, name or body.name)


def build(
    graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str, interpret: bool = True
) -> JitKernel:
    """Returns a kernel for a graph; interpret: allows the bytecode interpreter if LLVM would have to compile it."""
    plan = make_plan(graph, inputs, outputs, engine.lanes)
    dims = outputs[0].lens()
    elements = outputs[0].elements()
    cost = max(1, graph.cost)
    inplace = read_in_place(graph, outputs) if plan.tile is None else frozenset[int]()
    native, encoded = _native(plan, engine)
    code: Function | NativeLoop | None = native
    found, scratch, deferred = None, 0, None
    if code is None:
        plain = partial(make_plan, graph, inputs, outputs, engine.lanes, tiled=False)
        code, found = code_of(
            engine,
            plan.key,
            partial(_write, plan=plan),
            (lambda: _interpreted(plan if plan.tile is None else plain())) if interpret else None,
        )
    gathered = found is not None and plan.tile is not None
    if found is not None:
        encoded, scratch = found.numbers, found.scratch_bytes
        plan = plain() if gathered else plan
    work, row = _items(plan, elements, engine.lanes, native is None)
    if found is not None:
        excess = elements * (cost + GATHER_COST * gathered)
        deferred = describe("pointwise", graph, inputs, outputs, excess, elements // max(1, row), name)
    moved = sum(i.element_space() * i.dtype.size for i in inputs) + sum(o.elements() * o.dtype.size for o in outputs)
    return JitKernel(
        name=name,
        code=code,
        work=work,
        grain=max(1, GRAIN // max(1, row * (1 + cost // 4))),
        args=tuple(encoded),
        scratch_bytes=scratch,
        inputs=len(inputs),
        outputs=len(outputs),
        flops=elements * cost if dims or elements else 0,
        bytes=moved,
        inplace=inplace,
        deferred=deferred,
    )


def _items(plan: Plan, elements: int, lanes: int, paired: bool) -> tuple[int, int]:
    """Returns the number of work items of a plan, and the elements of one; paired: `plan.pairs` applies."""
    if elements == 0:
        return 0, 0
    if plan.tile is not None:
        work = -(-plan.axes[plan.tile].extent // lanes)
        work *= math.prod(a.extent for i, a in enumerate(plan.axes[:-1]) if i != plan.tile)
        return work, elements // work
    inner = math.prod(a.extent for a in plan.axes[-2 if plan.pairs and paired else -1 :])
    blocks = -(-inner // BLOCK) if plan.blocks else 1
    return elements // inner * blocks, min(inner, BLOCK) if plan.blocks else inner


def _native(plan: Plan, engine: Engine) -> tuple[NativeLoop | None, list[int]]:
    """Returns the native module's loop for a plan and its arguments, if there is one."""
    encoded = rows_copied(plan, MIN_ROW_WIDE if engine.wide else MIN_ROW)
    if encoded is not None:
        return NativeLoop("copy_rows"), encoded
    encoded = elements_moved(plan)
    if encoded is not None:
        return NativeLoop(f"move_rows_{engine.isa}_{plan.outputs[0].dtype.size}"), encoded
    encoded = tiles_transposed(plan)
    if encoded is not None:
        return NativeLoop(f"transpose_rows_{engine.isa}_{plan.outputs[0].dtype.size}"), encoded
    encoded = native_numbers(plan)
    if encoded is not None:
        return NativeLoop(f"chain_rows_{engine.isa}"), encoded
    return None, plan.args.values


def compile_copy(source: Shape, target: Shape, engine: Engine, name: str = "copy") -> JitKernel | No:
    """Returns a kernel that copies between two layouts of equal dims and converts the element type, or `No`."""
    if source.lens() != target.lens():
        return No(f"copies need equal dims, got {source} and {target}")
    graph = Graph(target.lens(), frozenset())
    if source.dtype is target.dtype:  # copies bits
        same = raw_type(source.dtype)
        if same is None:
            return No(f"loops do not copy {source.dtype}")
        source = Shape(same, source.lens(), source.strides())
        target = Shape(same, target.lens(), target.strides())
        interleaved = compile_interleave(source, target, engine, name)
        if interleaved is not None:
            return interleaved
    elif not supported(source.dtype) or not supported(target.dtype):
        return No(f"loops do not convert {source.dtype} to {target.dtype}")
    node = graph.load(0, source.dtype, source.strides())
    graph.outputs = [graph.convert(node, target.dtype)]
    return build(graph, [source], [target], engine, name)


def _write(c: Code, plan: Plan) -> None:
    """Generates the code; imports the generator lazily, since most processes never need it."""
    from .pointwise_loops import write

    write(c, plan)


def _interpreted(plan: Plan) -> Interpreted | None:
    """Encodes the loop as bytecode; imports the encoder lazily."""
    from .bytecode import encode_pointwise

    return encode_pointwise(plan)
