"""Programs that run for all values of extents that keep changing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..named_tuples import NamedTuple
from .placement import Placement
from .runner import Runner

__all__ = ["OpenProgram"]


class OpenProgram(NamedTuple):
    """A runner whose kernels take changing extents as arguments."""

    runner: Runner
    """Runs arguments of all extents that fit."""

    fits: Callable[[Mapping[str, int]], bool]
    """Returns whether it supports the extents of some arguments, by symbol; these include extents that do not change."""

    placed: Callable[[], Sequence[Placement]]
    """Returns the placements of its kernels."""

    replaced: bool = False
    """True if kernels for fixed extents are faster, so that extents that repeat are worth a program of their own."""

    @property
    def placements(self) -> Sequence[Placement]:
        """The placements of its kernels."""
        return self.placed()
