"""Digests of model files, cached while a file is unmodified."""

from __future__ import annotations

import os
import time
from typing import Any, Final

from ..cache import DiskCache
from ..hashing import LARGE, sha256
from ..types.argument import Array
from ..types.mapped import forget_pages, identity_of
from .seal import SIZE, seal, sealed

__all__ = ["RememberedDigest", "digest_of", "rested"]

FORMAT: Final = 3
SLACK: Final = 2 * 10**9  # nanoseconds by which a file system's times may lag behind
DIGESTED: Final = 64 << 20  # bytes of a file that a digest reads at once


class RememberedDigest:
    """The digest of a file that another process took, as long as the system changed nothing of what it notes of the file.

    The time of the last change to a file's data or names is set by the system alone.  It counts only where it lies back far
    enough that a later change cannot have the same.

    found: the digest, "" if it is not known; rests: whether the last change lies back far enough.
    """

    def __init__(self, path: Any, state: os.stat_result) -> None:
        identity = identity_of(state)
        self._key = repr((os.path.abspath(path), identity))
        self.rests = rested(identity, time.time_ns())
        self.found = ""
        noted = self._disk.get(self._key) if self.rests else None
        if noted is not None and sealed(self._key.encode() + noted[SIZE:], noted[:SIZE]):
            self.found = noted[SIZE:].decode()

    @property
    def _disk(self) -> DiskCache:
        return DiskCache("digests", FORMAT, limit=1 << 20)

    def remember(self, digest: str) -> None:
        """Notes the digest, unless it is known or the last change is too young."""
        if self.rests and not self.found:
            self._disk.put(self._key, seal(self._key.encode() + digest.encode()) + digest.encode())


def rested(identity: tuple[int, ...], since: int) -> bool:
    """Returns True if a file was changed so long before a time, in nanoseconds, that each later change shows in its identity."""
    return max(identity[-2:]) < since - SLACK


def digest_of(source: Array) -> str:
    """Returns a cryptographic digest of some bytes, whose pages of a file are given back: models come from anywhere."""
    if source.size < LARGE:
        whole = sha256(source.tobytes()).hexdigest()
        forget_pages(source)
        return whole
    import hashlib  # loads OpenSSL, whose instructions pay for it here

    made = hashlib.sha256()
    for at in range(0, source.size, DIGESTED):
        part = source[at : at + DIGESTED]
        made.update(part)
        forget_pages(part)
    return made.hexdigest()
