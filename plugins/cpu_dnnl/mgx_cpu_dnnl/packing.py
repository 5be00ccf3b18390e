"""Packed weights, shared by all programs of the process that pack the same constant the same way."""

from __future__ import annotations

from typing import Any
from weakref import WeakValueDictionary

from mgx_core.argument import Array

from .native_library import native

__all__ = ["Packed", "pack"]


class Packed:
    """A constant in the layout that a primitive chose; keeps the constant alive, so that its address names it."""

    __slots__ = ("__weakref__", "native", "source")

    def __init__(self, made: Any, source: Array) -> None:
        self.native = made
        self.source = source

    @property
    def address(self) -> int:
        return int(self.native.address)

    @property
    def nbytes(self) -> int:
        return int(self.native.nbytes)


_shared: WeakValueDictionary[Any, Packed] = WeakValueDictionary()


def pack(array: Array, offset: int, plain: Any, wanted: Any) -> Packed:
    """The constant at `offset` bytes of an array, laid out by `plain`, as `wanted`."""
    address = array.__array_interface__["data"][0] + offset
    key = (address, plain, wanted)
    found = _shared.get(key)
    if found is None:
        found = _shared[key] = Packed(native().pack(address, plain, wanted), array)
    return found
