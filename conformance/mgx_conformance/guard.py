"""Input buffers with guard bytes, to detect out-of-bounds writes by kernels."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

__all__ = ["Guarded"]

MARGIN: Final = 256  # guard bytes on each side; a multiple of all vector alignments
PATTERN: Final = 0xA5


class Guarded:
    """A copy of an array in the middle of a larger buffer; arrays of strings are not copied."""

    def __init__(self, array: Any) -> None:
        self.buffer: Any = None
        self.before: Any = None
        if not isinstance(array, np.ndarray) or array.dtype == object:
            self.array = array
            return
        low, space = _span(array)
        self.buffer = np.full(space + 2 * MARGIN + 64, PATTERN, np.uint8)
        start = MARGIN + (-(self.buffer.ctypes.data + MARGIN)) % 64
        self.array = np.ndarray(array.shape, array.dtype, self.buffer, start - low, array.strides)
        if array.size:
            _write(self.array, array)
        self.before = self.buffer.copy()

    def broken(self) -> str:
        """Returns a description of overwritten memory; empty if there is none."""
        if self.buffer is None or np.array_equal(self.buffer, self.before):
            return ""
        changed = np.flatnonzero(self.buffer != self.before)
        offset = int(changed[0]) - (self.array.__array_interface__["data"][0] - self.buffer.ctypes.data)
        return f"{len(changed)} bytes of an input's memory were overwritten, the first {offset} bytes from its first element"


def _span(array: Any) -> tuple[int, int]:
    """Returns the (non-positive) offset of the lowest address from the first element, and the total bytes."""
    if not array.size:
        return 0, 0
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = sum(s for s in steps if s < 0)
    return low, sum(abs(s) for s in steps) + array.itemsize


def _write(to: Any, array: Any) -> None:
    """Copies an array to a view of the same layout; axes of stride 0 are written once."""
    index = tuple(slice(0, 1) if s == 0 else slice(None) for s in array.strides)
    to[index] = array[index]
