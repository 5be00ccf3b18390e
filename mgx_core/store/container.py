"""The container format of program files: header, metadata and literal section, with their checks.

A file is a header of 64 bytes, the metadata in msgpack, and from the next multiple of 64 bytes on the literal section, in which
each literal starts at a multiple of 64 bytes, so that a file can be memory-mapped.  The JSON form holds the same metadata and
the section in base64.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import msgpack
import numpy as np

from ..errors import StoreError
from ..hashing import blake2b
from ..named_tuples import NamedTuple
from ..types.argument import Array
from .literals import LiteralWriter, aligned
from .migrations import FORMAT

__all__ = ["Stored", "is_program", "json_chunks", "msgpack_chunks", "pack", "read_bytes", "read_file", "unpack"]

MAGIC: Final = b"\x89MXR\r\n\x1a\n"

# magic, format, 0, metadata bytes, section offset, section bytes, digest
_HEADER: Final = struct.Struct("<8sIIQQQ16s8x")


class Stored(NamedTuple):
    """The content of a file of some format; check: literals' checksums are still to be verified."""

    format: int
    metadata: Any
    section: Array
    check: bool


def msgpack_chunks(metadata: Any, literals: LiteralWriter) -> Iterator[Any]:
    """Yields the file in chunks."""
    packed = pack(metadata)
    start = aligned(_HEADER.size + len(packed))
    yield _HEADER.pack(MAGIC, FORMAT, 0, len(packed), start, literals.bytes, _digest(packed))
    yield packed
    yield bytes(start - _HEADER.size - len(packed))
    yield from literals.chunks()


def pack(metadata: Any) -> bytes:
    """Returns metadata in msgpack; the main module is packed separately, and readers that run compiled code skip it.

    metadata: the main module may be packed already.
    Errors: StoreError for numbers of more than 64 bits.
    """
    try:
        if not isinstance(metadata.get("main", b""), bytes):
            metadata = {**metadata, "main": _packed(metadata["main"])}
        return _packed(metadata)
    except (OverflowError, ValueError) as error:
        raise StoreError(f"the program has a value that cannot be stored: {error}") from None


def _packed(value: Any) -> bytes:
    return bytes(msgpack.packb(value, use_bin_type=True, unicode_errors="surrogatepass"))


def unpack(packed: bytes) -> Any:
    """Decodes what `pack` returned; the main module remains bytes, for another call.  Errors: StoreError if it is damaged."""
    try:
        return msgpack.unpackb(packed, raw=False, unicode_errors="surrogatepass")
    except (ValueError, msgpack.UnpackException) as error:
        raise StoreError(f"the file's metadata is damaged: {error}") from error


def json_chunks(metadata: Any, literals: LiteralWriter) -> Iterator[bytes]:
    """Yields the JSON form; after editing a file manually, its digest must be deleted."""
    import base64
    import json

    section = base64.b64encode(b"".join(map(bytes, literals.chunks()))).decode()
    text = _json(metadata)
    yield json.dumps({"mxr": FORMAT, "digest": _digest(text.encode()).hex()})[:-1].encode()
    yield f', "program": {text}, "literals": "{section}"}}\n'.encode()


def _json(metadata: Any) -> str:
    import json

    return json.dumps(metadata, default=_json_bytes, allow_nan=False, separators=(",", ":"))


def _json_bytes(value: Any) -> Any:
    if isinstance(value, bytes):
        return {"bytes": value.hex()}
    raise StoreError(f"a value of type {type(value).__name__} cannot be stored")


def _from_json(value: dict[str, Any]) -> Any:
    return bytes.fromhex(value["bytes"]) if list(value) == ["bytes"] and isinstance(value["bytes"], str) else value


def _digest(data: bytes) -> bytes:
    return blake2b(data, 16)


# reading


