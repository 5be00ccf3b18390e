"""Launches and recordings of emission that the instances of an executable have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..cache import Recent
from ..ir.bodies import SETS

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
        self.recordings: Recent[Recording] = Recent(0)

    def launches_of(self, module: Module) -> Recent[Launch]:
        """Returns the launches for an optimised module."""
        self._launches.limit = self.recordings.limit = SETS * len(module)
        return self._launches
