"""Rows of batches that several processes claim, each for its own requests.

A set of trays is the memory of the next batches of one model; a tray holds the inputs of one batch, and its outputs.  One page
for each set says which tray is being filled and how many of its rows are claimed, behind a lock.
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
    "Lies",
    "Offer",
    "Plan",
    "marked",
    "read_mark",
]

SETS: Final = 64  # of trays, one for a model; a page each, at the start of the memory
PAGE: Final = 4096  # bytes of the words that say who has claimed what of one set
ITEM: Final = 8  # bytes of a word
TRAYS: Final = 6  # of a set: one or two are run, two are filled, two have answers that front ends are about to read
MARK, CURRENT, TURN, ASLEEP, QUEUED, FIRST = range(6)  # words of a page; the trays' begin at FIRST
WIDTH: Final = (PAGE // ITEM - FIRST) // TRAYS  # words of a tray: those below, and the claimed rows of each process
STATE, SINCE, ROWS, COUNT, OWN = range(5)
STARTS: Final = tuple(range(FIRST, FIRST + TRAYS * WIDTH, WIDTH))
OPEN, RUNS, DONE, APART = range(4)  # waits; is run; its outputs lie there; its requests were answered by messages
MARKS, ARRIVALS, ANSWERS, WORDS = range(4)  # words of each row, at the start of a tray's memory
AT_ONCE: Final = 16  # times that a lock is asked for without a pause: rows are claimed in a few microseconds
PAUSE: Final = 50e-6  # seconds
PATIENCE: Final = 0.01  # seconds: a process that has a lock for longer was stopped, and others do not wait for it
EMPTY: Final = memoryview(bytes((WIDTH - ROWS) * ITEM)).cast("q")
NONE: Final = -1
ENGINE: Final = 0  # the number of the engine's process; those of front ends follow
REQUEST_BITS: Final = 40  # of a mark; those above have the kind
MOST_FRONTENDS: Final = WIDTH - OWN - 1
Lies = tuple[int, int, int]  # where a request lies: tray, turn, first row


@dataclass(frozen=True)
class Plan:
    """Where the trays of one model lie.

    number: of the set; mark: of this use of it, above 0; rows: of a tray; start, size: of the first tray, in bytes, the others
    follow; inputs, outputs: where each lies in a tray, and the bytes of a row; most: requests that may wait.  A tray begins
    with words for each row: the kind and the number of the request that begins there, below 0 once its client has left; when it
    came, in nanoseconds; the turn in which it was answered.
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
    """What a process has to know to put requests of one kind in trays.

    kind: its number; limit: seconds after which a request is given up; outputs: positions of those that it gets; cuts: how each
    input is padded, and then each of those outputs cut, none where all have the extents of the plan.
    """

    plan: Plan
    kind: int
    limit: float
    outputs: Sequence[int]
    cuts: Sequence[Cut] = ()

    def fields(self) -> Any:
        """Returns what messages have."""
        return astuple(self)

    @classmethod
    def of(cls, fields: Sequence[Any]) -> Offer:
        plan, *rest = fields
        return cls(Plan(*plan), *rest)


def marked(kind: int, request: int) -> int:
    """Returns the word of a request's first row."""
    return kind << REQUEST_BITS | request


def read_mark(word: int) -> tuple[int, int]:
    """Returns the kind and the number of a request."""
    return word >> REQUEST_BITS, word & (1 << REQUEST_BITS) - 1


class Held(LookupError):
    """Another process has had the lock for longer than it takes to claim rows: it was stopped."""


