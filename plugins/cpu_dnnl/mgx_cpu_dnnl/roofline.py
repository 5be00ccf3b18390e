"""What this machine can do at most, measured once and kept: multiply-adds on registers, and reading memory."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Final

from mgx_core.settings import cache_directory

__all__ = ["ceilings"]

FORMAT: Final = 1
LEAST: Final = 64 << 20  # bytes to read, unless the caches hold more than a quarter of it
MOST: Final = 512 << 20


def ceilings(machine: str, threads: int) -> dict[str, float]:
    """Float32 operations (``flops``) and bytes read from memory (``bytes``) that the machine does in a second.

    machine: what the figures are kept for; threads: how many work.  Measuring takes about a second.
    """
    from .native_library import native

    path = cache_directory() / "ceilings" / "cpu.json"
    key = f"{machine} with {threads} threads"
    try:
        kept = json.loads(path.read_text())
        known = kept["ceilings"] if kept["format"] == FORMAT else {}
        if key in known:
            return {name: float(known[key][name]) for name in ("flops", "bytes")}
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    _native = native()
    size = min(MOST, max(LEAST, 4 * _native.cache_sizes().get("l3", 0)))
    found = {
        "flops": 1e9 * _native.peak_gflops("float32", threads),
        "bytes": 1e9 * _native.read_gbps(size, threads),
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=".new", delete=False) as file:
            json.dump({"format": FORMAT, "ceilings": {**known, key: found}}, file)
        os.replace(file.name, path)
    except OSError:
        pass  # measured again next time
    return found
