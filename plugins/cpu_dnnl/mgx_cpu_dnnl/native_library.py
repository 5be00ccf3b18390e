"""Locates and loads oneDNN and the native module that links to it."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Final

import mgx_cpu_dnnl
from mgx_core.errors import DeviceError
from mgx_core.settings import setting
from mgx_cpu_dnnl.native_sources import is_current

__all__ = ["native", "preload"]

LIBRARY: Final = "libdnnl.so.3"


def candidates() -> Iterator[Path]:
    """Yields candidate paths of the library, most specific first."""
    named = setting("MGX_DNNL_LIBRARY")
    if named:
        yield Path(named)
        return
    for folder in map(Path, mgx_cpu_dnnl.__path__):
        yield folder / LIBRARY
    for prefix in (sys.prefix, sys.base_prefix):
        yield Path(prefix) / "lib" / LIBRARY


@cache
def preload() -> Path:
    """Loads oneDNN globally; returns its path.

    Errors: DeviceError if no library is found or it cannot be loaded.
    """
    tried = []
    for path in candidates():
        tried.append(str(path))
        if path.is_file():
            try:
                ctypes.CDLL(str(path.resolve()), mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise DeviceError(f"oneDNN at {path} cannot be loaded: {error}") from None
            return path
    raise DeviceError(
        f"{LIBRARY} was not found (tried {', '.join(tried)}); reinstall mgx-cpu-dnnl or set MGX_DNNL_LIBRARY to the file"
    )


@cache
def native() -> ModuleType:
    """Returns the native module.

    Errors: DeviceError if it or oneDNN cannot be loaded, or if its sources have changed since it was built.
    """
    preload()
    try:
        from . import _native
    except ImportError as error:
        raise DeviceError(f"the native module of mgx-cpu-dnnl cannot be loaded: {error}") from None
    checkout = Path(__file__).parents[1]
    if not is_current(_native, checkout):
        raise DeviceError(
            f"{_native.__file__} was built from other sources than those in {checkout / 'src'}; build it again with "
            f"`{sys.executable} -m pip install --editable {checkout}`"
        )
    return _native
