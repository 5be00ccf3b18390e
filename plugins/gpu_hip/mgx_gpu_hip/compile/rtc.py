"""Run-time compilers through the API that NVRTC and hipRTC share, and hipRTC."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from mgx_core.errors import DeviceError
from mgx_core.settings import setting

from ..rocm_files import rocm_file
from .compiler import CompileError, wave_of
from .source import complete

__all__ = ["Hiprtc", "Rtc", "open_library"]


def open_library(paths: Sequence[str], what: str, advice: str) -> tuple[ctypes.CDLL, str]:
    """Returns the first library that loads, and its path."""
    for path in paths:
        try:
            return ctypes.CDLL(path), path
        except OSError:
            continue
    raise DeviceError(f"{what} was not found; {advice}")


class Rtc:
    """A library with ``<prefix>CreateProgram``, ``CompileProgram`` and so on; `code` names the calls that return the binary."""

    name: str
    locks = False
    prefix: str
    code: tuple[str, str]
    library: ctypes.CDLL

    def __init__(self) -> None:
        getattr(self.library, f"{self.prefix}GetErrorString").restype = ctypes.c_char_p
        major, minor = ctypes.c_int(), ctypes.c_int()
        self._call("Version", ctypes.byref(major), ctypes.byref(minor))
        self._version = (major.value, minor.value)

    @property
    def version(self) -> str:
        return ".".join(map(str, self._version))

    def options(self, arch: str) -> list[str]:
        raise NotImplementedError

    def compile(self, text: str, flags: Sequence[str], arch: str) -> bytes:
        program = ctypes.c_void_p()
        self._call("CreateProgram", ctypes.byref(program), complete(text).encode(), b"prelude.h", 0, None, None)
        try:
            options = [option.encode() for option in (*self.options(arch), *flags)]
            result = self._function("CompileProgram")(program, len(options), (ctypes.c_char_p * len(options))(*options))
            if result:
                log = self._bytes(program, "GetProgramLogSize", "GetProgramLog").rstrip(b"\0").decode(errors="replace")
                raise CompileError(f"{self.name} {self.version}", arch, log or self._error(result))
            return self._bytes(program, *self.code)
        finally:
            self._call("DestroyProgram", ctypes.byref(program))

    def _function(self, name: str) -> Any:
        return getattr(self.library, self.prefix + name)

    def _error(self, code: int) -> str:
        return str(self._function("GetErrorString")(code).decode())

    def _call(self, name: str, *args: object) -> None:
        code = self._function(name)(*args)
        if code:
            raise DeviceError(f"{self.prefix}{name}: {self._error(code)} ({code})")

    def _bytes(self, program: ctypes.c_void_p, size_call: str, get_call: str) -> bytes:
        size = ctypes.c_size_t()
        self._call(size_call, program, ctypes.byref(size))
        buffer = ctypes.create_string_buffer(max(size.value, 1))
        self._call(get_call, program, buffer)
        return buffer.raw[: size.value]


class Hiprtc(Rtc):
    """ROCm's run-time compiler: libhiprtc, or the HIP runtime that contains it.  $MGX_HIPRTC_LIBRARY overrides the search."""

    name = "hipRTC"
    prefix = "hiprtc"
    code = ("GetCodeSize", "GetCode")

    def __init__(self) -> None:
        named = setting("MGX_HIPRTC_LIBRARY")
        roots = [*filter(None, map(setting, ("ROCM_PATH", "ROCM_HOME"))), "/opt/rocm"]
        names = [*filter(None, [rocm_file("hiprtc")]), *(f"{root}/lib/libhiprtc.so" for root in roots)]
        for base in ("libhiprtc.so", "libamdhip64.so"):
            names += [base, *(f"{base}.{n}" for n in (7, 6, 5))]
        self.library, self.path = open_library([named] if named else names, "hipRTC", "it is part of ROCm")
        if not hasattr(self.library, "hiprtcCompileProgram"):
            raise DeviceError(f"{self.path} does not contain hipRTC")
        super().__init__()

    def options(self, arch: str) -> list[str]:
        return [f"--offload-arch={arch}", "-O3", "-std=c++17", "-ffp-contract=fast", "-w", f"-DWAVE={wave_of(arch)}"]
