"""The on-disk cache of compiled programs, shared between processes."""

from __future__ import annotations

import contextlib
from typing import Final

import mgx_core
from mgx_core import MgxError, Program, load, save_buffer
from mgx_core.cache import DiskCache
from mgx_core.store import digest

from .options import TorchOptions

__all__ = ["Stored"]

FORMAT: Final = 2
LIMIT: Final = 8 << 30  # maximum bytes of all programs, including packed weights


class Stored:
    """The cache entry of one program.

    Its key is a hash of the converted program, the target, the options and the version of mgx: any change of the graph, the
    weights or the converters changes the program's bytes, which also contain the versions of all plugins.
    """

    def __init__(self, program: Program, target: str, options: TorchOptions) -> None:
        self._key = f"{digest(program)} {(target, options, mgx_core.__version__, FORMAT)!r}"
        self._disk = DiskCache("torch", limit=LIMIT)

    def load(self) -> Program | None:
        """Returns the compiled program, with weights read lazily; None if there is none for this machine."""
        path = self._disk.path(self._key)
        try:
            found = load(path) if path.exists() else None
        except MgxError:
            found = None
        if found is None:
            return None
        return found if found.executable is not None else None

    def keep(self, program: Program) -> None:
        """Writes a program after its first run, so that its kernels are included."""
        with contextlib.suppress(MgxError):
            self._disk.put_file(self._key, [save_buffer(program)])
