"""Constants of a program, laid out for kernels once and uploaded once, for all sets of shapes that are in use."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from weakref import WeakValueDictionary

import numpy as np

from mgx_core.argument import Array

from .runtime import Device, DeviceBuffer

__all__ = ["Constants", "Derived"]


class Derived:
    """An array made from another, which must not go away as long: its address stands for it."""

    __slots__ = ("__weakref__", "array", "source")

    def __init__(self, array: Array, source: Array) -> None:
        self.array = array
        self.source = source


class Constants:
    """Arrays are known by their addresses; what nobody uses any more is forgotten."""

    def __init__(self) -> None:
        self._derived: WeakValueDictionary[Hashable, Derived] = WeakValueDictionary()
        self._uploaded: WeakValueDictionary[Hashable, DeviceBuffer] = WeakValueDictionary()

    def derived(self, source: Array, how: Hashable, make: Callable[[], Array]) -> Derived:
        """What `make` gives, made once for a source and a way.  The caller keeps it."""
        key = (_place(source), how)
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = Derived(make(), source)
        return found

    def uploaded(self, array: Array, device: Device) -> DeviceBuffer:
        """The bytes of a contiguous array in device memory."""
        key = (_place(array), str(device))
        found = self._uploaded.get(key)
        if found is None:
            found = device.upload(array.reshape(-1).view(np.uint8) if array.size else np.zeros(16, np.uint8))
            found.owner = array
            self._uploaded[key] = found
        return found


def _place(array: Array) -> Hashable:
    return array.__array_interface__["data"][0] if array.size else id(array), str(array.dtype), array.shape
