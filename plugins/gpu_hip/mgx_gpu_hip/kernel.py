"""Kernels of the gpu target, with their source generators."""

from __future__ import annotations

from typing import Any

from mgx_core.targets.emitted import EmittedKernel

from .codegen.generators import Generator

__all__ = ["GpuKernel"]


class GpuKernel(EmittedKernel):
    """A kernel that emits launches.  write: its source generator; None for kernels without one."""

    __slots__ = ("write",)

    def __init__(self, *given: Any, write: Generator | None = None) -> None:
        super().__init__(*given)
        self.write = write

    def run(self, args: Any, modules: Any = (), run: Any = None) -> Any:
        """Computes the op by its definition on the host, where its extents depend on data; `run` has the extents found so far."""
        from mgx_core.ir.interpreter import Interpreter

        values = [a.to_host() if hasattr(a, "to_host") else a for a in args]
        return self.op.evaluate(values, self.modules, run or Interpreter().run)
