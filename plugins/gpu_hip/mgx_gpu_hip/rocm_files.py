"""Paths of ROCm's libraries, as hip-python, AMD's Python bindings of HIP, finds them."""

from __future__ import annotations

import importlib
import os
from functools import cache

__all__ = ["rocm_file"]


@cache
def rocm_file(name: str) -> str | None:
    """Returns the file that hip-python loads for a library (``amdhip64``), a bare name where the system is to find it.

    None where hip-python is not installed or does not find it; other packages are called ``rocm`` too.  A handle that one
    library made means nothing in another copy of it, so where hip-python is installed its choice is ours.
    """
    try:
        paths = importlib.import_module("rocm.bindings.util.paths")
        return os.fsdecode(paths.get_library_path(name))
    except Exception:  # of code that is not ours: the libraries are searched for as without it
        return None
