"""Decorators that register plans of this target, by an emit function or by a source generator."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from mgx_core import Kernels, Module, No, Operation, Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.concat import Concat
from mgx_core.ops.control import FusedReduce, PointwiseGroup
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.pad import Pad
from mgx_core.targets.emitted import Check, Emit
from mgx_core.targets.emitted import offer as offer_emitted
from mgx_core.targets.kernel import op_of
from mgx_core.targets.kernel_emission import Results
from mgx_core.targets.values import Value, packed_strides
from mgx_core.types.dim import bounds
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import int_or_traced

from ..codegen.extents import marked
from ..codegen.generators import Generator
from ..emitter import GpuEmitter
from ..kernel import GpuKernel
from .readers import allocating, concat_part, readable_strides

__all__ = ["counting", "emit_generated", "generated", "offer", "output_like"]

ANY_STRIDES: Final = (Pointwise, PointwiseGroup, FusedReduce, Concat, Pad)  # their kernels write any slice of memory


def offer(
    table: Kernels,
    *ops: type[Operation],
    name: str,
    when: Check | None = None,
    write: Generator | None = None,
    open_axis: Callable[[Any], int] | None = None,
) -> Callable[[Emit], Emit]:
    """Decorator: registers an emit function as `mgx_core.targets.emitted.offer` does; declines strings and complex numbers.

    write: the source generator, if there is one.
    """

    def on_device(op: Operation, inputs: Sequence[AnyShape | None], modules: Sequence[Module]) -> No | None:
        if any(isinstance(s, Shape) and s.dtype.kind in "sc" for s in inputs):
            return No("strings and complex numbers run on the host")
        return None if when is None else when(op, inputs, modules)

    make = partial(GpuKernel, write=write)
    return offer_emitted(table, *ops, name=name, when=on_device, open_axis=open_axis, make=make)


def generated(
    table: Kernels, write: Generator, *ops: type[Operation], name: str = "generated", when: Check | None = None
) -> None:
    """Registers kernels whose source `write` generates for the given operands."""

    def emit(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        return emit_generated(e, write, op, modules, args)

    offer(table, *ops, name=name, when=when, write=write)(emit)


def counting(table: Kernels, write: Generator, op: type[Operation], open_axis: Callable[[Any], int]) -> None:
    """Registers kernels that count their rows: slices of the result along `open_axis`."""

    def emit(e: GpuEmitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        shapes = [None if a is None else Shape(a.shape.dtype, a.lens) for a in args]
        result = op.result(shapes)
        if not result.dynamic():  # operands without elements have no rows
            return e.allocate(result.dtype, result.lens())
        result = op.bounded(shapes, [None if a is None else e.constant(a) for a in args])
        axis = open_axis(op) % result.rank
        lens = [int_or_traced(bounds(d)[1]) if a == axis else d for a, d in enumerate(result.dims)]
        rows_outermost = [axis, *(a for a in range(len(lens)) if a != axis)]
        found = e.allocate(result.dtype, lens, packed_strides(lens, rows_outermost))
        count = e.allocate(dt.int64, [1])
        e.launch(e.generate(write, op, modules, args, [found, count]), args, [found, count])
        return found, count

    offer(table, op, name="generated", write=write, open_axis=open_axis)(emit)


def emit_generated(e: GpuEmitter, write: Generator, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Results:
    """Emits a generated kernel with newly allocated results.  Errors: Refused."""
    if any(isinstance(a, tuple) for a in args):
        raise Refused("an operand is a tuple")
    given: list[Value | None] = list(args)
    shapes = [None if a is None else Shape(a.shape.dtype, a.lens) for a in given]
    result = _results(modules[0]) if modules else op.result(shapes, modules)
    items = result.items if isinstance(result, TupleShape) else (result,)
    if e.current is not None:  # its extents may be symbolic
        own = e.current.result.items if isinstance(e.current.result, TupleShape) else (e.current.result,)
        items = tuple(map(marked, items, own)) if len(own) == len(items) else items
    fixed = [r for r in items if isinstance(r, Shape) and not r.dynamic()]
    if len(fixed) < len(items):
        raise Refused(f"the result {result} is not a tensor")
    like = [a for a in given if a is not None]
    # no member of a group, and no kernel that requires dense results
    now = allocating(e)
    whole = now is not None and op_of(now) is op and isinstance(op, ANY_STRIDES)
    numbers = range(len(fixed)) if whole else [None] * len(fixed)
    free = isinstance(op, (Pointwise, PointwiseGroup))
    outputs = [output_like(e, r.dtype, r.lens(), like, n, free) for n, r in zip(numbers, fixed, strict=True)]
    e.kernel(write, op, modules, given, outputs)
    return outputs[0] if not isinstance(result, TupleShape) else tuple(outputs)


def _results(body: Module) -> Any:
    shapes = body.output_shapes()
    return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def output_like(
    e: GpuEmitter,
    dtype: DType,
    lens: Sequence[int],
    args: Sequence[Value],
    number: int | None = None,
    free: bool = False,
) -> Value:
    """Allocates a value with the memory order of the operand with the most extents other than 1, of several the first one.

    Operands have its rank, ignoring leading extents of 1.  In the order that all readers need instead, if they would copy it.
    number: of the current instruction's result, which is allocated in the concatenation that reads it; None for one that may
    be a member's.  free: the kernel writes any order as fast.
    """
    strides = _strides_like(lens, args)
    shape = Shape(dtype, lens, strides)
    readable = readable_strides(e, shape, number, free) if len(lens) > 2 else None
    part = None if readable is not None or number is None else concat_part(e, shape, number)
    return part or e.allocate(dtype, lens, readable or strides)


def _strides_like(lens: Sequence[int], args: Sequence[Value]) -> list[int] | None:
    """Returns packed strides in the memory order of an operand; None if there is none with an order."""
    rank = len(lens)
    for a in sorted(args, key=lambda a: -sum(n != 1 for n in a.lens)):
        before = len(a.lens) - rank
        if rank < 3 or before < 0 or any(n != 1 for n in a.lens[:before]):
            continue
        dims, steps = a.lens[before:], a.strides[before:]
        if all(n == 1 for n in dims) or any(s == 0 and n != 1 for n, s in zip(dims, steps, strict=True)):
            continue
        real = sorted((i for i in range(rank) if dims[i] != 1), key=lambda i: -steps[i])
        for axis in range(rank):
            if dims[axis] == 1:
                real.insert(real.index(axis - 1) + 1 if axis - 1 in real else 0, axis)
        return packed_strides(list(lens), real)
    return None
