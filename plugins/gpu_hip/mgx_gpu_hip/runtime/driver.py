"""A driver library with the same function names for all vendors; failed calls raise."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from mgx_core.errors import DeviceError
from mgx_core.settings import setting

from ..rocm_files import rocm_file
from .failures import CallError
from .symbols import C_TYPES, CALLS, OPTIONAL

__all__ = ["DRIVERS", "Driver", "available", "in_use", "load_driver"]

DRIVERS: Final = ("hip", "cuda", "host")
_NAMES: Final = {
    "hip": ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"),
    "cuda": ("libcuda.so.1", "libcuda.so"),
}


def candidates(kind: str) -> list[str]:
    """Returns candidate paths of a driver library, best first; $MGX_HIP_LIBRARY and $MGX_CUDA_LIBRARY override them."""
    if kind == "host":
        from ..compile.gxx import emulator_library

        return [str(emulator_library())]
    named = setting(f"MGX_{kind.upper()}_LIBRARY")
    if named:
        return [named]
    names = list(_NAMES[kind])
    if kind == "hip":
        roots = [*filter(None, map(setting, ("ROCM_PATH", "ROCM_HOME", "HIP_PATH"))), "/opt/rocm"]
        names = [os.path.join(root, "lib", _NAMES["hip"][0]) for root in roots] + names
        names = [*filter(None, [rocm_file("amdhip64")]), *names]
    return names


class Driver:
    """The functions of one vendor's library as attributes, under common names; handles and addresses are integers.

    kind: ``hip``, ``cuda`` or ``host``.
    Errors: DeviceError if the library cannot be loaded; calls raise CallError for the vendor's error codes.
    """

    def __init__(self, kind: str, path: str | None = None) -> None:
        self.kind = kind
        self._prefix = {"hip": "hip", "cuda": "cu", "host": "host"}[kind]
        self.library = self._open([path] if path else candidates(kind))
        self.missing: list[str] = []
        for call in CALLS:
            symbol = call.symbol(kind)
            function = getattr(self.library, symbol, None) if symbol.isidentifier() else None
            if function is None:
                self.missing.append(symbol if symbol.isidentifier() else call.name)
                setattr(self, call.name, None if call.name in OPTIONAL else self._absent(symbol))
            else:
                function.argtypes = [C_TYPES[c] for c in call.parameters(kind)]
                setattr(self, call.name, self._checked(function, symbol))
        self._error_name: Any = getattr(self.library, f"{self._prefix}GetErrorName")
        self._fault: Any = getattr(self.library, f"{self._prefix}LastFault", None)  # emulated devices only
        if kind == "cuda":
            self._error_name.argtypes = [ctypes.c_int, ctypes.c_void_p]
        else:
            self._error_name.argtypes = [ctypes.c_int]
            self._error_name.restype = ctypes.c_char_p
        if self._fault is not None:
            self._fault.restype = ctypes.c_char_p
        self.init(0)

    def __getattr__(self, name: str) -> Any:  # declares the attributes set in __init__ to type checkers
        raise AttributeError(name)

    def _open(self, paths: list[str]) -> ctypes.CDLL:
        tried = []
        for path in paths:
            try:
                return ctypes.CDLL(path)
            except OSError as error:
                tried.append(f"{path}: {error}" if os.path.exists(path) else path)
        raise DeviceError(f"the {self.kind} driver is not installed: none of {', '.join(tried)} could be loaded")

    def _checked(self, function: Any, symbol: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            code = function(*args)
            if code:
                raise self.error(symbol, code)

        return call

    def _absent(self, symbol: str) -> Callable[..., None]:
        def call(*args: Any) -> None:
            raise DeviceError(f"this version of the {self.kind} driver lacks {symbol}; a newer one is required")

        return call

    def error(self, symbol: str, code: int) -> CallError:
        """Returns the error for a status code of a call."""
        detail = ""
        if self.kind == "cuda":
            text = ctypes.c_char_p()
            known = self._error_name(code, ctypes.byref(text)) == 0 and text.value
            name = text.value.decode() if known and text.value else "unknown error"
        else:
            name = (self._error_name(code) or b"unknown error").decode()
            if self._fault is not None:
                detail = (self._fault() or b"").decode(errors="replace")
        return CallError(symbol, name, code, detail)

    def out(self, name: str, *args: Any, type: Any = ctypes.c_size_t, last: bool = False) -> Any:
        """Calls a function whose first (or last) parameter is an output pointer; returns the output."""
        result = type()
        if last:
            getattr(self, name)(*args, ctypes.byref(result))
        else:
            getattr(self, name)(ctypes.byref(result), *args)
        return result.value

    def devices(self) -> int:
        return int(self.out("device_count", type=ctypes.c_int))


@cache
def load_driver(kind: str) -> Driver:
    """Returns a driver, loaded once per process.  Errors: DeviceError if it is missing or fails to initialize."""
    if kind not in DRIVERS:
        raise DeviceError(f"a driver must be one of {', '.join(DRIVERS)}, got {kind!r}")
    return Driver(kind)


@cache
def available() -> tuple[str, ...]:
    """Returns the drivers of real devices that load and find at least one."""
    found = []
    for kind in ("hip", "cuda"):
        try:
            if load_driver(kind).devices():
                found.append(kind)
        except DeviceError:
            continue
    return tuple(found)


def in_use(kind: str, index: int) -> bool:
    """Returns True if this process may have memory on a device; does not open the device.

    kind: empty for any real one.
    """
    if kind == "host":
        return load_driver.cache_info().currsize > 0
    return any(_active(k, index) for k in ([kind] if kind else ["hip", "cuda"]))


def _active(kind: str, index: int) -> bool:
    """Returns True if a device's primary context is active; False if no driver is loaded."""
    if not any(map(_loaded, candidates(kind))):
        return False
    flags, active = ctypes.c_uint(), ctypes.c_int(1)
    try:
        driver = load_driver(kind)
        if driver.context_state is not None:
            device = driver.out("device_get", index, type=ctypes.c_int)
            driver.context_state(device, ctypes.byref(flags), ctypes.byref(active))
    except DeviceError:
        return False
    return bool(active.value)


def _loaded(path: str) -> bool:
    """Returns True if this process has loaded a library already."""
    try:
        ctypes.CDLL(path, mode=os.RTLD_NOLOAD | os.RTLD_NOW)
    except OSError:
        return False
    return True
