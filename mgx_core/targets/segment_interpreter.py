"""Interprets a module that was split into segments: runs each segment by its own runner, and the ops between them one by one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter, as_array
from ..ir.module import Module
from ..ir.symbols import introduced
from ..named_tuples import NamedTuple
from ..ops.control import GetTupleElem
from ..ops.operation import Operation
from ..ops.operation import Run as RunModule
from ..types.shape import Shape
from ..types.symbol_binding import bind_all, symbol_places
from .counted_results import items_of
from .cut import Item, cut
from .emission import Emitter
from .kernel import Launch, Reference, op_of
from .op_programs import OpPrograms, may_take_constants
from .runner import Runner
from .segment import KEEPING, Keeping, Make, Segment
from .static_part import fixed, given, numeric, views_constant

__all__ = ["SegmentInterpreter", "Watch"]

# called with each op, or each runner with its segment and arguments, and the seconds it took
Watch: TypeAlias = Callable[["Instruction | Runner", "Segment | None", Sequence[Any], float], None]
Compute: TypeAlias = Callable[["dict[Instruction, Any]", "dict[str, int]"], Any]  # from values and known symbols
Body: TypeAlias = tuple[Segment, list[tuple["int | None", Instruction]]]


class SegmentInterpreter(Interpreter):
    """Runs segments and bodies of control flow with shape-specialized runners, and other ops one by one with their kernels.

    make: creates a runner for a lowered module with static extents; None: everything runs op by op.
    worth: returns whether a runner for these instructions pays off; None: always; keeping: limits of the runner caches of bodies.
    programs, emitter: run ops whose kernels emit steps, with the emitter's settings; None: kernels are called from Python.
    """

    def __init__(
        self,
        make: Make | None = None,
        programs: OpPrograms | None = None,
        emitter: Emitter | None = None,
        worth: Callable[[Sequence[Instruction]], bool] | None = None,
        keeping: Keeping = KEEPING,
    ) -> None:
        super().__init__()
        self._keeping = keeping
        self._make = make
        self._worth = worth
        self._worthy: dict[Segment, bool] = {}
        self._single = None if programs is None or emitter is None else (programs, emitter)
        self._bodies: dict[Module, Body | None] = {}
        self._cuts: dict[Module, list[Item]] = {}  # of bodies with sequence parameters
        self._computes: dict[Instruction, Compute] = {}  # of instructions that run alone
        # symbols defined by results: index of the result and axis
        self._places: dict[Instruction, list[tuple[int, int, str]]] = {}

    def evaluate(self, op: Operation, args: Sequence[Any], modules: Sequence[Module], run: RunModule) -> Any:
        """Evaluates one op: with a program of its kernel's steps if possible, else like `Interpreter`."""
        if self._single is not None and isinstance(op, Launch):
            programs, e = self._single
            if op.of.view is not None and len(args) > 1:
                return op.of.evaluate(args, modules, run)
            found = programs.run_with_constants(op.of, modules, args, e) if op.result_shape.dynamic() else None
            if found is not None:
                return found
            if op.kernel.emit is not None:
                return programs.run(op.kernel, op.of, modules, args, e)
        return super().evaluate(op, args, modules, run)

    def prepare(self, items: Sequence[Item]) -> list[tuple[Sequence[Instruction], Runner]]:
        """Returns the runners that can be prepared before the first run, with their instructions."""
        if self._make is None:
            return []
        segments: list[Segment] = []
        for item in items:
            if isinstance(item.what, Segment):
                segments.append(item.what)
            elif item.what.op.control:
                bodies = [self._body(m) for m in item.what.modules]
                segments += [body[0] for body in bodies if body is not None]
        made = [(segment.members, segment.prepare(self._make)) for segment in segments]
        return [(members, runner) for members, runner in made if runner is not None]

    def finish(
        self,
        module: Module,
        items: Sequence[Item],
        args: Sequence[Any],
        made: Mapping[Instruction, Any],
        watch: Watch | None = None,
        counted: Iterable[Instruction] = (),
    ) -> list[Any]:
        """Runs the rest of a module; returns the module's results.

        items: of `cut`; made: values of the static part that the rest reads; counted: those of them with data-dependent extents.
        """
        frame = _frame(module)
        values: dict[Instruction, Any] = {**frame.literals, **made}
        known: dict[str, int] = {}
        frame.bind(args, values, known)
        for ins in counted:
            self._bind(ins, values[ins], known)
        self.follow(items, values, known, watch)
        return [None if o is None else values[o] for o in frame.outputs]

    def follow(
        self,
        items: Sequence[Item],
        values: dict[Instruction, Any],
        known: dict[str, int],
        watch: Watch | None = None,
    ) -> None:
        """Runs the items of a module; adds results to `values` and `known`."""
        for item in items:
            start = 0.0 if watch is None else time.perf_counter()
            if isinstance(item.what, Segment):
                part = item.what
                args = [values[n] for n in part.needs]
                make = self._maker(part)
                runner = None if make is None else part.runner(args, known, make)
                if runner is not None:
                    values.update(zip(part.results, runner.run(args), strict=True))
                    if watch is not None:
                        watch(runner, part, args, time.perf_counter() - start)
                else:
                    for ins in part.members:
                        self._alone(ins, values, known)
                        if watch is not None:
                            now = time.perf_counter()
                            watch(ins, None, (), now - start)
                            start = now
                    for ins in set(part.members).difference(part.results):
                        values.pop(ins, None)  # two segments may have the same view of a literal
            else:
                self._alone(item.what, values, known)
                if watch is not None:
                    watch(item.what, None, (), time.perf_counter() - start)
            for ins in item.done:
                values.pop(ins, None)

    def _maker(self, part: Segment) -> Make | None:
        """Returns the runner factory of a segment; None if it runs op by op."""
        if self._make is None or self._worth is None:
            return self._make
        worthy = self._worthy.get(part)
        if worthy is None:
            worthy = self._worthy[part] = self._worth(part.members)
        return self._make if worthy else None

    def _alone(self, ins: Instruction, values: dict[Instruction, Any], known: dict[str, int]) -> None:
        compute = self._computes.get(ins)
        if compute is None:
            compute = self._computes[ins] = self._compute_of(ins)
        values[ins] = value = compute(values, known)
        if ins.result.dynamic():
            self._bind(ins, value, known)

    def _compute_of(self, ins: Instruction) -> Compute:
        """Returns the function that computes an instruction."""

        def step(values: dict[Instruction, Any], known: dict[str, int]) -> Any:
            return self.step(ins, values, known)

        op, inputs = op_of(ins), ins.inputs
        if isinstance(op, GetTupleElem):  # its extents are known from the tuple
            return lambda values, known: values[inputs[0]][op.index]
        if op.symbols() or any(i.is_absent for i in inputs) or not op.compute:
            return step
        compute = op.compute

        def directly(values: dict[Instruction, Any], known: dict[str, int]) -> Any:
            try:
                return as_array(compute(*[values[i] for i in inputs]))
            except Exception:  # raised again with the location
                return step(values, known)

        if op.view is not None and len(inputs) > 1:  # a view with known operands needs no computation
            return directly
        if views_constant(ins) and not ins.result.dynamic():
            constant = step(self._constants(ins), {})
            return lambda values, known: constant
        if not _only_defined(ins, self._single is not None):
            return step

        def first(values: dict[Instruction, Any], known: dict[str, int]) -> Any:
            found = step(values, known)  # checks the type of the result
            self._computes[ins] = directly
            return found

        return first

    def _constants(self, ins: Instruction) -> dict[Instruction, Any]:
        """Returns the values of the operands of a view of a literal."""
        (x,) = ins.inputs
        value = self.step(x, self._constants(x), {}) if x.literal is None else x.literal.value
        return {x: value}

    def _bind(self, ins: Instruction, value: Any, known: dict[str, int]) -> None:
        places = self._places.get(ins)
        if places is None:
            found = [symbol_places(r) if isinstance(r, Shape) else [] for r in items_of(ins.result)]
            places = self._places[ins] = [(n, axis, name) for n, some in enumerate(found) for axis, name in some]
        for n, axis, name in places:
            one = value[n] if type(value) is tuple else value
            if isinstance(one, np.ndarray):
                known[name] = one.shape[axis]

    def run(
        self,
        module: Module,
        args: Sequence[Any],
        outer: Mapping[Instruction, Any] | None = None,
        symbols: Mapping[str, int] | None = None,
    ) -> list[Any]:
        """Runs a module of control flow; outer: values of enclosing modules."""
        body = None if outer is None or self._make is None else self._body(module)
        if body is not None and outer is not None and self._make is not None:
            part, places = body
            given = [outer[at] if n is None else args[n] for n, at in places]
            runner = part.runner(given, symbols or {}, self._make)
            if runner is not None:
                return runner.run(given)
            if not all(isinstance(n.result, Shape) for n in part.needs):
                return self._run_cut(module, args, outer, symbols or {})
        return super().run(module, args, outer, symbols)

    def _run_cut(
        self, module: Module, args: Sequence[Any], outer: Mapping[Instruction, Any], symbols: Mapping[str, int]
    ) -> list[Any]:
        """Runs a module with sequence parameters: tensor code in segments, the rest op by op."""
        items = self._cuts.get(module)
        if items is None:
            items = self._cuts[module] = cut(module, {}, self._keeping)
        frame = _frame(module)
        values, known = {**outer, **frame.literals}, dict(symbols)
        frame.bind(args, values, known)
        self.follow(items, values, known)
        return [None if o is None else values[o] for o in frame.outputs]

    def _body(self, module: Module) -> Body | None:
        """Returns a module of control flow and, for each value it needs, the parameter index (None: of an enclosing module)."""
        if module not in self._bodies:
            position = {p: n for n, p in enumerate(module.parameters.values())}
            members = [i for i in module if not given(i)]
            # a body whose extents change in every trip would create a runner for each
            worthy = self._worth is None or (all(map(fixed, members)) and self._worth(members))
            if not worthy or any(o.is_absent for o in module.outputs):
                self._bodies[module] = None
            else:
                part = Segment(members, module.outputs, module.name, self._keeping)
                self._bodies[module] = part, [(position.get(n), n) for n in part.needs]
        return self._bodies[module]


