"""Content encodings of request bodies: gzip and deflate."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Final, Self

from .errors import BadRequest

__all__ = ["Decompressor"]

EITHER: Final = zlib.MAX_WBITS | 32  # gzip or zlib, detected from the header
GZIP: Final = b"\x1f"  # first byte of a gzip member; zlib data never starts with it
ENCODINGS: Final = ("gzip", "x-gzip", "deflate")
PART: Final = 1 << 20  # output bytes per step, so that the caller can enforce limits


class Decompressor:
    """Decompresses one body incrementally.  Errors: BadRequest for invalid data.

    gzip data may consist of several concatenated members (RFC 1952).
    """

    def __init__(self) -> None:
        self._unpacker, self._first = zlib.decompressobj(EITHER), b""

    @classmethod
    def of(cls, encoding: str) -> Self | None:
        """Returns a decompressor, None if the body is not compressed.  Errors: BadRequest for other encodings."""
        given = encoding.strip().lower()
        if given == "identity":
            return None
        if given not in ENCODINGS:
            raise BadRequest(f"Content-Encoding must be identity, gzip or deflate, got {encoding!r}")
        return cls()

    def parts(self, piece: bytes) -> Iterator[bytes]:
        """Decompresses a piece; yields at most `PART` bytes at a time."""
        made = 0
        self._first = self._first or piece[:1]
        while piece or made == PART:  # a full part may be followed by buffered output that needs no more input
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
