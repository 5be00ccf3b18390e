"""One op on arrays, for what is decided at run time: a native program of one kernel, kept for the shapes it was made for."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import Any, Final

import numpy as np

from mgx_core import Module, Shape, TupleShape
from mgx_core.ir.interpreter import Interpreter
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.shape import AnyShape

from .emitter import CpuEmitter
from .kernel import CpuKernel
from .native_program import NativeRun, build

__all__ = ["OpPrograms"]

KEPT: Final = 512


class OpPrograms:
    """Programs of one kernel each, the least recently used dropped first."""

    def __init__(self) -> None:
        self._made: OrderedDict[Any, tuple[NativeRun, bool]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._made)

    def run(self, kernel: CpuKernel, args: Sequence[Any], e: CpuEmitter) -> Any:
        """The result of one kernel for these arrays; e: an emitter with the settings to use."""
        if any(not isinstance(a, np.ndarray) and a is not None for a in args):
            return kernel.op.evaluate(args, kernel.modules)
        result = _result(kernel, args)
        static = [r for r in result if isinstance(r, Shape) and not r.dynamic()]
        if len(static) == len(result) and not any(r.elements() for r in static):
            empty = tuple(np.empty(r.lens(), r.dtype.numpy) for r in static)
            return empty if len(empty) > 1 else empty[0]
        opened = len(static) < len(result) and kernel.open_axis is None
        if opened or any(a is not None and (a.size == 0 or a.dtype == object) for a in args):
            return kernel.op.evaluate(args, kernel.modules, Interpreter().run)
        literal = [_sets_extents(kernel, n, a) for n, a in enumerate(args)]
        types = [
            None if a is None else (a.dtype, a.shape, a.tobytes() if own else None)
            for a, own in zip(args, literal, strict=True)
        ]
        made_with = kernel.name, kernel.emit, kernel.open_axis, e.threads, e.fast_math
        program, several = self._program((kernel.op, kernel.modules, *made_with, *types), kernel, args, literal, e)
        results = program.run([a for a, own in zip(args, literal, strict=True) if a is not None and not own])
        if kernel.open_axis is not None:
            return kernel.taken(*results)
        return tuple(results) if several else results[0]

    def _program(
        self, key: Any, kernel: CpuKernel, args: Sequence[Array | None], literal: Sequence[bool], e: CpuEmitter
    ) -> tuple[NativeRun, bool]:
        with self._lock:
            found = self._made.get(key)
            if found is not None:
                self._made.move_to_end(key)
        if found is None:
            found = _build(kernel, args, literal, e.fresh(tuning=False))
            with self._lock:
                self._made[key] = found
                while len(self._made) > KEPT:
                    self._made.popitem(last=False)
        return found


def _result(kernel: CpuKernel, args: Sequence[Array | None]) -> Sequence[AnyShape]:
    """The types of the results; extents that depend on the values are symbols."""
    shapes = [None if a is None else Shape(a.dtype, a.shape) for a in args]
    result = kernel.op.result(shapes, kernel.modules)
    return result.items if isinstance(result, TupleShape) else (result,)


def _sets_extents(kernel: CpuKernel, n: int, arg: Array | None) -> bool:
    """True for scalar operands that bound a data-dependent result (max_output_boxes).

    Their value is commonly the same in all runs; the program is made for it, so that the result's memory is sized by it.
    """
    return kernel.open_axis is not None and n > 0 and arg is not None and arg.size == 1 and arg.dtype.kind in "iu"


def _build(
    kernel: CpuKernel, args: Sequence[Array | None], literal: Sequence[bool], e: CpuEmitter
) -> tuple[NativeRun, bool]:
    values: list[Value | None] = []
    for a, own in zip(args, literal, strict=True):
        if a is None or own:
            values.append(None if a is None else e.literal(a.copy()))
            continue
        values.append(e.input(Shape(a.dtype, a.shape), len(e.inputs)))
        e.inputs.append(values[-1])
    result = e.run_kernel(kernel, kernel.op, kernel.modules, values)
    results = result if isinstance(result, tuple) else (result,)
    outputs = [e.output(v, n) for n, v in enumerate(results)]
    made = build(e.planned(Module(kernel.name), outputs))
    return made, isinstance(result, tuple)
