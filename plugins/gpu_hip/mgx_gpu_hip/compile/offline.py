"""Compiles for AMD GPUs without ROCm: by clang and lld of the ziglang wheel, or another clang named by $MGX_CLANG."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from mgx_core.errors import DeviceError
from mgx_core.settings import setting

from .compiler import CompileError, wave_of
from .source import complete

__all__ = ["OfflineClang"]


class OfflineClang:
    """Compiles HIP source to LLVM bitcode, then bitcode to a code object (lld generates the machine code)."""

    name = "clang"
    locks = False

    def __init__(self) -> None:
        named = setting("MGX_CLANG")
        if named:
            self.clang, self.lld = [named], [setting("MGX_LLD") or "ld.lld"]
        elif importlib.util.find_spec("ziglang") is not None:
            zig = [sys.executable, "-m", "ziglang"]
            self.clang, self.lld = [*zig, "clang"], [*zig, "ld.lld"]
        else:
            raise DeviceError(
                "a clang for AMD GPUs is missing: pip install ziglang, or name one by $MGX_CLANG (and $MGX_LLD)"
            )

    @cached_property
    def version(self) -> str:
        return self._run([*self.clang, "--version"], "", "").splitlines()[0]

    def compile(self, text: str, flags: Sequence[str], arch: str) -> bytes:
        plain = arch.split(":", maxsplit=1)[0]
        options = [
            "-x", "hip", f"--offload-arch={arch}", "--cuda-device-only", "--no-gpu-bundle-output", "-nogpulib", "-nogpuinc",
            "-DGPU_BARE", f"-DWAVE={wave_of(plain)}", "-O3", "-std=c++17", "-ffp-contract=fast", "-mcode-object-version=5", "-w",
        ]  # fmt: skip
        with tempfile.TemporaryDirectory(prefix="mgx-") as folder:
            bitcode, out = Path(folder) / "k.bc", Path(folder) / "k.hsaco"
            self._run(
                [*self.clang, *options, *flags, "-c", "-emit-llvm", "-o", str(bitcode), "-"], complete(text), arch
            )
            link = ["-shared", "--no-undefined", f"-plugin-opt=mcpu={plain}", "-plugin-opt=O3", "--lto-CGO3"]
            self._run([*self.lld, *link, "-o", str(out), str(bitcode)], "", arch)
            return out.read_bytes()

    def _run(self, command: list[str], text: str, arch: str) -> str:
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
        if done.returncode:
            raise CompileError("clang", arch, done.stderr.strip() or f"{command[0]} ended with {done.returncode}")
        return done.stdout
