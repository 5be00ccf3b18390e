"""Launches and emission recordings shared by the instances of an executable."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from ..cache import Recent

if TYPE_CHECKING:
    from ..ir.module import Module
    from .emission_cache import Recording
    from .kernel import Launch

__all__ = ["Reuse"]


class Reuse:
    """Caches of launches and emission recordings for instances of the same module, target, context and options.

    Entries shared by recent instances are kept; others are evicted.
    """

    def __init__(self) -> None:
        self._launches: Recent[Launch] = Recent(0)
        self._recordings: Recent[Recording] = Recent(0)
        self._asked: Recent[bool] = Recent(0)  # by hash of the key

    def launches_of(self, module: Module) -> Recent[Launch]:
        """Returns the launches for an optimized module."""
        from ..ir.body_cache import SETS

        for kept in (self._launches, self._recordings, self._asked):
            kept.limit = SETS * len(module)
        return self._launches

    @property
    def used(self) -> bool:
        """True once there are launches of an instance."""
        return len(self._launches) > 0

    def recording(self, key: Hashable) -> Recording | None:
        """Returns the recording of a key, if there is one."""
        return self._recordings.get(key)

    def keep(self, key: Hashable, recording: Recording, constants: Sequence[object]) -> None:
        """Caches a recording the second time its key occurs; most keys with changing extents never repeat."""
        if self._asked.get(hash(key)):
            self._recordings.put(key, recording.kept(constants))
        else:
            self._asked.put(hash(key), True)
