"""Batches that front ends fill: each copies the inputs of its requests to rows of the memory that they are run in."""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, Final

import numpy as np

from .blocks import ALIGNMENT, Blocks
from .tensors import Array
from .tray_claims import ENGINE, ITEM, PAGE, SETS, TRAYS, Claims, Plan, read_mark

__all__ = ["Tray", "TrayMemory", "Trays"]

MOST_SHARE: Final = 4  # one model has at most so manieth a part of the memory
Kind = tuple[Any, Callable[[int], Any]]  # the form of requests, and what gives what one of a number is answered by
Early = tuple[int, Any, Any]  # the first row of a request, its form, and what it is answered by
Laid = Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]  # name, element type and extents of a row of each input


class Tray:
    """One use of a tray, from its first request on; whoever refers to it or to its arrays keeps the tray from its next use.

    arrays: all rows of each input; closed: a run has it, or will not take it; copies: of rows that threads of this process copy.
    """

    __slots__ = ("__weakref__", "arrays", "closed", "copies", "number")

    def __init__(self, number: int, arrays: dict[str, Array], closed: bool) -> None:
        self.number, self.arrays, self.closed = number, arrays, closed
        self.copies: list[Future[None]] = []


class _Use:
    """What every array of a tray refers to, so that its end is the end of the last of them."""

    def __init__(self, data: Any, number: int, ended: deque[int]) -> None:
        self.__array_interface__ = data.__array_interface__
        self._data, self._number, self._ended = data, number, ended

    def __del__(self) -> None:
        self._ended.append(self._number)


class Trays:
    """The trays of one model, in the engine's process; several threads may use it.

    key: of the requests that fit; plan: where they lie; ended: no more are offered.
    No run waits for a row that was claimed: what is not marked by the time of a run is left to the next one.  A tray is
    used again once all that was claimed of it came, or its process has ended, and nothing refers to it any more.
    """

    def __init__(self, memory: TrayMemory, claims: Claims, whole: Array, plan: Plan, laid: Laid, key: Any) -> None:
        self.plan, self.key, self.ended = plan, key, False
        self._memory = memory  # whose descriptor the claims use
        self._pinned: object | None = None
        self._claims, self._whole, self._laid = claims, whole, laid
        self._lock = threading.Lock()
        self._ended: deque[int] = deque()  # trays that one use of has ended; threads add to them
        self._idle: set[int] = set()  # trays that are perhaps to be given free
        self._gone: list[int] = []  # processes that have ended, whose rows are to be given up
        self._offered = True
        self._uses = [0] * TRAYS
        self._now: list[weakref.ref[Tray] | None] = [None] * TRAYS
        self._closed = [False] * TRAYS
        self._came = [dict[int, int]() for _ in range(TRAYS)]  # rows by their processes
        self._known = [set[int]() for _ in range(TRAYS)]  # first rows of what came
        self._early = [dict[int, Any]() for _ in range(TRAYS)]  # of what is run before it comes, by its first row
        self._kinds: dict[int, Kind] = {}
        self._numbered = 0
        self._marks = [whole[n * plan.size :][: plan.rows * ITEM].view(np.int64) for n in range(TRAYS)]
        for marks in self._marks:
            marks[:] = 0
        claims.open(plan.mark)

    def add(self, kind: Kind) -> int:
        """Returns the number of a kind of requests, which are run from then on as soon as they are marked."""
        self._numbered += 1
        self._kinds[self._numbered] = kind
        return self._numbered

    def discard(self, kind: int) -> None:
        """Forgets a kind: its requests are run once their messages come."""
        self._kinds.pop(kind, None)

    def came(self, number: int, process: int, row: int, rows: int) -> tuple[Tray, Any]:
        """Returns the tray that a request of a process lies in, and what it is answered by if it was run before it came."""
        with self._lock:
            self._settle()
            self._count(number, process, rows)
            self._known[number].add(row)
            return self._use(number), self._early[number].get(row)

    def claim(self, rows: int) -> tuple[Tray, int] | None:
        """Returns a tray with room for a request of this process, and its first row there; None if there is none."""
        with self._lock:
            self._settle()
            try:
                found = self._claims.claim(self.plan.mark, rows, self.plan.rows, ENGINE)
            except LookupError:
                return None
            if found is None:
                return None
            number, row = found
            self._count(number, ENGINE, rows)
            return self._use(number), row

    def close(self, tray: Tray) -> tuple[int | None, list[Early]]:
        """Refuses further requests in a tray; returns how many of its rows may be written to, and those that are marked.

        Those that came are not among them.  None where that cannot be told: a process that was stopped has the lock.
        """
        with self._lock:
            number = tray.number
            tray.closed = self._closed[number] = True
            try:
                claimed = self._claims.close(number)
            except LookupError:
                return None, []
            known, found = self._known[number], []
            for row, word in enumerate(self._marks[number][:claimed].tolist()):
                if word and row not in known:
                    which, request = read_mark(word)
                    kind = self._kinds.get(which)
                    if kind is not None:
                        form, done = kind[0], kind[1](request)
                        self._early[number][row] = done
                        found.append((row, form, done))
            return claimed, found

    def pin(self, pinned: Callable[[Array], object | None]) -> bool:
        """Has a target pin the memory for as long as it is offered or in use; returns False where it cannot."""
        self._pinned = pinned(self._whole)
        return self._pinned is not None

    def unpin(self) -> None:
        """Lets the target forget the memory, which nothing refers to any more."""
        self._pinned = None

    def settle(self) -> bool:
        """Lets trays be used again that can be; returns True if all of them can."""
        with self._lock:
            self._settle()
            try:
                freed = [self._free(number) for number in range(TRAYS)]
            except LookupError:
                return False
            return all(freed)

    def left(self, process: int) -> None:
        """Gives up the rows that a process has claimed and will not fill: it has ended."""
        with self._lock:
            self._gone.append(process)
            self._settle()

    def settled(self, process: int) -> bool:
        """Returns True once the rows of a process that has ended are given up."""
        with self._lock:
            self._settle()
            return process not in self._gone

    def end(self) -> None:
        """Offers the trays no more; those in use stay as they are, and the memory is used again once none of them is."""
        with self._lock:
            self.ended = True
            self._settle()

    def _count(self, number: int, process: int, rows: int) -> None:
        came = self._came[number]
        came[process] = came.get(process, 0) + rows

    def _use(self, number: int) -> Tray:
        last = self._now[number]
        found = None if last is None else last()
        if found is None:
            start = number * self.plan.size
            data = self._whole[start : start + self.plan.size]
            block = np.asarray(_Use(data, number, self._ended))
            arrays = {}
            for (name, dtype, dims), (at, width) in zip(self._laid, self.plan.inputs, strict=True):
                arrays[name] = block[at : at + self.plan.rows * width].view(dtype).reshape(self.plan.rows, *dims)
            found = Tray(number, arrays, self._closed[number])
            self._now[number] = weakref.ref(found)
            self._uses[number] += 1
        return found

    def _settle(self) -> None:
        """Does what is left to do; once more, the next time, where a process that was stopped has the lock."""
        while self._ended:
            number = self._ended.popleft()
            self._uses[number] -= 1
            self._idle.add(number)
        try:
            if self.ended and self._offered:
                self._claims.end()
                self._offered = False
            while self._gone:
                for number, rows in enumerate(self._claims.claimed(self._gone[0])):
                    if rows:
                        self._came[number][self._gone[0]] = rows
                        self._idle.add(number)
                self._gone.pop(0)
            while self._idle:
                self._free(next(iter(self._idle)))
        except LookupError:
            return

    def _free(self, number: int) -> bool:
        came = sum(self._came[number].values())
        freed = not self._uses[number] and self._claims.free(number, came, self._marks[number])
        if freed:
            self._came[number] = {}
            self._known[number], self._early[number] = set(), {}
            self._closed[number] = False
        self._idle.discard(number)
        return freed


