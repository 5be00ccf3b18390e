"""The tray sets of one model: one set per combination of extents that is frequent among its requests."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from .batch_buffers import BatchBufferPool
from .model import Model
from .tray_runs import TrayRuns

if TYPE_CHECKING:  # needs a system with file locks
    from .trays import TakenTray, Trays, Waits

__all__ = ["TrayRun", "TraySets"]

MOST_SETS: Final = 8  # sets per model
MIN_REQUESTS: Final = 16  # requests with the same extents before a set is added
KINDS: Final = 1024  # maximum number of extents counted
MIN_IDLE: Final = 1.0  # idle seconds after which a set may be replaced


@dataclass(frozen=True, slots=True)
class TrayRun:
    """A taken tray and its runner."""

    runs: TrayRuns
    tray: TakenTray

    @property
    def kind(self) -> tuple[int, Hashable]:
        """The key for run-time statistics."""
        return self.tray.rows, self.runs.trays.key


class TraySets:
    """All sets of one model.  `take` is thread-safe; all else runs in the event loop.

    on_marked: called when a request was marked while no thread was looking for trays.
    """

    def __init__(self, model: Model, buffers: BatchBufferPool, on_marked: Callable[[], None]) -> None:
        self._model, self._buffers, self._on_marked = model, buffers, on_marked
        self._sets: tuple[TrayRuns, ...] = ()  # replaced, never mutated: threads iterate over it
        self._counts: Counter[Hashable] = Counter()
        self._threads = ThreadPoolExecutor(1, f"mgx-serve-{model.signature.name}-outputs")

    def __bool__(self) -> bool:
        return bool(self._sets)

    def find(self, key: Hashable) -> Trays | None:
        """Returns the trays offered for requests with a batching key."""
        return next((s.trays for s in self._sets if s.trays.key == key and not s.trays.ended), None)

    def is_frequent(self, key: Hashable) -> bool:
        """Counts a request without trays; returns True if a set should be added, with growing intervals."""
        if key not in self._counts and len(self._counts) >= KINDS:
            self._counts.clear()
        self._counts[key] += 1
        count = self._counts[key]
        return count >= MIN_REQUESTS and not count & (count - 1)

    def room(self) -> bool:
        """Returns True if another set may be added; at the limit, retires a set that was not used recently."""
        self._sets = tuple([s for s in self._sets if not s.trays.ended or s.trays.waits() is not None])
        if len(self._sets) < MOST_SETS:
            return True
        oldest = min(self._sets, key=lambda s: s.last_used)
        if time.monotonic() - oldest.last_used < MIN_IDLE or oldest.trays.waits() is not None:
            return False
        oldest.trays.end()
        return oldest.trays.waits() is None  # a request may have been marked before

    def held(self) -> int:
        """Returns the size of all sets in bytes."""
        return sum([s.trays.bytes for s in self._sets])

    def add(self, trays: Trays) -> None:
        trays.on_marked = self._on_marked
        self._sets = (*self._sets, TrayRuns(self._model, trays, self._buffers, self._threads))
        self._counts.pop(trays.key, None)

    def take(self) -> TrayRun | None:
        """Takes the tray that has waited longest.

        Returns None if none is waiting; the next request marked in any set then calls `on_marked`.
        """
        sets = self._sets
        if len(sets) > 1:
            sets = tuple(sorted(sets, key=lambda s: s.trays.oldest()))
        for one in sets:
            tray = one.trays.take()
            if tray is not None:
                return TrayRun(one, tray)
        return None

    def oldest(self) -> float:
        """Returns the arrival time of the oldest waiting request, infinity if there is none."""
        return min([s.trays.oldest() for s in self._sets], default=math.inf)

    def waits(self, enough: int = 1) -> Waits | None:
        """Returns the waiting rows of the fullest set, and the oldest arrival in any; see `Trays.waits`."""
        found = [w for w in [s.trays.waits(enough) for s in self._sets] if w is not None]
        if len(found) < 2:
            return found[0] if found else None
        most = max(found, key=lambda w: w.rows)
        return replace(most, oldest=min([w.oldest for w in found]))

    def waiting(self) -> int:
        """Returns the number of waiting requests."""
        return sum([s.trays.waiting() for s in self._sets])

    def queue(self, count: int) -> None:
        """Publishes the number of requests waiting elsewhere, to each set including the other sets, for the queue limit."""
        waiting = [s.trays.waiting() for s in self._sets]
        for one, own in zip(self._sets, waiting, strict=True):
            one.trays.queue(count + sum(waiting) - own)

    @property
    def uncertain(self) -> bool:
        """True if a stopped process holds a lock; its marks must be looked for later."""
        return any(s.trays.uncertain for s in self._sets)

    def end(self) -> None:
        """Withdraws all trays; marked requests still run."""
        for one in self._sets:
            one.trays.end()

    def close(self) -> None:
        """Waits for copies in flight."""
        self._threads.shutdown()
