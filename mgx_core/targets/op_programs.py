"""Runs single ops on arrays where shapes are known only at run time; the emitted steps are cached by shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

from ..cache import Recent
from ..ir.interpreter import Interpreter
from ..ir.module import Module
from ..named_tuples import NamedTuple
from ..ops.control import GetTupleElem
from ..ops.operation import Operation
from ..ops.slice import Split
from ..rules.engine import Rewriter
from ..rules.shapes import SHAPES
from ..types.argument import Array
from ..types.shape import AnyShape, Shape, TupleShape
from .counted_results import cropped, items_of, open_axes
from .emission import Emitter
from .kernel import Kernel
from .schedule import Schedule
from .values import Value

__all__ = ["OpPrograms", "may_take_constants"]

KEPT: Final = 512
SEEN: Final = 4096  # remembered shapes, to detect repeated ones
ONCE: Final = 4  # programs for values that did not repeat, before the reference implementation is used instead
MAX_SMALL: Final = 64  # maximum elements of an operand that determines extents
_CONSTANT_OPERANDS: Final = (*SHAPES.roots, Split)  # ops that may have such operands

Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Array]]
# a program (None: none is worth it), whether the op has several results, and the axes along which they are cropped
Made: TypeAlias = "tuple[Run | None, bool, Sequence[int | None]]"


class Call(NamedTuple):
    """One op with its kernel and the values of its operands."""

    kernel: Kernel
    op: Operation
    modules: Sequence[Module]
    args: Sequence[Array | None]

    def by_definition(self) -> Any:
        return self.op.evaluate(self.args, self.modules, Interpreter().run)

    def result(self) -> AnyShape:
        """Returns the type of the result; extents that depend on the values are symbols."""
        shapes = [None if a is None else Shape(a.dtype, a.shape) for a in self.args]
        return self.op.result(shapes, self.modules)

    def empty_results(self) -> Any:
        """Returns the result if it has no elements; None otherwise."""
        result = self.result()
        items = items_of(result)
        empty = [
            np.empty(r.lens(), r.dtype.numpy)
            for r in items
            if isinstance(r, Shape) and not r.dynamic() and not r.elements()
        ]
        return None if len(empty) < len(items) else tuple(empty) if isinstance(result, TupleShape) else empty[0]

    def cannot_emit(self) -> bool:
        """Returns True if no steps can be emitted: a data-dependent extent without a counting kernel, or empty operands."""
        result = self.result()
        items = items_of(result)
        dynamic = any(not isinstance(r, Shape) or r.dynamic() for r in items)
        return (dynamic and self.kernel.open_axis is None) or any(
            a is not None and (a.size == 0 or a.dtype == object) for a in self.args
        )


def _is_baked(kernel: Kernel, n: int, a: Array) -> bool:
    """Returns True for a scalar that bounds a data-dependent result (max_output_boxes), which is compiled in as a constant.

    Its value is usually the same in all runs, and determines the size of the result's memory.
    """
    return kernel.open_axis is not None and n > 0 and a.size == 1 and a.dtype.kind in "iu"


class OpPrograms:
    """LRU cache of programs of one kernel each; None for ops that run by their reference implementation.

    Ops that only move or select elements get a program when a shape repeats: a single numpy call is cheaper than compiling, and
    data-dependent extents may differ in every run.

    build: creates the runner of a schedule.
    """

    def __init__(self, build: Callable[[Schedule], Run]) -> None:
        self._build = build
        self._made: Recent[Made] = Recent(KEPT)
        self._seen: Recent[bool] = Recent(SEEN)
        self._once: Recent[int] = Recent(SEEN)  # programs created since values last repeated, by op and operand

    def __len__(self) -> int:
        return len(self._made)

    def run(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], e: Emitter) -> Any:
        """Runs one kernel on these arrays; e: an emitter with the settings to use."""
        types: list[tuple[Any, ...] | None] = []
        for n, a in enumerate(args):
            if a is None:
                types.append(None)
                continue
            if not isinstance(a, np.ndarray):
                return Call(kernel, op, modules, args).by_definition()
            types.append((a.dtype, a.shape, a.tobytes() if _is_baked(kernel, n, a) else None))
        key = (op, tuple(modules), kernel.name, kernel.emit, kernel.open_axis, e.settings, *types)
        made = self._made.get(key)
        if made is None:
            call = Call(kernel, op, modules, args)
            if op.exact and kernel.open_axis is None and self._seen.get(key) is None:
                self._seen.put(key, True)
                return call.by_definition()
            empty = call.empty_results()
            if empty is not None:
                return empty
            no_program = None, False, ()
            made = self._made.put(key, no_program if call.cannot_emit() else self._program(call, e.fresh(tuning=False)))
        program, several, axes = made
        if program is None:
            return op.evaluate(args, modules, Interpreter().run)
        results = program([a for a, t in zip(args, types, strict=True) if t is not None and t[2] is None])
        if kernel.open_axis is not None:
            results = cropped(op, axes, results)
        return tuple(results) if several else results[0]

    def run_with_constants(
        self, op: Operation, modules: Sequence[Module], args: Sequence[Any], e: Emitter
    ) -> Any | None:
        """Runs an op whose result extents are determined by small operands, with a program that has their values as constants.

        For example, an image filter then computes its weights once per size.
        op: has data-dependent result extents.  Returns None if there is no such program, for data movement with extents that are
        new, and for values that keep changing.
        """
        if modules or not may_take_constants(op) or not _has_small_operands(args):
            return None
        x, *others = args
        known = [None if a is None else (a.dtype, a.shape, a.tobytes()) for a in others]
        key = ("with constants", op, e.settings, x.dtype, x.shape, *known)
        about = key[:5]
        made = self._made.get(key)
        if made is None:
            if op.exact and self._seen.get(key) is None:  # other ops must round equally in all runs
                self._seen.put(key, True)
                return None
            once = self._once.get(about) or 0
            if once >= ONCE:  # compiling takes longer than a hundred numpy calls
                return None
            self._once.put(about, once + 1)
            made = self._made.put(key, (*self._program_of_constants(op, args, e.fresh(tuning=False)), ()))
        elif self._once.get(about):
            self._once.put(about, 0)
        program, several, _ = made
        if program is None:
            return None
        results = program([x])
        return tuple(results) if several else results[0]

    def _program_of_constants(self, op: Operation, args: Sequence[Any], e: Emitter) -> tuple[Run | None, bool]:
        shapes = [None if a is None else Shape(a.dtype, a.shape) for a in args]
        if not op.result(shapes).dynamic():
            return None, False
        module, several = _with_constants(op, args)
        if any(not isinstance(o.result, Shape) or o.result.dynamic() for o in module.outputs):
            return None, several
        (x,) = module.parameters.values()
        e.inputs.append(e.input(x.shape, 0))
        values = e.emit_body(module, e.inputs)
        if any(step.host for step in e.steps):
            return None, several
        return self._build(e.planned(module, [e.output(v, n) for n, v in enumerate(values)])), several

    def _program(self, call: Call, e: Emitter) -> Made:
        values: list[Value | None] = []
        for n, a in enumerate(call.args):
            if a is None or _is_baked(call.kernel, n, a):
                values.append(None if a is None else e.literal(a.copy()))
                continue
            values.append(e.input(Shape(a.dtype, a.shape), len(e.inputs)))
            e.inputs.append(values[-1])
        result = e.run_kernel(call.kernel, call.op, call.modules, values)
        results = result if isinstance(result, tuple) else (result,)
        outputs = [e.output(v, n) for n, v in enumerate(results)]
        axis, made = call.kernel.open_axis, call.result()
        axes = () if axis is None else open_axes(made, axis)
        several = isinstance(result, tuple) if axis is None else isinstance(made, TupleShape)
        return self._build(e.planned(Module(call.kernel.name), outputs)), several, axes


def may_take_constants(op: Operation) -> bool:
    """Returns True if an op may have a program with its small operands as constants (`OpPrograms.run_with_constants`)."""
    return isinstance(op, _CONSTANT_OPERANDS) and op.view is None and not op.reshapes


def _has_small_operands(args: Sequence[Any]) -> bool:
    """Returns True for a numeric tensor followed by small operands."""
    arrays = [a for a in args if a is not None]
    return (
        len(arrays) > 1
        and arrays[0] is args[0]
        and all(isinstance(a, np.ndarray) and a.dtype != object for a in arrays)
        and args[0].size > 0
        and all(a.size <= MAX_SMALL for a in arrays[1:])
    )


def _with_constants(op: Operation, args: Sequence[Any]) -> tuple[Module, bool]:
    """Returns a module of an op with all operands except the first as constants, and whether the op has several results."""
    module = Module(op.name)
    x = module.add_parameter("x", Shape(args[0].dtype, args[0].shape))
    given = [module.add_absent() if a is None else module.add_literal(a.copy()) for a in args[1:]]
    made = module.add(op, x, *given)
    several = isinstance(made.result, TupleShape)
    items = range(len(made.result.items)) if isinstance(made.result, TupleShape) else ()
    module.add_return([module.add(GetTupleElem(index=n), made) for n in items] if several else [made])
    Rewriter(SHAPES).apply(module)
    return module, several
