"""Ranges in the vendors' profilers: roctx and nvtx."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from mgx_core.errors import DeviceError, UnsupportedError
from mgx_core.settings import setting

__all__ = ["profiler_ranges"]

# environment variable of the library file, default files, functions that begin and end a range
LIBRARIES: Final = {
    "hip": (
        "MGX_ROCTX_LIBRARY",
        ("librocprofiler-sdk-roctx.so", "libroctx64.so.4", "libroctx64.so", "/opt/rocm/lib/libroctx64.so"),
        ("roctxRangePushA", "roctxRangePop"),
    ),
    "cuda": (
        "MGX_NVTX_LIBRARY",
        ("libnvToolsExt.so.1", "libnvToolsExt.so", "/usr/local/cuda/lib64/libnvToolsExt.so"),
        ("nvtxRangePushA", "nvtxRangePop"),
    ),
}


@cache
def profiler_ranges(kind: str) -> tuple[Callable[[str], None], Callable[[], None]]:
    """Returns functions that begin a named range and end the innermost one.

    Errors: UnsupportedError for devices without a profiler; DeviceError if the vendor's library is not installed.
    """
    if kind not in LIBRARIES:
        raise UnsupportedError(f"a device of kind {kind!r} has no profiler; one of {', '.join(LIBRARIES)} is required")
    variable, names, (push, pop) = LIBRARIES[kind]
    named = setting(variable)
    for name in [named] if named else names:
        try:
            library = ctypes.CDLL(name)
            return _functions(getattr(library, push), getattr(library, pop))
        except (OSError, AttributeError):
            continue
    raise DeviceError(
        f"no library with {push} was found ({', '.join([named] if named else names)}): it comes with the profiler; name it in "
        f"{variable}"
    )


def _functions(begin: Any, end: Any) -> tuple[Callable[[str], None], Callable[[], None]]:
    begin.argtypes, end.argtypes = [ctypes.c_char_p], []
    return lambda text: begin(text.encode()), end
