"""Reads checkpoint bundles: a sorted string table as index, and memory-mapped shards of raw data.

Source: TensorFlow's tensor_bundle and LevelDB's table format.
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from google.protobuf.message import DecodeError

from mgx_core import ParseError, UnsupportedError
from mgx_core.types.argument import Array
from mgx_core.types.strings import decoded, encoded

from .checksum import masked_checksum
from .messages import message
from .tensors import dims_of, dtype_of

__all__ = ["Bundle"]

MAGIC: Final = 0xDB4775248B80FB57
FOOTER: Final = 48
MOST_SHARDS: Final = 100_000


class Bundle:
    """The variables of a checkpoint by key, read on demand.

    prefix: path of the files without ``.index``.
    Errors: ParseError for a corrupt index.
    """

    def __init__(self, prefix: str | os.PathLike[str]) -> None:
        self.prefix = Path(prefix)
        index = self.prefix.with_name(self.prefix.name + ".index")
        try:
            data = index.read_bytes()
        except OSError as error:
            raise ParseError(f"variables index {str(index)!r} cannot be read: {error.strerror}") from None
        try:
            self.entries = dict(_entries(data))
        except (DecodeError, IndexError, struct.error) as error:
            raise ParseError(f"variables index {str(index)!r} is damaged: {error}") from None
        except ParseError as error:
            raise error.located(f"variables index {str(index)!r}") from None
        header = _decoded("BundleHeaderProto", self.entries.get(b"", b""))
        if not 0 < header.num_shards < MOST_SHARDS:
            raise ParseError(f"variables index {str(index)!r} has {header.num_shards} shards")
        if header.endianness:
            raise UnsupportedError(f"variables {str(self.prefix)!r} are big-endian, which is not supported")
        self.shards: int = header.num_shards
        self._maps: dict[int, Array] = {}

    def keys(self) -> list[str]:
        """Returns the keys of all tensors, without those of slices."""
        return [decoded(k) for k in self.entries if k and not k.startswith(b"\0")]

    def read(self, key: str) -> Array:
        """Returns the array of a key; an unsliced one is a view of the mapped file.

        Errors: ParseError for an unknown key or missing data.
        """
        entry = self._entry(encoded(key), key)
        if entry.slices:
            return self._joined(key, entry)
        return self._piece(key, entry)

    def _entry(self, stored: bytes, key: str) -> Any:
        data = self.entries.get(stored)
        if data is None or not stored:
            raise ParseError(f"the variables have no entry {key!r}")
        return _decoded("BundleEntryProto", data)

    def _piece(self, key: str, entry: Any) -> Array:
        dims = dims_of(entry.shape)
        if dims is None or -1 in dims:
            raise ParseError(f"entry {key!r} has unknown extents {dims}")
        dtype = dtype_of(entry.dtype)
        if not 0 <= entry.shard_id < self.shards:
            raise ParseError(f"entry {key!r} is in shard {entry.shard_id}, there are {self.shards}")
        shard = self._shard(entry.shard_id)
        if entry.offset < 0 or entry.size < 0 or entry.offset + entry.size > shard.size:
            raise ParseError(
                f"entry {key!r} takes bytes {entry.offset} to {entry.offset + entry.size} of a shard of {shard.size}"
            )
        raw = shard[entry.offset : entry.offset + entry.size]
        count = math.prod(dims)
        if dtype.kind == "s":
            return _strings(raw.tobytes(), count, key).reshape(dims)
        if count * np.dtype(dtype.numpy).itemsize != entry.size:
            raise ParseError(f"entry {key!r} of {dims} {dtype} cannot take {entry.size} bytes")
        return raw.view(dtype.numpy).reshape(dims)

    def _shard(self, number: int) -> Array:
        if number not in self._maps:
            path = self.prefix.with_name(f"{self.prefix.name}.data-{number:05d}-of-{self.shards:05d}")
            try:
                size = path.stat().st_size
                self._maps[number] = np.memmap(path, np.uint8, "r").view(np.ndarray) if size else np.zeros(0, np.uint8)
            except OSError as error:
                raise ParseError(f"shard {str(path)!r} cannot be read: {error.strerror}") from None
        return self._maps[number]

    def _joined(self, key: str, entry: Any) -> Array:
        """Assembles a tensor that was saved in slices."""
        dims = dims_of(entry.shape) or []
        dtype = dtype_of(entry.dtype)
        if -1 in dims or math.prod(dims) * dtype.bits // 8 > 1 << 36:
            raise ParseError(f"entry {key!r} has invalid extents {dims}")
        out: Array | None = None
        covered = np.zeros(dims, np.bool_)
        for part in entry.slices:
            ranges = _ranges(key, part, dims)
            piece = self._piece(key, self._entry(_slice_key(key, part), f"{key} {ranges}"))
            if piece.shape != tuple(stop - start for start, stop in ranges):
                raise ParseError(f"a part of {key!r} at {ranges} has extents {list(piece.shape)}")
            out = np.empty(dims, dtype.numpy) if out is None else out
            place = tuple(slice(*r) for r in ranges)
            if covered[place].any():
                raise ParseError(f"parts of {key!r} overlap at {ranges}")
            out[place], covered[place] = piece, True
        if out is None or not covered.all():
            raise ParseError(f"the parts of {key!r} cover {np.count_nonzero(covered)} of {math.prod(dims)} elements")
        return out

    def check(self, key: str) -> bool:
        """True if the checksum of an entry's data matches; slow, for diagnosis."""
        entry = self._entry(encoded(key), key)
        raw = self._shard(entry.shard_id)[entry.offset : entry.offset + entry.size]
        return masked_checksum(raw.tobytes()) == int(entry.crc32c)


