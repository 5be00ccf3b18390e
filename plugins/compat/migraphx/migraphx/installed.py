"""Detects AMD's module of the same name."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from pathlib import Path

from mgx_core.settings import setting

__all__ = ["refuse_to_hide_another"]


def refuse_to_hide_another() -> None:
    """Errors: ImportError if AMD's `migraphx` is also on the module search path.

    ``MGX_MIGRAPHX=1`` selects this one.
    """
    if setting("MGX_MIGRAPHX") == "1":
        return
    here = Path(__file__).resolve().parent
    for folder in sys.path:
        found = PathFinder.find_spec("migraphx", [folder])
        if found is None or found.origin is None or Path(found.origin).resolve().parent == here:
            continue
        raise ImportError(
            f"AMD's module migraphx is installed at {found.origin}, and {here} would hide it: set MGX_MIGRAPHX=1 to run "
            "this program on mgx, or uninstall mgx-migraphx (mgx remains available as mgx_core)"
        )
