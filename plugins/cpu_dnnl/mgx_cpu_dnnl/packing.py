"""Packed weights, shared by all programs of the process that pack the same constant the same way."""

from __future__ import annotations

import mmap
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from mgx_core import Instruction
from mgx_core.argument import Array
from mgx_core.kernel import op_of
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.control import Group
from mgx_core.ops.linear import Dot

from .native_library import native

__all__ = [
    "Contiguous",
    "Packed",
    "aligned",
    "contiguous",
    "forget_pages",
    "is_bfloat16",
    "is_multiplied",
    "pack",
    "pack_as_bfloat16",
]


class Packed:
    """A constant in the layout that a primitive chose; keeps the constant alive, so that its address names it."""

    __slots__ = ("__weakref__", "array", "source")

    def __init__(self, array: Array, source: Array) -> None:
        self.array = array
        self.source = source

    @property
    def address(self) -> int:
        return int(self.array.__array_interface__["data"][0])

    @property
    def nbytes(self) -> int:
        return self.array.nbytes


_shared: WeakValueDictionary[Any, Packed] = WeakValueDictionary()


def pack(array: Array, offset: int, plain: Any, wanted: Any) -> Packed:
    """The constant at `offset` bytes of an array, laid out by `plain`, as `wanted`."""
    address = array.__array_interface__["data"][0] + offset
    key = (address, plain, wanted)
    found = _shared.get(key)
    if found is None:
        made = np.frombuffer(native().pack(address, plain, wanted), np.uint8)  # keeps what it is a window on
        found = _shared[key] = Packed(made, array)
        forget_pages(array)
    return found


def pack_as_bfloat16(array: Array, offset: int, plain: Any, wanted: Any) -> Packed:
    """The bfloat16 numbers, held as such or in float32, that begin at element `offset` of an array, as `wanted` in bfloat16.

    plain, wanted: layouts of float32, which oneDNN reorders many times faster than 16 bits.
    """
    key = (array.__array_interface__["data"][0] + offset * array.itemsize, plain, wanted, "bfloat16")
    found = _shared.get(key)
    if found is None:
        wide = array.astype(np.float32, copy=False)
        made = native().pack(wide.__array_interface__["data"][0] + 4 * offset, plain, wanted)
        found = _shared[key] = Packed(aligned(np.frombuffer(made, np.uint16)[1::2]), array)
        forget_pages(array)
    return found


def aligned(given: Array) -> Array:
    """A row-major copy that begins where a cache line begins, so that no vector crosses one."""
    room = np.empty(given.nbytes + 64, np.uint8)
    skipped = -room.__array_interface__["data"][0] % 64
    made = room[skipped : skipped + given.nbytes].view(given.dtype).reshape(given.shape)
    made[...] = given
    return made


def is_bfloat16(array: Array) -> bool:
    """Whether every number of a float32 array is one of bfloat16, too."""
    words = array.reshape(-1).view(np.uint32)
    return not any(int(np.bitwise_or.reduce(part)) & 0xFFFF for part in (words[:1024], words[1024:]))


def forget_pages(array: Array) -> None:
    """Let go of the memory behind an array that is a window on a file: read again, it comes from the file once more."""
    base: Any = array
    while not isinstance(base, mmap.mmap):  # arrays, memory views, and what numpy puts between them
        base = base.obj if isinstance(base, memoryview) else getattr(base, "base", None)
        if base is None:
            return
    file = np.frombuffer(base, np.uint8)
    start = int(file.__array_interface__["data"][0])
    first, end = (int(at) - start for at in np.lib.array_utils.byte_bounds(array))
    first = -(-first // mmap.PAGESIZE) * mmap.PAGESIZE
    length = end // mmap.PAGESIZE * mmap.PAGESIZE - first
    # pages that somebody wrote to would be lost, so only maps that nobody can write to
    if length > 0 and not file.flags.writeable:
        base.madvise(mmap.MADV_DONTNEED, first, length)


class Contiguous:
    """A row-major copy of a constant that lies otherwise; keeps the constant alive, so that its address names it."""

    __slots__ = ("__weakref__", "array", "source")

    def __init__(self, source: Array) -> None:
        self.source = source
        self.array = source.copy(order="C")
        forget_pages(source)


_copies: WeakValueDictionary[Any, Contiguous] = WeakValueDictionary()


def contiguous(array: Array) -> Contiguous:
    """The copy of a constant, shared by all programs that need it."""
    key = (array.__array_interface__["data"][0], str(array.dtype), array.shape, array.strides)
    found = _copies.get(key)
    if found is None:
        found = _copies[key] = Contiguous(array)
    return found


def is_multiplied(ins: Instruction) -> bool:
    """Whether nothing reads a constant, repeated or not, but products as their right operand: they pack it however it lies."""
    for user in ins.users:
        op = op_of(user)
        (at, *more) = (n for n, i in enumerate(user.inputs) if i is ins)
        if isinstance(op, Multibroadcast):
            good = is_multiplied(user)
        elif isinstance(op, Group) and op.tag == "dot" and not more:
            good = is_multiplied(list(user.modules[0].parameters.values())[at])
        else:
            good = isinstance(op, Dot) and at == 1 and not more
        if not good:
            return False
    return True
