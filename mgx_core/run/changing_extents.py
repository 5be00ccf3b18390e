"""Observes which extents of a program's parameters keep changing, to decide whether and where to split it into pieces."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from ..ir.symbols import learn_all
from ..types.dim import Dim
from ..types.shape import AnyShape

__all__ = ["SPLITS", "WHOLE", "ChangingExtents"]

WHOLE: Final = 3  # instances of the whole program before it is split
SPLITS: Final = 4  # sets of changing extents for which the pieces of a program are kept


class ChangingExtents:
    """Tracks which extents keep changing between sets of shapes; `count` sets were observed.

    Only the latest sets count: the length of a prompt differs from that of the steps after it, which stays the same.
    """

    def __init__(self) -> None:
        self.count = 0
        self._latest: deque[dict[str, Dim]] = deque(maxlen=WHOLE + 1)

    def note(self, declared: Sequence[AnyShape], given: Sequence[AnyShape]) -> frozenset[str]:
        """Records a set of shapes; returns the symbols that have had several values in the latest sets."""
        known: dict[str, Dim] = {}
        learn_all(declared, given, known)
        self._latest.append(known)
        self.count += 1
        return frozenset(
            name for name, value in known.items() if any(k.get(name, value) != value for k in self._latest)
        )
