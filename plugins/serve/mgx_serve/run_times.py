"""Tracks run times and decides which runs are short enough to execute inside the event loop."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Final

__all__ = ["RunTimes", "Spent"]

SHORT: Final = 250e-6  # seconds: shorter than handing a run to a busy thread and back
# seconds: longer than a few waits for the GIL; such a run is not short
LONG: Final = 20e-3
KINDS: Final = 1024  # maximum number of kinds tracked
TRY_AFTER: Final = 16  # runs in threads before a trial in the event loop
TRY_AFTER_MOST: Final = 1 << 16
WEIGHT: Final = 1 / 16  # weight of the latest run in the average


@dataclass(frozen=True, slots=True)
class Spent:
    """The time of a run; seconds: wall time; busy: CPU time of its thread; began: of `time.monotonic`."""

    seconds: float
    busy: float
    began: float = 0.0


@dataclass(slots=True)
class RunTime:
    """The run time of one kind; average: moving average in seconds; until_trial: runs in threads, of `patience`, before the
    next trial in the loop.
    """

    average: float
    until_trial: int = TRY_AFTER
    patience: int = TRY_AFTER


class RunTimes:
    """Run times by kind of run.

    A measured time includes preemption and, in a thread, waits for the GIL of several milliseconds under load, so that short
    runs never look short in a thread.  Therefore a run is occasionally tried in the event loop, with exponential backoff after
    failed trials.
    """

    def __init__(self) -> None:
        self._records: dict[Hashable, RunTime] = {}

    def short(self, kind: Hashable) -> bool:
        """Returns True if the next run of a kind should execute in the event loop."""
        record = self._records.get(kind)
        return record is not None and (record.average < SHORT or not record.until_trial)

    def in_loop(self, kind: Hashable, spent: Spent | None) -> None:
        """Records a run in the event loop; None for a failed run."""
        record = self._records[kind]
        tried = not record.until_trial
        if tried and spent is not None and spent.seconds < SHORT:
            self._records[kind] = RunTime(spent.seconds)
        elif tried:
            record.patience = min(2 * record.patience, TRY_AFTER_MOST)
            record.until_trial = record.patience
        elif spent is None:
            return
        elif spent.seconds >= LONG:  # it blocked the event loop; do not repeat that
            record.average = spent.seconds
        else:  # one preempted run has little weight; several slow ones move the kind to threads
            record.average += (min(spent.seconds, 4 * SHORT) - record.average) * WEIGHT

    def in_thread(self, kind: Hashable, spent: Spent, measured: Callable[[], float]) -> None:
        """Records a run in a thread.  measured: seconds measured on an idle server."""
        record = self._records.get(kind)
        if record is None:
            if len(self._records) >= KINDS:
                del self._records[next(iter(self._records))]
            self._records[kind] = RunTime(min(spent.seconds, measured()) if spent.seconds < LONG else spent.seconds)
        elif spent.seconds >= LONG or spent.busy >= SHORT:
            record.until_trial = record.patience  # it computes, or waits for a device
        else:
            record.until_trial = max(record.until_trial - 1, 0)  # concurrent runs finish one after another
