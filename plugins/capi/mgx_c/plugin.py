"""Plugin hooks of this package."""

from __future__ import annotations

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def kernels(target: str) -> list[Lazy]:
    return [Lazy("c_operators", "mgx_c.device_kernels:PLANS")] if target == "gpu" else []
