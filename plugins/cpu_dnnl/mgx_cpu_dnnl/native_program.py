"""From emitted steps to a native program: lifetimes, offsets in the arena, addresses, the steps themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Shape
from mgx_core.memory import ALIGNMENT, place

from .emitter import Emitter
from .values import Buffer, Value

__all__ = ["NativeRun", "build"]


class NativeRun:
    """A native program with the inputs that it takes.

    taken: positions of the module's parameters that the program reads, in its order.
    """

    def __init__(self, program: Any, taken: Sequence[int], emitter: Emitter, lower_bound: int) -> None:
        self.program = program
        self.taken = list(taken)
        self.every = self.taken == list(range(len(self.taken)))
        self.emitter = emitter
        self.lower_bound = lower_bound
        self.hosted = [s for s in emitter.steps if s.host]

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.every and len(args) == len(self.taken):
            results: list[Any] = self.program.run_arrays(args if isinstance(args, list) else list(args))
            return results
        return list(self.program.run_arrays([args[n] for n in self.taken]))

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[float]:
        """Median nanoseconds of each step."""
        return list(self.program.time([args[n] for n in self.taken], runs, warmup))


def build(e: Emitter, inputs: Sequence[Shape | None], outputs: Sequence[Value]) -> NativeRun:
    """The native program of everything emitted.

    inputs: the shape of each parameter that is read, None for the others; outputs: values on output buffers, in order.
    """
    from .native_library import native

    _native = native()

    last = len(e.steps)
    for n, step in enumerate(e.steps):
        for buffer in (*step.reads, *step.writes):
            if buffer.first < 0:
                buffer.first = n
            buffer.last = n
    arena = [b for b in e.buffers if b.kind == "arena" and b.first >= 0]
    for b in arena:
        b.bytes = -(-b.bytes // ALIGNMENT) * ALIGNMENT
    size, lower_bound = place(arena, last + 1)
    program = _native.NativeProgram("main", size)
    taken = []
    for n, shape in enumerate(inputs):
        if shape is None:
            continue
        ident = program.input(shape.dtype.numpy, shape.lens())
        taken.append(n)
        for b in e.buffers:
            if b.kind == "input" and b.index == n:
                b.id = ident
    by_index = {b.index: b for b in e.buffers if b.kind == "output"}
    for n, value in enumerate(outputs):
        by_index[n].id = program.output(value.shape.dtype.numpy, value.lens)

    def ident(buffer: Buffer) -> int:
        if buffer.id < 0:
            if buffer.kind == "arena":
                buffer.id = program.arena(buffer.offset, buffer.bytes)
            else:
                array = buffer.array
                address = buffer.owner.address if array is None else array.__array_interface__["data"][0]
                buffer.id = program.literal(address, buffer.bytes, buffer.owner if array is None else array)
        return buffer.id

    for step in e.steps:
        step.install(program, ident)
    for n in range(len(outputs)):
        program.result(by_index[n].id)
    program.finish()
    return NativeRun(program, taken, e, lower_bound)
