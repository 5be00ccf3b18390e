"""From emitted steps to a native program: lifetimes, offsets in the arena, addresses, the steps themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgx_core import Shape

    from .emitter import Emitter, Step
    from .values import Buffer, Value

__all__ = ["NativeRun", "build", "install"]


class NativeRun:
    """A native program with the inputs that it takes.

    taken: positions of the module's parameters that the program reads, in its order; hosted: its steps on the host.
    """

    def __init__(self, program: Any, taken: Sequence[int], hosted: Sequence[Step] = ()) -> None:
        self.program = program
        self.taken = list(taken)
        self.every = self.taken == list(range(len(self.taken)))
        self.hosted = list(hosted)

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
    from mgx_core.targets.memory import place
    from mgx_core.types.memory_limit import ALIGNMENT

    from .native_library import native

    last = len(e.steps)
    for n, step in enumerate(e.steps):
        for buffer in (*step.reads, *step.writes):
            if buffer.first < 0:
                buffer.first = n
            buffer.last = n
    arena = [b for b in e.buffers if b.kind == "arena" and b.first >= 0]
    for b in arena:
        b.bytes = -(-b.bytes // ALIGNMENT) * ALIGNMENT
    size, _ = place(arena, last + 1)
    program = native().NativeProgram("main", size)
    install(program, e, inputs, outputs)
    taken = [n for n, shape in enumerate(inputs) if shape is not None]
    return NativeRun(program, taken, [s for s in e.steps if s.host])


def install(program: Any, e: Emitter, inputs: Sequence[Shape | None], outputs: Sequence[Value]) -> None:
    """Put the values and steps, once they are placed, into a native program or what takes calls like one."""
    ids = _Numbers(program)
    for n, shape in enumerate(inputs):
        if shape is None:
            continue
        made = program.input(shape.dtype.numpy, shape.lens())
        for b in e.buffers:
            if b.kind == "input" and b.index == n:
                ids[b] = made
    by_index = {b.index: b for b in e.buffers if b.kind == "output"}
    for n, value in enumerate(outputs):
        ids[by_index[n]] = program.output(value.shape.dtype.numpy, value.lens)
    ident = ids.__getitem__
    for step in e.steps:
        step.install(program, ident)
    for n in range(len(outputs)):
        program.result(ids[by_index[n]])
    program.finish()


class _Numbers(dict["Buffer", int]):
    """What a native program calls its buffers; those in its arena and constants are told to it when first asked for."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __missing__(self, buffer: Buffer) -> int:
        if buffer.kind == "arena":
            made = self.program.arena(buffer.offset, buffer.bytes)
        elif buffer.kind == "literal":
            owner = buffer.owner if buffer.array is None else buffer.array
            made = self.program.literal(buffer.address, buffer.bytes, owner)
        else:
            raise KeyError(f"an {buffer.kind} that is not among the program's: {buffer}")
        self[buffer] = made
        return int(made)
