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
    """One file, as it was when its contents were digested.

    identity: what the system notes of it; rests: whether it was changed long enough ago that a later change shows in that.
    """

    def __init__(self, path: Path, mapped: mmap.mmap, state: os.stat_result, digest: str, rests: bool) -> None:
        self.path = path
        self.bytes: Array = np.frombuffer(mapped, np.uint8)
        self.identity = identity_of(state)
        self.digest = digest
        self.rests = rests
        self._mapped = mapped

    @classmethod
    def of(cls, path: Path, limit: int) -> Self | None:
        """Returns the file at a path; None for anything else, for one of more bytes, and for one that is being changed."""
        try:
            if not path.is_file():  # to open a pipe would wait for who writes to it
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
        return cls(path.absolute(), mapped, state, digest, remembered.rests)

    @property
    def there(self) -> bool:
        """True if its path still leads to the file that was read."""
        try:
            return identity_of(self.path.stat()) == self.identity
        except OSError:
            return False

    @property
    def unchanged(self) -> bool:
        """True if its path still leads to the file that was read, with the same contents.

        The contents are read again only where a change could have left all that the system notes of the file as it was.
        """
        return self.there and self._whole and (self.rests or digest_of(self.bytes) == self.digest)

    def contents(self) -> bytes | None:
        """Returns the bytes that were read, whatever the path leads to now; None if they were overwritten."""
        if self._whole:
            data = self.bytes.copy()
            if digest_of(data) == self.digest:
                return data.tobytes()
        return None

    @property
    def _whole(self) -> bool:
        """True if the file was not cut off: pages behind its end must not be touched."""
        return self._mapped.size() >= len(self._mapped)
