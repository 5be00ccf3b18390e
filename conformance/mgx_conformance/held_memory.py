"""Measures the process's memory, and leaks over many runs."""

from __future__ import annotations

import gc
import os
import resource
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["most_resident", "objects_left", "pages_left", "resident_of"]


def most_resident() -> int:
    """Returns the process's peak resident bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Returns the process's resident bytes."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return most_resident()


def resident_of(path: Path) -> int:
    """Returns the resident bytes of a file over all its mappings (Linux only)."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split(" ", 1)[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


def pages_left(run: Callable[[], Any], runs: int) -> int:
    """Returns the growth of the process in bytes over some runs."""
    gc.collect()
    before = resident()
    for _ in range(runs):
        run()
    gc.collect()
    return resident() - before


def objects_left(run: Callable[[], Any], first: int, runs: int) -> int:
    """Returns the bytes of Python objects that runs leak, after `first` warm-up runs."""
    tracemalloc.start()
    try:
        for _ in range(first):
            run()
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(runs):
            run()
        gc.collect()
        return tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
