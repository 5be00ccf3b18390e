"""What clients read of an error: its text without places of files on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

__all__ = ["told"]

PATH: Final = re.compile(r"(?<![\w.])/[^\s'\":;,()\[\]]+")


def told(error: BaseException, root: Path | None = None) -> str:
    """Returns an error's text, in which files below `root` are named from there on and others by their last name."""
    text = str(error) or type(error).__name__
    if root is not None:
        text = text.replace(f"{root}{os.sep}", "")
    return PATH.sub(lambda m: _last(m[0]), text)


def _last(path: str) -> str:
    """Returns the last name of a path; what is none, such as a node's name with slashes, unchanged: no part of it exists."""
    folders = [str(p) for p in Path(path).parents][:-1]
    return Path(path).name if any(map(os.path.isdir, folders)) or os.path.lexists(path) else path
