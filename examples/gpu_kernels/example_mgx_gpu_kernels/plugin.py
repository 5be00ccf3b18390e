"""Hooks of this package for mgx; nothing is imported until it is used."""

from __future__ import annotations

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def operations() -> list[Lazy]:
    return [Lazy("gpu_kernels", "example_mgx_gpu_kernels.ops:OPS", "leaky_sum")]


@hookimpl
def kernels(target: str) -> list[Lazy]:
    return [Lazy("gpu_kernels", "example_mgx_gpu_kernels.kernels:PLANS")] if target == "gpu" else []
