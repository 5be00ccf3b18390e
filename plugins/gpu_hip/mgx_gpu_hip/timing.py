"""Per-instruction timing of a schedule on the device, and profiler ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from mgx_core import Instruction
from mgx_core.targets.kernel import called_text
from mgx_core.targets.runner import Timing

from .bound_steps import BoundStep
from .runtime import Device, GraphExec, Stream

__all__ = ["enqueue_marked", "least_seconds", "repeated_seconds", "timings"]

REPEATS: Final = 5  # consecutive launches in one graph, so that host and submission overhead do not count


def timings(steps: Sequence[BoundStep], device: Device, runs: int, warmup: int) -> list[Timing]:
    """Times the steps of each instruction separately, with warm caches, in the order of the schedule."""
    parts: dict[Instruction, list[BoundStep]] = {}
    for bound in steps:
        if bound.step.instruction is not None and bound.calls:
            parts.setdefault(bound.step.instruction, []).append(bound)
    stream = device.stream()
    made = []
    for instruction, bounds in parts.items():
        graph = _repeated(bounds, device, stream, REPEATS)
        seconds = [stream.microseconds(graph.launch) * 1e-6 / REPEATS for _ in range(warmup + runs)]
        flops, moved = sum(b.step.flops for b in bounds), sum(b.step.bytes for b in bounds)
        made.append(Timing(instruction, seconds[warmup:], flops, moved, kernels_of(bounds)))
    return made


def repeated_seconds(steps: Sequence[BoundStep], device: Device, runs: int) -> float:
    """Returns seconds per repetition of all steps, repeated in one graph after one warm-up replay."""
    stream = device.stream()
    graph = _repeated(steps, device, stream, runs)
    graph.launch(stream.handle)
    return stream.microseconds(graph.launch) * 1e-6 / runs


def least_seconds(steps: Sequence[BoundStep], device: Device, rounds: int, seconds: float, most: int) -> float:
    """Returns the minimum over several rounds of seconds per repetition of all steps, in one graph.

    seconds: of a round, in which the steps are repeated at most `most` times.
    """
    stream = device.stream()
    once = _repeated(steps, device, stream, 1)
    once.launch(stream.handle)
    runs = max(1, min(most, int(seconds * 1e6 / max(stream.microseconds(once.launch), 1.0))))
    graph = _repeated(steps, device, stream, runs) if runs > 1 else once
    return min(stream.microseconds(graph.launch) for _ in range(rounds)) * 1e-6 / runs


def _repeated(steps: Sequence[BoundStep], device: Device, stream: Stream, times: int) -> GraphExec:
    """Captures the given steps, repeated `times` times, as a graph."""
    with device.capture(stream) as captured:
        for _ in range(times):
            for bound in steps:
                for call in bound.calls:
                    call(stream.handle)
    return captured.instantiate()


def enqueue_marked(
    steps: Sequence[BoundStep], stream: Stream, begin: Callable[[str], None], end: Callable[[], None]
) -> int:
    """Enqueues the steps with a profiler range per instruction; returns the number of ranges."""
    count = 0
    for instruction, bounds in groupby(steps, key=lambda bound: bound.step.instruction):
        together = list(bounds)
        begin(called_text(instruction, kernels_of(together)) if instruction is not None else together[0].step.name)
        try:
            for bound in together:
                for call in bound.calls:
                    call(stream.handle)
        finally:
            end()
        count += 1
    return count


def kernels_of(steps: Sequence[BoundStep]) -> tuple[str, ...]:
    """Returns the distinct names of the kernels of these steps."""
    return tuple(dict.fromkeys(bound.step.kernel for bound in steps))
