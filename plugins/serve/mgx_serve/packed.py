"""Bodies of requests that were compressed on their way."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Self

from .errors import BadRequest

__all__ = ["Packed"]

EITHER: Final = zlib.MAX_WBITS | 32  # gzip or zlib, as the head of the data says
GZIP: Final = b"\x1f"  # the first byte of its members, and of no data of zlib
ENCODINGS: Final = ("gzip", "x-gzip", "deflate")
PART: Final = 1 << 20  # bytes that are unpacked at a time, so that whoever counts them can stop


class Packed:
    """One body of the encoding ``gzip`` or ``deflate``, which comes in pieces.  Errors: BadRequest for what is no such data.

    gzip's data may have several members one behind the other (RFC 1952): they unpack to what each of them does.
    """

    def __init__(self) -> None:
        self._unpacker, self._first = zlib.decompressobj(EITHER), b""

    @classmethod
    def of(cls, encoding: str) -> Self | None:
        """Returns None for a body that is not compressed.  Errors: BadRequest for other encodings."""
        given = encoding.strip().lower()
        if given == "identity":
            return None
        if given not in ENCODINGS:
            raise BadRequest(f"Content-Encoding must be identity, gzip or deflate, got {encoding!r}")
        return cls()

    def parts(self, piece: bytes) -> Iterator[bytes]:
        """Returns what a piece unpacks to, `PART` bytes at most at a time."""
        made = 0
        self._first = self._first or piece[:1]
        while piece or made == PART:  # a full part may have more behind it that needs no more of the piece
            if self._unpacker.eof:
                if not piece:
                    return
                if self._first != GZIP or not piece.startswith(GZIP):
                    raise BadRequest("the body has more bytes than its compressed data")
                self._unpacker = zlib.decompressobj(EITHER)
            try:
                part = self._unpacker.decompress(piece, PART)
            except zlib.error as error:
                raise BadRequest(f"the body is not what its Content-Encoding says: {error}") from None
            piece, made = self._unpacker.unconsumed_tail or self._unpacker.unused_data, len(part)
            yield part

    def require_end(self) -> None:
        if not self._unpacker.eof:
            raise BadRequest("the body ends before its compressed data does")
