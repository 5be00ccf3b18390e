"""Emission: kernels emit steps for concrete shapes into a schedule, from which the target assembles a runner."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Final, Self

from ..errors import No, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ir.ordering import reads
from ..ops.control import If, Loop, Scan
from ..types.memory_limit import ALIGNMENT
from ..types.shape import Shape
from ..types.traced_int import int_or_traced
from .branches import count_uses, emit_branch, is_planned, planned_member
from .kernel import Launch, op_of
from .kernel_emission import KernelEmitter, Tuning
from .kernel_table import Kernels
from .loops import LoopSteps, emit_loop, is_planned_loop, most_rows
from .placement import Placement
from .schedule import Call, Schedule, Step, placed
from .static_part import Split, given, given_fixed, split
from .values import Buffer, Value

__all__ = ["Emitter"]

FOREVER: Final = 1 << 30  # number of reads of a value that outlives the run


class Emitter(KernelEmitter):
    """Collects the steps of a lowered module in order.

    Targets derive from it and implement at least `copy_into` and `host_step`.
    """

    alignment: ClassVar[int] = ALIGNMENT
    """Bytes that every buffer of the arena begins at a multiple of."""

    branches: ClassVar[bool] = False
    """True if a run can skip steps (see `branch_steps`), so that an `if` with static extents can be scheduled."""

    loops: ClassVar[bool] = False
    """True if a run can repeat steps (see `loop_steps`), so that a loop with static extents can be scheduled."""

    overwrites: ClassVar[bool] = False
    """True if a runner can return a result in an argument's memory; outputs may then be on ``given`` buffers."""

    def __init__(self, kernels: Kernels, context: Any = None, reuse: bool = True, tuning: Tuning | None = None) -> None:
        super().__init__(kernels, context, reuse, tuning)
        self.inputs: list[Value | None] = []
        # results that may overwrite arguments, as in `Program.compile`
        self.overwritten: Mapping[str, int] = {}
        self._taking: dict[Instruction, int] = {}  # of the emitted module, with the parameter's index

    @property
    def settings(self) -> Hashable:
        """All settings that steps depend on besides the op and its operands.  Default: none."""
        return ()

    def fresh(self, tuning: bool = True) -> Self:
        """Returns an empty emitter with the same settings; tuning: keeps autotuning if this emitter has it.

        Default: constructed with the arguments of `Emitter`.
        """
        return type(self)(self.kernels, self.context, self.reuse, self.tuning if tuning else None)

    def decided_at_run_time(self, ins: Instruction) -> No | None:
        """Returns why an instruction of the schedule's `rest` runs on the host; None if the target does not run it there.

        Default: its extents depend on data.
        """
        return No("its extents depend on data")

    def branch_steps(self, condition: Value) -> tuple[Step, Step, Step]:
        """Returns the steps before, between and after the two modules of an `if`; called if `branches` is True.

        The first jumps past the second unless the condition (a byte) is true; the second jumps to the third.
        """
        raise UnsupportedError(f"{type(self).__name__} declares `branches`, but does not define branch_steps")

    def loop_steps(self) -> LoopSteps:
        """Returns the factory of loop steps; called if `loops` is True."""
        raise UnsupportedError(f"{type(self).__name__} declares `loops`, but does not define loop_steps")

    def emit(self, ins: Instruction, env: dict[Instruction, Any]) -> Any:
        """Emits an instruction, including modules of branches and loops; returns its value."""
        if self.branches and isinstance(ins.op, If):
            return emit_branch(self, ins, env, self.branch_steps)
        if self.loops and isinstance(ins.op, (Loop, Scan)):
            return emit_loop(self, ins, env, self.loop_steps())
        return super().emit(ins, env)

    def schedule(self, module: Module) -> Schedule:
        """Returns the schedule of a lowered module: the placed steps of its static part, and the rest for run time."""
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
        """Emits ops after the static part whose result extent is a count; returns axis, values and count of each.

        Default: loops of which only the number of rows depends on data, if `loops` is True.
        """
        found: dict[Instruction, tuple[int, tuple[Value, ...]]] = {}
        for ins in parts.rest if self.loops else ():
            most = most_rows(ins, self._planned_member)
            if most is None or not all(i in parts.static or given_fixed(i) for i in reads(ins)):
                continue
            self.read_parameters(module, reads(ins), env)
            self.current, self.sources = ins, ins.sources
            found[ins] = 0, emit_loop(self, ins, env, self.loop_steps(), most)
        self.current, self.sources = None, ()
        return found

    def read_parameters(self, module: Module, needs: Sequence[Instruction], env: dict[Instruction, Any]) -> None:
        """Adds values of parameters among `needs` that no earlier step reads."""
        for n, p in enumerate(module.parameters.values()):
            if p in needs and p not in env:
                self.inputs[n] = env[p] = self.input(p.shape, n)

    def parts(self, module: Module) -> Split:
        """Splits a lowered module into the part with static steps and the part decided at run time."""
        return split(module, self._planned)

    def _planned(self, ins: Instruction) -> bool:
        if isinstance(ins.op, If):
            return self.branches and is_planned(ins, self._planned_member)
        return self.loops and is_planned_loop(ins, self._planned_member)

    def _planned_member(self, ins: Instruction) -> bool:
        return planned_member(ins, self._planned)

    def _results_that_take_memory(self, module: Module, parts: Split) -> dict[Instruction, int]:
        """Returns the results that may reuse a donated argument's memory, with the parameter's index."""
        if not self.overwrites or parts.rest or any(i.op.control for i in parts.static):
            return {}
        found: dict[Instruction, int] = {}
        for n, (name, parameter) in enumerate(module.parameters.items()):
            result = module.outputs[self.overwritten[name]] if name in self.overwritten else None
            if result is not None and module.outputs.count(result) == 1 and parameter not in module.outputs:
                found[result] = n
        return found

    def _early(self, value: Value, index: int, ins: Instruction) -> Value:
        """Like `output`, but copies directly after the last step that writes the source, while it is in cache."""
        count = len(self.steps)
        out = self.output(value, index, ins)
        before, copies = self.steps[:count], self.steps[count:]
        after = [n + 1 for n, step in enumerate(before) if copies and value.buffer in step.writes] or [count]
        self.steps[after[-1] :] = [*copies, *before[after[-1] :]]
        return out

    def emit_static(
        self, module: Module, static: Mapping[Instruction, Sequence[Instruction]], wanted: Iterable[Instruction]
    ) -> dict[Instruction, Any]:
        """Emits the static part of a module; returns the values of its instructions and of the parameters read."""
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
        """Returns a row-major value on an argument's memory."""
        buffer = Buffer("input", int_or_traced(shape.elements() * shape.dtype.size), index=index)
        return Value(Shape.of(shape.dtype, shape.dims), buffer)

    def output(self, value: Value, index: int, ins: Instruction | None = None) -> Value:
        """Returns a row-major result in its own memory, copied if necessary.

        ins: the instruction that the copy is attributed to.
        """
        buffer, plain = value.buffer, value.plain
        size = max(int_or_traced(plain.elements() * plain.dtype.size), 1)
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
        """Returns the placed schedule of all emitted steps; parts: of the module, if it was split."""
        made = Schedule(
            module, self.steps, self.inputs, outputs, parts or Split(), notes=self.notes, choices=self.choices
        )
        made.rest_placements = dict(self._rest_placements(made.split.rest))
        return placed(made, self.alignment, self.reuse)

    def _rest_placements(self, rest: Iterable[Instruction]) -> Iterator[tuple[Instruction, Placement]]:
        """Yields the placements of launches that are decided at run time, including those in control flow."""
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
