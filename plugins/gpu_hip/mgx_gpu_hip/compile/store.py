"""The disk cache of compiled kernels."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from mgx_core.settings import cache_directory

__all__ = ["KernelCache"]

MAGIC = b"mgxkern1"


class KernelCache:
    """Code by what it was made from; entries are written at once or not at all, damaged ones count as absent.

    folder: by default ``kernels`` in ``$MGX_CACHE_DIR`` or the user's cache directory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder or cache_directory() / "kernels"

    @staticmethod
    def key(text: str, flags: Sequence[str], compiler: str, version: str, arch: str) -> str:
        """text: with the prelude, so that a change there changes the key."""
        return hashlib.sha256("\0".join([compiler, version, arch, *flags, "", text]).encode()).hexdigest()

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key[2:]

    def get(self, key: str) -> bytes | None:
        try:
            data = self._path(key).read_bytes()
        except OSError:
            return None
        head, image = data[: len(MAGIC) + 32], data[len(MAGIC) + 32 :]
        return image if head == MAGIC + hashlib.sha256(image).digest() else None

    def put(self, key: str, image: bytes) -> None:
        """A cache that cannot be written is no error."""
        path = self._path(key)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
                file.write(MAGIC + hashlib.sha256(image).digest() + image)
            os.replace(file.name, path)
        except OSError:
            return