def _only_defined(ins: Instruction, programs: bool) -> bool:
    """Returns True if a launch always runs the reference implementation, which alone knows the size of its result.

    programs: kernels that emit steps do so in programs, which take numbers only.
    """
    op = ins.op
    if not isinstance(op, Launch) or op.validate or op.of.takes_modules:
        return False
    if ins.result.dynamic() and (may_take_constants(op.of) or not introduced(ins)):
        return False
    shapes = [i.result for i in ins.inputs]
    if not all(isinstance(s, Shape) for s in shapes):
        return False
    if isinstance(op.kernel, Reference):
        return True
    return programs and op.kernel.emit is not None and not all(map(numeric, [*shapes, *items_of(ins.result)]))


class _Frame(NamedTuple):
    """Literals, parameters and results of a module, as each run needs them.

    literals: their values; opened: whether an extent of a parameter is symbolic; outputs: None for absent ones.
    """

    literals: dict[Instruction, Any]
    parameters: list[Instruction]
    opened: bool
    outputs: list[Instruction | None]

    def bind(self, args: Sequence[Any], values: dict[Instruction, Any], known: dict[str, int]) -> None:
        """Adds the arguments to `values`, and the symbols that they define to `known`."""
        values.update(zip(self.parameters, args, strict=True))
        if self.opened:
            bind_all((p.result for p in self.parameters), args, known)


def _frame(module: Module) -> _Frame:
    found: _Frame = module.derive("frame", _make_frame)
    return found


def _make_frame(module: Module) -> _Frame:
    parameters = list(module.parameters.values())
    return _Frame(
        {i: i.literal.value for i in module if i.literal is not None},
        parameters,
        any(p.result.dynamic() for p in parameters),
        [None if o.is_absent else o for o in module.outputs],
    )
