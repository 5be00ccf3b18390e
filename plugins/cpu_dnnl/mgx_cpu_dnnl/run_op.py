"""One op on arrays, for what is decided only while running: a program of one kernel, kept for the shapes it was made for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from mgx_core import Instruction, Launch, Shape, TupleShape
from mgx_core.ops.control import GetTupleElem
from mgx_core.types.argument import Array
from mgx_core.types.dim import symbols_of
from mgx_core.types.shape import AnyShape

from .emitter import Emitter
from .kernel import CpuKernel
from .native_program import NativeRun, build
from .values import Buffer, Value

__all__ = ["native_when_run", "run_single"]

KEPT = 512
_programs: OrderedDict[Any, tuple[NativeRun, bool]] = OrderedDict()
_lock = Lock()


def run_single(kernel: CpuKernel, args: Sequence[Any]) -> Any:
    """The result of one kernel for these arrays."""
    if any(not isinstance(a, np.ndarray) and a is not None for a in args):
        return kernel.op.evaluate(args, kernel.modules)
    result = _result(kernel, args)
    settled = [r for r in result if isinstance(r, Shape) and not r.dynamic()]
    if len(settled) == len(result) and not any(r.elements() for r in settled):
        empty = tuple(np.empty(r.lens(), r.dtype.numpy) for r in settled)
        return empty if len(empty) > 1 else empty[0]
    opened = any(not isinstance(r, Shape) or r.dynamic() for r in result) and kernel.open_axis is None
    if opened or any(a is not None and (a.size == 0 or a.dtype == object) for a in args):
        from mgx_core.ir.interpreter import Interpreter

        return kernel.op.evaluate(args, kernel.modules, Interpreter().run)
    literal = [_sets_extents(kernel, n, a) for n, a in enumerate(args)]
    key = (
        kernel.op,
        kernel.modules,
        tuple(
            None if a is None else (a.dtype, a.shape, a.tobytes() if own else None)
            for a, own in zip(args, literal, strict=True)
        ),
    )
    with _lock:
        found = _programs.get(key)
        if found is not None:
            _programs.move_to_end(key)
    if found is None:
        found = _build(kernel, args, literal)
        with _lock:
            _programs[key] = found
            while len(_programs) > KEPT:
                _programs.popitem(last=False)
    program, several = found
    results = program.run([a for a, own in zip(args, literal, strict=True) if a is not None and not own])
    if kernel.open_axis is not None:
        return kernel.taken(*results)
    return tuple(results) if several else results[0]


def native_when_run(ins: Instruction) -> bool:
    """Whether an instruction whose extents depend on data runs as a native program once its inputs are there."""
    kernel = ins.op.kernel if isinstance(ins.op, Launch) else None
    if isinstance(kernel, CpuKernel) and isinstance(kernel.op, GetTupleElem):
        return True  # nothing is computed
    if not isinstance(kernel, CpuKernel) or not all(i.is_absent or isinstance(i.result, Shape) for i in ins.inputs):
        return False
    if kernel.open_axis is not None:
        return True
    if not isinstance(ins.result, Shape):
        return False
    if any(not i.is_absent and not i.shape.ranked for i in ins.inputs):
        return True
    if not ins.shape.ranked:
        return False
    given = {s for i in ins.inputs if not i.is_absent for d in i.shape.dims for s in symbols_of(d)}
    return {s for d in ins.shape.dims for s in symbols_of(d)} <= given


def _result(kernel: CpuKernel, args: Sequence[Array | None]) -> Sequence[AnyShape]:
    """The types of the results; extents that depend on the values are symbols."""
    shapes = [None if a is None else Shape(a.dtype, a.shape) for a in args]
    result = kernel.op.result(shapes, kernel.modules)
    return result.items if isinstance(result, TupleShape) else (result,)


def _sets_extents(kernel: CpuKernel, n: int, arg: Array | None) -> bool:
    """Whether an operand is the number, commonly the same in all runs, that says how much an open result takes at most.

    A program is then made for it: there is memory for that much, not for all that a run might ask for.
    """
    return kernel.open_axis is not None and n > 0 and arg is not None and arg.size == 1 and arg.dtype.kind in "iu"


def _build(kernel: CpuKernel, args: Sequence[Array | None], literal: Sequence[bool]) -> tuple[NativeRun, bool]:
    from .runner import as_output

    e = Emitter(0)
    values: list[Value | None] = []
    shapes: list[Shape | None] = []
    for a, own in zip(args, literal, strict=True):
        if a is None or own:
            values.append(None if a is None else e.literal(a.copy()))
            continue
        shape = Shape(a.dtype, a.shape)
        buffer = Buffer("input", a.nbytes, index=len(shapes), readers=1 << 30)
        e.buffers.append(buffer)
        values.append(Value(shape, buffer))
        shapes.append(shape)
    result = e.run_kernel(kernel, kernel.modules, values)
    several = isinstance(result, tuple)
    outputs = [as_output(e, v, n) for n, v in enumerate(result if isinstance(result, tuple) else (result,))]
    return build(e, shapes, outputs), several