def _ranges(key: str, part: Any, dims: list[int]) -> list[tuple[int, int]]:
    if len(part.extent) != len(dims):
        raise ParseError(f"a part of {key!r} has {len(part.extent)} ranges for rank {len(dims)}")
    found = []
    for extent, dim in zip(part.extent, dims, strict=True):
        start, length = (int(extent.start), int(extent.length)) if extent.HasField("length") else (0, dim)
        if start < 0 or length < 0 or start + length > dim:
            raise ParseError(f"a slice of {key!r} spans {start} to {start + length} of {dim}")
        found.append((start, start + length))
    return found


def _decoded(name: str, data: bytes) -> Any:
    made = message(name)()
    try:
        made.ParseFromString(data)
    except DecodeError as error:
        raise ParseError(f"damaged {name}: {error}") from None
    return made


def _entries(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields keys and values of a table file.  Errors: ParseError."""
    if len(data) < FOOTER or struct.unpack("<Q", data[-8:])[0] != MAGIC:
        raise ParseError("the file is not a table: its last bytes are not the magic number")
    footer = data[-FOOTER:]
    _, at = _handle(footer, 0)
    index, _ = _handle(footer, at)
    for _, value in _block(data, index):
        block, _ = _handle(value, 0)
        yield from _block(data, block)


def _handle(data: bytes, at: int) -> tuple[tuple[int, int], int]:
    offset, at = _varint(data, at)
    size, at = _varint(data, at)
    return (offset, size), at


def _block(data: bytes, handle: tuple[int, int]) -> list[tuple[bytes, bytes]]:
    offset, size = handle
    if offset + size + 5 > len(data):
        raise ParseError(f"a block at {offset} of {size} bytes is outside the file of {len(data)} bytes")
    block = data[offset : offset + size]
    kind, stored = data[offset + size], struct.unpack("<I", data[offset + size + 1 : offset + size + 5])[0]
    if masked_checksum(data[offset : offset + size + 1]) != stored:
        raise ParseError(f"the block at {offset} is damaged: its checksum is wrong")
    if kind:
        raise UnsupportedError("the variables index is compressed (snappy), which TensorFlow does not write")
    if size < 4:
        raise ParseError(f"a block at {offset} has {size} bytes")
    end = size - 4 - 4 * struct.unpack("<I", block[-4:])[0]
    at, key, found = 0, b"", []
    while at < end:
        shared, at = _varint(block, at)
        fresh, at = _varint(block, at)
        length, at = _varint(block, at)
        if shared > len(key) or at + fresh + length > end:
            raise ParseError(f"an entry of the block at {offset} is outside the block")
        key = key[:shared] + block[at : at + fresh]
        at += fresh
        found.append((key, block[at : at + length]))
        at += length
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise ParseError("a number extends past the end of its block")
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7


def _strings(raw: bytes, count: int, key: str) -> Array:
    if count > len(raw):
        raise ParseError(f"entry {key!r} has {count} strings in {len(raw)} bytes")
    lengths, at = [], 0
    for _ in range(count):
        length, at = _varint(raw, at)
        lengths.append(length)
    at += 4  # skips the checksum of the lengths
    if at + sum(lengths) > len(raw):
        raise ParseError(f"the strings of entry {key!r} are outside its data")
    out = np.empty(count, object)
    for n, length in enumerate(lengths):
        out[n] = decoded(raw[at : at + length])
        at += length
    return out


def _slice_key(key: str, part: Any) -> bytes:
    """Returns the key of a slice in TensorFlow's order-preserving encoding: name, rank, and start and length for each axis."""
    code = _ordered_number(0) + _ordered_text(encoded(key)) + _ordered_number(len(part.extent))
    for extent in part.extent:
        whole = not extent.HasField("length")
        code += _ordered_signed(0 if whole else int(extent.start)) + _ordered_signed(
            -1 if whole else int(extent.length)
        )
    return code


def _ordered_number(value: int) -> bytes:
    """Encodes an unsigned integer as its length in bytes and its bytes, most significant first."""
    data = value.to_bytes((value.bit_length() + 7) // 8, "big")
    return bytes([len(data)]) + data


def _ordered_text(data: bytes) -> bytes:
    return data.replace(b"\xff", b"\xff\0").replace(b"\0", b"\0\xff") + b"\0\1"


def _ordered_signed(value: int) -> bytes:
    """Encodes a signed integer such that codes sort like the integers: a unary length, then the bits."""
    magnitude = ~value if value < 0 else value
    length = 1
    while magnitude >= 1 << (7 * length - 1):
        length += 1
    if length > 8:
        raise ParseError(f"a slice key contains the extent {value}")
    header = ((1 << length) - 1) << (8 - length)  # `length` ones, then a zero
    code = (value & ((1 << (8 * length)) - 1)) ^ (header << (8 * (length - 1)))
    return code.to_bytes(length, "big")
