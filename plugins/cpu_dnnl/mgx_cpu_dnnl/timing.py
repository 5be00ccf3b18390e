"""How long each native step takes, in the form that reports read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import Instruction, Module
from mgx_core.executable import Timing

if TYPE_CHECKING:
    from .restored import RestoredRunner
    from .runner import CpuRunner

__all__ = ["timings"]


def timings(runner: CpuRunner | RestoredRunner, args: Sequence[Any], runs: int, warmup: int) -> list[Timing]:
    """Each instruction of the lowered module with the time of its native steps.

    A step counts for the instruction that it was made for; what an executor does between steps is not in it.  The
    instructions that run one by one after the program are timed as they run.
    """
    found: dict[Instruction, Timing] = {}
    if runner.program is not None:
        median = runner.program.time(args, runs, warmup)
        for ins, nanoseconds, (flops, moved) in zip(runner.owners, median, runner.figures, strict=True):
            if ins is None:
                continue
            timing = found.setdefault(ins, Timing(ins, [0.0]))
            timing.seconds[0] += nanoseconds * 1e-9
            timing.flops += flops
            timing.bytes += moved
    if runner.rest:
        found |= _observed(runner, args, runs, warmup, runner.module)
    return list(found.values())


def _observed(
    runner: CpuRunner | RestoredRunner, args: Sequence[Any], runs: int, warmup: int, module: Module
) -> dict[Instruction, Timing]:
    import time

    found: dict[Instruction, Timing] = {}
    for n in range(warmup + runs):
        clock = time.perf_counter()

        def observe(ins: Instruction, value: Any, measured: bool = n >= warmup) -> None:
            nonlocal clock
            now = time.perf_counter()
            if measured and ins.parent is module:
                found.setdefault(ins, Timing(ins, [])).seconds.append(now - clock)
            clock = time.perf_counter()

        runner.run(args, observe)
    return found
