"""Checks and reads file arguments: paths and file contents."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, Final

from .errors import ParameterError, ParseError, StoreError

__all__ = ["contents", "file_bytes", "file_path", "mistaken", "unreadable", "unwritable"]

# beginnings of files that are passed as models by mistake: place, bytes, what it is and what to do
MISTAKEN: Final = (
    (0, b"version https://git-lfs", "is a pointer of Git LFS, not the file itself: fetch it with `git lfs pull`"),
    (0, b"\x1f\x8b", "is compressed by gzip: decompress it first"),
    (0, b"PK\x03\x04", "is a zip archive: extract it first"),
)
HTML: Final = (b"<!doctype", b"<html")  # in lower case, behind a byte order mark and white space


def file_path(given: Any, function: str, instead: str = "") -> str | os.PathLike[str]:
    """Checks that `given` is a path, and returns it.

    function: the caller, for the message; instead: the function for file contents.
    Errors: ParameterError for any other type, including bytes, for an empty path and for one that no file can have.
    """
    if isinstance(given, (str, os.PathLike)) and isinstance(os.fspath(given), str):
        if not os.fspath(given):
            raise ParameterError(f"{function} takes the path of a file, got an empty one")
        try:
            possible = b"\0" not in os.fsencode(given)
        except UnicodeEncodeError:
            possible = False
        if not possible:
            raise ParameterError(f"{function} takes the path of a file, which {os.fspath(given)!r} cannot be")
        return given
    hint = ""
    if instead and (isinstance(given, (bytes, bytearray, memoryview)) or hasattr(given, "read")):
        hint = f"; {instead} takes the bytes of a file" + (
            "" if not hasattr(given, "read") else ": pass the result of .read()"
        )
    raise ParameterError(f"{function} takes the path of a file, got {_kind(given)}{hint}")


def file_bytes(given: Any, function: str, instead: str) -> Any:
    """Checks that `given` is bytes or another buffer, and returns it.

    function: the caller, for the message; instead: the function for paths.  Errors: ParameterError for any other type.
    """
    try:
        memoryview(given)
    except TypeError:
        hint = f"; {instead} takes a path" if isinstance(given, (str, os.PathLike)) else ""
        hint = "; pass the result of .read()" if hasattr(given, "read") else hint
        raise ParameterError(f"{function} takes the bytes of a file, got {_kind(given)}{hint}") from None
    return given


def contents(path: str | os.PathLike[str], most: int = -1) -> bytes:
    """Returns the bytes of a file, the first `most` if that is not negative.  Errors: ParseError if it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(most)
    except OSError as error:
        raise unreadable(path, error) from None


def mistaken(data: Any, more: Sequence[tuple[int, bytes, str]] = ()) -> str:
    """Returns what the bytes of another file are and what to do, to be appended to a message; empty if that is not known.

    more: entries like those of MISTAKEN.
    """
    start = bytes(data[:64])
    if start.removeprefix(b"\xef\xbb\xbf").lstrip().lower().startswith(HTML):
        return "; it is an HTML page: the download failed"
    return next((f"; it {what}" for at, mark, what in (*MISTAKEN, *more) if start.startswith(mark, at)), "")


def unreadable(path: str | os.PathLike[str], error: OSError) -> ParseError:
    """Returns the error for a model file that cannot be read."""
    return ParseError(f"{os.fspath(path)!r} cannot be read: {error.strerror or error}")


def unwritable(path: str | os.PathLike[str], error: OSError) -> StoreError:
    """Returns the error for a file that cannot be written."""
    return StoreError(f"file {os.fspath(path)!r} cannot be written: {error.strerror or error}")


def _kind(given: Any) -> str:
    """Describes a value for messages: strings literally, others by their type."""
    return repr(given) if given is None or isinstance(given, str) else f"a value of type {type(given).__name__}"
