"""The context of the cpu target: threads and what the machine can do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mgx_core import Context

if TYPE_CHECKING:
    from .target import CpuTarget

__all__ = ["CpuContext"]


class CpuContext(Context):
    """A host to compile for and run on.

    threads: 0 for all that the process may use.
    """

    def __init__(self, target: CpuTarget, threads: int = 0) -> None:
        self.target = target
        self.threads = threads

    def __repr__(self) -> str:
        return f"context of target 'cpu' ({self.threads or 'all'} threads)"
