"""Compiled programs on disk: what one process compiled, others take."""

from __future__ import annotations

import contextlib
import hashlib
from typing import Final

import mgx_core
from mgx_core import MgxError, Program, load_buffer, save_buffer
from mgx_core.cache import DiskCache

from .options import TorchOptions

__all__ = ["Stored"]

FORMAT: Final = 1
LIMIT: Final = 8 << 30  # bytes of all programs together, weights that were packed included


class Stored:
    """The place of one program in the user's cache.

    It is found by the program as it was converted, the target, the options and the version of mgx: whatever changed the graph,
    the weights or the converters changed the program's bytes, which also name the versions of all plugins.
    """

    def __init__(self, program: Program, target: str, options: TorchOptions) -> None:
        digest = hashlib.sha256(save_buffer(program))
        digest.update(repr((target, options, mgx_core.__version__)).encode())
        self._key = digest.hexdigest()
        self._disk = DiskCache("torch", FORMAT, limit=LIMIT)

    def load(self) -> Program | None:
        """Returns the compiled program; None if there is none that is intact and usable on this machine."""
        data = self._disk.get(self._key)
        if data is None:
            return None
        try:
            found = load_buffer(data, trust=True)
        except MgxError:
            return None
        return found if found.executable is not None else None

    def keep(self, program: Program) -> None:
        """Writes a program that has run once, so that its kernels are there, too."""
        with contextlib.suppress(MgxError):
            self._disk.put(self._key, save_buffer(program))
