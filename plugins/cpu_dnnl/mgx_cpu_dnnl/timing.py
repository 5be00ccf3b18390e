"""How long each native step takes, in the form that reports read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import Instruction, Launch
from mgx_core.targets.runner import Timing

if TYPE_CHECKING:
    from .runner import CpuRunner
    from .saved_runner import RestoredRunner
    from .segments import Part

__all__ = ["timings"]


def timings(runner: CpuRunner | RestoredRunner, args: Sequence[Any], runs: int, warmup: int) -> list[Timing]:
    """Each instruction of the lowered module with the time of its native steps.

    A step counts for the instruction that it was made for; what an executor does between steps is not in it.
    Ops that are decided while running count as a whole, with their bodies.
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
        found |= _following(runner, args, runs, warmup)
    return list(found.values())


def _following(
    runner: CpuRunner | RestoredRunner, args: Sequence[Any], runs: int, warmup: int
) -> dict[Instruction, Timing]:
    """What runs after the program: ops as a whole, parts by the steps of their programs."""
    found: dict[Instruction, Timing] = {}
    for n in range(warmup + runs):

        def watch(
            what: Instruction | CpuRunner, part: Part | None, given: Sequence[Any], seconds: float, run: int = n
        ) -> None:
            if isinstance(what, Instruction):
                if run >= warmup:
                    found.setdefault(what, Timing(what, [])).seconds.append(seconds)
            elif part is not None and run == warmup + runs - 1:
                members = dict(zip((i for i in what.module if isinstance(i.op, Launch)), part.members, strict=False))
                for timing in timings(what, given, runs, warmup):
                    timing.instruction = members.get(timing.instruction, timing.instruction)
                    found[timing.instruction] = timing

        runner.run(args, watch)
    return found
