"""Per-step timings for reports."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from mgx_core import Instruction, Launch
from mgx_core.targets.kernel import preferred_kernels
from mgx_core.targets.runner import Timing

if TYPE_CHECKING:
    from .native_run import NativeRun
    from .open_run import OpenRun

__all__ = ["following_timings", "step_timings"]


def step_timings(
    program: NativeRun | OpenRun,
    owners: Sequence[Instruction | None],
    figures: Sequence[Sequence[Any]],
    args: Sequence[Any],
    runs: int,
    warmup: int,
) -> dict[Instruction, Timing]:
    """Returns each instruction with the time of its native steps.

    owners: the instruction of each step; figures: operations, bytes and kernel of each step (absent in older files).  Executor
    overhead between steps is not included.
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
    """Times the part after the static program: run-time decided ops as a whole, including bodies; segments by their steps.

    run: runs the program with a `watch` (see `SegmentInterpreter.follow`).
    """
    found: dict[Instruction, Timing] = {}
    for n in range(warmup + runs):

        def watch(what: Any, segment: Any, given: Sequence[Any], seconds: float, run: int = n) -> None:
            if isinstance(what, Instruction):
                if run >= warmup:
                    found.setdefault(what, Timing(what, [], kernels=preferred_kernels(what))).seconds.append(seconds)
            elif segment is not None and run == warmup + runs - 1:
                launches = (i for i in what.module if isinstance(i.op, Launch))
                members = dict(zip(launches, segment.members, strict=False))
                for timing in what.time(given, runs, warmup):
                    timing.instruction = members.get(timing.instruction, timing.instruction)
                    found[timing.instruction] = timing

        run(args, watch)
    return found
