"""Constants of a program, laid out for kernels once and uploaded once, for all sets of shapes that are in use."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from weakref import WeakValueDictionary

from mgx_core.cache import Held
from mgx_core.types.argument import Array

from .runtime import Device, DeviceBuffer

__all__ = ["Constants", "Derived"]

ALIGNMENT = 256  # of constants on the device


class Derived:
    """An array made from another, which must not go away as long, nor what keeps that alive: its address stands for it."""

    __slots__ = ("__weakref__", "array", "owner", "source")

    def __init__(self, array: Array, source: Array, owner: object) -> None:
        self.array = array
        self.source = source
        self.owner = owner


class Constants:
    """Arrays are identified by their addresses; entries without users are dropped."""

    def __init__(self) -> None:
        self._derived: WeakValueDictionary[Hashable, Derived] = WeakValueDictionary()
        self._uploaded: WeakValueDictionary[Hashable, DeviceBuffer] = WeakValueDictionary()

    def derived(self, source: Array, how: Hashable, make: Callable[[], Array], owner: object = None) -> Derived:
        """Returns what `make` gives, made once for a source and a way.  The caller keeps it.

        owner: keeps the source; where that was derived itself, it is found again as long as this is held.
        """
        key = (_place(source), how)
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = Derived(make(), source, owner)
        return found

    def uploaded(self, arrays: Sequence[Array], device: Device) -> list[DeviceBuffer]:
        """Returns the bytes of contiguous arrays in device memory; those that are not there yet go into one block."""
        keys = [(_place(array), str(device)) for array in arrays]
        found: dict[Hashable, DeviceBuffer | None] = {key: self._uploaded.get(key) for key in keys}
        missing = {key: array for key, array in zip(keys, arrays, strict=True) if found[key] is None}
        sizes = [-(-max(array.nbytes, 1) // ALIGNMENT) * ALIGNMENT for array in missing.values()]
        block = device.allocate(sum(sizes))
        stream, offset = device.default_stream, 0
        for (key, array), size in zip(missing.items(), sizes, strict=True):
            part = block.part(offset, max(array.nbytes, 1))
            part.owner = block, array  # the address in the key stays the array's as long as the entry lives
            if array.size:
                stream.copy_in(part.address, array)
            self._uploaded[key] = part
            found[key] = part
            offset += size
        if missing:
            stream.wait()
        return [held for key in keys if (held := found[key]) is not None]

    def held(self) -> dict[str, Held]:
        """Returns what arrays in other layouts take in host memory, and what constants take in device memory."""
        derived, uploaded = list(self._derived.values()), list(self._uploaded.values())
        return {
            "derived constants": Held(len(derived), sum(d.array.nbytes for d in derived)),
            "device constants": Held(len(uploaded), sum(b.size for b in uploaded)),
        }


def _place(array: Array) -> Hashable:
    return array.__array_interface__["data"][0] if array.size else id(array), array.dtype, array.shape
