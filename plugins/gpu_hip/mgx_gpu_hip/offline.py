"""Cross-compilation: programs compiled for an architecture without a device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import CompileOptions, Runner
from mgx_core.errors import DeviceError
from mgx_core.targets.schedule import Schedule, SegmentSchedule

from .compile.build import build
from .emitter import GpuEmitter
from .saved_code import Kept, keep_code
from .step_sources import StepSource, kernel_steps

__all__ = ["OfflineRunner"]


class OfflineRunner(Runner):
    """The compiled kernels of a lowered module, to be saved and run on a machine of that architecture.

    Library plans need the device: products and convolutions use generated kernels, and the machine that loads the program may
    replace them by library plans.
    """

    def __init__(
        self, schedule: Schedule, emitter: GpuEmitter, options: CompileOptions, kept: Kept | None = None
    ) -> None:
        self.schedule = schedule
        self.context = emitter.context
        self.step_sources = [StepSource(s) for s in kernel_steps(schedule.steps)]
        self.codes = build(self.step_sources, self.context.device.arch, kept=kept)
        after = None if emitter.continuation is None else emitter.continuation.largest()
        if after is not None:  # the continuation behind data-dependent extents, for the largest ones
            inner = emitter.fresh()
            ahead = OfflineRunner(inner.schedule(after), inner, options, kept)
            self.step_sources += ahead.step_sources
            self.codes += ahead.codes
            schedule.segments.append(SegmentSchedule(schedule.split.rest, ahead.schedule))

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Errors: DeviceError always."""
        arch = self.context.device.arch
        raise DeviceError(
            f"the program was compiled for {arch}, which this machine does not have; save it and load it on one that has"
        )

    def saved(self, keep: Any) -> dict[str, Any]:
        return keep_code(self.step_sources, self.codes, self.context, self.schedule.choices)
