"""Autotuning: times kernels as native programs on this machine (option ``exhaustive_tune``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mgx_core.targets.schedule import Schedule
from mgx_core.targets.tuning import KernelTuning
from mgx_core.types.argument import Array

from .emitter import CpuEmitter
from .native_program import build

__all__ = ["Tuning"]

BUDGET: Final = 0.03  # seconds per kernel


class Tuning(KernelTuning):
    """Names of the fastest kernels by problem."""

    def settings(self, e: CpuEmitter) -> str:
        return f"threads {e.threads} fast_math {e.fast_math}"

    def seconds(self, trial: Any, schedule: Schedule, arrays: Sequence[Array]) -> float:
        program = build(schedule)
        once = sum(program.time(arrays, 1, 1)) * 1e-9
        return sum(program.time(arrays, max(3, min(30, int(BUDGET / max(once, 1e-6)))), 1)) * 1e-9
