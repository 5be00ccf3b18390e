"""Emits the steps of one instruction: tries its kernels in order, with fallbacks if all decline."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from ..errors import MgxError, No, ParameterError, PluginError, Refused, ShapeError
from ..ir.instruction import Instruction
from ..ir.module import Module
from ..ops.operation import Operation
from ..rules.decomposition import decomposed
from .emission_cache import Recording, constants_of, operand_key
from .groups import members_of
from .host_steps import DeviceFunction, HostFunction, HostSteps, Results
from .kernel import Kernel, Launch, Reference, op_of
from .kernel_table import Kernels
from .reuse import Reuse
from .schedule import Call
from .values import Value, count_reads, type_of
from .view_steps import emit_view

__all__ = ["APART", "DeviceFunction", "HostFunction", "KernelEmitter", "Results", "Tuning", "emit_view"]

APART: Final = "apart"  # a choice of tuning: run a group's members separately
MISSING: Final = object()


class Tuning(Protocol):
    """Interface of autotuning, which selects kernels by timing them."""

    def concerns(self, e: Any, op: Operation, modules: Sequence[Module]) -> bool:
        """Returns True if the kernels of an op are timed."""
        ...

    def choice(
        self, e: Any, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Any
    ) -> str | None:
        """Returns the name of the fastest kernel, `APART` to run a group's members separately; None if there is no choice."""
        ...

    def save(self) -> None:
        """Stores new choices for other processes."""
        ...


