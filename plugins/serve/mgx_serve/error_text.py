"""Error texts for clients, without file system paths of this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

__all__ = ["error_text"]

PATH: Final = re.compile(r"(?<![\w.])/[^\s'\":;,()\[\]]+")


def error_text(error: BaseException, root: Path | None = None) -> str:
    """Returns an error's text with paths below `root` made relative and other paths reduced to their last component."""
    text = str(error) or type(error).__name__
    if root is not None:
        text = text.replace(f"{root}{os.sep}", "")
    return PATH.sub(lambda m: _last(m[0]), text)


def _last(path: str) -> str:
    """Returns the last component of a path; text of which no prefix exists, such as a node name with slashes, is unchanged."""
    folders = [str(p) for p in Path(path).parents][:-1]
    return Path(path).name if any(map(os.path.isdir, folders)) or os.path.lexists(path) else path
