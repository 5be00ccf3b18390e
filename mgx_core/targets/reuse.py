"""Launches and emission recordings shared by the instances of an executable."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from ..cache import Recent
from ..ir.body_cache import SETS

if TYPE_CHECKING:
    from ..ir.module import Module
    from .emission_cache import Recording
    from .kernel import Launch

__all__ = ["Reuse"]


class Reuse:
    """Launches and recordings by all that they depend on, but for the module, target, context and options, which are the same.

    What the latest instances had in common is kept; the rest goes.
    """

    def __init__(self) -> None:
        self._launches: Recent[Launch] = Recent(0)
        self._recordings: Recent[Recording] = Recent(0)
        self._asked: Recent[bool] = Recent(0)  # by hash of the key

    def launches_of(self, module: Module) -> Recent[Launch]:
        """Returns the launches for an optimised module."""
        for kept in (self._launches, self._recordings, self._asked):
            kept.limit = SETS * len(module)
        return self._launches

    def recording(self, key: Hashable) -> Recording | None:
        """Returns the recording that was kept by a key, if there is one."""
        return self._recordings.get(key)

    def keep(self, key: Hashable, recording: Recording, constants: Sequence[object]) -> None:
        """Keeps a recording for the same constants if it comes for the second time: most for extents that change never do."""
        if self._asked.get(hash(key)):
            self._recordings.put(key, recording.kept(constants))
        else:
            self._asked.put(hash(key), True)
