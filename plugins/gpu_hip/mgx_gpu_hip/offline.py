"""Programs compiled without being run: everything is made but memory and launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import CompileOptions, Module, Runner
from mgx_core.errors import DeviceError
from mgx_core.targets.placement import Placement

from .compile.build import build
from .context import GpuContext
from .emit_module import Named, kernel_steps, on_host, put_together
from .emitter import Emitter
from .saved_code import Kept, keep_code

__all__ = ["OfflineRunner"]


class OfflineRunner(Runner):
    """The kernels of a lowered module for an architecture; saved, they serve a machine that has it.

    Library plans need the device: products and convolutions are the generated ones, and a machine that loads the program may
    choose its libraries instead.
    """

    def __init__(self, module: Module, context: GpuContext, options: CompileOptions, kept: Kept | None = None) -> None:
        self.context = context
        self.emitter = Emitter.of(context, options)
        arranged = put_together(self.emitter, module, lambda after: OfflineRunner(after, context, options, kept))
        self.named = [Named(s) for s in kernel_steps(self.emitter)]
        self.codes = build(self.named, context.device.arch, kept=kept)
        self.placements = on_host(self.emitter.steps, arranged.rest)
        if arranged.following is None:
            return
        self.placements += on_host((), arranged.following.unsettled())
        after = arranged.following.largest()
        if after is not None:  # what follows extents that depend on data, for the largest ones
            inner = OfflineRunner(after, context, options, kept)
            self.named += inner.named
            self.codes += inner.codes
            self.placements += inner.placements

    def on_host(self) -> list[Placement]:
        """What will run by its own definition on the host."""
        return self.placements

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Errors: DeviceError always."""
        arch = self.context.device.arch
        raise DeviceError(
            f"the program was compiled for {arch}, which is not here; save it and load it on such a machine"
        )

    def saved(self, keep: Any) -> dict[str, Any]:
        return keep_code(self.named, self.codes, self.context)
