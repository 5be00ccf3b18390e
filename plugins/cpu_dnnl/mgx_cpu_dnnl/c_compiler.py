"""Compiles C sources of third-party kernels to shared libraries, cached on disk by source and machine."""

from __future__ import annotations

import contextlib
import ctypes
import platform
import shutil
import subprocess
import tempfile
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Final

from mgx_core.cache import DiskCache, Held
from mgx_core.errors import No, ParameterError, Refused
from mgx_core.settings import setting

__all__ = ["CLibraries"]

COMPILERS: Final = ("cc", "gcc", "clang")
FLAGS: Final = ("-x", "c", "-O3", "-march=native", "-std=c11", "-shared", "-fPIC")
FORMAT: Final = 1


class CLibraries:
    """The shared libraries that a context has loaded."""

    def __init__(self) -> None:
        self._loaded: dict[str, tuple[ctypes.CDLL, int]] = {}
        self._lock = Lock()
        self._disk = DiskCache("c_kernels", FORMAT)

    @cached_property
    def _compiler(self) -> str:
        """Returns the path of the compiler: ``$CC``, cc, gcc or clang.  Errors: Refused if there is none."""
        for name in (setting("CC"), *COMPILERS):
            path = shutil.which(name) if name else None
            if path:
                return path
        raise Refused(No(f"no C compiler was found: $CC, or {', '.join(COMPILERS)} on the PATH"))

    @cached_property
    def _machine(self) -> str:
        """Returns compiler and processor, which are part of the cache key."""
        version = subprocess.run([self._compiler, "--version"], capture_output=True, text=True, check=False).stdout
        features = platform.processor()
        with contextlib.suppress(OSError):
            lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
            features = next((line for line in lines if line.startswith(("flags", "Features"))), features)
        return "\0".join([*version.splitlines()[:1], platform.machine(), features, *FLAGS])

    def load(self, text: str, title: str) -> ctypes.CDLL:
        """Returns the library of a C source, compiled if necessary.

        title: of the kernel, for messages.
        Errors: Refused if there is no compiler; ParameterError with its messages if compilation fails.
        """
        with self._lock:
            found = self._loaded.get(text)
            if found is None:
                key = f"{self._machine}\0{text}"
                code = self._disk.get(key)
                if code is None:
                    code = self._compiled(text, title)
                    self._disk.put(key, code)
                found = self._loaded[text] = _open(code), len(code)
            return found[0]

    def held(self) -> Held:
        """Returns the number of libraries and their bytes."""
        return Held(len(self._loaded), sum(size for _, size in self._loaded.values()))

    def _compiled(self, text: str, title: str) -> bytes:
        with tempfile.TemporaryDirectory(prefix="mgx-") as folder:
            out = Path(folder) / "kernel.so"
            done = subprocess.run(
                [self._compiler, *FLAGS, "-o", str(out), "-", "-lm"],
                input=f'#line 1 "kernel.c"\n{text}\n', capture_output=True, text=True, check=False,
            )  # fmt: skip
            if done.returncode:
                raise ParameterError(
                    f"{title}: {Path(self._compiler).name} cannot compile the source: {done.stderr.strip()}"
                )
            return out.read_bytes()


def _open(code: bytes) -> ctypes.CDLL:
    """Loads a library from its bytes; the temporary file can be deleted once it is mapped."""
    with tempfile.TemporaryDirectory(prefix="mgx-") as folder:
        file = Path(folder) / "kernel.so"
        file.write_bytes(code)
        return ctypes.CDLL(str(file))
