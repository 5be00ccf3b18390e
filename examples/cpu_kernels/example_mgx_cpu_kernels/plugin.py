"""Hooks of this package for mgx; nothing is imported until it is used."""

from __future__ import annotations

from mgx_core import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def operations() -> list[Lazy]:
    return [Lazy("cpu_kernels", "example_mgx_cpu_kernels.ops:OPS", "bent_identity, decay and sort_rows")]


@hookimpl
def kernels(target: str) -> list[Lazy]:
    return [Lazy("cpu_kernels", "example_mgx_cpu_kernels.kernels:PLANS")] if target == "cpu" else []
