"""The literal section: tensors in their memory layout, little-endian, each aligned to 64 bytes."""

from __future__ import annotations

import math
import sys
import zlib
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from ..errors import StoreError
from ..types import dtype as dt
from ..types.argument import Array, Value
from ..types.mapped import forget_pages, mapped
from .codec import dtype_named

__all__ = ["ALIGNMENT", "LiteralReader", "LiteralWriter", "Sources", "aligned"]

ALIGNMENT: Final = 64
COMPARED: Final = 1 << 18  # chunk size in bytes for comparisons


def aligned(offset: int) -> int:
    """Returns the next offset that is aligned for a literal."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


class Sources:
    """Memory-mapped files that readers have too.  A place is an offset into their concatenation."""

    def __init__(self, *files: Array) -> None:
        self.files = files

    def place(self, array: Array, raw: Array) -> tuple[int, int | None]:
        """Returns the checksum of an array's bytes, and their place in the mapped file.

        The place is None if the array is not mapped from one of the files, or if the bytes differ there.
        """
        found = mapped(array) if array.flags.c_contiguous else None
        start = 0
        for file in self.files:
            if found is not None and found.bytes.size == file.size:
                checksum, same = _compared(raw, file[found.first : found.end])
                if same:
                    return checksum, start + found.first
            start += file.size
        return zlib.crc32(raw), None

    def at(self, place: int, size: int) -> Array | None:
        """Returns `size` bytes at a place; None if they are not inside one file."""
        for file in self.files:
            if 0 <= place <= file.size - size:
                return file[place : place + size]
            place -= file.size
        return None


class LiteralWriter:
    """Collects literals; arrays that literals share are stored once.

    source: files that readers have too; arrays stored in them are referenced by place instead of copied.
    """

    def __init__(self, source: Sources | None = None) -> None:
        # element type, extents, offset in the section (or -1 - place in the sources), bytes, crc32
        self.table: list[list[Any]] = []
        self.source = source
        self.arrays: list[Array] = []
        self.bytes = 0
        self._known: dict[Any, int] = {}

    def value(self, value: Value) -> Any:
        """Returns a value as plain data; tensors as an index into the table, strings inline."""
        if isinstance(value, np.ndarray):
            if value.dtype == object:
                return {"strings": [_string(v) for v in value.reshape(-1).tolist()], "dims": list(value.shape)}
            return self.array(value)
        if isinstance(value, tuple):
            return {"tuple": [self.value(v) for v in value]}
        if isinstance(value, list):
            return {"list": [self.value(v) for v in value]}
        if value is None:
            return None
        raise StoreError(f"a literal of type {type(value).__name__} cannot be stored")

    @property
    def brief(self) -> bool:
        """True if readers have the source files, so that constants are mostly references."""
        return self.source is not None

    def __call__(self, array: Array, /) -> int:
        return self.array(array)

    def array(self, array: Array) -> int:
        """Returns the index of a tensor, which is stored once."""
        key = array.__array_interface__["data"][0], array.dtype, array.shape, array.strides
        index = self._known.get(key)
        if index is None:
            dtype = dt.of(array.dtype)
            raw = _raw(array)
            checksum, there = (zlib.crc32(raw), None) if self.source is None else self.source.place(array, raw)
            if there is not None:
                self.table.append([dtype.name, list(array.shape), -1 - there, raw.size, checksum])
            else:
                offset = aligned(self.bytes)
                self.table.append([dtype.name, list(array.shape), offset, raw.size, checksum])
                self.bytes = offset + raw.size
            self.arrays.append(array)
            index = self._known[key] = len(self.table) - 1
        return index

    def chunks(self) -> Iterator[Any]:
        """Yields the section in chunks, without copying it as a whole."""
        at = 0
        for (_, _, offset, size, _), array in zip(self.table, self.arrays, strict=True):
            if offset < 0:
                continue
            yield bytes(offset - at)
            yield _raw(array).data
            at = offset + size


class LiteralReader:
    """Returns literals as read-only views of a section or of the writer's source files."""

    def __init__(self, table: Any, section: Array, check: bool, source: Sources | None = None) -> None:
        self.source = source
        self.table = list(table)
        self.section = section
        self.check = check
        self._known: dict[int, Array] = {}

    def value(self, plain: Any) -> Value:
        if plain is None:
            return None
        if isinstance(plain, int):
            return self.array(plain)
        if "tuple" in plain:
            return tuple(self.value(p) for p in plain["tuple"])
        if "list" in plain:
            return [self.value(p) for p in plain["list"]]
        strings = np.empty(len(plain["strings"]), object)
        strings[:] = plain["strings"]
        return strings.reshape(plain["dims"])

    def array(self, index: int) -> Array:
        """Returns a tensor by index, as a read-only view.  Errors: StoreError."""
        if index in self._known:
            return self._known[index]
        if not 0 <= index < len(self.table):
            raise StoreError(f"literal {index} does not exist, the file has {len(self.table)}")
        name, dims, offset, size, crc = self.table[index]
        dtype = dtype_named(name)
        if not all(type(d) is int for d in dims):  # a product with bytes would repeat them
            raise StoreError(f"literal {index}: its extents must be integers, got {dims!r}")
        wanted = math.prod(dims) * dtype.size
        if any(d < 0 for d in dims) or size != wanted or dtype.kind == "s":
            raise StoreError(f"literal {index}: {dtype}{list(dims)} has {wanted} bytes, the file states {size}")
        there = None if self.source is None or offset >= 0 else self.source.at(-1 - offset, size)
        if there is not None:
            raw = there
        elif offset < 0 or offset % ALIGNMENT or offset + size > self.section.size:
            raise StoreError(
                f"literal {index}: bytes {offset} to {offset + size} exceed the section of {self.section.size}"
            )
        else:
            raw = self.section[offset : offset + size]
        if self.check and zlib.crc32(raw) != crc:
            raise StoreError(f"literal {index} ({dtype}{list(dims)}) is damaged: its checksum differs")
        array: Array = raw.view(dtype.numpy).reshape(dims) if size else np.empty(dims, dtype.numpy)
        if sys.byteorder == "big":
            array = array.byteswap()
        array.flags.writeable = False
        self._known[index] = array
        return array


def _compared(raw: Array, there: Array) -> tuple[int, bool]:
    """Returns the checksum of bytes, and whether they equal those of a mapped file, whose pages are released."""
    checksum, same = 0, True
    for at in range(0, raw.size, COMPARED):  # the bytes are still in the CPU cache after the checksum
        part = raw[at : at + COMPARED]
        checksum = zlib.crc32(part, checksum)
        same = same and np.array_equal(part, there[at : at + COMPARED])
    for read in (raw, there):  # compiled programs have their own copies of large literals
        forget_pages(read)
    return checksum, same


def _raw(array: Array) -> Array:
    """Returns the elements' bytes in row-major order, little-endian."""
    dense = np.ascontiguousarray(array)
    if sys.byteorder == "big":
        dense = dense.byteswap()
    return dense.reshape(-1).view(np.uint8)


def _string(value: Any) -> str | bytes:
    if not isinstance(value, (str, bytes)):
        raise StoreError(f"a string literal contains a {type(value).__name__}, which cannot be stored")
    return value
