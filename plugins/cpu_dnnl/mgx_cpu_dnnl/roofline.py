"""Measures the machine's peak arithmetic rate and memory bandwidth, once, and caches them."""

from __future__ import annotations

import json
from typing import Final

from mgx_core.cache import DiskCache

__all__ = ["ceilings"]

FORMAT: Final = 1
LEAST: Final = 64 << 20  # bytes to read; more if the caches hold over a quarter of it
MOST: Final = 512 << 20


def ceilings(machine: str, threads: int) -> dict[str, float]:
    """Returns the peak float32 operations (``flops``) and bytes read from memory (``bytes``) per second.

    machine: cache key; threads: number used.  Measuring takes about a second.
    """
    from .native_library import native

    disk = DiskCache("ceilings", FORMAT)
    key = f"{machine} with {threads} threads"
    known = disk.get(key)
    if known is not None:
        return dict(json.loads(known))
    _native = native()
    size = min(MOST, max(LEAST, 4 * _native.cache_sizes().get("l3", 0)))
    found = {
        "flops": 1e9 * _native.peak_gflops("float32", threads),
        "bytes": 1e9 * _native.read_gbps(size, threads),
    }
    disk.put(key, json.dumps(found).encode())
    return found
