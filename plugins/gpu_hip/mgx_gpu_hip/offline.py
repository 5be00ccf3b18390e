"""Programs compiled without being run: everything is made but memory and launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import CompileOptions, Runner
from mgx_core.errors import DeviceError
from mgx_core.targets.schedule import Schedule, SegmentSchedule

from .compile.build import build
from .emitter import GpuEmitter
from .named import Named, kernel_steps
from .saved_code import Kept, keep_code

__all__ = ["OfflineRunner"]


class OfflineRunner(Runner):
    """The kernels of a lowered module for an architecture; saved, they serve a machine that has it.

    Library plans need the device: products and convolutions are the generated ones, and a machine that loads the program may
    choose its libraries instead.
    """

    def __init__(
        self, schedule: Schedule, emitter: GpuEmitter, options: CompileOptions, kept: Kept | None = None
    ) -> None:
        self.schedule = schedule
        self.context = emitter.context
        self.named = [Named(s) for s in kernel_steps(schedule)]
        self.codes = build(self.named, self.context.device.arch, kept=kept)
        after = None if emitter.continuation is None else emitter.continuation.largest()
        if after is not None:  # what follows extents that depend on data, for the largest ones
            inner = emitter.fresh()
            ahead = OfflineRunner(inner.schedule(after), inner, options, kept)
            self.named += ahead.named
            self.codes += ahead.codes
            schedule.segments.append(SegmentSchedule(schedule.split.rest, ahead.schedule))

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Errors: DeviceError always."""
        arch = self.context.device.arch
        raise DeviceError(
            f"the program was compiled for {arch}, which is not here; save it and load it on such a machine"
        )

    def saved(self, keep: Any) -> dict[str, Any]:
        return keep_code(self.named, self.codes, self.context, self.schedule.choices)
