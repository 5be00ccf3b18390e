"""Emission cache: records the steps emitted for one instruction and replays them for others (repeated network layers).

Contract: what a kernel emits depends on its op, its modules and `operand_key` of its operands alone.  The emitter records what
it can do again: allocations, literals, notes, and the steps added through `Emitter.repeatable`; what is taken back is no longer
recorded.  Everything else that an emit function asks of its emitter (the numbers of a constant, a step of its own) makes the
recording uncacheable, and the kernel is emitted again for the next instruction.

Recordings serve later instances of the program as well, for the same constants: there what was emitted by the numbers of these
is repeated, too.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

from ..ir.instruction import Instruction
from ..types.shape import Shape
from .schedule import Call
from .values import Buffer, Value

__all__ = ["Recording", "constants_of", "operand_key"]


def operand_key(args: Sequence[Value | tuple[Value, ...] | None]) -> Hashable | None:
    """Returns all that a cacheable emission may depend on in its operands, or None if one is a tuple."""
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
    """Returns the constants among operands, by whose numbers emission may decide where it is repeated for the same ones."""
    given = [(i, v) for i, v in zip(ins.inputs, args, strict=True) if v is not None and v.buffer.kind == "literal"]
    return [v.buffer if i.literal is None else i.literal for i, v in given]


class _Place(NamedTuple):
    """A value by the number of its buffer: those of the operands come first, then those made on the way."""

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
    """A buffer made from another and named by `key`."""

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
    """Steps that were added for `call`, of which there may be several: a group's members that are emitted one by one."""

    add: Callable[[Any, Sequence[Value]], None]
    places: list[_Place]
    call: Call | None

    def replay(self, e: Any, buffers: list[Buffer]) -> None:
        self.add(e, [Value(shape, buffers[number], offset) for shape, number, offset in self.places])


class Recording:
    """The repeatable calls of an emitter for one instruction.

    sources: of the instruction; cacheable: False once something was asked that depends on more than the operands' key; numbers:
    True if that is no more than the numbers of constants.
    """

    def __init__(self, args: Sequence[Value | None], sources: tuple[str, ...] = ()) -> None:
        self.cacheable = True
        self.numbers = True
        self._sources = sources
        self._numbers: dict[int, int] = {}
        self._kept: list[Buffer] = []  # so that ids stay theirs
        self._derived: dict[int, tuple[int, Hashable]] = {}  # by id of the buffer that was made
        self._calls: list[_Allocate | _Literal | _Derived | _Note | _Repeat] = []
        self._results: _Place | list[_Place] = []
        self._constants: Sequence[object] = ()
        for value in args:
            if value is not None:
                self._new(value.buffer)
        self._given = len(self._kept)

    def _new(self, buffer: Buffer) -> bool:
        """Gives a buffer its number; False if it has one."""
        if id(buffer) in self._numbers:
            return False
        self._numbers[id(buffer)] = len(self._kept)
        self._kept.append(buffer)
        return True

    def _place(self, value: Value) -> _Place:
        return _Place(value.shape, self._number(value.buffer), value.offset)

    def _number(self, buffer: Buffer) -> int:
        number = self._numbers.get(id(buffer))
        if number is None:  # it came from elsewhere
            self.cacheable = self.numbers = False
            number = -1
        return number

    # recording

    def allocated(self, buffer: Buffer) -> None:
        self._new(buffer)
        self._calls.append(_Allocate(buffer.bytes))

    def literal(self, buffer: Buffer) -> None:
        """A constant of the instruction's body: the same one in every replay."""
        if self._new(buffer):
            self._calls.append(_Literal(buffer))
        elif self._numbers[id(buffer)] < self._given:  # an operand is the same constant here, and need not be elsewhere
            self.cacheable = False

    def derived(self, source: Buffer, result: Buffer, key: Hashable, make: Callable[[Any, Buffer], Buffer]) -> None:
        """A buffer made from a constant; `key` names the way."""
        number = self._number(source)
        if self._new(result):
            self._derived[id(result)] = number, key
            self._calls.append(_Derived(make, number, key))
        elif self._derived.get(id(result)) != (number, key):  # two operands hold the same here, and need not elsewhere
            self.cacheable = False

    def repeat(
        self, add: Callable[[Any, Sequence[Value]], None], values: Sequence[Value], call: Call | None = None
    ) -> None:
        """Steps that ``add(emitter, values)`` adds again, for a call, for the values in the same roles."""
        self._calls.append(_Repeat(add, [*map(self._place, values)], call))

    def noted(self, text: str) -> None:
        self._calls.append(_Note(text))

    def marks(self) -> tuple[int, int]:
        """Returns the numbers of calls and of buffers so far, to which `take_back` goes back."""
        return len(self._calls), len(self._kept)

    def take_back(self, calls: int, buffers: int) -> None:
        """Forgets what was recorded after `marks` gave these numbers, but for notes."""
        self._calls[calls:] = [call for call in self._calls[calls:] if isinstance(call, _Note)]
        for buffer in self._kept[buffers:]:
            del self._numbers[id(buffer)]
            self._derived.pop(id(buffer), None)
        del self._kept[buffers:]

    def gave(self, results: Value | tuple[Value, ...]) -> None:
        self._results = [*map(self._place, results)] if isinstance(results, tuple) else self._place(results)

    def kept(self, constants: Sequence[object]) -> Recording:
        """Returns the same for emitters to come, without what only this one's instruction has.

        constants: those that it is for; they are kept alive, so that their ids stay theirs.
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
        """Makes the same calls for operands of the same key, for another instruction; returns the results."""
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
