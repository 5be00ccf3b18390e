"""Programs that run for all values of extents that keep changing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ..named_tuples import NamedTuple
from .placement import Placement
from .runner import Runner

__all__ = ["OpenProgram"]


class OpenProgram(NamedTuple):
    """A runner whose kernels take changing extents as arguments.

    fits: returns whether it supports the extents of some arguments, by symbol; placed: returns the placements of its kernels;
    replaced: kernels for fixed extents are faster, so that extents that repeat are worth a program of their own.
    """

    runner: Runner
    fits: Callable[[Mapping[str, int]], bool]
    placed: Callable[[], Sequence[Placement]]
    replaced: bool = False

    @property
    def placements(self) -> Sequence[Placement]:
        """The placements of its kernels."""
        return self.placed()
