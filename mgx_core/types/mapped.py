"""Arrays in memory-mapped files."""

from __future__ import annotations

import errno
import mmap
import os
import stat
from pathlib import Path
from typing import Any

import numpy as np

from ..named_tuples import NamedTuple
from .dtype import Array

__all__ = ["Mapped", "MappedFile", "forget_pages", "identity_of", "map_file", "mapped"]


class Mapped(NamedTuple):
    """The location of an array in a mapped file: the map, its bytes, and the array's begin and end."""

    map: mmap.mmap
    bytes: Array
    first: int
    end: int


class MappedFile(NamedTuple):
    """A memory-mapped file, and its identity when it was opened."""

    bytes: Array
    identity: tuple[int, ...]


def map_file(path: Path | str | os.PathLike[str]) -> MappedFile:
    """Returns a file's bytes, mapped into memory; those of a pipe are read.  Errors: OSError."""
    with open(path, "rb") as file:
        state = os.fstat(file.fileno())
        if stat.S_ISCHR(state.st_mode):  # reading /dev/zero would not end
            raise OSError(errno.EINVAL, "is a device")
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if state.st_size else file.read()
    return MappedFile(np.frombuffer(data, np.uint8), identity_of(state))


def identity_of(state: os.stat_result) -> tuple[int, ...]:
    """Returns a file's identity (device, inode, size, times), which differs for other files and after most changes."""
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns


def mapped(array: Array) -> Mapped | None:
    """Returns the location of an array in its mapped file; None if it is not mapped."""
    base: Any = array
    while not isinstance(base, mmap.mmap):  # arrays, memory views, and numpy's intermediate bases
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
    # modified pages would be lost, so only for read-only maps
    if length > 0 and not place.bytes.flags.writeable:
        place.map.madvise(mmap.MADV_DONTNEED, first, length)
