"""Emission cache: records the steps emitted for one instruction and replays them for others (repeated network layers).

Contract: emitted steps depend only on the kernel's op, its modules and the `operand_key` of its operands.  The emitter records
repeatable calls: allocations, literals, notes, and steps added through `Emitter.repeatable`; rollback removes them again.  Any
other call of an emit function (reading elements of a constant, adding a step directly) makes the recording uncacheable, and the
kernel is emitted again for the next instruction.

Later instances of the program reuse recordings for the same constants, including those that depend on elements of constants.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..types.shape import Shape
from .schedule import Call
from .values import Buffer, Value

__all__ = ["Recording", "constants_of", "operand_key"]


def operand_key(args: Sequence[Value | tuple[Value, ...] | None]) -> Hashable | None:
    """Returns the properties of operands that a cacheable emission may depend on; None if one is a tuple."""
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


def constants_of(ins: Instruction, args: Sequence[Value | None]) -> list[object]:
    """Returns the constants among operands; recordings that depend on their elements are replayed only for the same ones."""
    given = [(i, v) for i, v in zip(ins.inputs, args, strict=True) if v is not None and v.buffer.kind == "literal"]
    return [v.buffer if i.literal is None else i.literal for i, v in given]


class _Place(NamedTuple):
    """A value by the index of its buffer: buffers of operands first, then those created by the emission."""

    shape: Shape
    number: int
    offset: int

    def on(self, buffers: Sequence[Buffer]) -> Value:
        return Value(self.shape, buffers[self.number], self.offset)


class _Allocate(NamedTuple):
    bytes: int

    def replay(self, e: Any, buffers: list[Buffer]) -> None:
        buffers.append(e.scratch(self.bytes))


class _Literal(NamedTuple):
    buffer: Buffer

    def replay(self, e: Any, buffers: list[Buffer]) -> None:
        buffers.append(self.buffer)


class _Derived(NamedTuple):
    """A buffer derived from another, identified by `key`."""

    make: Callable[[Any, Buffer], Buffer]
    number: int
    key: Hashable

    def replay(self, e: Any, buffers: list[Buffer]) -> None:
        buffers.append(self.make(e, buffers[self.number]))


class _Note(NamedTuple):
    text: str

    def replay(self, e: Any, buffers: list[Buffer]) -> None:
        e.note(self.text)


class _Repeat(NamedTuple):
    """Steps added for `call`; a group emitted member by member has several calls."""

    add: Callable[[Any, Sequence[Value]], None]
    places: list[_Place]
    call: Call | None

    def replay(self, e: Any, buffers: list[Buffer]) -> None:
        self.add(e, [Value(shape, buffers[number], offset) for shape, number, offset in self.places])


class Recording:
    """The repeatable calls of an emitter for one instruction.

    sources: of the instruction; cacheable: False once the emission depended on more than the operands' key; numbers: True if
    that is only the elements of constants.
    """

    def __init__(self, args: Sequence[Value | None], sources: tuple[str, ...] = ()) -> None:
        self.cacheable = True
        self.numbers = True
        self._sources = sources
        self._numbers: dict[int, int] = {}
        self._kept: list[Buffer] = []  # keeps ids valid
        self._derived: dict[int, tuple[int, Hashable]] = {}  # by id of the created buffer
        self._calls: list[_Allocate | _Literal | _Derived | _Note | _Repeat] = []
        self._results: _Place | list[_Place] = []
        self._constants: Sequence[object] = ()
        for value in args:
            if value is not None:
                self._new(value.buffer)
        self._given = len(self._kept)

    def _new(self, buffer: Buffer) -> bool:
        """Assigns a buffer its index; returns False if it has one."""
        if id(buffer) in self._numbers:
            return False
        self._numbers[id(buffer)] = len(self._kept)
        self._kept.append(buffer)
        return True

    def _place(self, value: Value) -> _Place:
        return _Place(value.shape, self._number(value.buffer), value.offset)

    def _number(self, buffer: Buffer) -> int:
        number = self._numbers.get(id(buffer))
        if number is None:  # created outside of this emission
            self.cacheable = self.numbers = False
            number = -1
        return number

    # recording

    def allocated(self, buffer: Buffer) -> None:
        self._new(buffer)
        self._calls.append(_Allocate(buffer.bytes))

    def literal(self, buffer: Buffer) -> None:
        """Records a constant of the instruction's body, which is the same in every replay."""
        if self._new(buffer):
            self._calls.append(_Literal(buffer))
        elif self._numbers[id(buffer)] < self._given:
            # an operand that is the same constant here may differ in a replay
            self.cacheable = False

    def derived(self, source: Buffer, result: Buffer, key: Hashable, make: Callable[[Any, Buffer], Buffer]) -> None:
        """Records a buffer derived from a constant, identified by `key`."""
        number = self._number(source)
        if self._new(result):
            self._derived[id(result)] = number, key
            self._calls.append(_Derived(make, number, key))
        elif self._derived.get(id(result)) != (number, key):  # operands that are equal here may differ in a replay
            self.cacheable = False

    def repeat(
        self, add: Callable[[Any, Sequence[Value]], None], values: Sequence[Value], call: Call | None = None
    ) -> None:
        """Records steps of a call; on replay, ``add(emitter, values)`` adds them for the corresponding values."""
        self._calls.append(_Repeat(add, [*map(self._place, values)], call))

    def noted(self, text: str) -> None:
        self._calls.append(_Note(text))

    def marks(self) -> tuple[int, int]:
        """Returns the current position, for `rollback`."""
        return len(self._calls), len(self._kept)

    def rollback(self, calls: int, buffers: int) -> None:
        """Rolls back to a position returned by `marks`, except notes."""
        self._calls[calls:] = [call for call in self._calls[calls:] if isinstance(call, _Note)]
        for buffer in self._kept[buffers:]:
            del self._numbers[id(buffer)]
            self._derived.pop(id(buffer), None)
        del self._kept[buffers:]

    def set_results(self, results: Value | tuple[Value, ...]) -> None:
        self._results = [*map(self._place, results)] if isinstance(results, tuple) else self._place(results)

    def kept(self, constants: Sequence[object]) -> Recording:
        """Returns a copy for later emitters, without data of the current instruction.

        constants: for which it is valid; kept alive, so that their ids stay valid.
        """
        made = Recording((), self._sources)
        made._constants = constants
        calls: dict[int, Call] = {}
        for call in self._calls:
            old = call.call if isinstance(call, _Repeat) else None
            if isinstance(call, _Repeat) and old is not None:
                calls.setdefault(id(old), Call(old.op, old.kernel, old.sources, old.refused, old.host))
                call = call._replace(call=calls[id(old)])
            made._calls.append(call)
        made._results = self._results
        return made

    # replaying

    def replay(
        self, e: Any, args: Sequence[Value | None], instruction: Instruction | None = None
    ) -> Value | tuple[Value, ...]:
        """Repeats the recorded calls for another instruction whose operands have the same key; returns the results."""
        buffers = list(dict.fromkeys([value.buffer for value in args if value is not None]))
        made: dict[int, Call] = {}
        for call in self._calls:
            if isinstance(call, _Repeat) and call.call is not None:
                old = call.call
                e.call = made.get(id(old))
                if e.call is None:
                    sources = e.sources if old.sources == self._sources else old.sources
                    e.call = made[id(old)] = Call(old.op, old.kernel, sources, old.refused, old.host, instruction)
            call.replay(e, buffers)
        if isinstance(self._results, list):
            return tuple([place.on(buffers) for place in self._results])
        return self._results.on(buffers)
