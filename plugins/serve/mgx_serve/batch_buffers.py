"""Reusable buffers for the inputs of batches."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import cast

import numpy as np

from .tensors import Array, DeferredInput

__all__ = ["BatchBuffer", "BatchBufferPool", "put"]


class BatchBuffer:
    """The input buffer of one batch at a time.

    memory: allocates uninitialized bytes; rows: maximum rows of a run, for which memory is allocated at once.
    """

    def __init__(self, memory: Callable[[int], Array], rows: int) -> None:
        self._memory, self._rows = memory, rows
        self._held: dict[str, Array] = {}
        self._lock = threading.Lock()

    def array(self, name: str, sample: Array | DeferredInput, rows: int) -> Array:
        """Returns the array for this many rows of an input, with the element type and other extents of one of its values.

        Several threads may request the arrays of one batch.
        """
        lens = (rows, *sample.shape[1:])
        row = math.prod(lens[1:]) * sample.dtype.itemsize
        with self._lock:
            held = self._held.get(name)
            if held is None or held.nbytes < rows * row:
                held = self._held[name] = self._memory(max(rows, self._rows) * row)
        made: Array = held[: rows * row].view(sample.dtype).reshape(lens)
        return made

    def concatenated(self, name: str, values: Sequence[Array | DeferredInput], padding: int) -> Array:
        """Returns an input's values concatenated along the first axis, then `padding` copies of the last row, a valid input.

        The result is valid until the next batch is assembled here.
        """
        given = [v for v in values if v.shape[0]] or list(values)
        first = given[0]
        if first.dtype.hasobject:
            objects = cast("list[Array]", given)  # of which none is in shared memory
            return np.concatenate([*objects, *[objects[-1][-1:]] * padding])
        rows = sum([v.shape[0] for v in given])
        array = self.array(name, first, rows + padding if rows else 0)
        put(given, array)
        if rows < len(array):
            array[rows:] = array[rows - 1]
        return array


def put(values: Sequence[Array | DeferredInput], array: Array) -> None:
    """Concatenates values along the first axis into an array, each copied once.  Errors: BadRequest."""
    arrays = [v for v in values if not isinstance(v, DeferredInput)]
    if len(arrays) == len(values):  # releases the GIL once for all copies
        np.concatenate(arrays, out=array[: sum([v.shape[0] for v in arrays])])
        return
    start = 0
    for value in values:
        end = start + value.shape[0]
        if isinstance(value, DeferredInput):
            value.read_into(array[start:end])
        else:
            array[start:end] = value
        start = end


class BatchBufferPool:
    """A pool of `BatchBuffer`s.  Thread-safe.

    memory, rows: see `BatchBuffer`.  Fresh memory would be mapped and zeroed page by page for each batch.
    """

    def __init__(self, memory: Callable[[int], Array], rows: int) -> None:
        self._memory, self._rows = memory, rows
        self._idle: list[BatchBuffer] = []

    def take(self) -> BatchBuffer:
        try:
            return self._idle.pop()
        except IndexError:
            return BatchBuffer(self._memory, self._rows)

    def give_back(self, buffer: BatchBuffer) -> None:
        """Returns a buffer to the pool; nothing may read its contents any more."""
        self._idle.append(buffer)
