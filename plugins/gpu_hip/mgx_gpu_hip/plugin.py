"""The plugin of this package."""

from __future__ import annotations

from mgx_core.plugins.manager import Lazy, hookimpl

mgx_interface = 1


@hookimpl
def targets() -> list[Lazy]:
    return [
        Lazy(
            "gpu",
            "mgx_gpu_hip.target:GpuTarget",
            "AMD and NVIDIA GPUs: HIP C++ kernels and vendor libraries, replayed as one graph",
            rank=20,
            available="mgx_gpu_hip.runtime:available",
            own_memory=True,
        )
    ]
