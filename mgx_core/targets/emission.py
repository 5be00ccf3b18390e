"""Emission: kernels emit steps for concrete shapes into a schedule, from which the target assembles a runner."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from ..errors import No, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.control import If, Loop, Scan
from ..types.memory_limit import ALIGNMENT
from ..types.shape import Shape
from .branches import count_uses, emit_branch, is_planned, planned_member
from .kernel import Launch, op_of
from .kernel_emission import KernelEmitter, Tuning
from .kernel_table import Kernels
from .loops import LoopSteps, emit_loop, is_planned_loop
from .placement import Placement
from .schedule import Call, Schedule, Step, placed
from .static_part import Split, given, split
from .values import Buffer, Value

__all__ = ["Emitter"]

FOREVER: Final = 1 << 30  # reads of a value that a run leaves


class Emitter(KernelEmitter):
    """Collects the steps of a lowered module in order.

    A target derives from it, and gives at least `copy_into` and `host_step`.
    """

    alignment: ClassVar[int] = ALIGNMENT
    """Bytes that every buffer of the arena begins at a multiple of."""

    branches: ClassVar[bool] = False
    """True if a run can pass over steps, as `branch_steps` says: an `if` of static extents is then part of a schedule."""

    loops: ClassVar[bool] = False
    """True if a run can take steps again and again, as `loop_steps` says: a loop of static extents is then part of a schedule."""

    overwrites: ClassVar[bool] = False
    """True if a runner can leave a result in the memory of an argument: outputs of a schedule then lie on ``given`` buffers."""

    def __init__(self, kernels: Kernels, context: Any = None, reuse: bool = True, tuning: Tuning | None = None) -> None:
        super().__init__(kernels, context, reuse, tuning)
        self.inputs: list[Value | None] = []
        # results that may take the memory of arguments, as `Program.compile` has them
        self.overwritten: Mapping[str, int] = {}
        self._taking: dict[Instruction, int] = {}  # of the module that is emitted, with the position of the parameter

    @property
    def settings(self) -> Hashable:
        """Everything that steps depend on besides the op and its operands.  Default: nothing."""
        return ()

    def fresh(self, tuning: bool = True) -> Self:
        """Returns an empty emitter with the same settings; tuning: one that times kernels, too, if this one does.

        Default: one made with the arguments of `Emitter`.
        """
        return type(self)(self.kernels, self.context, self.reuse, self.tuning if tuning else None)

    def decided_at_run_time(self, ins: Instruction) -> No | None:
        """Why an instruction of the schedule's `rest` runs on the host; None if the target has another way.

        Default: that its extents depend on data.
        """
        return No("its extents depend on data")

    def branch_steps(self, condition: Value) -> tuple[Step, Step, Step]:
        """Returns the steps before, between and behind the two modules of an `if`; asked for where `branches` is True.

        At the first a run goes on behind the second unless the condition, a byte, is true; at the second it goes on at the third.
        """
        raise UnsupportedError(f"{type(self).__name__} says that it has branches, and gives no steps for them")

    def loop_steps(self) -> LoopSteps:
        """Returns what makes the steps of loops; asked for where `loops` is True."""
        raise UnsupportedError(f"{type(self).__name__} says that it has loops, and gives no steps for them")

    def emit(self, ins: Instruction, env: dict[Instruction, Any]) -> Any:
        """Adds an instruction's steps, those of the modules of branches and loops included; returns its value."""
        if self.branches and isinstance(ins.op, If):
            return emit_branch(self, ins, env, self.branch_steps)
        if self.loops and isinstance(ins.op, (Loop, Scan)):
            return emit_loop(self, ins, env, self.loop_steps())
        return super().emit(ins, env)

    def schedule(self, module: Module) -> Schedule:
        """Returns the schedule of a lowered module: the steps of its static part, placed, and what is left for run time."""
        parts = self.parts(module)
        self._taking = self._results_that_take_memory(module, parts)
        env = self.emit_static(module, parts.static, parts.wanted)
        counted = self.emit_counted(module, parts, env)
        if counted:
            parts = parts.counting(module, {ins: axis for ins, (axis, _) in counted.items()})
        outputs = [self._early(env[ins], n, ins) for n, ins in enumerate(parts.wanted)]
        for ins, (_, values) in counted.items():
            outputs += [self.output(v, len(outputs) + n, ins) for n, v in enumerate(values)]
        return self.planned(module, outputs, parts)

    def emit_counted(
        self, module: Module, parts: Split, env: dict[Instruction, Any]
    ) -> dict[Instruction, tuple[int, tuple[Value, ...]]]:
        """Adds the steps of ops behind the static part that count; returns the axis, and the values with their number, of each.

        Default: none.
        """
        return {}

    def parts(self, module: Module) -> Split:
        """Returns a lowered module in two: what has steps in its schedule, and what is decided at run time."""
        return split(module, self._planned)

    def _planned(self, ins: Instruction) -> bool:
        if isinstance(ins.op, If):
            return self.branches and is_planned(ins, self._planned_member)
        return self.loops and is_planned_loop(ins, self._planned_member)

    def _planned_member(self, ins: Instruction) -> bool:
        return planned_member(ins, self._planned)

    def _results_that_take_memory(self, module: Module, parts: Split) -> dict[Instruction, int]:
        """Returns the results that may lie in the memory of a parameter's argument, with the parameter's position."""
        if not self.overwrites or parts.rest or any(i.op.control for i in parts.static):
            return {}
        found: dict[Instruction, int] = {}
        for n, (name, parameter) in enumerate(module.parameters.items()):
            result = module.outputs[self.overwritten[name]] if name in self.overwritten else None
            if result is not None and module.outputs.count(result) == 1 and parameter not in module.outputs:
                found[result] = n
        return found

    def _early(self, value: Value, index: int, ins: Instruction) -> Value:
        """As `output`, with a copy right behind the last step that writes its source: while caches hold that, and no longer."""
        count = len(self.steps)
        out = self.output(value, index, ins)
        before, copies = self.steps[:count], self.steps[count:]
        after = [n + 1 for n, step in enumerate(before) if copies and value.buffer in step.writes] or [count]
        self.steps[after[-1] :] = [*copies, *before[after[-1] :]]
        return out

    def emit_static(
        self, module: Module, static: Mapping[Instruction, Sequence[Instruction]], wanted: Iterable[Instruction]
    ) -> dict[Instruction, Any]:
        """Emits the static part of a module; returns the values of its instructions and of the parameters that it reads."""
        used = {i for needs in static.values() for i in needs}
        env: dict[Instruction, Any] = {}
        left = count_uses(static)
        for n, p in enumerate(module.parameters.values()):
            value = self.input(p.shape, n) if p in used else None
            if value is not None:
                env[p] = value
                if n in self._taking.values():
                    value.buffer.kind, value.buffer.readers = "given", left[p]
            self.inputs.append(value)
        for ins in wanted:
            left[ins] += FOREVER
        self.emit_all(static, env, left)
        self.current = None
        return env

    def input(self, shape: Shape, index: int) -> Value:
        """Returns a value on the memory of an argument, which lies row-major."""
        buffer = Buffer("input", int(shape.elements()) * shape.dtype.size, index=index)
        return Value(Shape.of(shape.dtype, shape.dims), buffer)

    def output(self, value: Value, index: int, ins: Instruction | None = None) -> Value:
        """Returns a result in memory of its own, row-major.

        ins: the instruction whose kernel a copy, should one be needed, counts for; a view's is called a copy.
        """
        buffer, plain = value.buffer, value.plain
        size = max(int(plain.elements()) * plain.dtype.size, 1)
        if buffer.kind == "arena" and value.offset == 0 and buffer.bytes == size and value.dense():
            buffer.kind, buffer.index = "output", index
            return Value(plain, buffer)
        if buffer.kind == "given" and ins is not None and self._taking.get(ins) == buffer.index:
            own = self.inputs[buffer.index]
            if own is not None and own.plain == plain and value.offset == 0 and value.dense():
                return Value(plain, buffer)
        out = Value(plain, Buffer("output", size, index=index))
        if plain.elements():
            made = (s.call for s in reversed(self.steps) if s.call and s.call.instruction is ins and not s.call.host)
            self.call = None if ins is None else next(made, None) or Call(op_of(ins), "copy", ins.sources, (), "", ins)
            self.copy_into(value, out)
            self.call = None
        return out

    def planned(self, module: Module, outputs: list[Value], parts: Split | None = None) -> Schedule:
        """Returns the schedule of everything emitted, placed; parts: of the module, if it is one that was split."""
        made = Schedule(
            module, self.steps, self.inputs, outputs, parts or Split(), notes=self.notes, choices=self.choices
        )
        made.rest_placements = dict(self._rest_placements(made.split.rest))
        return placed(made, self.alignment, self.reuse)

    def _rest_placements(self, rest: Iterable[Instruction]) -> Iterator[tuple[Instruction, Placement]]:
        """Placements of the launches among instructions that are decided at run time, including those in control flow."""
        for ins in rest:
            op = ins.op
            if not isinstance(op, Launch):
                for module in ins.modules:
                    yield from self._rest_placements(i for i in module if not given(i))
            elif op.kernel.emit is None:
                why = op.refused or ("it is a Python function",)
                yield ins, Placement(op.text, ins.sources, "host", op.kernel.name, why)
            else:
                no = self.decided_at_run_time(ins)
                if no is None:
                    yield ins, Placement(op.text, ins.sources, "target", op.kernel.name, op.refused)
                else:
                    yield ins, Placement(op.text, ins.sources, "host", f"reference {op.of.name}", (*op.refused, no.why))
