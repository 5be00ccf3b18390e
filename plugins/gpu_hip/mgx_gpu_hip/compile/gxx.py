"""The host's C++ compiler: builds the emulated device and kernels for it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from mgx_core.errors import DeviceError
from mgx_core.settings import cache_directory, setting

from .compiler import CompileError
from .source import EMULATOR, complete

__all__ = ["HostCompiler", "emulator_library", "find_cxx"]

# A kernel needs none of the C++ library, which takes the linker longer to read than small kernels take to compile: no guards of
# static variables either (a kernel's library is initialized once, by the thread that loads it).
LINUX_FLAGS: Final = ("-fno-threadsafe-statics", "-nodefaultlibs")
LINUX_LIBRARIES: Final = ("-lm", "-lc", "-lgcc")


@cache
def find_cxx() -> str:
    """Returns the C++ compiler: ``$CXX``, g++, clang++ or c++.  Errors: DeviceError if there is none."""
    for name in (setting("CXX"), "g++", "clang++", "c++"):
        path = shutil.which(name) if name else None
        if path:
            return path
    raise DeviceError("the emulated device needs a C++17 compiler (g++ or clang++) on the PATH, or named by $CXX")


@cache
def _kernel_flags() -> tuple[str, ...]:
    """Flags for kernels; half floats are converted in hardware if the CPU can.

    Few optimizations: the device is for tests, which take longer to compile a kernel than to run it.
    """
    half: tuple[str, ...] = ()
    with contextlib.suppress(OSError):
        half = ("-mf16c",) if " f16c " in Path("/proc/cpuinfo").read_text() else ()
    linked = LINUX_FLAGS if sys.platform == "linux" else ()
    return ("-x", "c++", "-Og", "-std=c++17", "-shared", "-fPIC", "-w", *linked, *half)


@cache
def cxx_version() -> str:
    return subprocess.run([find_cxx(), "--version"], capture_output=True, text=True, check=True).stdout.splitlines()[0]


def build(sources: Sequence[Path], name: str, flags: Sequence[str] = ()) -> Path:
    """Returns a shared library built from C++ files, kept in the cache directory."""
    key = hashlib.sha256("\0".join([cxx_version(), *flags]).encode())
    for parent in sorted({s.parent for s in sources} | {EMULATOR}):
        for file in sorted(parent.glob("*")):
            if file.suffix in (".h", ".cpp"):
                key.update(file.read_bytes())
    out = cache_directory() / "emulator" / f"{name}-{key.hexdigest()[:20]}.so"
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=out.parent) as folder:
            made = Path(folder) / name
            command = [
                find_cxx(),
                "-O2",
                "-std=c++17",
                "-shared",
                "-fPIC",
                "-I",
                str(EMULATOR),
                *flags,
                "-o",
                str(made),
            ]
            done = subprocess.run(
                [*command, *map(str, sources), "-ldl", "-lpthread"], capture_output=True, text=True, check=False
            )
            if done.returncode:
                raise DeviceError(f"cannot build the emulated device with {find_cxx()}: {done.stderr[:2000]}")
            os.replace(made, out)
    return out


@cache
def emulator_library() -> Path:
    """Returns the emulated device as a library that exports the HIP runtime API with the prefix ``host``."""
    return build([EMULATOR / "device.cpp", EMULATOR / "driver.cpp"], "libmgxhost")


class HostCompiler:
    """Compiles kernel source to shared objects that the emulated device loads; architectures ``host32``, ``host64`` and, for
    kernels that do not depend on the wave's width, ``host``."""

    name = "host"
    locks = False

    @property
    def version(self) -> str:
        """Compiler version and flags, both of which determine the code."""
        return " ".join([cxx_version(), *_kernel_flags()])

    def compile(self, text: str, flags: Sequence[str], arch: str) -> bytes:
        """Errors: CompileError with the compiler's log."""
        wave = arch.removeprefix("host")
        command = [find_cxx(), *_kernel_flags(), *([f"-DWAVE={wave}"] if wave else ["-DWAVE=32", "-DMODULE_WAVE=0"])]
        libraries = LINUX_LIBRARIES if sys.platform == "linux" else ("-lm",)
        with tempfile.TemporaryDirectory(prefix="mgx-") as folder:
            out = Path(folder) / "k.so"
            done = subprocess.run(
                [*command, *flags, "-o", str(out), "-", *libraries],
                input=complete(text, emulated=True),
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                raise CompileError("g++", arch, done.stderr.strip())
            return out.read_bytes()
