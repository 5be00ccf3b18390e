"""The interface of kernel compilers, and their error."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from mgx_core.errors import DeviceError

__all__ = ["CompileError", "Compiler", "capability_of", "wave_of"]


class CompileError(DeviceError):
    """Source rejected by a compiler; `log` is its output, with line numbers relative to the kernel source."""

    def __init__(self, compiler: str, arch: str, log: str) -> None:
        errors = [line for line in log.splitlines() if re.search(r"\berror\b", line)]
        super().__init__(f"{compiler} for {arch}: " + ("\n".join(errors[:5]) or log[:2000] or "failed without output"))
        self.log = log


class Compiler(Protocol):
    """Compiles kernel source, prelude included, to code that a device of an architecture loads.

    locks: whether compilations in one process wait for each other.
    """

    name: str
    locks: bool

    @property
    def version(self) -> str:
        """Part of the cache key, since another version may generate other code."""
        ...

    def compile(self, text: str, flags: Sequence[str], arch: str) -> bytes:
        """Errors: CompileError with the log; DeviceError if the compiler itself is not usable."""
        ...


def capability_of(arch: str) -> int:
    """Returns NVIDIA's compute capability times ten, as in ``sm_90``; 0 for other vendors' architectures."""
    number = arch.removeprefix("sm_").removesuffix("a")
    return int(number) if arch.startswith("sm_") and number.isdigit() else 0


def wave_of(arch: str) -> int:
    """Returns the number of lanes in a wave."""
    return 64 if arch.startswith("gfx9") or arch == "host64" else 32