def read_file(path: Path, check: bool) -> Stored:
    """Returns a file's metadata and its section, memory-mapped read-only.  Errors: StoreError."""
    try:
        with path.open("rb") as file:
            head = file.read(_HEADER.size)
            state = os.fstat(file.fileno())
            size = state.st_size
            if not head.startswith(MAGIC) or stat.S_ISFIFO(state.st_mode):  # a pipe cannot be mapped
                known = (
                    head.startswith((MAGIC, b"{")) or head[:1].isspace()
                )  # of any other file, the first bytes suffice
                return read_bytes(head + file.read() if known else head, check)
            length, start, section = _parse_header(head, size)
            packed = file.read(length)
            mapped = np.memmap(file, np.uint8, "r", start, (section,)) if section else np.empty(0, np.uint8)
    except OSError as error:
        raise StoreError(f"cannot be read: {error.strerror or error}") from error
    return Stored(_HEADER.unpack(head)[1], _unpack(head, packed), np.asarray(mapped), check)


def read_bytes(data: bytes, check: bool = True) -> Stored:
    """As `read_file`, from memory; the section is a view of `data`."""
    if data[:1].isspace() or data[:1] == b"{":
        return _read_json(data)
    head = data[: _HEADER.size]
    length, start, section = _parse_header(head, len(data))
    raw = np.frombuffer(data, np.uint8)[start : start + section]
    return Stored(_HEADER.unpack(head)[1], _unpack(head, data[_HEADER.size : _HEADER.size + length]), raw, check)


def is_program(head: bytes) -> bool:
    """Returns True if the first 64 or more bytes of a file are those of a program file in either format."""
    return head.startswith(MAGIC) or head.lstrip().startswith(b'{"mxr"')


def _parse_header(head: bytes, size: int) -> tuple[int, int, int]:
    """Returns metadata bytes, section offset and section bytes, which add up to the file's size."""
    if not head:
        raise StoreError("the file is empty")
    if not head.startswith(MAGIC[: len(head)]):
        raise StoreError(
            "this is not an mgx program file: it starts with neither the signature nor JSON; parse reads models"
        )
    if len(head) < _HEADER.size:
        raise StoreError(f"the file is truncated: the header has {_HEADER.size} bytes, the file {len(head)}")
    _, number, _, length, start, section, _ = _HEADER.unpack(head)
    _check_format(number)
    if start < aligned(_HEADER.size + length) or start != aligned(start):
        raise StoreError(f"the header is damaged: {length} bytes of metadata before offset {start}")
    wanted = start + section if section else max(start, _HEADER.size + length)
    if wanted > size:
        raise StoreError(f"the file is truncated: it should have {wanted} bytes and has {size}")
    if wanted < size:
        raise StoreError(f"the file is damaged: it should have {wanted} bytes and has {size}")
    return length, start, section


def _check_format(number: Any) -> None:
    if not isinstance(number, int) or number < 1:
        raise StoreError(f"the file is damaged: its format number is {number!r}")
    if number > FORMAT:
        raise StoreError(f"the file has format {number}, written by a newer mgx; this one reads up to format {FORMAT}")


def _unpack(head: bytes, packed: bytes) -> Any:
    if _digest(packed) != _HEADER.unpack(head)[6]:
        raise StoreError("the file is damaged: the checksum of its metadata differs")
    return unpack(packed)


def _read_json(data: bytes) -> Stored:
    import base64
    import json

    try:
        whole = json.loads(data, object_hook=_from_json)
        if not isinstance(whole, dict) or "mxr" not in whole:
            raise StoreError("this is not an mgx program file: it is JSON without the key 'mxr'; parse reads models")
        _check_format(whole["mxr"])
        stated = whole.get("digest")
        if stated is not None and stated != _digest(_json(whole["program"]).encode()).hex():
            raise StoreError(
                "the file is damaged: the checksum of its program differs (after manual edits, delete 'digest')"
            )
        section = np.frombuffer(base64.b64decode(whole["literals"], validate=True), np.uint8)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, StoreError):
            raise
        raise StoreError(f"the file is damaged or truncated JSON: {type(error).__name__}: {error}") from error
    return Stored(whole["mxr"], whole["program"], section, True)
