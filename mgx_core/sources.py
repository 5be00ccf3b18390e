"""Checks of what functions for files are given: paths, and bytes of files."""

from __future__ import annotations

import os
from typing import Any

from .errors import ParameterError

__all__ = ["file_bytes", "file_path"]


def file_path(given: Any, function: str, instead: str = "") -> str | os.PathLike[str]:
    """Returns `given`, which must be a path.

    function: who takes it, for the message; instead: the function for the bytes of files.
    Errors: ParameterError for anything else, bytes included, and for an empty path.
    """
    if isinstance(given, (str, os.PathLike)) and isinstance(os.fspath(given), str):
        if not os.fspath(given):
            raise ParameterError(f"{function} takes the path of a file, got an empty one")
        return given
    hint = ""
    if instead and (isinstance(given, (bytes, bytearray, memoryview)) or hasattr(given, "read")):
        hint = f"; {instead} takes the bytes of a file" + (
            "" if not hasattr(given, "read") else ", which .read() gives"
        )
    raise ParameterError(f"{function} takes the path of a file, got {_kind(given)}{hint}")


def file_bytes(given: Any, function: str, instead: str) -> Any:
    """Returns `given`, which must be bytes or hold some, as a memoryview or a bytearray does.

    function: who takes it, for the message; instead: the function for paths.  Errors: ParameterError for anything else.
    """
    try:
        memoryview(given)
    except TypeError:
        hint = f"; {instead} takes a path" if isinstance(given, (str, os.PathLike)) else ""
        hint = "; its .read() gives them" if hasattr(given, "read") else hint
        raise ParameterError(f"{function} takes the bytes of a file, got {_kind(given)}{hint}") from None
    return given


def _kind(given: Any) -> str:
    """Returns a value as messages show it: text itself, of anything else the type."""
    return repr(given) if given is None or isinstance(given, str) else f"a value of type {type(given).__name__}"
