"""The disk cache of compiled kernels."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from mgx_core.cache import DiskCache

__all__ = ["KernelCache"]

FORMAT: Final = 1
LIMIT: Final = 4 << 30  # bytes; an image is some 10 to 200 kB


class KernelCache(DiskCache):
    """Compiled code by its inputs: text, flags, architecture and compiler.

    folder: by default ``kernels`` in ``$MGX_CACHE_DIR`` or the user's cache directory.
    """

    def __init__(self, folder: Path | None = None) -> None:
        super().__init__("kernels", FORMAT, folder, LIMIT)

    @staticmethod
    def key(text: str, flags: Sequence[str], compiler: str, version: str, arch: str) -> str:
        """text: with the prelude, so that a change there changes the key."""
        return "\0".join([compiler, version, arch, *flags, "", text])
