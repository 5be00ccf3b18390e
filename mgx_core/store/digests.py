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

__all__ = ["RememberedDigest", "digest_of", "is_stable"]

FORMAT: Final = 3
SLACK: Final = 2 * 10**9  # nanoseconds; maximum lag of file system timestamps
DIGESTED: Final = 64 << 20  # chunk size in bytes


class RememberedDigest:
    """A file's digest cached by another process, valid while the file's identity (see `identity_of`) is unchanged.

    Only the system sets the change time (ctime). It is trusted only if it is old enough that a later change must differ.

    found: the digest, "" if it is not known; stable: whether the last change is old enough.
    """

    def __init__(self, path: Any, state: os.stat_result) -> None:
        identity = identity_of(state)
        self._key = repr((os.path.abspath(path), identity))
        self.stable = is_stable(identity, time.time_ns())
        self.found = ""
        noted = self._disk.get(self._key) if self.stable else None
        if noted is not None and sealed(self._key.encode() + noted[SIZE:], noted[:SIZE]):
            self.found = noted[SIZE:].decode()

    @property
    def _disk(self) -> DiskCache:
        return DiskCache("digests", FORMAT, limit=1 << 20)

    def remember(self, digest: str) -> None:
        """Caches the digest, unless it is known or the last change is too recent."""
        if self.stable and not self.found:
            self._disk.put(self._key, seal(self._key.encode() + digest.encode()) + digest.encode())


def is_stable(identity: tuple[int, ...], since: int) -> bool:
    """Returns True if a file's last change precedes a time (ns) by enough that any later change alters its identity."""
    return max(identity[-2:]) < since - SLACK


def digest_of(source: Array) -> str:
    """Returns a cryptographic digest (models are untrusted) of bytes; releases the pages of mapped files."""
    if source.size < LARGE:
        whole = sha256(source.tobytes()).hexdigest()
        forget_pages(source)
        return whole
    import hashlib  # imports OpenSSL, whose faster code pays off here

    made = hashlib.sha256()
    for at in range(0, source.size, DIGESTED):
        part = source[at : at + DIGESTED]
        made.update(part)
        forget_pages(part)
    return made.hexdigest()
