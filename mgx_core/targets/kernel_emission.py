"""Emission of single instructions: which kernel emits its steps, and what is done where all decline."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from ..errors import MgxError, No, ParameterError, PluginError, Refused, UnsupportedError
from ..ir.instruction import Instruction
from ..ir.interpreter import Interpreter
from ..ir.module import Module
from ..ops.broadcast import Broadcast, BroadcastForDot, Multibroadcast
from ..ops.operation import Operation
from ..rules.decomposition import decomposed
from ..types.argument import Array
from ..types.shape import AnyShape, Shape, TupleShape
from .emission_cache import Recording, operand_key
from .groups import members_of
from .kernel import Kernel, Launch, Reference, call_kernel, check_result, op_of
from .kernel_table import Kernels
from .schedule import Call
from .step_list import StepList
from .values import Value

__all__ = [
    "APART",
    "DeviceFunction",
    "HostFunction",
    "KernelEmitter",
    "Results",
    "Tuning",
    "count_reads",
    "emit_view",
    "type_of",
]

APART: Final = "apart"  # a choice of tuning: a group's members one by one
MISSING: Final = object()

Results: TypeAlias = Value | tuple[Value, ...]
HostFunction: TypeAlias = Callable[[Sequence[Array]], Sequence[Array]]
DeviceFunction: TypeAlias = Callable[[Sequence[Any], Sequence[Any]], None]


class Tuning(Protocol):
    """Chooses among kernels by timing them (option ``exhaustive_tune``)."""

    def choice(
        self, e: Any, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Any
    ) -> str | None:
        """The name of the fastest kernel, `APART` for a group's members one by one; None where there is nothing to choose."""
        ...

    def save(self) -> None:
        """Keeps new choices for other processes."""
        ...


