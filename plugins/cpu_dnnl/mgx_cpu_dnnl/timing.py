"""The time of each native step, in the form that reports read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mgx_core import Instruction, Launch
from mgx_core.targets.kernel import asked
from mgx_core.targets.runner import Timing

from .native_run import NativeRun

__all__ = ["following_timings", "step_timings"]


def step_timings(
    program: NativeRun,
    owners: Sequence[Instruction | None],
    figures: Sequence[Sequence[Any]],
    args: Sequence[Any],
    runs: int,
    warmup: int,
) -> dict[Instruction, Timing]:
    """Returns each instruction of the lowered module with the time of its native steps.

    owners: the instruction that each step counts for; figures: of each step its arithmetic, the bytes that it moves, and its
    kernel, which older files lack.  What an executor does between steps is not in it.
    """
    found: dict[Instruction, Timing] = {}
    for ins, nanoseconds, (flops, moved, *kernels) in zip(
        owners, program.time(args, runs, warmup), figures, strict=True
    ):
        if ins is None:
            continue
        timing = found.setdefault(ins, Timing(ins, [0.0]))
        timing.seconds[0] += nanoseconds * 1e-9
        timing.flops += flops
        timing.bytes += moved
        timing.kernels += tuple(k for k in kernels if k not in timing.kernels)
    return found


def following_timings(
    run: Callable[[Sequence[Any], Any], Any], args: Sequence[Any], runs: int, warmup: int
) -> dict[Instruction, Timing]:
    """Times what runs after the program: ops that are decided at run time as a whole, with their bodies, segments by their steps.

    run: runs it all for arguments, with a `watch` (see `SegmentInterpreter.follow`).
    """
    found: dict[Instruction, Timing] = {}
    for n in range(warmup + runs):

        def watch(what: Any, segment: Any, given: Sequence[Any], seconds: float, run: int = n) -> None:
            if isinstance(what, Instruction):
                if run >= warmup:
                    found.setdefault(what, Timing(what, [], kernels=asked(what))).seconds.append(seconds)
            elif segment is not None and run == warmup + runs - 1:
                launches = (i for i in what.module if isinstance(i.op, Launch))
                members = dict(zip(launches, segment.members, strict=False))
                for timing in what.time(given, runs, warmup):
                    timing.instruction = members.get(timing.instruction, timing.instruction)
                    found[timing.instruction] = timing

        run(args, watch)
    return found
