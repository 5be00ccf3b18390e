"""NVRTC: from the CUDA toolkit, the nvidia-cuda-nvrtc wheel, or torch's copy."""

from __future__ import annotations

import sys
from pathlib import Path

from mgx_core.settings import setting

from .compiler import capability_of, wave_of
from .rtc import Rtc, open_library

__all__ = ["Nvrtc"]


def candidates() -> list[str]:
    """Returns candidate paths of libnvrtc, best first; $MGX_NVRTC_LIBRARY overrides them."""
    named = setting("MGX_NVRTC_LIBRARY")
    if named:
        return [named]
    found: list[str] = []
    for entry in sys.path:
        base = Path(entry) / "nvidia"
        if entry and base.is_dir():
            for pattern in ("cu[0-9]*/lib/libnvrtc.so.*", "cuda_nvrtc/lib/libnvrtc.so.*"):
                found += sorted((str(p) for p in base.glob(pattern) if ".alt" not in p.name), reverse=True)
    roots = [*filter(None, map(setting, ("CUDA_HOME", "CUDA_PATH"))), "/usr/local/cuda"]
    found += [f"{root}/lib64/libnvrtc.so" for root in roots]
    return [*found, "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"]


class Nvrtc(Rtc):
    """Compiles cubins for ``sm_..``; from Hopper on with architecture-specific instructions (``sm_90a``)."""

    name = "NVRTC"
    prefix = "nvrtc"
    code = ("GetCUBINSize", "GetCUBIN")
    locks = True

    def __init__(self) -> None:
        self.library, self.path = open_library(
            candidates(), "NVRTC", "install the CUDA toolkit or: pip install nvidia-cuda-nvrtc"
        )
        super().__init__()

    def options(self, arch: str) -> list[str]:
        if capability_of(arch) >= 90 and not arch.endswith("a"):
            arch += "a"
        options = [f"--gpu-architecture={arch}", "--std=c++17", "-w", f"-DWAVE={wave_of(arch)}"]
        return [*options, "--minimal"] if self._version >= (12, 8) else options
