"""What was emitted for an instruction, to be emitted again for those that are alike: the layers of a network repeat the same few.

A plan decides by the op and by how its operands lie, never by who made them, so what it did for one set of operands is right for
all others that lie alike.  Where a decision depended on a constant's numbers, the tape is spoiled and not played.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from mgx_core import Shape

from .values import Buffer, Value

if TYPE_CHECKING:
    from .emitter import Emitter
    from .jit import JitKernel

__all__ = ["Tape", "situation"]


def situation(args: Sequence[Value | tuple[Value, ...] | None]) -> Hashable | None:
    """All that a plan may know of its operands, or None if one is a tuple."""
    seen: dict[int, int] = {}
    found: list[Hashable] = []
    for n, value in enumerate(args):
        if value is None:
            found.append(None)
        elif isinstance(value, tuple):
            return None
        else:
            buffer = value.buffer
            at = seen.setdefault(id(buffer), n)
            if buffer.kind == "literal":
                found += (value.shape, value.offset, buffer.array is None, at)
            else:
                found += (value.shape, value.offset, buffer.kind, at, buffer.bytes, buffer.readers <= 1)
    return tuple(found)


class _Place(NamedTuple):
    """A value by the number of its buffer: those of the operands come first, then those made on the way."""

    shape: Shape
    number: int
    offset: int

    def on(self, buffers: Sequence[Buffer]) -> Value:
        return Value(self.shape, buffers[self.number], self.offset)


class _Allocate(NamedTuple):
    bytes: int

    def play(self, e: Emitter, buffers: list[Buffer]) -> None:
        buffers.append(e.room(self.bytes))


class _Literal(NamedTuple):
    buffer: Buffer

    def play(self, e: Emitter, buffers: list[Buffer]) -> None:
        buffers.append(self.buffer)


class _Packed(NamedTuple):
    number: int
    offset: int
    layouts: tuple[Any, ...]

    def play(self, e: Emitter, buffers: list[Buffer]) -> None:
        buffers.append(e.pack(buffers[self.number], self.offset, *self.layouts))


class _Loop(NamedTuple):
    kernel: JitKernel
    kind: str
    inputs: list[_Place]
    outputs: list[_Place]

    def play(self, e: Emitter, buffers: list[Buffer]) -> None:
        inputs = [Value(shape, buffers[number], offset) for shape, number, offset in self.inputs]
        outputs = [Value(shape, buffers[number], offset) for shape, number, offset in self.outputs]
        e.loop(self.kernel, inputs, outputs, self.kind)


class Tape:
    """The calls of an emitter for one instruction."""

    def __init__(self, args: Sequence[Value | None]) -> None:
        self.spoiled = False
        self._numbers: dict[int, int] = {}
        self._kept: list[Buffer] = []  # so that ids stay theirs
        self._packs: dict[int, _Packed] = {}  # by id of the buffer that each gave
        self._calls: list[_Allocate | _Literal | _Packed | _Loop] = []
        self._results: _Place | list[_Place] = []
        for value in args:
            if value is not None:
                self._new(value.buffer)
        self._given = len(self._kept)

    def _new(self, buffer: Buffer) -> bool:
        """Give a buffer its number; whether it had none."""
        if id(buffer) in self._numbers:
            return False
        self._numbers[id(buffer)] = len(self._kept)
        self._kept.append(buffer)
        return True

    def _place(self, value: Value) -> _Place:
        number = self._numbers.get(id(value.buffer))
        if number is None:  # who made it?
            self.spoiled = True
            number = -1
        return _Place(value.shape, number, value.offset)

    # recording

    def allocated(self, buffer: Buffer) -> None:
        self._new(buffer)
        self._calls.append(_Allocate(buffer.bytes))

    def literal(self, buffer: Buffer) -> None:
        """A constant of the instruction's body, and so the same for those that are alike."""
        if self._new(buffer):
            self._calls.append(_Literal(buffer))
        elif self._numbers[id(buffer)] < self._given:  # an operand is the same constant here, and need not be elsewhere
            self.spoiled = True

    def packed(self, source: Value, result: Buffer, *layouts: Any) -> None:
        place = self._place(source)
        call = _Packed(place.number, place.offset, layouts)
        if self._new(result):
            self._packs[id(result)] = call
            self._calls.append(call)
        elif self._packs.get(id(result)) != call:  # two operands hold the same here, and need not elsewhere
            self.spoiled = True

    def loop(self, kernel: JitKernel, kind: str, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        self._calls.append(_Loop(kernel, kind, [*map(self._place, inputs)], [*map(self._place, outputs)]))

    def gave(self, results: Value | tuple[Value, ...]) -> None:
        self._results = [*map(self._place, results)] if isinstance(results, tuple) else self._place(results)

    # playing

    def play(self, e: Emitter, args: Sequence[Value | None]) -> Value | tuple[Value, ...]:
        """The same calls for operands that are alike; gives the results."""
        buffers = list(dict.fromkeys([value.buffer for value in args if value is not None]))
        for call in self._calls:
            call.play(e, buffers)
        if isinstance(self._results, list):
            return tuple([place.on(buffers) for place in self._results])
        return self._results.on(buffers)
