"""Rows of batches that several processes claim, each for its own requests.

A set of trays is the memory of the next batches of one model; a tray holds the inputs of one batch.  One page for each set says
which tray is being filled and how many of its rows are claimed.  A front end takes the page's lock, claims rows, lets the lock
go, copies its inputs to the rows, marks the first of them, and sends the engine's process a message that says where they lie.
The engine's process takes the lock to close a tray when it runs it, and to give it free again.  It runs what is marked, also
where the message is on its way.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import mmap
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

__all__ = ["ENGINE", "ITEM", "MOST_FRONTENDS", "PAGE", "SETS", "TRAYS", "Claims", "Filling", "Plan", "read_mark"]

SETS: Final = 64  # of trays, one for a model; a page each, at the start of the memory
PAGE: Final = 4096  # bytes of the words that say who has claimed what of one set
ITEM: Final = 8  # bytes of a word
TRAYS: Final = 4  # of a set: one is run, one waits, one is filled, one is kept by answers on their way
MARK, CURRENT, FIRST = 0, 1, 2  # words of a page; the trays' begin at FIRST
WIDTH: Final = (PAGE // ITEM - FIRST) // TRAYS  # words of a tray: its state, its claimed rows, those of each process
STATE, ROWS, OWN = 0, 1, 2
AT_ONCE: Final = 16  # times that a lock is asked for without a pause: rows are claimed in a few microseconds
PAUSE: Final = 50e-6  # seconds
PATIENCE: Final = 0.01  # seconds: a process that has a lock for longer was stopped, and others do not wait for it
EMPTY: Final = memoryview(bytes((WIDTH - ROWS) * ITEM)).cast("q")
FREE, USED = 0, 1
NONE: Final = -1
ENGINE: Final = 0  # the number of the engine's process; those of front ends follow
REQUEST_BITS: Final = 40  # of a mark; those above have the kind
MOST_FRONTENDS: Final = WIDTH - OWN - 1


@dataclass(frozen=True)
class Plan:
    """Where the trays of one model lie.

    number: of the set; mark: of this use of it, above 0; rows: of a tray; start, size: of the first tray, in bytes, the others
    follow; inputs: where each lies in a tray, and the bytes of a row, in the order of requests; kind: the number of a kind of
    requests, which are equal but for their elements; 0 for those that are not marked.  A tray begins with a word for each row.
    """

    number: int
    mark: int
    rows: int
    start: int
    size: int
    inputs: Sequence[tuple[int, int]]
    kind: int = 0

    def fields(self, kind: int) -> list[Any]:
        """Returns what messages have, for requests of a kind."""
        return [self.number, self.mark, self.rows, self.start, self.size, list(self.inputs), kind]


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
    One thread of a process at a time.  Errors: Held, of each method.
    """

    def __init__(self, number: int, memory: mmap.mmap, which: int) -> None:
        self._number, self._start = number, which * PAGE
        self._words = memoryview(memory)[self._start : self._start + PAGE].cast("q")

    def _lock(self) -> None:
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

    def _unlock(self) -> None:
        fcntl.lockf(self._number, fcntl.LOCK_UN, 1, self._start)

    def open(self, mark: int) -> None:
        """Offers the set, all its trays empty."""
        self._lock()
        try:
            for tray in range(TRAYS):
                at = FIRST + tray * WIDTH
                self._words[at + STATE] = FREE
                self._words[at + ROWS : at + WIDTH] = EMPTY
            self._words[MARK], self._words[CURRENT] = mark, NONE
        finally:
            self._unlock()

    def end(self) -> None:
        """Refuses claims from now on."""
        self._lock()
        try:
            self._words[MARK] = 0
        finally:
            self._unlock()

    def claim(self, mark: int, rows: int, most: int, own: int) -> tuple[int, int] | None:
        """Returns a tray and the first of so many rows in it, for a process; None where no tray has so many left.

        most: rows of a tray.  Errors: LookupError where the set is not the one of this mark any more.
        """
        words = self._words
        self._lock()
        try:
            if words[MARK] != mark:
                raise LookupError
            tray = words[CURRENT]
            if tray == NONE or words[FIRST + tray * WIDTH + ROWS] + rows > most:
                tray = next((n for n in range(TRAYS) if words[FIRST + n * WIDTH + STATE] == FREE), NONE)
                if tray == NONE:
                    return None
                words[FIRST + tray * WIDTH + STATE], words[CURRENT] = USED, tray
            at = FIRST + tray * WIDTH
            row = words[at + ROWS]
            words[at + OWN + own] += rows  # first: rows that nobody has claimed would never be given up
            words[at + ROWS] = row + rows
            return tray, row
        finally:
            self._unlock()

    def close(self, tray: int) -> int:
        """Refuses further claims of a tray; returns how many of its rows are claimed."""
        self._lock()
        try:
            if self._words[CURRENT] == tray:
                self._words[CURRENT] = NONE
            return self._words[FIRST + tray * WIDTH + ROWS]
        finally:
            self._unlock()

    def free(self, tray: int, came: int, marks: Any) -> bool:
        """Empties a tray, of whose rows nothing is needed any more; returns False where more are claimed than came.

        marks: of its rows.
        """
        words, at = self._words, FIRST + tray * WIDTH
        self._lock()
        try:
            if sum(words[at + OWN : at + WIDTH]) != came:
                return False
            words[at + ROWS : at + WIDTH] = EMPTY
            marks[:came] = 0
            words[at + STATE] = USED if words[CURRENT] == tray else FREE
            return True
        finally:
            self._unlock()

    def show(self, memory: memoryview, at: int, value: int) -> None:
        """Writes a word behind what this process has written before: the lock orders both."""
        self._lock()
        try:
            memory[at] = value
        finally:
            self._unlock()

    def claimed(self, own: int) -> list[int]:
        """Returns the rows of each tray that a process has claimed."""
        self._lock()
        try:
            return [self._words[FIRST + tray * WIDTH + OWN + own] for tray in range(TRAYS)]
        finally:
            self._unlock()


class Filling:
    """The part of a front end: it copies its requests' inputs straight to the batch that they will be run in.

    number, size: of the memory of all sets; own: the number of this process.
    """

    def __init__(self, number: int, size: int, own: int) -> None:
        self._number, self._own = number, own
        self._mapped = mmap.mmap(number, size)
        self._memory = memoryview(self._mapped)
        self._words = self._memory[: size // ITEM * ITEM].cast("q")
        self._claims: dict[int, Claims] = {}

    def put(self, plan: Plan, request: int, rows: int, parts: Sequence[Any]) -> tuple[int, int, int, int] | None:
        """Returns where the inputs lie now: the set, the tray, the first row, the rows; None where there is no room.

        request: its number; parts: the elements of its inputs, in the plan's order.
        Errors: LookupError where the set is offered no more, or held.
        """
        claims = self._claims.get(plan.number)
        if claims is None:
            claims = self._claims[plan.number] = Claims(self._number, self._mapped, plan.number)
        found = claims.claim(plan.mark, rows, plan.rows, self._own)
        if found is None:
            return None
        tray, row = found
        start = plan.start + tray * plan.size
        for (at, width), part in zip(plan.inputs, parts, strict=True):
            first = start + at + row * width
            self._memory[first : first + rows * width] = part
        if plan.kind:
            with contextlib.suppress(Held):  # it is run once its message comes
                claims.show(self._words, start // ITEM + row, marked(plan.kind, request))
        return plan.number, tray, row, rows