class TrayMemory:
    """The memory of all trays, mapped once for as long as the engine's process lives.

    number: a descriptor, which it closes in the end; size: bytes.
    """

    def __init__(self, number: int, size: int) -> None:
        self.number, self.size = number, size
        weakref.finalize(self, os.close, number)
        self._mapped = mmap.mmap(number, size)
        self._whole: Any = np.frombuffer(self._mapped, np.uint8)
        self._blocks = Blocks(size // ALIGNMENT * ALIGNMENT)
        self._blocks.take(SETS * PAGE)
        self._sets: dict[int, Trays] = {}
        self._marks = 0

    def offer(self, rows: int, laid: Laid, key: Any) -> Trays | None:
        """Returns new trays for runs of so many rows; None where there is no room for them."""
        for number in [n for n, trays in self._sets.items() if trays.ended and trays.settle()]:
            ended = self._sets.pop(number)
            ended.unpin()
            plan = ended.plan
            self._blocks.take_back(plan.start)
            self._mapped.madvise(mmap.MADV_REMOVE, plan.start, TRAYS * plan.size)
        inputs: list[tuple[int, int]] = []
        size = -(-rows * ITEM // PAGE) * PAGE
        for _, dtype, dims in laid:
            width = math.prod(dims) * dtype.itemsize
            inputs.append((size, width))
            size += -(-rows * width // ALIGNMENT) * ALIGNMENT
        size = -(-size // PAGE) * PAGE  # a tray has pages of its own
        free = next((n for n in range(SETS) if n not in self._sets), None)
        if free is None or TRAYS * size > self.size // MOST_SHARE:
            return None
        start = self._blocks.take(TRAYS * size)
        if start is None:
            return None
        self._marks += 1
        plan = Plan(free, self._marks, rows, start, size, inputs)
        whole = self._whole[start : start + TRAYS * size]
        claims = Claims(self.number, self._mapped, free)
        try:
            made = self._sets[free] = Trays(self, claims, whole, plan, laid, key)
        except LookupError:
            self._blocks.take_back(start)
            return None
        return made

    def of(self, number: int) -> Trays:
        """Returns the trays of a number, also where they are offered no more.  Errors: KeyError."""
        return self._sets[number]

    def left(self, process: int) -> None:
        """Gives up what a process has claimed: it has ended."""
        for trays in self._sets.values():
            trays.left(process)

    def settled(self, process: int) -> bool:
        """Returns True once the rows of a process that has ended are given up, so that another one may have its number."""
        return all(trays.settled(process) for trays in self._sets.values())
