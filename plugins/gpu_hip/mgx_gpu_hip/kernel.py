"""Kernels of the gpu target: emitted, with the generator of their text for those that have one."""

from __future__ import annotations

from typing import Any

from mgx_core.targets.emitted import EmittedKernel

from .codegen.writing import Write

__all__ = ["GpuKernel"]


class GpuKernel(EmittedKernel):
    """An op to be emitted as launches.  write: the generator of its text, for kernels that have one."""

    __slots__ = ("write",)

    def __init__(self, *given: Any, write: Write | None = None) -> None:
        super().__init__(*given)
        self.write = write

    def run(self, args: Any, modules: Any = (), run: Any = None) -> Any:
        """The op by its definition on the host, for what is decided only at run time; `run` knows extents found so far."""
        from mgx_core.ir.interpreter import Interpreter

        values = [a.to_host() if hasattr(a, "to_host") else a for a in args]
        return self.op.evaluate(values, self.modules, run or Interpreter().run)
