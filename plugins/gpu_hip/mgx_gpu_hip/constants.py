"""Constants of a program: converted to the layouts kernels need and uploaded once, then shared by all instances."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from weakref import WeakValueDictionary

from mgx_core.cache import Held
from mgx_core.types.argument import Array

from .runtime import Device, DeviceBuffer

__all__ = ["Constants", "Derived"]

ALIGNMENT = 256  # of constants on the device


class Derived:
    """An array computed from a constant.  It keeps its source alive, because the source's address is part of the cache key."""

    __slots__ = ("__weakref__", "array", "owner", "source")

    def __init__(self, array: Array, source: Array, owner: object) -> None:
        self.array = array
        self.source = source
        self.owner = owner


class Constants:
    """Cache of derived arrays and device copies, keyed by address; entries are dropped with their last user."""

    def __init__(self) -> None:
        self._derived: WeakValueDictionary[Hashable, Derived] = WeakValueDictionary()
        self._uploaded: WeakValueDictionary[Hashable, DeviceBuffer] = WeakValueDictionary()

    def derived(self, source: Array, how: Hashable, make: Callable[[], Array], owner: object = None) -> Derived:
        """Returns the array that `make` computes, cached by source and `how`.  The cache holds it weakly: the caller keeps it.

        owner: object that keeps `source` alive; a `Derived` keeps the cache entry it came from alive in turn.
        """
        key = (_place(source), how)
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = Derived(make(), source, owner)
        return found

    def uploaded(self, arrays: Sequence[Array], device: Device) -> list[DeviceBuffer]:
        """Returns contiguous arrays in device memory; those not yet uploaded share one allocation."""
        keys = [(_place(array), str(device)) for array in arrays]
        found: dict[Hashable, DeviceBuffer | None] = {key: self._uploaded.get(key) for key in keys}
        missing = {key: array for key, array in zip(keys, arrays, strict=True) if found[key] is None}
        sizes = [-(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT for array in missing.values()]
        block = device.allocate(sum(sizes))
        stream, offset = device.default_stream, 0
        for (key, array), size in zip(missing.items(), sizes, strict=True):
            part = block.part(offset, max(array.nbytes, 1))
            part.owner = block, array  # keeps the array alive: the key is its address
            if array.size:
                stream.copy_in(part.address, array)
            self._uploaded[key] = part
            found[key] = part
            offset += size
        if missing:
            stream.wait()
        return [held for key in keys if (held := found[key]) is not None]

    def held(self) -> dict[str, Held]:
        """Returns host memory used by converted arrays, and device memory used by constants."""
        derived, uploaded = list(self._derived.values()), list(self._uploaded.values())
        return {
            "derived constants": Held(len(derived), sum(d.array.nbytes for d in derived)),
            "device constants": Held(len(uploaded), sum(b.size for b in uploaded)),
        }


def _place(array: Array) -> Hashable:
    return array.__array_interface__["data"][0] if array.size else id(array), array.dtype, array.shape
