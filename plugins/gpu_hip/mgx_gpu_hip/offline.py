"""Programs compiled for a device that is not here: everything is made but memory and launches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import CompileOptions, Module
from mgx_core.errors import DeviceError

from .arranging import kernel_steps, put_together
from .compile.build import build
from .context import GpuContext
from .emitter import Emitter
from .restoring import Kept, keep_code
from .runner import Named

__all__ = ["OfflineRunner"]


class OfflineRunner:
    """The kernels of a lowered module for an architecture; saved, they serve a machine that has it.

    Library plans need the device: products and convolutions are the generated ones, and a machine that loads the program may
    choose its libraries instead.
    """

    def __init__(self, module: Module, context: GpuContext, options: CompileOptions, kept: Kept | None = None) -> None:
        self.context = context
        self.emitter = Emitter(context)
        put_together(self.emitter, module)
        self.named = [Named(s) for s in kernel_steps(self.emitter)]
        self.codes = build(self.named, context.device.arch, kept=kept)

    def run(self, args: Sequence[Any]) -> list[Any]:
        """Errors: DeviceError always."""
        arch = self.context.device.arch
        raise DeviceError(
            f"the program was compiled for {arch}, which is not here; save it and load it on such a machine"
        )

    def saved(self, keep: Any) -> dict[str, Any]:
        return keep_code(self.named, self.codes, self.context)
