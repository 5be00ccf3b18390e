"""Autotuning: stores the fastest kernel per problem and machine, in memory, on disk and in program files."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from threading import RLock
from typing import Any, Final

import numpy as np

from ..cache import DiskCache
from ..errors import MgxError, No
from ..hashing import sha256
from ..ir.module import Module
from ..named_tuples import NamedTuple
from ..ops.control import Group
from ..ops.operation import Operation
from ..types.argument import Array
from ..types.dtype import DType
from ..types.shape import Shape
from .emission import Emitter
from .kernel import Kernel
from .kernel_emission import APART, Results
from .schedule import Schedule
from .values import Value

__all__ = ["BLOCK", "KernelTuning", "Trial", "TuningStore", "random_operand"]

FORMAT: Final = 1
BLOCK: Final = 1 << 16  # random numbers that are drawn for an operand
LEAD: Final = 0.97  # a kernel must be faster than the best so far by this factor; otherwise the order of plans decides

Emit = Callable[[Emitter, Sequence[Any]], Results | No]


class Trial(NamedTuple):
    """A program of one op with one of its kernels: the kernel's name, the steps, and what they read (vectors)."""

    name: str
    emitter: Emitter
    schedule: Schedule
    operands: Sequence[Shape]


class TuningStore:
    """Tuning results by problem.  A result is plain data; problems are identified by text.

    machine: identifies the processor or device; results of others are ignored; folder: of the files, default ``tuning`` in the
    user's cache folder.
    """

    def __init__(self, machine: str, folder: Path | None = None) -> None:
        self.machine = machine
        self.lock = RLock()
        self._disk = DiskCache("tuning", FORMAT, folder)
        self._changed = False
        self.choices: dict[str, Any] = self._read()

    def keep(self, problem: str, choice: Any) -> None:
        """Records a measured choice."""
        with self.lock:
            self.choices[problem] = choice
            self._changed = True

    def learn(self, choices: Mapping[str, Any]) -> None:
        """Adds choices from a program file for problems that are unknown so far."""
        with self.lock:
            self.choices = {**choices, **self.choices}

    def save(self) -> None:
        """Writes new choices to disk, merged with those of other processes."""
        with self.lock:
            if self._changed:
                self.choices = {**self._read(), **self.choices}
                self._disk.put(self.machine, json.dumps(self.choices).encode())
                self._changed = False

    def _read(self) -> dict[str, Any]:
        found = self._disk.get(self.machine)
        return {} if found is None else dict(json.loads(found))


