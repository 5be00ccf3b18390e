"""Plans timed on this machine for the shapes at hand, and the choices kept on disk.

Under the option ``exhaustive_tune`` every plan that can do an op is put into a native program of its own and timed; a group is
also timed as its members one by one.  What was chosen is plain data, so that program files can carry it.
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

from mgx_core import MgxError, Module, Shape
from mgx_core.ops.control import Group
from mgx_core.settings import cache_directory
from mgx_core.targets.tuning import TuningStore
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType

from .emitter import APART, Emitter
from .kernel import CpuKernel, Declined, Results
from .native_program import build
from .values import Buffer, Value

__all__ = ["Tuning", "tuning_of"]

SPENT: Final = 0.03  # seconds on one plan
LEAD: Final = (
    0.97  # a plan must be faster than this part of the one before it: between equals the order of plans decides
)


class Tuning(TuningStore):
    """What was found to be fastest, by problem: the names of kernels."""

    def __init__(self, machine: str, folder: Path | None = None) -> None:
        super().__init__(machine, folder)
        self.timed = 0  # problems that were measured rather than known

    def choice(
        self, e: Emitter, candidates: Sequence[CpuKernel], modules: Sequence[Module], args: Sequence[Any]
    ) -> str | None:
        """The name of the kernel to take, `APART` for a group's members one by one; None where there is nothing to choose."""
        op = candidates[0].op
        apart = isinstance(op, Group)
        if len(candidates) + apart < 2:
            return None
        key = _key(e, candidates[0], modules, args)
        if key is None:
            return None
        names = [c.name for c in candidates] + [APART] * apart
        with self.lock:
            known = self.choices.get(key)
            if known not in names:
                known = self._measured(e, candidates, modules, args, apart)
                self.timed += 1
                self.keep(key, known)
        e.choices[key] = known
        return known

    def _measured(
        self, e: Emitter, candidates: Sequence[CpuKernel], modules: Sequence[Module], args: Sequence[Any], apart: bool
    ) -> str:
        op = candidates[0].op
        ways: list[tuple[str, Callable[[Emitter, Sequence[Any]], Results]]] = [
            (c.name, lambda trial, given, c=c: c.emit(trial, c.op, modules, given))  # type: ignore[misc]
            for c in candidates
        ]
        if apart:
            ways.append((APART, lambda trial, given: trial.apart(op, modules, given, "")))
        best, least = candidates[0].name, inf
        for name, emit in ways:
            seconds = _seconds(e, emit, args)
            if seconds < least * (LEAD if least < inf else 1.0):
                best, least = name, seconds
        return best


def _seconds(e: Emitter, emit: Callable[[Emitter, Sequence[Any]], Results], args: Sequence[Any]) -> float:
    """How long an op takes on random operands that lie as the given ones do; infinite where that cannot be told."""
    trial = Emitter(e.threads, e.fast_math)
    inputs: list[Shape | None] = []
    arrays: list[Array] = []

    def stand_in(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, tuple):
            return tuple(map(stand_in, value))
        held = value.buffer
        if held.kind == "literal":
            return Value(value.shape, held, value.offset)
        space = max(value.shape.element_space(), 1)
        buffer = Buffer("input", space * value.shape.dtype.size, index=len(arrays), readers=1 << 30)
        trial.buffers.append(buffer)
        inputs.append(Shape(value.shape.dtype, [space]))
        arrays.append(_random(value.shape.dtype, space))
        return Value(value.shape, buffer)

    try:
        emit(trial, [stand_in(a) for a in args])
        if any(step.host for step in trial.steps):
            return inf
        read = {id(b) for step in trial.steps for b in step.reads}
        used = [shape if _read(trial, n, read) else None for n, shape in enumerate(inputs)]
        program = build(trial, used, [])
        once = sum(program.time(arrays, 1, 1)) * 1e-9
        return sum(program.time(arrays, max(3, min(30, int(SPENT / max(once, 1e-6)))), 1)) * 1e-9
    except (Declined, MgxError):
        return inf


def _read(trial: Emitter, index: int, read: set[int]) -> bool:
    return any(b.kind == "input" and b.index == index and id(b) in read for b in trial.buffers)


def _random(dtype: DType, count: int) -> Array:
    rng = np.random.default_rng(0)
    if dtype.is_float:
        return rng.standard_normal(count).astype(dtype.numpy)
    return rng.integers(0, 2, count).astype(dtype.numpy)


def _key(e: Emitter, kernel: CpuKernel, modules: Sequence[Module], args: Sequence[Any]) -> str | None:
    """What a choice depends on, as text."""
    parts = [f"{kernel.op!r} threads {e.threads} fast_math {e.fast_math}"]
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
