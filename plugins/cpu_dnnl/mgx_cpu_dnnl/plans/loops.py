"""Groups of pointwise ops and reductions as compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from mgx_core import Kernels, Module, No, Operation, Pointwise, Shape, TupleShape
from mgx_core.errors import Refused, or_refused
from mgx_core.ops.control import FusedReduce, PointwiseGroup
from mgx_core.ops.softmax import Logsoftmax, Softmax
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import dim_of, surely_equal

from ..emitter import CpuEmitter
from ..layout import same_order
from .offer import NUMBERS, offer, only

if TYPE_CHECKING:
    from ..jit.kernel import JitKernel

__all__ = ["PLANS", "emit_loop", "emit_reduce", "output_like", "allocate_results"]

PLANS = Kernels("cpu")


def supported_types(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    for ins in modules[0]:
        results = ins.result.items if isinstance(ins.result, TupleShape) else (ins.result,)
        for r in results:
            if isinstance(r, Shape) and r.dtype not in NUMBERS:
                return No(f"{ins.op.name} returns {r.dtype}, which loops do not support")
    return None


def output_like(e: CpuEmitter, dtype: Any, lens: Sequence[int], args: Sequence[Value]) -> Value:
    """Allocates a value with the layout of the first operand of equal extents, or else of an operand that it reduces."""
    return e.allocate_as(_like(dtype, tuple(lens), *(a.shape for a in args)))


@lru_cache(1024)
def _like(dtype: Any, lens: tuple[int, ...], *shapes: Shape) -> Shape:
    for shape in shapes:
        same = shape.rank == len(lens) > 1 and surely_equal(shape.lens(), lens)
        if same and not shape.broadcasted():  # broadcast axes have no order in memory
            return Shape(dtype, lens, same_order(shape))
    for shape in shapes:
        pairs = zip(lens, shape.lens(), strict=False)
        if shape.rank == len(lens) > 1 and all(dim_of(n) in (1, dim_of(d)) for n, d in pairs):
            return Shape(dtype, lens, same_order(Shape(shape.dtype, lens, shape.strides())))
    return Shape(dtype, lens)


def result_shapes(body: Module, given: Sequence[Value]) -> list[Shape]:
    """Returns the shapes of a group's results, with layouts chosen as in `output_like`."""
    return [_like(o.shape.dtype, tuple(o.shape.lens()), *(a.shape for a in given)) for o in body.outputs]


def allocate_results(e: CpuEmitter, kernel: JitKernel, given: Sequence[Value], shapes: Sequence[Shape]) -> list[Value]:
    """Returns memory for a loop's results: of an operand that has no other reader, if the kernel supports in-place; else new."""
    found: list[Value] = []
    for shape in shapes:
        same = (x for n, x in enumerate(given) if n in kernel.inplace and x.shape == shape)
        free = (x for x in same if sum(x.buffer is y.buffer for y in (*given, *found)) == 1)
        own = next((x for x in free if e.may_overwrite(x, shape.dtype)), None)
        found.append(e.allocate_as(shape) if own is None else own)
    return found


def _emit_group(
    e: CpuEmitter,
    body: Module,
    args: Sequence[Value | None],
    axes: Any,
    compiled: Callable[[list[Shape], list[Shape]], JitKernel | No],
    kind: str,
) -> Results:
    """Emits a group as one loop, from the kernel cache if it was compiled for these shapes before."""
    given = [a for a in args if a is not None]
    inputs, results = [a.shape for a in given], result_shapes(body, given)
    kernel = e.shared.kernels.kernel(body, axes, [*inputs, *results], lambda: compiled(inputs, results))
    outputs = allocate_results(e, kernel, given, results)
    e.loop(kernel, given, outputs, kind)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


@offer(PLANS, PointwiseGroup, when=supported_types, name="loop")
def emit_loop(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    from ..jit.pointwise import compile_pointwise

    body = modules[0]
    return _emit_group(e, body, args, None, lambda xs, ys: compile_pointwise(body, xs, ys, e.engine), "loop")


@offer(PLANS, FusedReduce, when=supported_types, name="reduce-loop")
def emit_reduce(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    from ..jit.reduce import compile_reduce

    body, axes = modules[0], op.axes
    return _emit_group(e, body, args, axes, lambda xs, ys: compile_reduce(body, axes, xs, ys, e.engine), "reduce")


@offer(PLANS, Softmax, Logsoftmax, when=only(NUMBERS), name="norm-loop")
def emit_norm(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    given = [a for a in args if a is not None]
    return _emit_op(e, op, args, given[0].shape.dtype, given[0].lens)


def _emit_op(e: CpuEmitter, op: Any, args: Sequence[Value | None], dtype: DType, lens: Sequence[int]) -> Value:
    """Emits one op as a loop; its result has these extents."""
    from ..jit.single_op import compile_op

    given = [a for a in args if a is not None]
    output = output_like(e, dtype, lens, given)
    kernel = or_refused(compile_op(op, [None if a is None else a.shape for a in args], [output.shape], e.engine))
    e.loop(kernel, given, [output])
    return output


def elementwise(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
    if not isinstance(op, Pointwise) and not op.combine:
        return No("the op is neither pointwise nor a reduction")
    if any(s is None for s in inputs):
        return No("an operand is absent")
    if len(inputs) > 1 and op.combine:
        return No("the axes are an operand, not an attribute")
    return only(NUMBERS)(op, inputs, modules)


@offer(PLANS, when=elementwise, name="loop-of-one")
def emit_one(e: CpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Value | None]) -> Results:
    """Emits a single pointwise op or reduction (of unfused programs)."""
    result = op.infer(*(Shape(a.shape.dtype, a.lens) for a in args if a is not None))
    if result.dtype not in NUMBERS:
        raise Refused(f"results of type {result.dtype} are not supported")
    return _emit_op(e, op, args, result.dtype, result.lens())
