"""A target without kernels: it declines every op."""

from __future__ import annotations

from typing import Any

from mgx_core import HostContext, Kernels, Target

__all__ = ["EmptyTarget"]


class EmptyTarget(Target):
    """Declines every op."""

    name = "empty"

    def get_context(self) -> HostContext:
        return HostContext(self)

    def kernels(self, context: Any) -> Kernels:
        return Kernels(self.name)
