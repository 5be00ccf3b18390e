"""Selects the compiler for an architecture."""

from __future__ import annotations

from functools import cache

from mgx_core.errors import DeviceError

from .compiler import Compiler

__all__ = ["compiler_for"]


@cache
def compiler_for(arch: str) -> Compiler:
    """Returns the best compiler installed: hipRTC or ziglang's clang for ``gfx..``, NVRTC for ``sm_..``, g++ for ``host..``.

    Errors: DeviceError that says what to install.
    """
    if arch.startswith("host"):
        from .gxx import HostCompiler

        return HostCompiler()
    if arch.startswith("sm_"):
        from .nvrtc import Nvrtc

        return Nvrtc()
    if not arch.startswith("gfx"):
        raise DeviceError(f"an architecture must be gfx.., sm_.., host32 or host64, got {arch!r}")
    from .offline import OfflineClang
    from .rtc import Hiprtc

    reasons = []
    for kind in (Hiprtc, OfflineClang):
        try:
            return kind()
        except DeviceError as error:
            reasons.append(str(error))
    raise DeviceError(f"no compiler found for {arch}: {'; '.join(reasons)}")
