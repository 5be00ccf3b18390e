"""Creates the runner of a program for all values of its changing extents."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping

from mgx_core.targets.lowered import Lowered
from mgx_core.targets.open_program import OpenProgram
from mgx_core.targets.traced_emission import TracedEmission
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import Trace, value_of

from .emitter import CpuEmitter
from .open_run import SLOW, OpenRun, agree, compile_loops
from .runner import NativeRunner

__all__ = ["open_program"]


def open_program(
    parameters: Mapping[str, AnyShape],
    known: Mapping[str, int],
    changing: frozenset[str],
    lower: Callable[[Mapping[str, AnyShape]], Lowered],
) -> OpenProgram | None:
    """Returns the program for all values of changing extents, as in `Target.open_program`."""
    first = TracedEmission.of(parameters, known, changing, lower, _begin)
    if first is None:
        return None
    schedule = first.schedule
    if schedule.split.rest or not schedule.steps:
        return None
    if compile_loops(schedule, first.emitter.engine, SLOW):
        first = first.again()
        schedule = first.schedule
    if not first.is_general(_agree):
        return None

    def faster() -> None:
        if compile_loops(schedule, first.emitter.engine):
            made, runs = first.again(), there()
            if runs is not None and made.is_valid_where(first) and made.is_general(_agree):
                runs.program = OpenRun(made.schedule, made.emitter, list(made.where.values()))

    run = OpenRun(schedule, first.emitter, list(first.where.values()), faster)
    steps = schedule.steps
    runner = NativeRunner(
        schedule.module,
        schedule.split,
        run,
        first.emitter,
        [(value_of(s.flops), value_of(s.bytes), s.kernel) for s in steps],
        lambda: [s.instruction for s in steps],
    )
    there = weakref.ref(runner)
    return OpenProgram(runner, first.fits(), lambda: schedule.placements, first.emitter.replaced)


def _agree(one: TracedEmission, other: TracedEmission) -> bool:
    return agree(one.schedule, other.schedule)


def _begin(emitter: CpuEmitter, trace: Trace) -> None:
    emitter.trace = trace
