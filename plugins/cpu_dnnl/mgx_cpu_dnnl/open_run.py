"""Native programs for all values of some extents: the numbers of their steps are functions of the extents of a run's arguments.

The steps are emitted once for traced extents.  Sizes of buffers are those for extents that no run has exceeded; they double.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from ctypes import string_at
from enum import IntEnum
from operator import gt
from typing import TYPE_CHECKING, Any, Final

from mgx_core.named_tuples import NamedTuple
from mgx_core.targets.schedule import Schedule
from mgx_core.targets.traced_emission import Rooms, agreeing
from mgx_core.types.traced_int import TracedInt, dim_of

from .emitter import CpuEmitter, NotOpen
from .jit.deferred import Deferred
from .native_library import native
from .native_program import install
from .tier_up import TierUp, due_after

if TYPE_CHECKING:
    from .jit.engine import Engine

__all__ = ["SLOW", "OpenRun", "agree", "compile_loops"]


SLOW: Final = 20_000  # nanoseconds that a run loses to interpreting a loop
LARGE: Final = 1 << 27  # bytes of buffers from which on programs have no more room than they need


class Kind(IntEnum):
    """Places of numbers in a native program, numbered as in `program.h`."""

    INPUT = 0
    OUTPUT = 1
    ARGUMENT = 2
    WORK = 3
    GRAIN = 4
    OFFSET = 5


class _Place(NamedTuple):
    """Place of a number: input, result or step, one of its loops, and the axis, argument or operand."""

    kind: int
    of: int
    part: int
    at: int


class TracedCalls:
    """The calls that build the native program of a schedule, and where they contain traced numbers."""

    def __init__(self, schedule: Schedule) -> None:
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.places: dict[_Place, TracedInt] = {}
        self.scratch: list[int] = []  # traced sizes of scratch memory
        self.deferred: list[Any] = []  # descriptions of interpreted loops
        self._values = self._inputs = self._outputs = self._steps = 0
        self.taken = install(self, schedule)  # positions of the arguments that the program reads

    def _value(self, *call: Any) -> int:
        self.calls.append((call[0], call[1:]))
        self._values += 1
        return self._values - 1

    def _step(self, *call: Any) -> None:
        if any(map(_has_traced, call)):
            raise NotOpen(f"step {call[1]!r} takes no extents as arguments")
        self.calls.append((call[0], call[1:]))
        self._steps += 1

    def _set(self, number: int, *place: int) -> int:
        if type(number) is TracedInt:
            self.places[_Place(*place)] = number
        return number

    def input(self, dtype: Any, dims: Sequence[int]) -> int:
        found = [self._set(n, Kind.INPUT, self._inputs, 0, axis) for axis, n in enumerate(dims)]
        self._inputs += 1
        return self._value("input", dtype, found)

    def output(self, dtype: Any, dims: Sequence[int]) -> int:
        found = [self._set(n, Kind.OUTPUT, self._outputs, 0, axis) for axis, n in enumerate(dims)]
        self._outputs += 1
        return self._value("output", dtype, found)

    def arena(self, offset: int, nbytes: int) -> int:
        return self._value("arena", offset, nbytes)

    def literal(self, address: int, nbytes: int, owner: Any) -> int:
        return self._value("literal", address, nbytes, owner)

    def result(self, value: int) -> None:
        self.calls.append(("result", (value,)))

    def finish(self) -> None:
        return None

    def add_loop(
        self,
        name: str,
        address: int,
        owner: Any,
        buffers: Sequence[tuple[int, int]],
        args: Sequence[int] = (),
        work: int = 1,
        grain: int = 1,
        scratch_bytes: int = 0,
        deferred: Any = None,
        then: Sequence[tuple[int, Sequence[int], int, int]] = (),
    ) -> None:
        step = self._steps
        where = [(value, self._set(offset, Kind.OFFSET, step, 0, n)) for n, (value, offset) in enumerate(buffers)]
        loops = [
            (
                code,
                [self._set(n, Kind.ARGUMENT, step, part, at) for at, n in enumerate(numbers)],
                self._set(items, Kind.WORK, step, part, 0),
                self._set(least, Kind.GRAIN, step, part, 0),
            )
            for part, (code, numbers, items, least) in enumerate([(address, args, work, grain), *then])
        ]
        if deferred is not None:
            self.deferred.append(deferred)
        if type(scratch_bytes) is TracedInt:
            self.scratch.append(scratch_bytes)
        self.calls.append(("add_loop", (name, owner, where, loops, scratch_bytes)))
        self._steps += 1

    def add_primitive(self, name: str, made: Any, args: Mapping[int, tuple[int, int]]) -> None:
        self._step("add_primitive", name, made, dict(args))

    def begin_branch(self, name: str, condition: tuple[int, int]) -> None:
        self._step("begin_branch", name, condition)

    def begin_other(self, name: str) -> None:
        self._step("begin_other", name)

    def end_branch(self, name: str) -> None:
        self._step("end_branch", name)

    def begin_loop(self, name: str, *trips: Any) -> None:
        self._step("begin_loop", name, *trips)

    def end_loop(self, name: str) -> None:
        self._step("end_loop", name)

    def add_host(self, name: str, *call: Any) -> None:
        self._step("add_host", name, *call)

    def build(self, program: Any, scratch: Sequence[int]) -> None:
        """Repeats the calls for a native program.  scratch: sizes of scratch memory instead of the traced ones."""
        rooms = iter(scratch)
        for name, args in self.calls:
            if name == "add_loop":
                label, owner, where, loops, size = args
                (address, numbers, work, grain), *then = loops
                size = next(rooms) if type(size) is TracedInt else size
                program.add_loop(label, address, owner, where, numbers, work, grain, size, None, then)
            else:
                getattr(program, name)(*args)


def _has_traced(value: Any) -> bool:
    if isinstance(value, dict):
        value = [*value.values()]
    if isinstance(value, (list, tuple)):
        return any(map(_has_traced, value))
    return type(value) is TracedInt


def compile_loops(schedule: Schedule, engine: Engine, excess: int = 0) -> bool:
    """Compiles loops that an emission would interpret, so that the next one finds them; returns True if there are any.

    excess: the fewest nanoseconds that a run loses to interpreting one of them.
    """
    slow = [loop for loop in TracedCalls(schedule).deferred if Deferred(*loop).excess >= excess]
    if slow:
        from .jit.compile_deferred import compile_deferred

        for loop in slow:
            compile_deferred(loop, engine)
    return bool(slow)


def agree(one: Schedule, other: Schedule) -> bool:
    """Returns True if two schedules, emitted for different values of the same traced extents, have the same steps and numbers.

    A number that depends on the extents without being traced differs between them.
    """
    first, second = ([call for call in TracedCalls(s).calls if call[0] != "arena"] for s in (one, other))
    return len(first) == len(second) and all(map(_agree, first, second))


def _agree(one: tuple[str, tuple[Any, ...]], other: tuple[str, tuple[Any, ...]]) -> bool:
    """Returns True if two calls have the same numbers; constants may be stored twice."""
    if one[0] == other[0] == "literal":
        (a, size, _), (b, other_size, _) = one[1], other[1]
        return bool(size == other_size and (a == b or string_at(a, size) == string_at(b, size)))
    return agreeing(one, other, _equal)


def _equal(a: Any, b: Any) -> bool:
    if isinstance(a, native().Primitive) and isinstance(b, native().Primitive):
        return a.recipe is not None and agreeing(a.recipe, b.recipe, _equal)  # each emitter creates its own
    return type(a) is type(b) and bool(a == b)


class OpenRun:
    """A native program for all values of traced extents, with the interface of `NativeRun`.

    Threads that run at once have a copy of the program each.
    emitter: of the schedule; where: of each traced extent, the parameter and axis that have it; faster: replaces the program by
    one whose loops are all compiled; interpreted: descriptions of its interpreted loops.
    Errors: NotOpen if a step other than a loop depends on the extents.
    """

    def __init__(
        self,
        schedule: Schedule,
        emitter: CpuEmitter,
        where: Sequence[tuple[int, int]],
        faster: Callable[[], object] | None = None,
    ) -> None:
        assert emitter.trace is not None
        self._schedule, self._trace, self._sizes = schedule, emitter.trace, emitter.sizes
        self._place = (emitter.alignment, emitter.reuse)
        self._where = list(where)
        self._lock = threading.Lock()
        self._free: list[_Program] = []
        self.hosted = [s for s in schedule.steps if s.host]
        traced = TracedCalls(schedule)
        self.taken = traced.taken
        dims = {dim_of(n): n for n in traced.places.values()}
        order = {dim: n for n, dim in enumerate(dims)}
        self._places = [(*place, order[dim_of(n)]) for place, n in traced.places.items()]
        self._count = len(dims)
        self._numbers = self._trace.evaluator([*dims.values(), *self._sizes.values(), *traced.scratch])
        # sizes of buffers and scratch memory
        self._rooms = Rooms(lambda *extents: self._numbers(*extents)[self._count :], len(self._where), LARGE)
        self._calls = traced
        self.interpreted = traced.deferred
        lost = sum(Deferred(*loop).excess for loop in self.interpreted)
        self.tier_up = TierUp([(due_after(lost), faster)] if faster is not None and self.interpreted else [])

    def run(self, args: Sequence[Any]) -> list[Any]:
        if self.tier_up.pending:
            self.tier_up.count()
        results: list[Any] = self._on(args, lambda native, given: native.run_arrays(given))
        return results

    def time(self, args: Sequence[Any], runs: int, warmup: int) -> list[float]:
        """Returns the median nanoseconds of each step."""
        return list(self._on(args, lambda native, given: native.time(given, runs, warmup)))

    def _on(self, args: Sequence[Any], use: Callable[[Any, list[Any]], Any]) -> Any:
        """Uses a native program that no other thread runs, with its numbers set for these arguments."""
        program = self._leased(tuple([args[n].shape[axis] for n, axis in self._where]))
        try:
            return use(program.native, [args[n] for n in self.taken])
        finally:
            with self._lock:
                self._free.append(program)

    def _leased(self, extents: tuple[int, ...]) -> _Program:
        with self._lock:
            program = self._free.pop() if self._free else None
        if program is not None and program.extents == extents:
            return program
        numbers = self._numbers(*extents)
        rooms = numbers[self._count :]
        if program is None or any(map(gt, rooms, program.rooms)):
            program = self._built(extents, rooms)
        program.native.assign(numbers[: self._count])
        return program._replace(extents=extents)

    def _built(self, extents: tuple[int, ...], rooms: Sequence[int]) -> _Program:
        """Returns a new program with room for these extents, and for larger ones, so that programs are rarely built."""
        with self._lock:
            if not self._rooms.suffice(rooms):
                self._rooms.grow(extents, rooms)
                self._rooms.place(self._sizes, self._schedule, *self._place)
                self._calls = TracedCalls(self._schedule)
            made = native().NativeProgram("main", self._schedule.peak)
            self._calls.build(made, self._rooms.bytes[len(self._sizes) :])
            made.vary(self._places)
            made.finish()
            return _Program(made, extents, list(self._rooms.bytes))


class _Program(NamedTuple):
    """A native program, the extents that its numbers are set for, and the sizes of its buffers and scratch memory."""

    native: Any
    extents: tuple[int, ...]
    rooms: list[int]
