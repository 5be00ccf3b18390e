"""Creates the runner of a program for all values of its changing extents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from math import gcd
from typing import Any, Final

from mgx_core.targets.lowered import Lowered
from mgx_core.targets.open_program import OpenProgram
from mgx_core.targets.schedule import Schedule
from mgx_core.types.shape import AnyShape, Shape
from mgx_core.types.symbol_binding import symbol_places
from mgx_core.types.traced_int import Trace, value_of

from .emitter import CpuEmitter
from .open_run import OpenRun, agree, compile_slow_loops
from .runner import NativeRunner

__all__ = ["open_program"]

NEAR: Final = 8  # the distance of extents below which any that meet the conditions are used to check steps
TRIED: Final = 1024  # most combinations of other extents that are tried


def open_program(
    parameters: Mapping[str, AnyShape],
    known: Mapping[str, int],
    changing: frozenset[str],
    lower: Callable[[Mapping[str, AnyShape]], Lowered],
) -> OpenProgram | None:
    """Returns the program for all values of changing extents, as in `Target.open_program`."""
    where = _places(parameters, changing)
    if where is None:
        return None
    first = _Emitted(parameters, known, where, lower)
    schedule = first.schedule
    if schedule.split.rest or schedule.split.counted or not schedule.steps:
        return None
    if any(o.literal is not None for o in schedule.module.outputs):  # may be an extent of these arguments
        return None
    if compile_slow_loops(schedule, first.emitter.engine):
        first = _Emitted(parameters, known, where, lower)
        schedule = first.schedule
    test = first.trace.test()
    names = list(where)
    others = next((values for values in _others([known[n] for n in names]) if test(*values)), None)
    if others is None:
        return None
    second = _Emitted(parameters, {**known, **dict(zip(names, others, strict=True))}, where, lower, first.trace)
    if not agree(schedule, second.schedule):
        return None
    run = OpenRun(schedule, first.emitter, list(where.values()))
    fixed = {name: n for name, n in known.items() if name not in changing}

    def fits(given: Mapping[str, int]) -> bool:
        return all(given.get(name) == n for name, n in fixed.items()) and test(*[given[n] for n in names])

    steps = schedule.steps
    runner = NativeRunner(
        schedule.module,
        schedule.split,
        run,
        first.emitter,
        [(value_of(s.flops), value_of(s.bytes), s.kernel) for s in steps],
        lambda: [s.instruction for s in steps],
    )
    return OpenProgram(runner, fits, lambda: schedule.placements, first.emitter.replaced)


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


class _Emitted:
    """A schedule emitted for traced extents with some values, with the trace and the emitter."""

    def __init__(
        self,
        parameters: Mapping[str, AnyShape],
        known: Mapping[str, int],
        changing: Mapping[str, Any],
        lower: Callable[[Mapping[str, AnyShape]], Lowered],
        like: Trace | None = None,
    ) -> None:
        self.trace = Trace(like)
        extents = {**known, **{name: self.trace.extent(known[name]) for name in changing}}
        lowered = lower({name: shape.substitute(extents) for name, shape in parameters.items()})
        assert isinstance(lowered.emitter, CpuEmitter)
        self.emitter = lowered.emitter
        self.emitter.trace = self.trace
        plan = lowered.plan
        assert isinstance(plan, Schedule)
        self.schedule = plan


def _places(parameters: Mapping[str, AnyShape], changing: frozenset[str]) -> dict[str, tuple[int, int]] | None:
    """Returns the parameter and axis that have each changing extent; None if one has none."""
    found: dict[str, tuple[int, int]] = {}
    for n, shape in enumerate(parameters.values()):
        for axis, name in symbol_places(shape) if isinstance(shape, Shape) else ():
            if name in changing:
                found.setdefault(name, (n, axis))
    return found if changing == set(found) else None
