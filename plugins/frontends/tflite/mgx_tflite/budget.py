"""A budget for reading one file: tables and vectors may be named again and again, so no single one bounds the cost."""

from __future__ import annotations

from mgx_core import ParseError

__all__ = ["Budget"]


class Budget:
    """Records, bytes of names and numbers, and bytes of constants that are left for the rest of a file.

    size: bytes of the file; limit: bytes of constants that are not borrowed from the file.
    """

    def __init__(self, size: int, limit: int) -> None:
        self._size, self._limit = size, limit
        self._records = size // 4  # each has an offset of its own in the file
        self._read = 4 * size + (1 << 16)  # writers share some names and vectors
        self._room = limit

    def records(self, count: int, what: str) -> None:
        """Errors: ParseError for more records, with those before, than the file can hold."""
        self._records -= count
        if self._records < 0:
            raise ParseError(f"{count} {what} and the records before do not fit a file of {self._size} bytes")

    def read(self, count: int) -> None:
        """Errors: ParseError if names and numbers are read more often than a file of this size may state them."""
        self._read -= count
        if self._read < 0:
            raise ParseError(f"names and numbers of a file of {self._size} bytes are stated again and again")

    def expand(self, count: int, what: str) -> None:
        """Errors: ParseError if constants that are not borrowed from the file take more than is allowed in all."""
        self._room -= count
        if self._room < 0:
            raise ParseError(
                f"{what} and the constants before take more than the {self._limit} bytes that option limit_bytes allows"
            )
