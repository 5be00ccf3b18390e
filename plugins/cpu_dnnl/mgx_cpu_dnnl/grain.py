"""The least work that is worth a thread."""

from __future__ import annotations

from mgx_core.types.traced_int import larger

__all__ = ["grain_for"]


def grain_for(work: int, each: int) -> int:
    """Returns the minimum items per thread, which together take at least `work` if one takes `each`."""
    return larger(1, work // larger(1, each))
