"""Kernels timed as device programs of their own (option ``exhaustive_tune``)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mgx_core import CompileOptions
from mgx_core.targets.schedule import Schedule
from mgx_core.targets.tuning import KernelTuning
from mgx_core.types.argument import Array
from mgx_core.types.dtype import of

from .context import GpuContext
from .emitter import GpuEmitter
from .runner import GpuRunner
from .runtime import DeviceArray

__all__ = ["GpuTuning"]

SPENT: Final = 0.01  # seconds on one kernel
MOST: Final = 100  # launches of it
ROUNDS: Final = 3


class GpuTuning(KernelTuning):
    """Names of the fastest kernels of the gpu target, by problem, for one device."""

    def __init__(self, context: GpuContext, folder: Path | None = None) -> None:
        device = context.device
        super().__init__(f"kernels on {device.properties.name} {device.arch}", folder)
        self.device = device

    def trial(self, e: GpuEmitter) -> GpuEmitter:
        return e.fresh(tuning=False)

    def settings(self, e: GpuEmitter) -> str:
        return f"tf32 {e.tf32}"

    def seconds(self, trial: Any, schedule: Schedule, arrays: Sequence[Array]) -> float:
        """The least of some rounds of launches in a row: each is one graph, so that the host does not count."""
        runner = GpuRunner(schedule, trial, CompileOptions(offload_copy=False))
        args = [DeviceArray(self.device.upload(a), of(a.dtype), a.shape) for a in arrays]
        stream = self.device.default_stream

        def timed(runs: int) -> float:
            start = time.perf_counter()
            for _ in range(runs):
                runner.start(args)
            stream.wait()
            return (time.perf_counter() - start) / runs

        timed(1)  # records the graph
        runs = max(1, min(MOST, int(SPENT / max(timed(1), 1e-6))))
        return min(timed(runs) for _ in range(ROUNDS))
