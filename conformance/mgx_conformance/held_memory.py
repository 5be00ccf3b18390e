"""Memory that the process holds, and what many runs of something leave of it."""

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
    """Returns bytes of physical memory that the process has held at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def resident() -> int:
    """Returns bytes of physical memory that the process holds."""
    try:
        with open("/proc/self/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return most_resident()


def resident_of(path: Path) -> int:
    """Returns bytes of a file that the process holds in physical memory, by all its maps (Linux alone)."""
    found, ours = 0, False
    for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
        if "-" in line.split(" ", 1)[0]:
            ours = line.endswith(str(path))
        elif ours and line.startswith("Rss:"):
            found += int(line.split()[1]) * 1024
    return found


def pages_left(run: Callable[[], Any], runs: int) -> int:
    """Returns by how many bytes the process has grown after some runs."""
    gc.collect()
    before = resident()
    for _ in range(runs):
        run()
    gc.collect()
    return resident() - before


def objects_left(run: Callable[[], Any], first: int, runs: int) -> int:
    """Returns the bytes of Python objects that some runs leave, after a few `first` ones that are not counted."""
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
