"""A vendor's library with its calls under common names; a failed call raises."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from cffi import FFI

from mgx_core.errors import DeviceError

from .failures import CallError
from .symbols import C_TYPES, CALLS, OPTIONAL

__all__ = ["DRIVERS", "Driver", "available", "load_driver"]

DRIVERS: Final = ("hip", "cuda", "host")
_NAMES: Final = {
    "hip": ("libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so.5"),
    "cuda": ("libcuda.so.1", "libcuda.so"),
}


def candidates(kind: str) -> list[str]:
    """Where the library of a driver may be, best first; $MGX_HIP_LIBRARY and $MGX_CUDA_LIBRARY name it outright."""
    if kind == "host":
        from ..compile.gxx import emulator_library

        return [str(emulator_library())]
    named = os.environ.get(f"MGX_{kind.upper()}_LIBRARY")
    if named:
        return [named]
    names = list(_NAMES[kind])
    if kind == "hip":
        roots = [os.environ[v] for v in ("ROCM_PATH", "ROCM_HOME", "HIP_PATH") if os.environ.get(v)] + ["/opt/rocm"]
        names = [os.path.join(root, "lib", _NAMES["hip"][0]) for root in roots] + names
    return names


class Driver:
    """The calls of one vendor's library, as attributes by their common names; handles and addresses are integers.

    kind: ``hip``, ``cuda`` or ``host``.
    Errors: DeviceError if the library cannot be loaded; every call raises CallError when the vendor reports an error.
    """

    def __init__(self, kind: str, path: str | None = None) -> None:
        self.kind = kind
        self.ffi = ffi = FFI()
        lines = []
        for call in CALLS:
            symbol = call.symbol(kind)
            if symbol.isidentifier():
                types = ", ".join(C_TYPES[c] for c in call.parameters(kind)) or "void"
                lines.append(f"int {symbol}({types});")
        prefix = {"hip": "hip", "cuda": "cu", "host": "host"}[kind]
        if kind == "cuda":
            lines.append("int cuGetErrorName(int, const char**); int cuGetErrorString(int, const char**);")
        else:
            lines.append(f"const char* {prefix}GetErrorName(int);")
        if kind == "hip":
            lines.append("int hipGetDevicePropertiesR0600(void*, int); int hipGetDeviceProperties(void*, int);")
        lines += [f"const char* {prefix}LastFault(void);", f"void {prefix}SetOrder(int);"]
        ffi.cdef("\n".join(lines))
        self.library: Any = self._open([path] if path else candidates(kind))
        self._prefix = prefix
        self.missing: list[str] = []
        for call in CALLS:
            symbol = call.symbol(kind)
            function = getattr(self.library, symbol, None) if symbol.isidentifier() else None
            if function is None:
                self.missing.append(symbol if symbol.isidentifier() else call.name)
                setattr(self, call.name, None if call.name in OPTIONAL else self._absent(symbol))
            else:
                setattr(self, call.name, self._checked(function, symbol))
        self.fault: Callable[[], bytes] | None = None
        report = getattr(self.library, f"{prefix}LastFault", None)
        if report is not None:
            self.fault = lambda: ffi.string(report())
        self._lock = threading.Lock()
        self.init(0)

    def __getattr__(self, name: str) -> Any:  # the calls are made in __init__; this only tells type checkers so
        raise AttributeError(name)

    def _open(self, paths: list[str]) -> Any:
        tried = []
        for path in paths:
            try:
                return self.ffi.dlopen(path)
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
        """The error for a code that a call gave."""
        detail = ""
        if self.kind == "cuda":
            text = self.ffi.new("const char**")
            name = "unknown error"
            if not self.library.cuGetErrorName(code, text) and text[0]:
                name = self.ffi.string(text[0]).decode()
        else:
            name = self.ffi.string(getattr(self.library, f"{self._prefix}GetErrorName")(code)).decode()
            if self.fault is not None:
                detail = self.fault().decode(errors="replace")
        return CallError(symbol, name, code, detail)

    def out(self, name: str, *args: Any, type: str = "uintptr_t", last: bool = False) -> Any:
        """Make a call whose first (or last) parameter takes the address of a result; the result."""
        result = self.ffi.new(type + "*")
        call = getattr(self, name)
        if last:
            call(*args, result)
        else:
            call(result, *args)
        return result[0]

    def devices(self) -> int:
        return int(self.out("device_count", type="int"))


@cache
def load_driver(kind: str) -> Driver:
    """The driver of a kind, loaded once.  Errors: DeviceError if it is not there or does not start."""
    if kind not in DRIVERS:
        raise DeviceError(f"a driver is one of {', '.join(DRIVERS)} or null, got {kind!r}")
    return Driver(kind)


@cache
def available() -> tuple[str, ...]:
    """The drivers for real devices that load and see at least one."""
    found = []
    for kind in ("hip", "cuda"):
        try:
            if load_driver(kind).devices():
                found.append(kind)
        except DeviceError:
            continue
    return tuple(found)
