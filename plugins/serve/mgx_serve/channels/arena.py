"""Memory that one process writes and another one reads, in blocks."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..blocks import ALIGNMENT, Blocks

__all__ = ["Arena", "Borrowed", "Bytes", "places", "shared_memory"]

Bytes = bytes | memoryview


def places(sizes: Sequence[int]) -> list[int]:
    """Returns where in a block byte strings of some sizes lie, and behind them the block's size."""
    rounded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    return list(itertools.accumulate(rounded, initial=0))


def shared_memory(name: str, size: int) -> int:
    """Returns a descriptor of new memory whose size nobody changes: to read what another process cut off ends this one."""
    import fcntl  # not on every system, as little as such memory

    number = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(number, size)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return number


class Arena:
    """Memory whose blocks this process lends to another one; only this one writes it.

    number: a descriptor of the memory; size: its bytes.  Blocks lie as low as they can: memory that was never used is not there.
    """

    def __init__(self, number: int, size: int) -> None:
        self._memory = memoryview(mmap.mmap(number, size))
        self._blocks = Blocks(size)

    def lend(self, parts: Sequence[Bytes]) -> int | None:
        """Returns the start of a block with copies of byte strings, in `places`; None if there is no room."""
        *starts, size = places([len(part) for part in parts])
        start = self._blocks.take(max(size, ALIGNMENT))
        if start is None:
            return None
        for at, part in zip(starts, parts, strict=True):
            self._memory[start + at : start + at + len(part)] = part
        return start

    def take_back(self, start: int) -> None:
        """Makes the memory of a block free again.  Errors: KeyError if no block that is lent starts there."""
        self._blocks.take_back(start)


class Borrowed:
    """The same memory in the process that reads it.

    back: called with the start of a block once nothing refers to it any more, from whatever thread was the last to do so.
    """

    def __init__(self, number: int, size: int, back: Callable[[int], None]) -> None:
        self._whole: Any = np.frombuffer(mmap.mmap(number, size, prot=mmap.PROT_READ), np.uint8)
        self._back = back

    def parts(self, start: int, sizes: Sequence[int]) -> list[memoryview]:
        """Returns the byte strings of a block.  Errors: ValueError if there is no such block."""
        *starts, size = places(sizes)
        if not 0 <= start <= start + size <= self._whole.size:
            raise ValueError(f"there is no block of {size} bytes at {start}")
        block = np.asarray(_Block(self._whole[start : start + size], start, self._back))
        return [block[at : at + length].data for at, length in zip(starts, sizes, strict=True)]


class _Block:
    """What every array over a block refers to, so that its end is the end of the last of them."""

    def __init__(self, data: Any, start: int, back: Callable[[int], None]) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data, self._start, self._back = data, start, back

    def __del__(self) -> None:
        self._back(self._start)
