"""Arrays that lie in files mapped into memory."""

from __future__ import annotations

import mmap
from typing import Any, NamedTuple

import numpy as np

from .dtype import Array

__all__ = ["Mapped", "forget_pages", "mapped"]


class Mapped(NamedTuple):
    """The place of an array in a mapped file: the map, its bytes, and where the array's bytes begin and end."""

    map: mmap.mmap
    bytes: Array
    first: int
    end: int


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
