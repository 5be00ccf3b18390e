"""Detects a native module that is older than its sources.

An editable installation uses the checkout's Python files, but the native module of the last build.  If the sources have changed
since, the two may disagree about arguments of steps and loops, with wrong results or crashes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Final

from mgx_core.hashing import sha256

__all__ = ["is_current"]

ENDINGS: Final = (".cmake", ".cpp", ".h")


def is_current(module: ModuleType, folder: Path) -> bool:
    """Returns True if a native module was built from the sources in a folder, or if there are none (in a wheel).

    Checks names and sizes, and the contents of all files if one of them is newer than the module: after a checkout, until the
    next build.
    """
    files = _files(folder)
    if not files:
        return True
    sizes = _hash(f"{name} {stat.st_size}" for name, stat in files.items())
    if sizes != getattr(module, "SOURCE_SIZES", None):  # modules built before this check was added have none
        return False
    built = os.stat(str(module.__file__)).st_mtime_ns
    if all(stat.st_mtime_ns < built for stat in files.values()):
        return True
    contents = _hash(f"{name} {sha256((folder / name).read_bytes()).hexdigest()}" for name in files)
    known: str = module.SOURCE_HASHES
    return contents == known


def _files(folder: Path) -> dict[str, os.stat_result]:
    """Returns the module's source files in order of src/sources.cmake."""
    try:
        os.stat(folder / "src" / "sources.cmake")  # another package's folder of the same name
        found = {"CMakeLists.txt": os.stat(folder / "CMakeLists.txt")}
        with os.scandir(folder / "src") as entries:
            found |= {f"src/{entry.name}": entry.stat() for entry in entries if entry.name.endswith(ENDINGS)}
    except FileNotFoundError:
        return {}
    return dict(sorted(found.items()))


def _hash(lines: Iterable[str]) -> str:
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
