"""Builds a native program from a schedule."""

from __future__ import annotations

from typing import Any

from mgx_core.targets.schedule import Schedule
from mgx_core.targets.values import Buffer

from .emitter import NativeStep
from .native_run import NativeRun
from .packing import Derived

__all__ = ["build", "install"]


def build(schedule: Schedule) -> NativeRun:
    """Builds the native program of a schedule."""
    from .native_library import native

    program = native().NativeProgram("main", schedule.peak)
    taken = install(program, schedule)
    return NativeRun(program, taken, [s for s in schedule.steps if s.host])


def install(program: Any, schedule: Schedule) -> list[int]:
    """Installs values and steps into a native program (or a recorder); returns the positions of the inputs it reads."""
    ids = _Numbers(program)
    taken = [n for n, value in enumerate(schedule.inputs) if value is not None and value.buffer.first >= 0]
    for n in taken:
        value = schedule.inputs[n]
        assert value is not None
        ids[value.buffer] = program.input(value.shape.dtype.numpy, value.lens)
    outputs = [value for value in schedule.outputs if value.buffer.kind != "given"]  # aliases of inputs
    for value in outputs:
        ids[value.buffer] = program.output(value.shape.dtype.numpy, value.lens)
    ident = ids.__getitem__
    for step in schedule.steps:
        assert isinstance(step, NativeStep)
        step.install(program, ident)
    for value in outputs:
        program.result(ids[value.buffer])
    program.finish()
    return taken


class _Numbers(dict[Buffer, int]):
    """Numbers buffers for a native program; arena buffers and constants are registered on first use."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __missing__(self, buffer: Buffer) -> int:
        if buffer.kind == "arena":
            made = self.program.arena(buffer.offset, buffer.bytes)
        elif buffer.kind == "literal":
            derived = isinstance(buffer.owner, Derived)
            owner = buffer.owner if derived or buffer.array is None else buffer.array
            made = self.program.literal(buffer.address, buffer.bytes, owner)
        else:
            raise KeyError(f"the schedule does not declare the {buffer.kind} buffer {buffer}")
        self[buffer] = made
        return int(made)
