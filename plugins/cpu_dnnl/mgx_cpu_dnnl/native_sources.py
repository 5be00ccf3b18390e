"""The sources of the native module, where they lie beside the package.

An editable installation takes its Python files from the checkout, but its native module from the last build. Where the sources
have changed since then, the two may disagree about the arguments of steps and loops, which shows as wrong numbers or a crash.
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
    """Returns whether a native module was built from the sources in a folder; true where there are none, as in a wheel.

    Each call reads names, sizes and times. Contents are read only where a file is newer than the module.
    """
    files = _files(folder)
    if not files:
        return True
    sizes = _hash(f"{name} {stat.st_size}" for name, stat in files.items())
    if sizes != getattr(module, "SOURCE_SIZES", None):  # modules from before the check have none
        return False
    built = os.stat(str(module.__file__)).st_mtime_ns
    if all(stat.st_mtime_ns < built for stat in files.values()):
        return True
    contents = _hash(f"{name} {sha256((folder / name).read_bytes()).hexdigest()}" for name in files)
    known: str = module.SOURCE_HASHES
    return contents == known


def _files(folder: Path) -> dict[str, os.stat_result]:
    """Returns the files that go into the module by their names, in order, as src/sources.cmake lists them."""
    try:
        os.stat(folder / "src" / "sources.cmake")  # other packages have a folder of that name, too
        found = {"CMakeLists.txt": os.stat(folder / "CMakeLists.txt")}
        with os.scandir(folder / "src") as entries:
            found |= {f"src/{entry.name}": entry.stat() for entry in entries if entry.name.endswith(ENDINGS)}
    except FileNotFoundError:
        return {}
    return dict(sorted(found.items()))


def _hash(lines: Iterable[str]) -> str:
    return sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()
