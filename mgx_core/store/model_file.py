"""Files that a model is read from, each memory-mapped and hashed."""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import Self

import numpy as np

from ..types.argument import Array
from ..types.mapped import identity_of
from .digests import RememberedDigest, digest_of

__all__ = ["ModelFile"]


class ModelFile:
    """A file as it was when its contents were hashed.

    identity: see `identity_of`; stable: whether its last change is old enough that a later one alters the identity.
    """

    def __init__(self, path: Path, mapped: mmap.mmap, state: os.stat_result, digest: str, stable: bool) -> None:
        self.path = path
        self.bytes: Array = np.frombuffer(mapped, np.uint8)
        self.identity = identity_of(state)
        self.digest = digest
        self.stable = stable
        self._mapped = mapped

    @classmethod
    def of(cls, path: Path, limit: int) -> Self | None:
        """Returns the file at a path; None if it is not a regular file, exceeds the limit, or is being changed."""
        try:
            if not path.is_file():  # opening a pipe would block
                return None
            with open(path, "rb") as file:
                state = os.fstat(file.fileno())
                if not 0 < state.st_size <= limit:
                    return None
                mapped = mmap.mmap(file.fileno(), state.st_size, access=mmap.ACCESS_READ)
                remembered = RememberedDigest(path, state)
                digest = remembered.found or digest_of(np.frombuffer(mapped, np.uint8))
                if identity_of(os.fstat(file.fileno())) != identity_of(state):
                    return None
                remembered.remember(digest)
        except (OSError, ValueError):
            return None
        return cls(path.absolute(), mapped, state, digest, remembered.stable)

    @property
    def there(self) -> bool:
        """True if its path still refers to the file that was read."""
        try:
            return identity_of(self.path.stat()) == self.identity
        except OSError:
            return False

    @property
    def unchanged(self) -> bool:
        """True if its path still refers to the file that was read, with unchanged contents.

        The contents are read again only if a change could have left the identity unchanged.
        """
        return self.there and self._whole and (self.stable or digest_of(self.bytes) == self.digest)

    def contents(self) -> bytes | None:
        """Returns the bytes that were read, even if the path was replaced; None if they were overwritten."""
        if self._whole:
            data = self.bytes.copy()
            if digest_of(data) == self.digest:
                return data.tobytes()
        return None

    @property
    def _whole(self) -> bool:
        """True if the file was not truncated: pages beyond its end must not be accessed."""
        return self._mapped.size() >= len(self._mapped)
