"""Kernels for fused pointwise ops: any broadcasts and strides, vectorized along the outputs' contiguous axis."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from mgx_core.errors import No, Refused
from mgx_core.ir.module import Module
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.shape import Shape

from .body import prepared
from .code import Code
from .cost import grain_for
from .deferred import describe
from .element import raw_type, supported
from .engine import Engine, Function
from .graph import Graph, read_in_place
from .integral_floats import keep_integral
from .interleave import compile_interleave
from .kernel import Interpreted, JitKernel
from .native_chains import native_numbers
from .native_loop import NativeLoop
from .native_moves import elements_moved, rows_copied, tiles_transposed
from .pointwise_plan import BLOCK, Plan, make_plan

__all__ = ["build", "build_ready", "compile_copy", "compile_pointwise"]

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
    plain = partial(make_plan, graph, inputs, outputs, engine.lanes, tiled=False)
    coded = _coded(plan, plain, engine, interpret)
    if coded is None:
        coded = _Coded(plan, engine.function(plan.key, partial(_write, plan=plan)), plan.args.values)
    return _kernel(graph, inputs, outputs, plan, coded, name)


def build_ready(
    graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], engine: Engine, name: str
) -> JitKernel | None:
    """Returns a kernel for a graph; None if LLVM would have to compile it."""
    plan = make_plan(graph, inputs, outputs, engine.lanes)
    plain = partial(make_plan, graph, inputs, outputs, engine.lanes, tiled=False)
    coded = _coded(plan, plain, engine, True)
    return None if coded is None else _kernel(graph, inputs, outputs, plan, coded, name)


class _Coded(NamedTuple):
    """The code of a loop, and its arguments; plan: divides the work into items."""

    plan: Plan
    code: Function | NativeLoop
    args: Sequence[int]
    scratch_bytes: int = 0
    interpreted: bool = False


def _coded(plan: Plan, plain: Callable[[], Plan], engine: Engine, interpret: bool) -> _Coded | None:
    """Returns code that LLVM need not compile; plain: makes the plan without tiles, for the interpreter."""
    native, encoded = _native(plan, engine)
    if native is not None:
        return _Coded(plan, native, encoded)
    code = engine.found(plan.key, partial(_write, plan=plan))
    if code is not None:
        return _Coded(plan, code, plan.args.values)
    if interpret and engine.interpreter is not None:
        plan = plan if plan.tile is None else plain()
        found = _interpreted(plan)
        if found is not None:
            return _Coded(plan, engine.interpreter, found.numbers, found.scratch_bytes, True)
    return None


def _kernel(
    graph: Graph, inputs: Sequence[Shape], outputs: Sequence[Shape], plan: Plan, coded: _Coded, name: str
) -> JitKernel:
    """Returns the kernel of a graph; plan: of the compiled loop."""
    dims, elements, cost = graph.dims, outputs[0].elements(), max(1, graph.cost)
    work, row = _items(coded, elements)
    deferred = None
    if coded.interpreted:
        slower = elements * (cost + GATHER_COST * (plan.tile is not None))
        deferred = describe("pointwise", graph, inputs, outputs, slower, elements // max(1, row), name)
    moved = sum(i.element_space() * i.dtype.size for i in inputs) + sum(o.elements() * o.dtype.size for o in outputs)
    return JitKernel(
        name=name,
        code=coded.code,
        work=work,
        grain=grain_for(GRAIN, row * (1 + cost // 4)),
        args=tuple(coded.args),
        scratch_bytes=coded.scratch_bytes,
        inputs=len(inputs),
        outputs=len(outputs),
        flops=elements * cost if dims or elements else 0,
        bytes=moved,
        inplace=read_in_place(graph, outputs) if plan.tile is None else frozenset(),
        deferred=deferred,
    )


def _items(coded: _Coded, elements: int) -> tuple[int, int]:
    """Returns the number of work items of a loop, and the elements of one."""
    plan = coded.plan
    if elements == 0:
        return 0, 0
    if plan.tile is not None:
        work = -(-plan.axes[plan.tile].extent // plan.lanes)
        work *= math.prod(a.extent for i, a in enumerate(plan.axes[:-1]) if i != plan.tile)
        return work, elements // work
    paired = plan.pairs and not isinstance(coded.code, NativeLoop)
    inner = math.prod(a.extent for a in plan.axes[-2 if paired else -1 :])
    blocks = -(-inner // BLOCK) if plan.blocks else 1
    return elements // inner * blocks, BLOCK if plan.blocks else inner


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
