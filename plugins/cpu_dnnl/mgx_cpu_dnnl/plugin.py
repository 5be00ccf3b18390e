"""The plugin of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def targets() -> list[Lazy]:
    return [
        Lazy(
            "cpu",
            "mgx_cpu_dnnl.target:CpuTarget",
            "oneDNN primitives and JIT-compiled loops, run by a native executor",
            rank=10,
            available="mgx_cpu_dnnl.native_library:preload",
        )
    ]
