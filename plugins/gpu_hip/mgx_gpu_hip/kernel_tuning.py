"""Times alternative kernels as device programs: by default those of low-precision products, with ``exhaustive_tune`` all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from mgx_core import CompileOptions, Module, Operation
from mgx_core.ops.control import Group
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.targets.schedule import Schedule
from mgx_core.targets.tuning import KernelTuning
from mgx_core.types.argument import Array
from mgx_core.types.dtype import of

from .context import GpuContext
from .emitter import GpuEmitter
from .runner import GpuRunner
from .runtime import DeviceArray

__all__ = ["GpuTuning"]

ROUND_SECONDS: Final = 0.002  # seconds per round of one kernel
MAX_LAUNCHES: Final = 20  # launches per round
# no cost model covers these: library plans and generated kernels of several tile sizes
ANCHORS: Final = (QuantDot, QuantConvolution)
ROUNDS: Final = 3


class GpuTuning(KernelTuning):
    """Caches the fastest kernel of each problem on one device."""

    def __init__(self, context: GpuContext, folder: Path | None = None) -> None:
        device = context.device
        super().__init__(f"kernels on {device.properties.name} {device.arch}", folder)
        self.device = device

    def concerns(self, e: GpuEmitter, op: Operation, modules: Sequence[Module]) -> bool:
        """True for every op with ``exhaustive_tune``, otherwise for low-precision products while library plans are timed."""
        if e.exhaustive:
            return True
        tuner = e.context.tuner
        if tuner is None or not tuner.budget:
            return False
        return isinstance(op, ANCHORS) or (isinstance(op, Group) and any(isinstance(i.op, ANCHORS) for i in modules[0]))

    def settings(self, e: GpuEmitter) -> str:
        return f"tf32 {e.tf32}" if e.exhaustive else "by the plans that are tried by default"

    def seconds(self, trial: Any, schedule: Schedule, arrays: Sequence[Array]) -> float:
        """Returns the minimum over several rounds, each a graph of consecutive launches."""
        runner = GpuRunner(schedule, trial, CompileOptions(offload_copy=False))
        args = [DeviceArray(self.device.upload(a), of(a.dtype), a.shape) for a in arrays]
        once = runner.seconds(args, 1)
        runs = max(1, min(MAX_LAUNCHES, int(ROUND_SECONDS / max(once, 1e-6))))
        return min(runner.seconds(args, runs) for _ in range(ROUNDS))