class KernelTuning(TuningStore):
    """Names of the fastest kernels by problem; with ``exhaustive_tune`` for all ops, else for those selected by `concerns`.

    Each kernel that supports an op is timed in a program of its own; a group is also timed as separate members, if
    `times_members`.  Targets define how a program is timed.
    """

    def __init__(self, machine: str, folder: Path | None = None) -> None:
        super().__init__(machine, folder)
        self.timed = 0  # number of problems measured

    @abstractmethod
    def seconds(self, trial: Any, schedule: Schedule, arrays: Sequence[Any]) -> float:
        """Returns the seconds that one run of a schedule takes on these operands.  Errors: MgxError if it cannot run."""

    def settings(self, e: Any) -> str:
        """Returns the emitter's settings that choices depend on, as text (override)."""
        return ""

    def concerns(self, e: Any, op: Operation, modules: Sequence[Module]) -> bool:
        """Returns True if the kernels for an op are timed (override; default: for every op)."""
        return True

    def times_members(self, e: Any) -> bool:
        """Returns True if a group is also timed as separate members (override; default: always)."""
        return True

    def operand(self, dtype: DType, count: int) -> Any:
        """Returns random numbers as an argument for `seconds` (override; default: in host memory)."""
        return random_operand(dtype, count)

    def choice(
        self, e: Any, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> str | None:
        """Returns the name of the kernel to use, `APART` to run a group's members separately; None if there is no choice."""
        key = self.problem(e, kernels, op, modules, args)
        if key is None:
            return None
        with self.lock:
            known = self.known(e, key, kernels, op)
            if known is None:
                known = self._measured(e, kernels, op, modules, args)
                self.timed += 1
                self.keep(key, known)
        e.choices[key] = known
        return known

    def problem(
        self, e: Any, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> str | None:
        """Returns the text that identifies a problem; None if there is nothing to choose from or to time."""
        if len(kernels) + self._apart(e, op) < 2:
            return None
        return _key(f"{op!r} {self.settings(e)}", modules, args)

    def known(self, e: Any, problem: str, kernels: Sequence[Kernel], op: Operation) -> str | None:
        """Returns the choice for a problem; None if it was not measured, or the chosen kernel does not exist any more."""
        found = self.choices.get(problem)
        names = [k.name for k in kernels] + [APART] * self._apart(e, op)
        return str(found) if found in names else None

    def trials(
        self, e: Any, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> Iterator[Trial]:
        """Yields a program for each kernel that supports an op with these operands, in order of preference."""
        for kernel in kernels:
            if kernel.emit is not None:
                made = _trial(e, kernel.name, partial(_attempt, kernel, op, modules), args)
                if made is not None:
                    yield made
        if self._apart(e, op):
            made = _trial(e, APART, lambda trial, given: trial.apart(op, modules, given, ()), args)
            if made is not None:
                yield made

    def _apart(self, e: Any, op: Operation) -> bool:
        return isinstance(op, Group) and self.times_members(e)

    def _measured(
        self, e: Any, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> str:
        best, least = kernels[0].name, inf
        operands: list[Any] | None = None
        for trial in self.trials(e, kernels, op, modules, args):
            try:
                if operands is None:
                    operands = [self.operand(s.dtype, s.elements()) for s in trial.operands]
                seconds = self.seconds(trial.emitter, trial.schedule, operands)
            except MgxError:
                continue
            if seconds < least * (LEAD if least < inf else 1.0):
                best, least = trial.name, seconds
        return best


def _attempt(
    kernel: Kernel, op: Operation, modules: Sequence[Module], trial: Emitter, given: Sequence[Any]
) -> Results | No:
    return trial.attempt(kernel, op, modules, given)


def _trial(e: Any, name: str, emit: Emit, args: Sequence[Any]) -> Trial | None:
    """Returns a program of one op on operands with the given layouts; None if it declines, or would run on the host."""
    trial: Emitter = e.fresh(tuning=False)
    operands: list[Shape] = []

    def stand_in(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(map(stand_in, value))
        if value.buffer.kind == "literal":
            return value
        space = Shape(value.shape.dtype, [max(int(value.shape.element_space()), 1)])
        memory = trial.input(space, len(operands))
        trial.inputs.append(memory)
        operands.append(space)
        return Value(value.shape, memory.buffer)

    try:
        if isinstance(emit(trial, [stand_in(a) for a in args]), No) or any(step.host for step in trial.steps):
            return None
        return Trial(name, trial, trial.planned(Module("trial"), []), operands)
    except MgxError:
        return None


def random_operand(dtype: DType, count: int) -> Array:
    """Returns random numbers, in blocks that repeat: to draw and round millions takes longer than the kernel that reads them."""
    rng, some = np.random.default_rng(0), min(count, BLOCK)
    block = rng.standard_normal(some) if dtype.is_float else rng.integers(0, 2, some)
    return np.resize(block.astype(dtype.numpy), count)


def _key(about: str, modules: Sequence[Module], args: Sequence[Any]) -> str | None:
    """Returns the key of a problem: everything that the choice depends on, as text."""
    parts = [about]
    parts += [sha256(_body(module).encode()).hexdigest()[:16] for module in modules]
    for value in args:
        if value is None:
            parts.append("-")
            continue
        for v in value if isinstance(value, tuple) else (value,):
            if not v.shape.elements():
                return None
            parts.append(f"{v.shape.dtype}{v.lens} by {v.strides}{' constant' if v.buffer.kind == 'literal' else ''}")
    return "; ".join(parts)


def _body(module: Module) -> str:
    """Returns a group's body as text, with constants by type, since values do not affect the time."""
    at = {ins: n for n, ins in enumerate(module)}
    lines = []
    for ins in module:
        what = "literal" if ins.is_literal else "" if ins.is_param else repr(ins.op)
        inner = " ".join(f"{{{_body(m)}}}" for m in ins.modules)
        lines.append(f"{what}({', '.join(str(at.get(i, '-')) for i in ins.inputs)}){inner} {ins.result}")
    return "\n".join(lines)
