"""A first-fit block allocator."""

from __future__ import annotations

import bisect
from typing import Final

__all__ = ["ALIGNMENT", "BlockAllocator"]

ALIGNMENT: Final = 64


class BlockAllocator:
    """Allocates blocks from `size` bytes, at the lowest free offset."""

    def __init__(self, size: int) -> None:
        self._free = [(0, size)]  # (offset, size) of free ranges, sorted and coalesced
        self._lent: dict[int, int] = {}

    def allocate(self, size: int) -> int | None:
        """Allocates a block of `size` bytes, a multiple of `ALIGNMENT`; returns its offset, None if there is no room."""
        number = next((n for n, (_, room) in enumerate(self._free) if room >= size), None)
        if number is None:
            return None
        start, room = self._free[number]
        self._free[number : number + 1] = [(start + size, room - size)] if room > size else []
        self._lent[start] = size
        return start

    def free(self, start: int) -> None:
        """Frees a block.  Errors: KeyError if no allocated block starts there."""
        size = self._lent.pop(start)
        number = bisect.bisect(self._free, (start, 0))
        if number < len(self._free) and self._free[number][0] == start + size:
            size += self._free.pop(number)[1]
        if number and sum(self._free[number - 1]) == start:
            number -= 1
            before, room = self._free.pop(number)
            start, size = before, room + size
        self._free.insert(number, (start, size))
