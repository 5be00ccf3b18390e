"""Single-writer shared memory, allocated in blocks."""

from __future__ import annotations

import itertools
import mmap
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..block_allocator import ALIGNMENT, BlockAllocator

__all__ = ["Arena", "Borrowed", "Bytes", "offsets", "shared_memory"]

Bytes = bytes | memoryview


def offsets(sizes: Sequence[int]) -> list[int]:
    """Returns the offsets of byte strings of these sizes within a block, followed by the block's size."""
    rounded = [-(-size // ALIGNMENT) * ALIGNMENT for size in sizes]
    return list(itertools.accumulate(rounded, initial=0))


def shared_memory(name: str, size: int) -> int:
    """Creates shared memory of sealed size: reading a mapping that another process truncated would raise SIGBUS."""
    import fcntl  # Linux only, like memfd itself

    number = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.truncate(number, size)
    fcntl.fcntl(number, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    return number


class Arena:
    """The writer's side: allocates blocks and passes them to another process, which must return them.

    number: descriptor of the memory; size: in bytes.  Blocks use the lowest free offset, so that untouched pages stay unmapped.
    """

    def __init__(self, number: int, size: int) -> None:
        self._memory = memoryview(mmap.mmap(number, size))
        self._blocks = BlockAllocator(size)

    def store(self, parts: Sequence[Bytes]) -> int | None:
        """Copies byte strings to a new block, at the offsets of `offsets`; returns its offset, None if there is no room."""
        *starts, size = offsets([len(part) for part in parts])
        start = self._blocks.allocate(max(size, ALIGNMENT))
        if start is None:
            return None
        for at, part in zip(starts, parts, strict=True):
            self._memory[start + at : start + at + len(part)] = part
        return start

    def free(self, start: int) -> None:
        """Frees a block.  Errors: KeyError if no allocated block starts there."""
        self._blocks.free(start)


class Borrowed:
    """The reader's side of the memory.

    released: called with a block's offset when its last reference is dropped, from any thread.
    """

    def __init__(self, number: int, size: int, released: Callable[[int], None]) -> None:
        self._whole: Any = np.frombuffer(mmap.mmap(number, size, prot=mmap.PROT_READ), np.uint8)
        self._released = released

    def parts(self, start: int, sizes: Sequence[int]) -> list[memoryview]:
        """Returns the byte strings of a block.  Errors: ValueError if there is no such block."""
        *starts, size = offsets(sizes)
        if not 0 <= start <= start + size <= self._whole.size:
            raise ValueError(f"there is no block of {size} bytes at {start}")
        block = np.asarray(_Block(self._whole[start : start + size], start, self._released))
        return [block[at : at + length].data for at, length in zip(starts, sizes, strict=True)]


class _Block:
    """The owner object of all arrays over a block; finalized when the last of them is dropped."""

    def __init__(self, data: Any, start: int, released: Callable[[int], None]) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data, self._start, self._released = data, start, released

    def __del__(self) -> None:
        self._released(self._start)
