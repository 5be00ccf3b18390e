"""The trays of one model: a set for each of the extents that its requests often have."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .model import Model
from .stacks import Stacks
from .tray_runs import TrayRuns

if TYPE_CHECKING:  # which needs a system with locks of files
    from .trays import Filled, Trays, Waits

__all__ = ["TrayRun", "TraySets"]

MOST_SETS: Final = 8  # of one model
OFTEN: Final = 16  # requests of the same extents after which they are worth a set
KINDS: Final = 1024  # of extents that are counted
IDLE: Final = 1.0  # seconds without a run after which a set makes room for another one


@dataclass(frozen=True, slots=True)
class TrayRun:
    """A tray that was taken, and what runs it."""

    runs: TrayRuns
    filled: Filled

    @property
    def kind(self) -> tuple[int, Hashable]:
        """The key under which times of runs are kept."""
        return self.filled.rows, self.runs.trays.key


class TraySets:
    """Several threads may take trays; all else is for the event loop.

    woken: called when a request was marked while nobody looked for any.
    """

    def __init__(self, model: Model, stacks: Stacks, woken: Callable[[], None]) -> None:
        self._model, self._stacks, self._woken = model, stacks, woken
        self._sets: tuple[TrayRuns, ...] = ()  # replaced as a whole: threads go through it
        self._counts: Counter[Hashable] = Counter()
        self._threads = ThreadPoolExecutor(1, f"mgx-serve-{model.signature.name}-outputs")

    def __bool__(self) -> bool:
        return bool(self._sets)

    def find(self, key: Hashable) -> Trays | None:
        """Returns the trays that are offered for requests that can be joined to others of a key."""
        return next((s.trays for s in self._sets if s.trays.key == key and not s.trays.ended), None)

    def counted(self, key: Hashable) -> bool:
        """Counts a request that found no trays; returns whether it is time to offer some, and later less often."""
        if key not in self._counts and len(self._counts) >= KINDS:
            self._counts.clear()
        self._counts[key] += 1
        count = self._counts[key]
        return count >= OFTEN and not count & (count - 1)

    def room(self) -> bool:
        """Returns True if another set may be added; where there are many, one that was not used lately has to end."""
        self._sets = tuple([s for s in self._sets if not s.trays.ended or s.trays.waits() is not None])
        if len(self._sets) < MOST_SETS:
            return True
        oldest = min(self._sets, key=lambda s: s.used)
        if time.monotonic() - oldest.used < IDLE or oldest.trays.waits() is not None:
            return False
        oldest.trays.end()
        return oldest.trays.waits() is None  # a request may have been marked before that

    def held(self) -> int:
        """Returns the bytes of all sets."""
        return sum([s.trays.bytes for s in self._sets])

    def add(self, trays: Trays) -> None:
        trays.woken = self._woken
        self._sets = (*self._sets, TrayRuns(self._model, trays, self._stacks, self._threads))
        self._counts.pop(trays.key, None)

    def take(self) -> TrayRun | None:
        """Returns the tray that waits for the longest; None where none waits.

        The next request that is marked in any of them then calls `woken`.
        """
        sets = self._sets
        if len(sets) > 1:
            sets = tuple(sorted(sets, key=lambda s: s.trays.oldest()))
        for one in sets:
            filled = one.trays.take()
            if filled is not None:
                return TrayRun(one, filled)
        return None

    def oldest(self) -> float:
        """Returns when the first of the requests that wait came, infinity where none does."""
        return min([s.trays.oldest() for s in self._sets], default=math.inf)

    def waits(self, enough: int = 1) -> Waits | None:
        """Returns what waits in the set with the most rows, and since when in any; see `Trays.waits`."""
        found = [w for w in [s.trays.waits(enough) for s in self._sets] if w is not None]
        if len(found) < 2:
            return found[0] if found else None
        most = max(found, key=lambda w: w.rows)
        return replace(most, oldest=min([w.oldest for w in found]))

    def waiting(self) -> int:
        """Returns how many requests wait."""
        return sum([s.trays.waiting() for s in self._sets])

    def queue(self, count: int) -> None:
        """Says how many requests wait elsewhere, for the bound on their number, of which each set has those of the others."""
        waiting = [s.trays.waiting() for s in self._sets]
        for one, own in zip(self._sets, waiting, strict=True):
            one.trays.queue(count + sum(waiting) - own)

    @property
    def uncertain(self) -> bool:
        """True where a process that was stopped has a lock, and what it was about to mark is to be looked for later."""
        return any(s.trays.uncertain for s in self._sets)

    def end(self) -> None:
        """Offers no trays any more; what is marked stays."""
        for one in self._sets:
            one.trays.end()

    def close(self) -> None:
        """Waits for copies that are under way."""
        self._threads.shutdown()
