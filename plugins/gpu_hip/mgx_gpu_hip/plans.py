"""How each op gets its steps: views, library products and convolutions, generated kernels for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction, Module, Operation, Shape, TupleShape
from mgx_core.errors import No
from mgx_core.targets.kernel import Kernel, Kernels

from .attention_plans import emit_attention
from .codegen.table import generates
from .emitter import Declined, Emitter
from .library_plans import emit_convolution, emit_group, emit_product
from .values import Value, packed_strides

__all__ = ["PLANS", "GpuKernel", "emit_op", "output_like"]

PLANS = Kernels("gpu")
ITEMS = {"get_tuple_elem": 0, "rnn_last_cell_output": 1}  # ops that name an item of a tuple


class GpuKernel(Kernel):
    """An op that becomes launches when the program is put together for concrete shapes."""

    __slots__ = ("modules", "name", "op")

    def __init__(self, op: Operation, modules: Sequence[Module]) -> None:
        self.name = f"device {op.name}"
        self.op = op
        self.modules = tuple(modules)

    def with_op(self, op: Operation) -> GpuKernel:
        return GpuKernel(op, self.modules)

    def run(self, args: Sequence[Any], modules: Sequence[Any] = (), run: Any = None) -> Any:
        """On host arrays, for what is decided only while running."""
        from mgx_core.ir.interpreter import Interpreter

        values = [a.to_host() if hasattr(a, "to_host") else a for a in args]
        return self.op.evaluate(values, self.modules, Interpreter().run)

    def __repr__(self) -> str:
        return self.name


@PLANS.plan()
def device(op: Operation, inputs: Sequence[Any], context: Any, modules: Sequence[Module] = ()) -> Kernel | No:
    """Every op for which there is a generator or a library plan."""
    if any(isinstance(s, Shape) and s.dtype.kind in "sc" for s in inputs):
        return No("strings and complex numbers stay on the host")
    known = op.name in ("group", "dot", "convolution", *ITEMS) or op.view is not None or generates(op)
    return GpuKernel(op, modules) if known else No(f"there is no generator for {op.name}")


def emit_op(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any], ins: Instruction) -> Any:
    """An op's steps.  Errors: Declined."""
    if op.name in ITEMS:
        return args[0][getattr(op, "index", ITEMS[op.name])]
    if op.view is not None and op.name != "fill":
        return _view(e, op, args)
    if op.name == "group":
        tag = op.tag
        if tag in ("dot", "convolution"):
            return emit_group(e, modules[0], args)
        if tag == "attention":
            return emit_attention(e, op, modules, args, ins)
        raise Declined(f"groups of kind {tag!r} run member by member")
    if op.name in ("dot", "convolution") and e.context.libraries is not None:
        marks = len(e.steps), len(e.buffers)
        try:
            return emit_product(e, *args) if op.name == "dot" else emit_convolution(e, op, *args)
        except Declined as why:
            e.withdraw(*marks)
            e.note(f"{op.name}: {why}; generated")
    return _generated(e, op, modules, args)


def _view(e: Emitter, op: Any, args: Sequence[Value | None]) -> Any:
    x = args[0]
    assert x is not None
    others = [a.shape for a in args[1:] if a is not None]
    if others and op.name not in ("multibroadcast", "broadcast"):
        raise Declined("an operand that says how to look at it is known only while running")
    found = op.view(x.shape, *others)
    if found is not None:
        return x.seen_as(*found)
    plain = e.row_major(x)
    found = op.view(plain.shape, *others)
    if found is not None:
        return plain.seen_as(*found)
    return _generated(e, op, (), args)


def _generated(e: Emitter, op: Any, modules: Sequence[Module], args: Sequence[Any]) -> Any:
    if any(isinstance(a, tuple) for a in args):
        raise Declined("an operand is a tuple")
    given: list[Value | None] = list(args)
    shapes = [None if a is None else Shape(a.shape.dtype, a.lens) for a in given]
    result = op.result(shapes, modules) if not modules else _results(modules[0])
    items = result.items if isinstance(result, TupleShape) else (result,)
    if any(not isinstance(r, Shape) or r.dynamic() for r in items):
        raise Declined(f"it gives {result}")
    like = [a for a in given if a is not None]
    outputs = [output_like(e, r.dtype, r.lens(), like) for r in items]
    e.kernel(op, modules, given, outputs)
    return outputs[0] if not isinstance(result, TupleShape) else tuple(outputs)


def _results(body: Module) -> Any:
    shapes = body.output_shapes()
    return shapes[0] if len(shapes) == 1 else TupleShape(shapes)


def output_like(e: Emitter, dtype: Any, lens: Sequence[int], args: Sequence[Value]) -> Value:
    """A new value that lies in memory like the first operand of the same rank that is laid out densely in another order."""
    rank = len(lens)
    for a in args:
        steps = a.strides
        if len(a.lens) != rank or rank < 3 or any(s == 0 and n != 1 for n, s in zip(a.lens, steps, strict=True)):
            continue
        if all(n == 1 for n in a.lens):
            continue
        real = sorted((i for i in range(rank) if a.lens[i] != 1), key=lambda i: -steps[i])
        for axis in range(rank):
            if a.lens[axis] == 1:
                real.insert(real.index(axis - 1) + 1 if axis - 1 in real else 0, axis)
        return e.allocate(dtype, lens, packed_strides(list(lens), real))
    return e.allocate(dtype, lens)
