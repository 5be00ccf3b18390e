"""Locates ROCm libraries through hip-python, AMD's Python bindings of HIP."""

from __future__ import annotations

import importlib
import os
from functools import cache

__all__ = ["rocm_file"]


@cache
def rocm_file(name: str) -> str | None:
    """Returns the library file (``amdhip64``) that hip-python loads; a bare name if the system loader resolves it.

    None if hip-python is not installed or cannot find the library; unrelated packages are called ``rocm`` too.  Handles are only
    valid in the copy of a library that created them, so the copy that hip-python loads is used where it is installed.
    """
    try:
        paths = importlib.import_module("rocm.bindings.util.paths")
        return os.fsdecode(paths.get_library_path(name))
    except Exception:  # third-party code may raise anything; the libraries are then searched for without it
        return None
