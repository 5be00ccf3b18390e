"""Emits a program for traced extents, and once more for other ones, which a program for all extents must agree with."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice, product
from math import gcd
from typing import Any, Final

from ..types.shape import AnyShape, Shape
from ..types.symbol_binding import symbol_places
from ..types.traced_int import Trace, TracedInt
from .lowered import Lowered
from .schedule import Schedule, placed
from .values import Buffer

__all__ = ["Rooms", "TracedEmission", "agreeing"]

NEAR: Final = 8  # the distance of extents below which any that meet the conditions are used to check steps
TRIED: Final = 1024  # most combinations of other extents that are tried


class TracedEmission:
    """A schedule emitted for traced extents with some values, with the trace and the emitter.

    parameters: the declared types; known: extents by symbol; where: the parameter and axis that have each changing extent;
    lower: lowers the module for types of the parameters; begin: prepares an emitter for extents of a trace.
    """

    def __init__(
        self,
        parameters: Mapping[str, AnyShape],
        known: Mapping[str, int],
        where: Mapping[str, tuple[int, int]],
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
        begin: Callable[[Any, Trace], None],
        trace: Trace,
    ) -> None:
        self.known = known
        self.where = where
        self.trace = trace
        self._repeated = partial(TracedEmission, parameters, where=where, lower=lower, begin=begin)
        extents = {**known, **{name: trace.extent(known[name]) for name in where}}
        lowered = lower({name: shape.substitute(extents) for name, shape in parameters.items()})
        self.emitter: Any = lowered.emitter
        begin(self.emitter, trace)
        plan = lowered.plan
        assert isinstance(plan, Schedule)
        self.schedule = plan

    @classmethod
    def of(
        cls,
        parameters: Mapping[str, AnyShape],
        known: Mapping[str, int],
        changing: frozenset[str],
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
        begin: Callable[[Any, Trace], None],
        trace: type[Trace] = Trace,
    ) -> TracedEmission | None:
        """Returns the emission for changing extents; None if no axis of a parameter has one of them."""
        where = _places(parameters, changing)
        return None if where is None else cls(parameters, known, where, lower, begin, trace())

    def again(self) -> TracedEmission:
        """Returns another emission for the same extents."""
        return self._repeated(known=self.known, trace=type(self.trace)())

    def other(self) -> TracedEmission | None:
        """Returns an emission for other extents that meet the conditions; None if none were found."""
        names, test = list(self.where), self.trace.test()
        found = next((values for values in _others([self.known[n] for n in names]) if test(*values)), None)
        if found is None:
            return None
        return self._repeated(
            known={**self.known, **dict(zip(names, found, strict=True))}, trace=type(self.trace)(self.trace)
        )

    def is_general(self, agree: Callable[[TracedEmission, TracedEmission], bool]) -> bool:
        """Returns True if the schedule is valid for other extents, too: an emission for some of them agrees with it.

        A constant result may be an extent of these arguments.
        """
        if any(o.literal is not None for o in self.schedule.module.outputs):
            return False
        other = self.other()
        return other is not None and agree(self, other)

    def is_valid_where(self, other: TracedEmission) -> bool:
        """Returns True if it has no conditions that another emission for the same extents does not have."""
        mine, others = (
            {(e.trace.plain(str(dim)), relation) for dim, relation in e.trace.conditions} for e in (self, other)
        )
        return mine <= others

    def fits(self) -> Callable[[Mapping[str, int]], bool]:
        """Returns a function of extents by symbol that tests whether the schedule is valid for them."""
        names, test = list(self.where), self.trace.test()
        fixed = {name: n for name, n in self.known.items() if name not in self.where}

        def fits(given: Mapping[str, int]) -> bool:
            return fixed.items() <= given.items() and test(*[given[n] for n in names])

        return fits


def _others(extents: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yields extents to check steps with, better ones first, of which the first that meet the conditions are used.

    A number that has lost its trace is noticed if it differs between both: the further apart they are the better, with other
    remainders of small divisors, and with other differences from each other unless conditions require the same ones.
    Combinations for conditions between the extents come last.
    """
    distance = max(NEAR, *extents) + 1
    while distance >= NEAR:
        steps = [n for n in range(distance, distance + 10 * len(extents)) if gcd(n, 30) == 1]
        yield [n + step for n, step in zip(extents, steps, strict=False)]
        yield [n + steps[0] for n in extents]
        distance //= 2
    yield [2 * n for n in extents]
    for step in (*range(NEAR, 0, -1), *range(-NEAR, 0)):
        yield [n + step for n in extents]
    further = max(extents) + 1
    yield from islice(product(*[(n + further, n + 1, 2 * n, n - 1) for n in extents]), TRIED)


def _places(parameters: Mapping[str, AnyShape], changing: frozenset[str]) -> dict[str, tuple[int, int]] | None:
    """Returns the parameter and axis that have each changing extent; None if one has none."""
    found: dict[str, tuple[int, int]] = {}
    for n, shape in enumerate(parameters.values()):
        for axis, name in symbol_places(shape) if isinstance(shape, Shape) else ():
            if name in changing:
                found.setdefault(name, (n, axis))
    return found if changing == set(found) else None


def agreeing(a: Any, b: Any, equal: Callable[[Any, Any], bool]) -> bool:
    """Returns True if nested lists, tuples and dicts have the same numbers, given two values of the same traced extents.

    A number that depends on the extents without being traced differs between them.  equal: compares what is neither.
    """
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(agreeing(x, y, equal) for x, y in zip(a, b, strict=True))
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and agreeing([*a.values()], [*b.values()], equal)
    if type(a) is TracedInt and type(b) is TracedInt:
        return a.trace.text(a) == b.trace.text(b)
    if type(a) is TracedInt or type(b) is TracedInt:
        return False
    return a is b or equal(a, b)


class Rooms:
    """Sizes of memory for extents that no run has exceeded; they double.

    sizes: computes the sizes from values of the extents, of which there are `extents`; large: bytes from which on there is no
    more room than needed.
    """

    def __init__(self, sizes: Callable[..., Sequence[int]], extents: int, large: int) -> None:
        self._sizes = sizes
        self._large = large
        self._capacity = [0] * extents
        self.bytes: list[int] = []

    def suffice(self, needed: Sequence[int]) -> bool:
        """Returns True if there is room for these sizes."""
        return bool(self.bytes) and not any(size > room for size, room in zip(needed, self.bytes, strict=True))

    def grow(self, extents: Sequence[int], needed: Sequence[int]) -> None:
        """Makes room for these extents, which have these sizes, and for larger ones, so that this is rare."""
        self._capacity = [max(c, 1 << n.bit_length()) for c, n in zip(self._capacity, extents, strict=True)]
        spare = self._spare()
        if spare is None or sum(spare) > self._large:
            spare = self.bytes or needed
        self.bytes = [max(sizes) for sizes in zip(spare, needed, strict=True)]

    def _spare(self) -> Sequence[int] | None:
        """Returns the sizes for the capacity; None if these extents do not meet the conditions, and a divisor is 0."""
        with suppress(ZeroDivisionError):
            return self._sizes(*self._capacity)
        return None

    def place(self, buffers: Iterable[Buffer], schedule: Schedule, alignment: int, reuse: bool) -> None:
        """Assigns offsets to the buffers of a schedule; buffers: those of these sizes, in order."""
        for buffer, size in zip(buffers, self.bytes, strict=False):
            buffer.bytes = size
        for step in schedule.steps:
            for buffer in (*step.reads, *step.writes):
                buffer.first = buffer.last = -1
        placed(schedule, alignment, reuse)
