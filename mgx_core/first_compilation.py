"""Records which model files were compiled before; only a second compilation is cached, so that the first costs nothing extra."""

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

__all__ = ["FirstCompilation"]

LIMIT: Final = 1 << 20  # bytes of all marks, about 40 each


class FirstCompilation:
    """Replaces the `Origin` of a file that was not compiled before: compilation stores a mark instead of the program.

    The mark's key is path, size and mtime; a wrong match is harmless, since it only enables caching.
    """

    known: Signature | None = None  # the program's signature is not cached

    def __init__(self, key: str) -> None:
        self._key = key

    @classmethod
    def of(cls, path: Any, frontend: str) -> Self | None:
        """Returns a new record for a file; None if it was compiled before or is not a regular file."""
        try:
            state = os.stat(path)
        except (OSError, TypeError, ValueError):
            return None
        if not stat.S_ISREG(state.st_mode):
            return None
        key = repr((os.path.abspath(path), state.st_size, state.st_mtime_ns, frontend))
        return None if _marks().get(key) is not None else cls(key)

    def place(self, target: Target, context: Any, options: CompileOptions) -> Self | None:
        """Returns itself as cache entry; None if programs for this target and options are not cached."""
        tried = options.exhaustive_tune or options.validate
        return None if tried or called(target, "settings", lambda: target.settings(context)) is None else self

    def load(self, about: Signature) -> Executable | None:
        """Returns None: the file has no cached program."""
        return None

    def keep(self, about: Signature, made: Executable) -> None:
        """Stores the mark."""
        _marks().put(self._key, b"")


def _marks() -> DiskCache:
    return DiskCache("seen", limit=LIMIT)
