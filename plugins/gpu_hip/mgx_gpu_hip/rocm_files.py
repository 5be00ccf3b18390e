"""Paths of ROCm's libraries, as hip-python, AMD's Python bindings of HIP, finds them."""

from __future__ import annotations

import importlib
from functools import cache

__all__ = ["rocm_file"]


@cache
def rocm_file(name: str) -> str | None:
    """Returns the file that hip-python loads for a library (``amdhip64``), a bare name where the system is to find it.

    None where hip-python is not installed.  A handle that one library made means nothing in another copy of it, so where
    hip-python is installed its choice is ours.
    """
    try:
        paths = importlib.import_module("rocm.bindings.util.paths")
    except ImportError:
        return None
    found: bytes | str = paths.get_library_path(name)
    return found.decode() if isinstance(found, bytes) else found
