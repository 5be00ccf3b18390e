"""Packed weights, shared by all programs of the process that pack the same constant the same way."""

from __future__ import annotations

import mmap
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from mgx_core.argument import Array

from .native_library import native

__all__ = ["Contiguous", "Packed", "contiguous", "forget_pages", "pack"]


class Packed:
    """A constant in the layout that a primitive chose; keeps the constant alive, so that its address names it."""

    __slots__ = ("__weakref__", "array", "native", "source")

    def __init__(self, made: Any, source: Array) -> None:
        self.native = made
        self.array: Array = np.frombuffer(made, np.uint8)  # on the same memory
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
        forget_pages(array)
    return found


def forget_pages(array: Array) -> None:
    """Let go of the memory behind an array that is a window on a file: read again, it comes from the file once more."""
    base: Any = array
    while isinstance(base, (np.ndarray, memoryview)):
        base = base.obj if isinstance(base, memoryview) else base.base
    if not isinstance(base, mmap.mmap) or not array.flags.c_contiguous:
        return
    start = int(array.__array_interface__["data"][0]) - int(
        np.frombuffer(base, np.uint8).__array_interface__["data"][0]
    )
    first = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE
    length = (start + array.nbytes) // mmap.PAGESIZE * mmap.PAGESIZE - first
    # pages that somebody wrote to would be lost, so only maps that nobody can write to
    if length > 0 and not np.frombuffer(base, np.uint8).flags.writeable:
        base.madvise(mmap.MADV_DONTNEED, first, length)


class Contiguous:
    """A row-major copy of a constant that lies otherwise; keeps the constant alive, so that its address names it."""

    __slots__ = ("__weakref__", "array", "source")

    def __init__(self, source: Array) -> None:
        self.source = source
        self.array = source.copy(order="C")


_copies: WeakValueDictionary[Any, Contiguous] = WeakValueDictionary()


def contiguous(array: Array) -> Contiguous:
    """The copy of a constant, shared by all programs that need it."""
    key = (array.__array_interface__["data"][0], str(array.dtype), array.shape, array.strides)
    found = _copies.get(key)
    if found is None:
        found = _copies[key] = Contiguous(array)
    return found
