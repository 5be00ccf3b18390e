"""Creates the runner of a program for all values of its changing extents."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from mgx_core.targets.lowered import Lowered
from mgx_core.targets.open_program import OpenProgram
from mgx_core.targets.traced_emission import TracedEmission
from mgx_core.types.shape import AnyShape
from mgx_core.types.traced_int import Trace

from .codegen.extents import KernelTrace
from .emitter import GpuEmitter
from .open_run import OpenRunner, agree, is_open

__all__ = ["open_program"]


def open_program(
    parameters: Mapping[str, AnyShape],
    known: Mapping[str, int],
    changing: frozenset[str],
    lower: Callable[[Mapping[str, AnyShape]], Lowered],
) -> OpenProgram | None:
    """Returns the program for all values of changing extents, as in `Target.open_program`."""
    first = TracedEmission.of(parameters, known, changing, lower, _begin, KernelTrace)
    if first is None or not is_open(first.schedule, first.emitter):
        return None
    if not first.is_general(agree):
        return None
    runner = OpenRunner(first.schedule, first.emitter, list(first.where.values()))
    valid, names = first.fits(), list(first.where)

    def fits(given: Mapping[str, int]) -> bool:
        return valid(given) and runner.supports(tuple([given[name] for name in names]))

    return OpenProgram(runner, fits, lambda: first.schedule.placements, replaced=True)


def _begin(emitter: GpuEmitter, trace: Trace) -> None:
    emitter.trace, emitter.tuning = trace, None
