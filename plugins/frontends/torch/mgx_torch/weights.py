"""Weights lent to programs: on torch's memory, or as a copy where that was written to since another program took it."""

from __future__ import annotations

import threading
import weakref
from functools import cache
from typing import Any

import torch

from mgx_core.types.argument import Array

from .tensors import borrowed, host_array

__all__ = ["Seal", "lent"]


class Seal:
    """A mark of a weight's contents: torch's count of writes, and a few elements.

    The elements tell of most writes that torch does not count: through `.data`, or through memory that is shared.  Such a write
    that leaves all of them as they were is not seen; write with torch's own functions, or set the option `freeze` to False.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.address = weight.data_ptr()
        self.version = weight._version
        self._view: Array | None = None
        self._seen = b""
        if weight.device.type == "cpu" and weight.numel():
            flat = host_array(weight.detach())
            if flat.flags.c_contiguous:
                flat = flat.reshape(-1)
                self._view = flat[:: max(1, flat.size // 8)][:8]
            else:
                self._view = flat[tuple(slice(0, 2) for _ in range(flat.ndim))]
            self._seen = self._view.tobytes()

    def holds(self, weight: torch.Tensor) -> bool:
        """True if the weight at this address is still what it was."""
        if weight._version != self.version:
            return False
        return self._view is None or self._view.tobytes() == self._seen


class Lender:
    """Which memory is lent to programs that live, and in what state it was."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._there: dict[int, tuple[Any, Seal]] = {}

    def lend(self, weight: torch.Tensor, name: str) -> Array:
        """Targets share what they pack by address: memory that was written to since would bring back its old contents."""
        with self._lock:
            found = self._there.get(weight.data_ptr())
            if found is not None and found[0]() is not None and not found[1].holds(weight):
                return borrowed(weight.detach().clone(), name)
            array: Array = borrowed(weight, name)
            if weight.device.type == "cpu" and (found is None or found[0]() is None):
                self._there = {k: v for k, v in self._there.items() if v[0]() is not None}
                self._there[weight.data_ptr()] = (weakref.ref(array), Seal(weight))
            return array


@cache
def _lender() -> Lender:
    return Lender()


def lent(weight: torch.Tensor, name: str) -> Array:
    """A weight as an array that a program may keep.  Errors: UnsupportedError for tensors that hold no plain numbers."""
    return _lender().lend(weight, name)