class KernelEmitter(HostSteps):
    """Emits instructions with the kernels of a table.

    kernels: plans for ops that are not launches, and fallbacks when a kernel declines; context: argument of the plans;
    tuning: selects kernels, if given.
    """

    def __init__(self, kernels: Kernels, context: Any = None, reuse: bool = True, tuning: Tuning | None = None) -> None:
        super().__init__(reuse)
        self.kernels = kernels
        self.context = context
        self.tuning = tuning
        self.choices: dict[str, str] = {}  # of tuning, by problem
        self._recordings: dict[Hashable, Recording] = {}
        self.earlier: Reuse | None = None  # from other instances of the same program

    def alone(self, op: Operation) -> bool:
        """Returns True if the current instruction is this op itself, not a group or composite that contains it."""
        return self.current is not None and op_of(self.current) == op

    def value_of(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        """Returns an operand's value: from `env`, of a literal, or None if it is absent."""
        found = env.get(ins, MISSING)
        if found is not MISSING:
            return found
        return None if ins.is_absent else self.constant_value(ins)

    def constant_value(self, ins: Instruction) -> Value:
        """Returns the value of a literal instruction."""
        return self.literal(ins.get_literal().to_numpy())

    def emit(self, ins: Instruction, env: dict[Instruction, Any]) -> Any:
        """Emits an instruction; returns its value.  env: values of its inputs."""
        if ins.literal is not None:
            return self.constant_value(ins)
        args = [self.value_of(i, env) for i in ins.inputs]
        before, self.sources = self.sources, ins.sources or self.sources
        try:
            # fast path for views, which most instructions are
            if len(args) == 1 and isinstance(ins.op, Launch) and ins.op.kernel.emit is emit_view:
                seen = self.view_of(ins.op.of, args[0]) if isinstance(args[0], Value) else None
                if seen is not None:
                    return seen
            if isinstance(ins.op, Launch):
                return self._emit_launch(ins, ins.op, args)
            return self.run_op(ins.op, ins.modules, args)
        except (ParameterError, PluginError, ShapeError) as error:
            if not any(place.startswith("node ") for place in error.places):
                error.at_nodes(ins.sources)
            raise
        finally:
            self.sources = before

    def _emit_launch(self, ins: Instruction, launch: Launch, args: Sequence[Any]) -> Results:
        """Emits a launch, from the emission cache if possible."""
        kernel, modules = launch.kernel, ins.modules
        if kernel.emit is None or self._recording is not None or ins is not self.current:
            return self.run_kernel(kernel, launch.of, modules, args, launch.refused)
        key = operand_key(args)
        if key is None:
            return self.run_kernel(kernel, launch.of, modules, args, launch.refused)
        key = (kernel, modules, key)
        constants = constants_of(ins, args)
        same = (*key, *map(id, constants))
        recording = self._recordings.get(key)
        if recording is None and self.earlier is not None:
            recording = self.earlier.recording(same)
        if recording is not None:
            results = recording.replay(self, args, ins)
            self.call = None
            return results
        recording = self._recording = Recording(args, self.sources)
        try:
            results = self.run_kernel(kernel, launch.of, modules, args, launch.refused)
            recording.set_results(results)
        finally:
            self._recording = None
        if recording.cacheable:
            self._recordings[key] = recording
        if recording.numbers and self.earlier is not None:
            self.earlier.keep(same, recording, constants)
        return results

    def run_op(self, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        """Emits an op that is not a launch with the first plan that does not decline; otherwise as in `run_kernel`."""
        return self._first(self._offers(op, modules, args), op, modules, args, [])

    def run_kernel(
        self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], refused: Sequence[str] = ()
    ) -> Results:
        """Emits a kernel's steps.

        If it declines, tries the next plans of the table, then a group's members separately or an op's decomposition, and
        finally a step on the host, with all reasons.  A kernel without `emit` is called on the host.
        """
        if kernel.emit is None:
            return self.host(kernel, op, modules, args, refused)

        def ways() -> Iterator[Kernel | No]:
            yield kernel
            for other in self._offers(op, modules, args):
                if isinstance(other, No) or type(other) is not type(kernel) or other.name != kernel.name:
                    yield other

        return self._first(ways(), op, modules, args, list(refused))

    def _offers(self, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Iterator[Kernel | No]:
        shapes = [None if a is None else type_of(a) for a in args]
        for plan, answer in self.kernels.offers(op, shapes, self.context, modules):
            if isinstance(answer, No):
                yield No(f"{plan}: {answer.why}")
            else:
                yield answer

    def _first(
        self,
        ways: Iterable[Kernel | No],
        op: Operation,
        modules: Sequence[Module],
        args: Sequence[Any],
        reasons: list[str],
    ) -> Results:
        if self.tuning is not None and self.tuning.concerns(self, op, modules):
            kernels: list[Kernel] = []
            for way in ways:
                if isinstance(way, No):
                    reasons.append(way.why)
                else:
                    kernels.append(way)
            best = self.tuning.choice(self, kernels, op, modules, args) if kernels else None
            if best == APART:
                return self.apart(op, modules, args, ["its members one by one are faster"])
            if best is not None:
                kernels.sort(key=lambda k: k.name != best)
            ways = kernels
        for kernel in ways:
            if isinstance(kernel, No):
                reasons.append(kernel.why)
                continue
            if kernel.emit is None:
                return self.host(kernel, op, modules, args, reasons)
            result = self.attempt(kernel, op, modules, args, reasons)
            if not isinstance(result, No):
                return result
            self.note(f"{kernel.name}: {result.why}")
            reasons.append(result.why)
        return self.apart(op, modules, args, reasons)

    def attempt(
        self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], refused: Sequence[str] = ()
    ) -> Results | No:
        """Emits a kernel; if it declines, rolls back and returns the refusal.

        Kernels that it emits itself are attributed to it.
        """
        assert kernel.emit is not None
        marks, outer = self.marks(), self.call
        if outer is None:
            self.call = Call(op, kernel.name, self.sources, tuple(refused), "", self.current)
        wrong, cause = "", None
        try:
            result: Results | No = kernel.emit(self, op, modules, args)
        except Refused as error:
            result = error.no
        except ParameterError as error:
            raise error.located(self._blamed(kernel, op, modules, args).rstrip(",")) from error.__cause__
        except (MgxError, MemoryError):
            raise
        except Exception as error:
            result, wrong, cause = No(""), f"failed: {type(error).__name__}: {error}", error
        finally:
            self.call = outer
        if not isinstance(result, (No, Value)) and not (
            isinstance(result, tuple) and all(isinstance(r, (Value, tuple)) for r in result)
        ):
            wrong = f"must emit a value, a tuple of values or a No, got {result!r}"
        if wrong:
            raise PluginError(f"{self._blamed(kernel, op, modules, args)} {wrong}") from cause
        if isinstance(result, No):
            self.rollback(marks)
        elif kernel.open_axis is not None and isinstance(result, tuple):
            return self._without_count(op, modules, args, result)
        return result

    def _without_count(
        self, op: Operation, modules: Sequence[Module], args: Sequence[Any], results: tuple[Any, ...]
    ) -> Results:
        """Returns a counting kernel's results, without the count if empty operands determine it."""
        if op.result([None if a is None else type_of(a) for a in args], modules).dynamic():
            return results
        *wholes, _ = results
        return wholes[0] if len(wholes) == 1 else tuple(wholes)

    def _blamed(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> str:
        """Describes a kernel with its op and plan, for messages."""
        shapes = [None if a is None else type_of(a) for a in args]
        origin = self.kernels.origin(kernel, op, shapes, self.context, modules)
        inputs = ", ".join(map(str, shapes))
        return f"kernel {kernel.name!r} of {op!r}({inputs})" + (f", from {origin}," if origin else "")

    def apart(self, op: Operation, modules: Sequence[Module], args: Sequence[Any], reasons: Sequence[str]) -> Results:
        """Emits an op without a kernel: a group's members separately, an op's decomposition, otherwise a step on the host."""
        body, given = members_of(op, modules), args
        if body is None:
            found = None if modules else decomposed(op, [None if a is None else type_of(a) for a in args])
            given = [a for a in args if a is not None]
            body = found if isinstance(found, Module) else None
            reasons = [*reasons, found.why] if isinstance(found, No) else reasons
        if body is None:
            return self.host(Reference(op, reasons), op, modules, args, reasons)
        outer, self.call = self.call, None
        try:
            results = self.emit_body(body, given)
        finally:
            self.call = outer
        return results[0] if len(results) == 1 else tuple(results)

    def emit_body(self, body: Module, args: Sequence[Any]) -> list[Any]:
        """Emits the members of a module; returns the values of its outputs."""
        env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
        for p in body.parameters.values():
            count_reads(env[p], len(p.users))
        self.emit_all([i for i in body if not (i.is_param or i.is_return or i.is_absent)], env, None)
        return [self.value_of(o, env) for o in body.outputs]

    def emit_all(
        self, members: Iterable[Instruction], env: dict[Instruction, Any], left: Mapping[Instruction, int] | None
    ) -> None:
        """Emits instructions in order, and tracks the remaining reads of values.

        left: number of reads per value; None: once per user.
        """
        top = left is not None
        for ins in members:
            if top:
                self.current = ins
            result = env[ins] = self.emit(ins, env)
            uses = len(ins.users) if left is None else left[ins]
            if type(result) is tuple:
                count_reads(result, uses)
            else:
                result.buffer.readers += uses
            for read in set(ins.inputs):
                value = env.get(read)
                if type(value) is tuple:
                    count_reads(value, -1)
                elif value is not None:
                    value.buffer.readers -= 1

    def finish(self) -> None:
        super().finish()
        self._recordings.clear()
