"""Plans timed on this machine for the shapes at hand, and the choices kept on disk.

Under the option ``exhaustive_tune`` every plan that can do an op is put into a native program of its own and timed; a group is
also timed as its members one by one.  Choices are plain data, so that program files can carry it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import cache
from math import inf
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np

from mgx_core import Kernel, MgxError, Module, No, Operation, Shape
from mgx_core.ops.control import Group
from mgx_core.settings import cache_directory
from mgx_core.targets.kernel_emission import APART, Results
from mgx_core.targets.tuning import TuningStore
from mgx_core.targets.values import Value
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from .emitter import CpuEmitter
from .native_program import build

__all__ = ["Tuning", "tuning_of"]

SPENT: Final = 0.03  # seconds on one plan
LEAD: Final = (
    0.97  # a plan must be faster than this part of the one before it: between equals the order of plans decides
)


class Tuning(TuningStore):
    """Names of the fastest kernels, by problem."""

    def __init__(self, machine: str, folder: Path | None = None) -> None:
        super().__init__(machine, folder)
        self.timed = 0  # problems that were measured rather than known

    def choice(
        self, e: CpuEmitter, kernels: Sequence[Kernel], op: Operation, modules: Sequence[Module], args: Sequence[Any]
    ) -> str | None:
        """The name of the kernel to take, `APART` for a group's members one by one; None where there is nothing to choose."""
        apart = isinstance(op, Group)
        if len(kernels) + apart < 2:
            return None
        key = _key(e, op, modules, args)
        if key is None:
            return None
        names = [k.name for k in kernels] + [APART] * apart
        with self.lock:
            known = self.choices.get(key)
            if known not in names:
                known = self._measured(e, kernels, op, modules, args, apart)
                self.timed += 1
                self.keep(key, known)
        e.choices[key] = known
        return known

    def _measured(
        self,
        e: CpuEmitter,
        kernels: Sequence[Kernel],
        op: Operation,
        modules: Sequence[Module],
        args: Sequence[Any],
        apart: bool,
    ) -> str:
        def emitting(kernel: Kernel) -> Callable[[CpuEmitter, Sequence[Any]], Results | No]:
            return lambda trial, given: trial.attempt(kernel, op, modules, given)

        ways = [(k.name, emitting(k)) for k in kernels if k.emit is not None]
        if apart:
            ways.append((APART, lambda trial, given: trial.apart(op, modules, given, ())))
        best, least = kernels[0].name, inf
        for name, emit in ways:
            seconds = _seconds(e, emit, args)
            if seconds < least * (LEAD if least < inf else 1.0):
                best, least = name, seconds
        return best


def _seconds(e: CpuEmitter, emit: Callable[[CpuEmitter, Sequence[Any]], Results | No], args: Sequence[Any]) -> float:
    """Returns the seconds of an op on random operands with the layouts of the given ones; infinite where it cannot be timed."""
    trial = e.fresh(tuning=False)
    arrays: list[Array] = []

    def stand_in(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(map(stand_in, value))
        if value.buffer.kind == "literal":
            return value
        space = Shape(value.shape.dtype, [max(value.shape.element_space(), 1)])
        memory = trial.input(space, len(arrays))
        trial.inputs.append(memory)
        arrays.append(_random(space.dtype, space.elements()))
        return Value(value.shape, memory.buffer)

    try:
        if isinstance(emit(trial, [stand_in(a) for a in args]), No) or any(step.host for step in trial.steps):
            return inf
        program = build(trial.planned(Module("trial"), []))
        once = sum(program.time(arrays, 1, 1)) * 1e-9
        return sum(program.time(arrays, max(3, min(30, int(SPENT / max(once, 1e-6)))), 1)) * 1e-9
    except MgxError:
        return inf


def _random(dtype: DType, count: int) -> Array:
    rng = np.random.default_rng(0)
    if dtype.is_float:
        return rng.standard_normal(count).astype(dtype.numpy)
    return rng.integers(0, 2, count).astype(dtype.numpy)


def _key(e: CpuEmitter, op: Operation, modules: Sequence[Module], args: Sequence[Any]) -> str | None:
    """Returns everything that a choice depends on, as text."""
    parts = [f"{op!r} threads {e.threads} fast_math {e.fast_math}"]
    parts += [hashlib.sha256(_body(module).encode()).hexdigest()[:16] for module in modules]
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
    """A group's body as text; constants count by their types, since values take no time."""
    at = {ins: n for n, ins in enumerate(module)}
    lines = []
    for ins in module:
        what = "literal" if ins.is_literal else "" if ins.is_param else repr(ins.op)
        inner = " ".join(f"{{{_body(m)}}}" for m in ins.modules)
        lines.append(f"{what}({', '.join(str(at.get(i, '-')) for i in ins.inputs)}){inner} {ins.result}")
    return "\n".join(lines)


_making = Lock()


def tuning_of(machine: str) -> Tuning:
    """The choices for a machine that this process and its cache folder share."""
    with _making:
        return _made(machine, cache_directory() / "tuning")


@cache
def _made(machine: str, folder: Path) -> Tuning:
    return Tuning(machine, folder)