class KernelEmitter(StepList):
    """Emits instructions by the kernels of a table.

    kernels: the plans to ask for ops that are not launches, and when a kernel declines; context: the target's, for them;
    tuning: asked which kernel to take, if there is one.
    """

    def __init__(self, kernels: Kernels, context: Any = None, reuse: bool = True, tuning: Tuning | None = None) -> None:
        super().__init__(reuse)
        self.kernels = kernels
        self.context = context
        self.tuning = tuning
        self.choices: dict[str, str] = {}  # of tuning, by problem
        self.current: Instruction | None = None  # of the lowered module
        self._recordings: dict[Hashable, Recording] = {}

    @abstractmethod
    def host_step(self, name: str, function: HostFunction, given: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Add a step that calls `function` with row-major arrays of `given` and puts what it returns into `outputs`."""

    def device_step(
        self, name: str, function: DeviceFunction, given: Sequence[Value], outputs: Sequence[Value]
    ) -> None:
        """Add a step that calls ``function(given, outputs)`` with tensors in the memory of the context's device.

        What it does with them it enqueues on the context's `queue`, or has done when it returns; it may write into both.
        Errors: Refused, here, for targets that compute in the host's memory.
        """
        raise Refused("the target computes in the host's memory")

    def alone(self, op: Operation) -> bool:
        """True if the instruction being emitted is this op itself, and no group or composite with it inside."""
        return self.current is not None and op_of(self.current) == op

    def value_of(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        """The value of an operand: from `env`, a constant, or None for an absent one."""
        found = env.get(ins, MISSING)
        if found is not MISSING:
            return found
        return None if ins.is_absent else self.constant_value(ins)

    def constant_value(self, ins: Instruction) -> Value:
        """The value of a literal instruction."""
        return self.literal(ins.get_literal().to_numpy())

    def emit(self, ins: Instruction, env: Mapping[Instruction, Any]) -> Any:
        """Add an instruction's steps and return its value; those of its inputs are looked up in `env`."""
        if ins.literal is not None:
            return self.constant_value(ins)
        args = [self.value_of(i, env) for i in ins.inputs]
        if (
            len(args) == 1 and isinstance(ins.op, Launch) and ins.op.kernel.emit is emit_view
        ):  # as most instructions are
            seen = self.view_of(ins.op.of, args[0]) if isinstance(args[0], Value) else None
            if seen is not None:
                return seen
        before, self.sources = self.sources, ins.sources or self.sources
        try:
            if isinstance(ins.op, Launch):
                return self._emit_launch(ins, ins.op, args)
            return self.run_op(ins.op, ins.modules, args)
        except (ParameterError, PluginError) as error:
            if ins.sources and not any(place.startswith("node ") for place in error.places):
                error.located(f"node {', '.join(map(repr, ins.sources))}")
            raise
        finally:
            self.sources = before

    def _emit_launch(self, ins: Instruction, launch: Launch, args: Sequence[Any]) -> Results:
        """A launch's steps, repeated from the emission cache if it holds them."""
        kernel, modules = launch.kernel, ins.modules
        if kernel.emit is None or self._recording is not None or ins is not self.current:
            return self.run_kernel(kernel, launch.of, modules, args, launch.refused)
        key = operand_key(args)
        if key is None:
            return self.run_kernel(kernel, launch.of, modules, args, launch.refused)
        key = (kernel, modules, key)
        recording = self._recordings.get(key)
        if recording is not None:
            self.call = Call(launch.of, kernel.name, self.sources, launch.refused, "", ins)
            results = recording.replay(self, args)
            self.call = None
            return results
        recording = self._recording = Recording(args)
        try:
            results = self.run_kernel(kernel, launch.of, modules, args, launch.refused)
            recording.gave(results)
        finally:
            self._recording = None
        if recording.cacheable:
            self._recordings[key] = recording
        return results

    def run_op(self, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        """The steps of an op that is not a launch: of the first plan that emits it; else as in `run_kernel`."""
        return self._first(self._offers(op, modules, args), op, modules, args, [])

    def run_kernel(
        self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], refused: Sequence[str] = ()
    ) -> Results:
        """A kernel's own steps.

        If it declines: those of the next plan of the table that does not, a group member by member, an op by its
        decomposition, and last a step on the host, with every reason.  A kernel that has no steps to give is called on the host.
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
        if self.tuning is not None:
            kernels = [k for k in ways if not isinstance(k, No)]
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
        """A kernel's steps, or why it has none for these operands; then nothing is left of it.

        Kernels that it emits on its way count as parts of it.
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
            raise error.located(self._blamed(kernel, op, modules, args)) from error.__cause__
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
            self.take_back(marks)
        return result

    def _blamed(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> str:
        """Returns a kernel with its op and the plan that gives it, for messages."""
        shapes = [None if a is None else type_of(a) for a in args]
        origin = self.kernels.origin(kernel, op, shapes, self.context, modules)
        inputs = ", ".join(map(str, shapes))
        return f"kernel {kernel.name!r} of {op!r}({inputs})" + (f", from {origin}," if origin else "")

    def apart(self, op: Operation, modules: Sequence[Module], args: Sequence[Any], reasons: Sequence[str]) -> Results:
        """An op that no kernel emits: a group member by member, an op by its decomposition, else on the host."""
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
        """The members of a module one by one; returns the values of its outputs."""
        env: dict[Instruction, Any] = dict(zip(body.parameters.values(), args, strict=True))
        for p in body.parameters.values():
            count_reads(env[p], len(p.users))
        self.emit_all([i for i in body if not (i.is_param or i.is_return or i.is_absent)], env, None)
        return [self.value_of(o, env) for o in body.outputs]

    def emit_all(
        self, members: Iterable[Instruction], env: dict[Instruction, Any], left: Mapping[Instruction, int] | None
    ) -> None:
        """Emit instructions in order and count the reads that are still to come.

        left: how often each value is read; None: by each of its users once.
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

    def host(
        self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any], reasons: Sequence[str] = ()
    ) -> Results:
        """A kernel that is called from Python, as a visible step on the host.

        Errors: UnsupportedError if an extent of the result depends on data.
        """
        by_definition = isinstance(kernel, Reference)
        why = "; ".join(dict.fromkeys(kernel.reasons or reasons)) if by_definition else "it is a Python function"
        outer = self.call
        self.call = Call(op, kernel.name, self.sources, tuple(reasons), why or "no plan takes it", self.current)
        try:
            return self._call_on_host(kernel, op, modules, args)
        finally:
            self.call = outer

    def _call_on_host(self, kernel: Kernel, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Results:
        flat = [
            tuple(map(self.row_major, a)) if isinstance(a, tuple) else a if a is None else self.row_major(a)
            for a in args
        ]
        result = op.result([None if a is None else type_of(a) for a in flat], modules)
        items = result.items if isinstance(result, TupleShape) else (result,)
        shapes = [r for r in items if isinstance(r, Shape) and not r.dynamic()]
        if len(shapes) != len(items):
            raise UnsupportedError(f"{op!r} on the host gives {result}, whose extents are known at run time only")
        outputs = [self.allocate(r.dtype, r.lens()) for r in shapes]
        given = [v for a in flat if a is not None for v in (a if isinstance(a, tuple) else (a,))]

        unchecked = [True]  # results are compared with their types in the first run

        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            left = iter(arrays)
            values: list[Any] = [
                None if a is None else tuple(next(left) for _ in a) if isinstance(a, tuple) else next(left)
                for a in flat
            ]
            found: Any = call_kernel(kernel, op, values, modules, Interpreter().run)
            if unchecked:
                check_result(kernel, op, result, found)
                unchecked.clear()
            return list(found) if isinstance(result, TupleShape) else [found]

        name = f"host {op.name}" if isinstance(kernel, Reference) else kernel.name
        self.host_step(name, call, given, outputs)
        return tuple(outputs) if isinstance(result, TupleShape) else outputs[0]

    def finish(self) -> None:
        super().finish()
        self.current = None
        self._recordings.clear()


def emit_view(e: KernelEmitter, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> Value | No:
    """The emit function of ops with a view: the operand seen in another way, after a copy to row-major order where that helps."""
    x, *others = args
    if not isinstance(x, Value):
        return No("the operand is not a tensor")
    if any(o is not None for o in others) and not isinstance(op, (Broadcast, BroadcastForDot, Multibroadcast)):
        return No("an operand that defines the view is known only at run time")
    found = e.view_of(op, x, others)
    if found is None:
        found = e.view_of(op, e.row_major(x), others)
    return No("the elements must be moved") if found is None else found


def type_of(value: Any) -> AnyShape:
    """The type of a value, or of a tuple of values, without regard to how it lies."""
    return TupleShape(map(type_of, value)) if isinstance(value, tuple) else Shape(value.shape.dtype, value.lens)


def count_reads(value: Any, uses: int) -> None:
    """Count reads of a value's memory; its items' for a tuple."""
    if isinstance(value, tuple):
        for v in value:
            v.buffer.readers += uses
    elif value is not None:
        value.buffer.readers += uses
