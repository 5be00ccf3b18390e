"""How long runs take: which of them are short enough to be run inside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

__all__ = ["Paces", "Spent"]

SHORT: Final = 250e-6  # seconds: a run that is shorter than the way to a busy thread and back is run at once
# seconds: a few turns of waiting for the interpreter's lock; a run that takes longer has work to do
LONG: Final = 20e-3
KINDS: Final = 1024  # of runs, whose usual time is kept
TRY_AFTER: Final = 16  # runs in threads, before it is seen whether the event loop does one sooner
TRY_AFTER_MOST: Final = 1 << 16
WEIGHT: Final = 1 / 16  # of the latest run


@dataclass(frozen=True, slots=True)
class Spent:
    """seconds: of a run, by the clock; busy: of its thread's processor time; began: by `time.monotonic`."""

    seconds: float
    busy: float
    began: float = 0.0


@dataclass(slots=True)
class Pace:
    """usual: seconds, a mean of the latest runs; left: runs in threads until one is tried in the loop, of `patience`."""

    usual: float
    left: int = TRY_AFTER
    patience: int = TRY_AFTER


class Paces:
    """Times of runs by kind.

    A run's time has what other threads and programs took meanwhile.  In a thread that is the wait for the interpreter's lock,
    too, of several milliseconds where the event loop is busy: runs in threads never look short once there is load, and from time
    to time one is tried in the loop.  Tries that were in vain get rare.
    """

    def __init__(self) -> None:
        self._paces: dict[Hashable, Pace] = {}

    def short(self, kind: Hashable) -> bool:
        """Returns True if the next run of a kind is to be made in the event loop."""
        pace = self._paces.get(kind)
        return pace is not None and (pace.usual < SHORT or not pace.left)

    def in_loop(self, kind: Hashable, spent: Spent | None) -> None:
        """Notes a run that was made in the event loop; None for one that failed."""
        pace = self._paces[kind]
        tried = not pace.left
        if tried and spent is not None and spent.seconds < SHORT:
            self._paces[kind] = Pace(spent.seconds)
        elif tried:
            pace.patience = min(2 * pace.patience, TRY_AFTER_MOST)
            pace.left = pace.patience
        elif spent is None:
            return
        elif spent.seconds >= LONG:  # it kept the event loop from others, which no other run shall do
            pace.usual = spent.seconds
        else:  # a run that was interrupted counts little, several that are slow make the next ones have threads
            pace.usual += (min(spent.seconds, 4 * SHORT) - pace.usual) * WEIGHT

    def in_thread(self, kind: Hashable, spent: Spent, measured: Callable[[], float]) -> None:
        """Notes a run that had a thread.  measured: seconds of one that was made when nothing else was."""
        pace = self._paces.get(kind)
        if pace is None:
            if len(self._paces) >= KINDS:
                del self._paces[next(iter(self._paces))]
            self._paces[kind] = Pace(min(spent.seconds, measured()) if spent.seconds < LONG else spent.seconds)
        elif spent.seconds >= LONG or spent.busy >= SHORT:
            pace.left = pace.patience  # it has work to do, or waits for a device
        else:
            pace.left = max(pace.left - 1, 0)  # runs that began together end one after the other
