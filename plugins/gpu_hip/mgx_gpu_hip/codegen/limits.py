"""Launch limits: grids, blocks, shared memory and kernel parameters."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from mgx_core.errors import Refused

from ..compile.source import SCALARS
from .source import Arg, Buffer, DeviceTraits, KernelLaunch, KernelSource

__all__ = ["require_limits"]

GRID: Final = (2**31 - 1, 65535, 65535)  # blocks along x, y, z
NUMBERED: Final = 2**32  # threads along an axis: kernels index them in 32 bits, and AMD's runtimes launch no more
POINTER: Final = 8  # bytes
PARAMETERS: Final = 4096  # bytes of a kernel's parameters: the limit of HIP, and of CUDA before 12.1
RANGES: Final = {
    "u32": (0, 2**32 - 1), "i32": (-(2**31), 2**31 - 1), "u64": (0, 2**64 - 1), "i64": (-(2**63), 2**63 - 1)
}  # fmt: skip


def require_limits(source: KernelSource, traits: DeviceTraits) -> None:
    """Errors: Refused for a kernel that exceeds a limit of the device."""
    for launch in source.launches:
        why = _exceeded(launch, traits)
        if why:
            raise Refused(f"{launch.entry} has {why}")


def _exceeded(launch: KernelLaunch, traits: DeviceTraits) -> str:
    grid, block = launch.grid, launch.block
    if not 0 < prod(block) <= traits.max_threads:
        return f"a block of {prod(block)} threads, the device has at most {traits.max_threads}"
    if launch.shared_bytes > traits.shared_most:
        return f"{launch.shared_bytes} bytes of shared memory, the device has at most {traits.shared_most}"
    if any(n > most for n, most in zip(grid, GRID, strict=True)):
        return f"a grid of {grid} blocks, at most {GRID} are allowed"
    if any(n * width >= NUMBERED for n, width in zip(grid, block, strict=True)):
        return f"a grid of {grid} blocks of {block} threads, along an axis fewer than 2^32 threads are allowed"
    size = _bytes(launch.args)
    if size > PARAMETERS:
        return f"{size} bytes of parameters, at most {PARAMETERS} are allowed"
    for arg in launch.args:
        if not isinstance(arg, Buffer) and arg.ctype in RANGES:
            low, high = RANGES[arg.ctype]
            if not low <= arg.value <= high:
                return f"an argument {arg.value}, which is no {arg.ctype}"
    return ""


def _bytes(args: Sequence[Arg]) -> int:
    """Returns the bytes that parameters take, each aligned to its size."""
    size = 0
    for arg in args:
        own = POINTER if isinstance(arg, Buffer) else SCALARS[arg.ctype][1]
        size = -(-size // own) * own + own
    return size
