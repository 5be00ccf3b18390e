"""One op on arrays, for what is decided only while running: a program of one kernel, kept for the shapes it was made for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core.argument import Array

from .emitter import Emitter
from .kernel import CpuKernel
from .native_program import NativeRun, build
from .values import Buffer, Value

__all__ = ["run_single"]

KEPT = 512
_programs: OrderedDict[Any, tuple[NativeRun, bool]] = OrderedDict()
_lock = Lock()


def run_single(kernel: CpuKernel, args: Sequence[Any]) -> Any:
    """The result of one kernel for these arrays."""
    if any(not isinstance(a, np.ndarray) and a is not None for a in args):
        return kernel.op.evaluate(args, kernel.modules)
    if any(a is not None and (a.size == 0 or a.dtype == object) for a in args) or _open(kernel, args):
        from mgx_core.interpret import Interpreter

        return kernel.op.evaluate(args, kernel.modules, Interpreter().run)
    key = (kernel.op, kernel.modules, tuple(None if a is None else (a.dtype, a.shape) for a in args))
    with _lock:
        found = _programs.get(key)
        if found is not None:
            _programs.move_to_end(key)
    if found is None:
        found = _build(kernel, args)
        with _lock:
            _programs[key] = found
            while len(_programs) > KEPT:
                _programs.popitem(last=False)
    program, several = found
    results = program.run([a for a in args if a is not None])
    return tuple(results) if several else results[0]


def _open(kernel: CpuKernel, args: Sequence[Array | None]) -> bool:
    """Whether the result's extents depend on the values, so that no program can be made for the shapes."""
    shapes = [None if a is None else Shape(a.dtype, a.shape) for a in args]
    result = kernel.op.result(shapes, kernel.modules)
    items = result.items if isinstance(result, TupleShape) else (result,)
    return any(not isinstance(s, Shape) or s.dynamic() for s in items)


def _build(kernel: CpuKernel, args: Sequence[Array | None]) -> tuple[NativeRun, bool]:
    from .runner import as_output

    e = Emitter(0)
    values: list[Value | None] = []
    shapes: list[Shape | None] = []
    for a in args:
        if a is None:
            values.append(None)
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
