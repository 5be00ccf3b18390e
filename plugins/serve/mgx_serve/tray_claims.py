"""The shared state of trays: which rows of which batch each process has reserved.

A *tray* is a batch buffer in shared memory: front ends write the inputs of their requests to its rows, the engine runs it in
place, and front ends read the outputs from it.  A *set* has the trays of one model for one set of extents.  A lock-protected
page per set records which tray is being filled and which of its rows are claimed.  A tray is reused; each use has a new *turn*
(a generation number).
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import mmap
import time
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from typing import Any, Final

from .padding import Cut

__all__ = [
    "ANSWERS",
    "APART",
    "ARRIVALS",
    "DONE",
    "ENGINE",
    "ITEM",
    "MARKS",
    "MOST_FRONTENDS",
    "OPEN",
    "PAGE",
    "RUNS",
    "SETS",
    "TRAYS",
    "WORDS",
    "Claims",
    "Held",
    "Location",
    "Offer",
    "Plan",
    "marked",
    "read_mark",
]

SETS: Final = 64  # maximum number of sets; one page each, at the start of the memory
PAGE: Final = 4096  # bytes of the state page of a set
ITEM: Final = 8  # bytes per word
TRAYS: Final = 6  # trays per set: one or two running, two being filled, two whose outputs front ends are about to read
MARK, CURRENT, TURN, WAKE_ROWS, QUEUED, FIRST = range(6)  # words of a page; those of the trays start at FIRST
WIDTH: Final = (PAGE // ITEM - FIRST) // TRAYS  # words per tray: the following, and the claimed rows of each process
STATE, GENERATION, ROWS, COUNT, OWN = range(5)
STARTS: Final = tuple(range(FIRST, FIRST + TRAYS * WIDTH, WIDTH))
OPEN, RUNS, DONE, APART = range(4)  # waiting; running; outputs are ready; its requests were answered by messages
MARKS, ARRIVALS, ANSWERS, WORDS = range(4)  # words per row, at the start of a tray's memory
AT_ONCE: Final = 16  # lock attempts without a pause: claims take a few microseconds
PAUSE: Final = 50e-6  # seconds
PATIENCE: Final = 0.01  # seconds: a process that holds the lock longer was stopped; do not wait for it
EMPTY: Final = memoryview(bytes((WIDTH - ROWS) * ITEM)).cast("q")
NONE: Final = -1
ENGINE: Final = 0  # the index of the engine process; those of front ends follow
REQUEST_BITS: Final = 40  # bits of the request number in a mark; the kind is above
MOST_FRONTENDS: Final = WIDTH - OWN - 1
Location = tuple[int, int, int]  # location of a request: tray, turn, first row


@dataclass(frozen=True)
class Plan:
    """The memory layout of a set of trays.

    number: of the set; mark: generation of the set, above 0; rows: per tray; start, size: of the first tray in bytes, others
    follow; inputs, outputs: offset in a tray and bytes per row of each; most: maximum number of waiting requests.  A tray starts
    with a few words per row: kind and number of the request that starts there, negative once its client has disconnected; its
    arrival in nanoseconds; the turn in which it was answered.
    """

    number: int
    mark: int
    rows: int
    start: int
    size: int
    inputs: Sequence[tuple[int, int]]
    outputs: Sequence[tuple[int, int]]
    most: int


@dataclass(frozen=True)
class Offer:
    """The facts that a front end needs to write requests of one kind to trays.

    kind: its number; limit: timeout in seconds; outputs: positions of the requested outputs; cuts: padding of each input and
    cropping of each of these outputs, empty if all have the extents of the plan.
    """

    plan: Plan
    kind: int
    limit: float
    outputs: Sequence[int]
    cuts: Sequence[Cut] = ()

    def fields(self) -> Any:
        """Returns the fields for a message."""
        return astuple(self)

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Offer:
        plan, *rest = fields
        return cls(Plan(*plan), *rest)


def marked(kind: int, request: int) -> int:
    """Encodes kind and number of a request as the word of its first row."""
    return kind << REQUEST_BITS | request


def read_mark(word: int) -> tuple[int, int]:
    """Decodes kind and number of a request."""
    return word >> REQUEST_BITS, word & (1 << REQUEST_BITS) - 1


class Held(LookupError):
    """The lock has been held for longer than any operation takes: its owner was stopped."""


class Claims:
    """The state page of one set, protected by a file lock that the kernel releases if its owner exits.

    number: descriptor of the memory; must stay open, because closing any descriptor of the file releases the lock.
    One thread per process at a time.  All methods but `lock`, unless stated otherwise, require the lock.

    A process may be stopped (SIGSTOP) while holding the lock, and continue later.  The engine process does not wait for it: it
    takes open trays without the lock.  The stopped process may then still write its own rows of such a tray, and mark a tray
    without rows as open; a request marked ready too late is detected by its answer word, and its owner sends it as a message.
    """

    def __init__(self, number: int, memory: mmap.mmap, which: int) -> None:
        self._number, self._start = number, which * PAGE
        whole = memoryview(memory)
        self.words = whole[self._start : self._start + PAGE].cast("q")
        self._memory = whole[: len(whole) // ITEM * ITEM].cast("q")

    def lock(self) -> None:
        """Errors: Held."""
        end = 0.0
        for turn in itertools.count():
            try:
                fcntl.lockf(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, self._start)
                return
            except OSError as error:
                if error.errno not in (errno.EACCES, errno.EAGAIN):
                    raise
            if turn >= AT_ONCE:
                end = end or time.monotonic() + PATIENCE
                if time.monotonic() >= end:
                    raise Held
                time.sleep(PAUSE)

    def unlock(self) -> None:
        fcntl.lockf(self._number, fcntl.LOCK_UN, 1, self._start)

    def offer(self, mark: int) -> None:
        """Offers the set with empty trays; the first request wakes the engine process."""
        words = self.words
        for at in STARTS:
            words[at + STATE] = APART
            words[at + ROWS : at + WIDTH] = EMPTY
        words[CURRENT], words[WAKE_ROWS], words[QUEUED] = NONE, 1, 0
        words[MARK] = mark

    def withdraw(self) -> None:
        """Stops further claims and marks; does not require the lock."""
        self.words[MARK] = 0

    def waiting(self) -> int:
        """Returns the number of requests in trays that no run has taken; approximate without the lock."""
        words = self.words
        return sum([words[at + COUNT] for at in STARTS if words[at + STATE] == OPEN])

    def claim(self, plan: Plan, rows: int, process: int) -> Location | None:
        """Claims rows for a process to fill; None if no tray has that many free rows, or too many requests wait.

        Errors: LookupError if the set has been replaced since the plan.
        """
        words = self.words
        if words[MARK] != plan.mark:
            raise LookupError
        if self.waiting() + words[QUEUED] >= plan.most:
            return None
        tray = words[CURRENT]
        if tray == NONE or words[STARTS[tray] + ROWS] + rows > plan.rows:
            tray = self._open_tray(plan)
            if tray == NONE:
                return None
        at = STARTS[tray]
        row = words[at + ROWS]
        words[at + OWN + process] += rows  # first: rows without an owner would never be released
        words[at + ROWS] = row + rows
        words[at + COUNT] += 1
        return tray, words[at + GENERATION], row

    def _open_tray(self, plan: Plan) -> int:
        words = self.words
        for tray, at in enumerate(STARTS):
            if tray != words[CURRENT] and words[at + STATE] != RUNS and not any(words[at + OWN : at + WIDTH]):
                start = (plan.start + tray * plan.size) // ITEM
                self._memory[start : start + plan.rows] = memoryview(bytes(plan.rows * ITEM)).cast("q")
                words[at + ROWS : at + WIDTH] = EMPTY
                words[TURN] = words[at + GENERATION] = words[TURN] + 1
                words[at + STATE], words[CURRENT] = OPEN, tray
                return tray
        return NONE

    def mark_ready(self, plan: Plan, location: Location, mark: int, arrived: int) -> bool | None:
        """Marks a request as ready, its rows are filled; returns True if the engine process must be woken.

        None if its tray was taken without it, or the set was withdrawn.
        """
        words, (tray, turn, row) = self.words, location
        at = STARTS[tray]
        if words[MARK] != plan.mark or words[at + STATE] != OPEN or words[at + GENERATION] != turn:
            return None
        first = (plan.start + tray * plan.size) // ITEM + row
        self._memory[first + ARRIVALS * plan.rows] = arrived
        self._memory[first] = mark
        wakes = 0 < words[WAKE_ROWS] <= sum([words[at + ROWS] for at in STARTS if words[at + STATE] == OPEN])
        if wakes:
            words[WAKE_ROWS] = 0
        return wakes

    def cancel(self, plan: Plan, location: Location, mark: int) -> None:
        """Cancels a ready request whose client has disconnected."""
        words, (tray, turn, row) = self.words, location
        at = STARTS[tray]
        if words[at + STATE] == OPEN and words[at + GENERATION] == turn:
            self._memory[(plan.start + tray * plan.size) // ITEM + row] = -mark
            words[at + COUNT] -= 1

    def release(self, tray: int, rows: int, process: int) -> None:
        """Releases rows that a process no longer needs."""
        self.words[STARTS[tray] + OWN + process] -= rows

    def state(self, tray: int, turn: int) -> int:
        """Returns the state of a tray in which this process has rows; does not require the lock."""
        at = STARTS[tray]
        return self.words[at + STATE] if self.words[at + GENERATION] == turn else APART

    def answered(self, plan: Plan, location: Location) -> bool:
        """Returns True if a request was part of its tray's run; does not require the lock."""
        tray, turn, row = location
        return self._memory[(plan.start + tray * plan.size) // ITEM + ANSWERS * plan.rows + row] == turn

    def open_trays(self) -> Iterator[tuple[int, int, int]]:
        """Yields waiting trays, oldest first: number, turn, claimed rows; does not require the lock."""
        words = self.words
        for turn, tray in sorted(
            [(words[at + GENERATION], n) for n, at in enumerate(STARTS) if words[at + STATE] == OPEN]
        ):
            yield tray, turn, words[STARTS[tray] + ROWS]

    def take(self, tray: int) -> None:
        """Closes a tray to further claims and marks; does not require the lock for a tray with a ready request."""
        if self.words[CURRENT] == tray:
            self.words[CURRENT] = NONE
        self.words[STARTS[tray] + STATE] = RUNS

    def finish(self, tray: int, state: int) -> list[int]:
        """Marks a tray's run as finished; returns the processes that have rows in it; does not require the lock."""
        at = STARTS[tray]
        self.words[at + STATE] = state
        return [process for process, rows in enumerate(self.words[at + OWN : at + WIDTH]) if rows]

    def request_wakeup(self, rows: int = 1) -> None:
        """Requests a wake-up of the engine process once this many rows of waiting trays are claimed."""
        self.words[WAKE_ROWS] = rows

    def was_woken(self) -> bool:
        """Returns True if a request was marked since `request_wakeup`; does not require the lock."""
        return self.words[WAKE_ROWS] == 0

    def queue(self, count: int) -> None:
        """Publishes the number of requests that wait elsewhere; does not require the lock."""
        self.words[QUEUED] = count

    def release_all(self, process: int) -> None:
        """Releases all rows of an exited process."""
        for at in STARTS:
            self.words[at + OWN + process] = 0

    def idle(self) -> bool:
        """Returns True if no process holds rows and no run holds a tray."""
        return not any(self.words[at + STATE] == RUNS or any(self.words[at + OWN : at + WIDTH]) for at in STARTS)