class Claims:
    """The words of one set, behind a lock that is let go when the process that has it ends.

    number: a descriptor of the memory, which stays open: to close any of them would let the lock go.
    One thread of a process at a time.  All but `lock` and what says otherwise is for who has the lock.

    A process may be stopped while it has it, and goes on some time later as if nothing had been.  The engine's process does not
    wait for that: it takes trays that are open without the lock then.  What the other one may yet write is rows of its own in
    such a tray, and that it is open, in one that had none; who marks a row that no run has taken sees so by its word of answers.
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
        """Offers the set, all its trays empty, to processes that wake this one for the first request."""
        words = self.words
        for at in STARTS:
            words[at + STATE] = APART
            words[at + ROWS : at + WIDTH] = EMPTY
        words[CURRENT], words[ASLEEP], words[QUEUED] = NONE, 1, 0
        words[MARK] = mark

    def withdraw(self) -> None:
        """Refuses claims and marks from now on; without the lock, too."""
        self.words[MARK] = 0

    def waiting(self) -> int:
        """Returns how many requests lie in trays that no run has taken; without the lock, about so many."""
        words = self.words
        return sum([words[at + COUNT] for at in STARTS if words[at + STATE] == OPEN])

    def claim(self, plan: Plan, rows: int, own: int) -> Lies | None:
        """Returns where so many rows are that a process may fill; None where no tray has so many left, or too many wait.

        Errors: LookupError where the set is not that of the plan any more.
        """
        words = self.words
        if words[MARK] != plan.mark:
            raise LookupError
        if self.waiting() + words[QUEUED] >= plan.most:
            return None
        tray = words[CURRENT]
        if tray == NONE or words[STARTS[tray] + ROWS] + rows > plan.rows:
            tray = self._opened(plan)
            if tray == NONE:
                return None
        at = STARTS[tray]
        row = words[at + ROWS]
        words[at + OWN + own] += rows  # first: rows that nobody has claimed would never be given up
        words[at + ROWS] = row + rows
        words[at + COUNT] += 1
        return tray, words[at + SINCE], row

    def _opened(self, plan: Plan) -> int:
        words = self.words
        for tray, at in enumerate(STARTS):
            if tray != words[CURRENT] and words[at + STATE] != RUNS and not any(words[at + OWN : at + WIDTH]):
                start = (plan.start + tray * plan.size) // ITEM
                self._memory[start : start + plan.rows] = memoryview(bytes(plan.rows * ITEM)).cast("q")
                words[at + ROWS : at + WIDTH] = EMPTY
                words[TURN] = words[at + SINCE] = words[TURN] + 1
                words[at + STATE], words[CURRENT] = OPEN, tray
                return tray
        return NONE

    def show(self, plan: Plan, lies: Lies, mark: int, arrived: int) -> bool | None:
        """Marks a request whose rows are filled; returns whether the engine's process is to be woken.

        None where its tray was taken without it, or the set is offered no more.
        """
        words, (tray, turn, row) = self.words, lies
        at = STARTS[tray]
        if words[MARK] != plan.mark or words[at + STATE] != OPEN or words[at + SINCE] != turn:
            return None
        first = (plan.start + tray * plan.size) // ITEM + row
        self._memory[first + ARRIVALS * plan.rows] = arrived
        self._memory[first] = mark
        wakes = 0 < words[ASLEEP] <= sum([words[at + ROWS] for at in STARTS if words[at + STATE] == OPEN])
        if wakes:
            words[ASLEEP] = 0
        return wakes

    def hide(self, plan: Plan, lies: Lies, mark: int) -> None:
        """Notes that the client of a request that is marked has left."""
        words, (tray, turn, row) = self.words, lies
        at = STARTS[tray]
        if words[at + STATE] == OPEN and words[at + SINCE] == turn:
            self._memory[(plan.start + tray * plan.size) // ITEM + row] = -mark
            words[at + COUNT] -= 1

    def release(self, tray: int, rows: int, own: int) -> None:
        """Gives rows back that a process needs no more."""
        self.words[STARTS[tray] + OWN + own] -= rows

    def state(self, tray: int, turn: int) -> int:
        """Returns what became of a tray that this process has rows of; without the lock, too."""
        at = STARTS[tray]
        return self.words[at + STATE] if self.words[at + SINCE] == turn else APART

    def answered(self, plan: Plan, lies: Lies) -> bool:
        """Returns True for a request of a tray that was run which that run had; without the lock, too."""
        tray, turn, row = lies
        return self._memory[(plan.start + tray * plan.size) // ITEM + ANSWERS * plan.rows + row] == turn

    def open_trays(self) -> Iterator[tuple[int, int, int]]:
        """Yields the trays that wait, the oldest first: number, turn, rows that are claimed; without the lock, too."""
        words = self.words
        for turn, tray in sorted([(words[at + SINCE], n) for n, at in enumerate(STARTS) if words[at + STATE] == OPEN]):
            yield tray, turn, words[STARTS[tray] + ROWS]

    def take(self, tray: int) -> None:
        """Refuses further claims of a tray, and marks; without the lock, too, for one that has a mark."""
        if self.words[CURRENT] == tray:
            self.words[CURRENT] = NONE
        self.words[STARTS[tray] + STATE] = RUNS

    def finish(self, tray: int, state: int) -> list[int]:
        """Notes that a tray's run is over; returns the processes that have rows of it; without the lock, too."""
        at = STARTS[tray]
        self.words[at + STATE] = state
        return [own for own, rows in enumerate(self.words[at + OWN : at + WIDTH]) if rows]

    def sleep(self, rows: int = 1) -> None:
        """Has the process wake the engine's that marks a request when so many rows are claimed in trays that wait."""
        self.words[ASLEEP] = rows

    def awake(self) -> bool:
        """Returns True if a request was marked since `sleep`; without the lock, too."""
        return self.words[ASLEEP] == 0

    def queue(self, count: int) -> None:
        """Says how many requests wait elsewhere; without the lock, too."""
        self.words[QUEUED] = count

    def leave(self, own: int) -> None:
        """Gives up all rows of a process that has ended."""
        for at in STARTS:
            self.words[at + OWN + own] = 0

    def idle(self) -> bool:
        """Returns True if no process has rows and no run has a tray."""
        return not any(self.words[at + STATE] == RUNS or any(self.words[at + OWN : at + WIDTH]) for at in STARTS)
