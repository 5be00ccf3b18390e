"""Environment variables of the process, read here and nowhere else, when asked for.

``MGX_PLUGINS``: modules to take as plugins beside the installed ones; ``MGX_CACHE_DIR``: the folder of compiled kernels, tuning
choices and the key that seals program files (default: ``mgx`` in ``$XDG_CACHE_HOME`` or ``~/.cache``).  Targets read their own
through `setting` and list them in their documentation.
"""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["cache_directory", "setting"]


def setting(name: str) -> str:
    """An environment variable's value; empty if it is not set."""
    return os.environ.get(name, "")


def cache_directory() -> Path:
    """Returns the folder of caches that outlive a process; it may not exist yet."""
    named = setting("MGX_CACHE_DIR")
    return Path(named) if named else Path(setting("XDG_CACHE_HOME") or Path.home() / ".cache") / "mgx"
