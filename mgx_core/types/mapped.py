"""Arrays that lie in files mapped into memory."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .dtype import Array

__all__ = ["Mapped", "MappedFile", "forget_pages", "identity_of", "map_file", "mapped"]


class Mapped(NamedTuple):
    """The place of an array in a mapped file: the map, its bytes, and where the array's bytes begin and end."""

    map: mmap.mmap
    bytes: Array
    first: int
    end: int


class MappedFile(NamedTuple):
    """The bytes of a file, mapped into memory, and what the system noted of it as it was opened."""

    bytes: Array
    identity: tuple[int, ...]


def map_file(path: Path | str | os.PathLike[str]) -> MappedFile:
    """Returns a file's bytes, mapped into memory.  Errors: OSError."""
    with open(path, "rb") as file:
        state = os.fstat(file.fileno())
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if state.st_size else b""
    return MappedFile(np.frombuffer(data, np.uint8), identity_of(state))


def identity_of(state: os.stat_result) -> tuple[int, ...]:
    """Returns what tells a file from another one, and from itself after a change, as far as the system notes it."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def mapped(array: Array) -> Mapped | None:
    """Returns where an array lies in the file that it was mapped from; None if it was not."""
    base: Any = array
    while not isinstance(base, mmap.mmap):  # arrays, memory views, and what numpy puts between them
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
        if base is None:
            return None
    file = np.frombuffer(base, np.uint8)
    start = file.__array_interface__["data"][0]
    first, end = (int(at) - start for at in np.lib.array_utils.byte_bounds(array))
    return Mapped(base, file, first, end)


def forget_pages(array: Array) -> None:
    """Releases the memory of an array mapped from a file; the next access reads the file again."""
    place = mapped(array)
    if place is None:
        return
    first = -(-place.first // mmap.PAGESIZE) * mmap.PAGESIZE
    length = place.end // mmap.PAGESIZE * mmap.PAGESIZE - first
    # written pages would be lost, so only read-only maps
    if length > 0 and not place.bytes.flags.writeable:
        place.map.madvise(mmap.MADV_DONTNEED, first, length)
