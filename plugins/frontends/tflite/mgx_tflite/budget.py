"""A budget for reading one file, whose tables and vectors may be referenced many times (decompression-bomb protection)."""

from __future__ import annotations

from mgx_core import ParseError

__all__ = ["Budget"]


class Budget:
    """The remaining budget of records, bytes of names and numbers, and bytes of constants.

    size: bytes of the file; limit: bytes of constants that are not borrowed from the file.
    """

    def __init__(self, size: int, limit: int) -> None:
        self._size, self._limit = size, limit
        self._records = size // 4  # every record has its own 4-byte offset
        self._read = 4 * size + (1 << 16)  # a multiple, since writers share some names and vectors between tables
        self._room = limit

    def records(self, count: int, what: str) -> None:
        """Errors: ParseError if the total number of records exceeds what the file can hold."""
        self._records -= count
        if self._records < 0:
            raise ParseError(
                f"{count} {what} in addition to the records read so far exceed a file of {self._size} bytes"
            )

    def read(self, count: int) -> None:
        """Errors: ParseError if the names and numbers read exceed a multiple of the file's size."""
        self._read -= count
        if self._read < 0:
            raise ParseError(f"names and numbers in a file of {self._size} bytes are referenced too often")

    def expand(self, count: int, what: str) -> None:
        """Errors: ParseError if constants not borrowed from the file exceed the limit in total."""
        self._room -= count
        if self._room < 0:
            raise ParseError(f"{what} and the constants read so far exceed option limit_bytes, {self._limit}")
