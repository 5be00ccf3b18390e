"""Model files that an earlier process compiled: only those are kept, so that a process that runs once pays nothing for it."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, Any, Final, Self

from .cache import DiskCache
from .targets.calls import called

if TYPE_CHECKING:
    from .options import CompileOptions
    from .run.executable import Executable
    from .targets.target import Target
    from .types.signature import Signature

__all__ = ["FirstSight"]

LIMIT: Final = 1 << 20  # bytes of all marks, each some forty


class FirstSight:
    """Stands for the `Origin` of a file that no process is known to have compiled: compiling leaves a mark, and nothing else.

    The mark goes by path, size and time, since nothing is taken for anything because of it.
    """

    known: Signature | None = None  # nothing is noted of the program

    def __init__(self, key: str) -> None:
        self._key = key

    @classmethod
    def of(cls, path: Any, frontend: str) -> Self | None:
        """Returns the first sight of a file; None for one that was seen before, and for anything but a file."""
        try:
            state = os.stat(path)
        except (OSError, TypeError, ValueError):
            return None
        if not stat.S_ISREG(state.st_mode):
            return None
        key = repr((os.path.abspath(path), state.st_size, state.st_mtime_ns, frontend))
        return None if _marks().get(key) is not None else cls(key)

    def place(self, target: Target, context: Any, options: CompileOptions) -> Self | None:
        """Returns where it is noted that the file was compiled; None for targets and options of which nothing is kept."""
        tried = options.exhaustive_tune or options.validate
        return None if tried or called(target, "settings", lambda: target.settings(context)) is None else self

    def load(self, about: Signature) -> Executable | None:
        """Returns None: nothing is kept of this file."""
        return None

    def keep(self, about: Signature, made: Executable) -> None:
        """Leaves the mark."""
        _marks().put(self._key, b"")


def _marks() -> DiskCache:
    return DiskCache("seen", limit=LIMIT)
