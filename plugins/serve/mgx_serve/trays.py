"""Batches that front ends fill: each copies the inputs of its requests to rows of the memory that they are run in."""

from __future__ import annotations

import math
import mmap
import os
import threading
import weakref
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from .batch import Done, Form, Request
from .blocks import ALIGNMENT, Blocks
from .padding import Cut
from .tensors import Array
from .tray_claims import (
    ANSWERS,
    APART,
    ARRIVALS,
    DONE,
    ENGINE,
    ITEM,
    MARKS,
    PAGE,
    SETS,
    TRAYS,
    WORDS,
    Claims,
    Held,
    Offer,
    Plan,
    read_mark,
)

__all__ = ["Filled", "TrayMemory", "Trays", "Waits"]

MOST_SHARE: Final = 4  # one model has at most so manieth a part of the memory
MOST_KINDS: Final = 1 << 12  # of requests that one model's trays take
Laid = Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]  # name, element type and extents of a row of each tensor


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that differ in nothing but their elements.

    done: gives what one of a number is answered by where messages answer it.
    """

    form: Form
    done: Callable[[int], Done]


@dataclass(frozen=True, slots=True)
class Waits:
    """What lies in trays that no run has taken.  oldest: when the first of these requests came."""

    rows: int
    oldest: float


@dataclass(slots=True)
class Filled:
    """A tray that a run has taken, and its requests, in the order of their rows.

    firsts, ends: of their rows; claimed: rows that a process may yet write to; arrived: when each came, by `time.monotonic`.
    """

    tray: int
    turn: int
    claimed: int
    kinds: list[Kind]
    numbers: list[int]
    firsts: list[int]
    ends: list[int]
    arrived: list[float]

    @property
    def rows(self) -> int:
        return sum([kind.form.rows for kind in self.kinds])

    def wanted(self) -> list[int]:
        """Returns the positions of the outputs that any of the requests wants, rising."""
        return sorted({n for form in {id(k): k.form for k in self.kinds}.values() for n in form.wanted})


class Trays:
    """The trays of one model, in the engine's process; several threads may use it.

    key: of the requests that fit; plan: where they lie; inputs, outputs: the tensors; ended: no more are offered.
    uncertain: a process that was stopped has the lock, and what it was about to mark is to be looked for later.
    woken: called when a request was marked while nobody looked for any.
    """

    def __init__(
        self, memory: TrayMemory, claims: Claims, whole: Array, plan: Plan, laid: tuple[Laid, Laid], key: Hashable
    ) -> None:
        self.plan, self.key, self.ended, self.uncertain = plan, key, False, False
        self.woken: Callable[[], None] = lambda: None
        self.inputs: list[dict[str, Array]] = []
        self.outputs: list[list[Array]] = []
        self._memory = memory  # whose descriptor the claims use
        self._pinned: object | None = None
        self._claims, self._whole = claims, whole
        self._lock = threading.Lock()
        self._gone: set[int] = set()  # processes that have ended, whose rows are to be given up
        self._kinds: dict[int, Kind] = {}
        self._numbers: dict[tuple[object, Hashable], int] = {}
        self._words = []
        for tray in range(TRAYS):
            block = whole[tray * plan.size :][: plan.size]
            self._words.append(block[: WORDS * plan.rows * ITEM].view(np.int64).reshape(WORDS, plan.rows))
            self.inputs.append(_rows(block, plan.rows, plan.inputs, laid[0]))
            self.outputs.append([*_rows(block, plan.rows, plan.outputs, laid[1]).values()])
        claims.lock()
        claims.offer(plan.mark)
        claims.unlock()

    def add(self, owner: object, form: Form, done: Callable[[int], Done]) -> Offer | None:
        """Returns what a process has to know to put requests of a kind here; None where there are too many kinds.

        owner: answers by messages for that process.
        """
        like = owner, (form.rows, tuple(form.wanted), form.padding)  # limits of time are the other process's to keep
        number = self._numbers.get(like)
        if number is None:
            if len(self._kinds) >= MOST_KINDS:
                return None
            number = self._numbers[like] = self._memory.number_of_kind()
            self._kinds[number] = Kind(form, done)
        return Offer(self.plan, number, form.limit, list(form.wanted), self._cuts(form))

    def _cuts(self, form: Form) -> list[Cut]:
        """Returns how requests are padded and their results cut, in the order of the plan; nothing where they are not."""
        if form.padding is None:
            return []
        arrays = self.inputs[0]
        padded = {n: (own, dims, arrays[n].itemsize, element) for n, own, dims, element in form.padding.inputs}
        made = [(form.padding.outputs[n], self.outputs[0][n]) for n in form.wanted]
        return [*map(padded.__getitem__, arrays), *((own, o.shape[1:], o.itemsize, b"") for own, o in made)]

    @property
    def bytes(self) -> int:
        """Of memory that the set takes."""
        return TRAYS * self.plan.size

    def take(self) -> Filled | None:
        """Returns the tray that waits for the longest, which no request can join any more; None where none waits.

        The next request that is marked then calls `woken`.
        """
        with self._lock:
            locked = self._locked()
            found = next((f for f in map(self._found, self._claims.open_trays()) if f is not None), None)
            if found is not None:
                self._claims.take(found.tray)
            else:
                self._claims.sleep()
            self._unlock(locked)
        return found

    def waits(self, enough: int = 1) -> Waits | None:
        """Returns what waits; None where nothing does, and the next request that is marked then calls `woken`.

        Else one does with which so many rows wait.
        """
        with self._lock:
            locked = self._locked()
            found = [f for f in map(self._found, self._claims.open_trays()) if f is not None]
            self._claims.sleep(enough if found else 1)
            self._unlock(locked)
        return Waits(sum([f.rows for f in found]), min([min(f.arrived) for f in found])) if found else None

    def oldest(self) -> float:
        """Returns when the first of the requests that wait came, infinity where none does; without the lock, about so."""
        marked = []
        for tray, _, claimed in self._claims.open_trays():
            words = self._words[tray][:, :claimed]
            marked += words[ARRIVALS, words[MARKS] > 0].tolist()
        return min(marked) * 1e-9 if marked else math.inf

    def awake(self) -> bool:
        """Returns True where a request was marked since nothing was found to wait, or a run goes on with what is marked."""
        return self._claims.awake()

    def waiting(self) -> int:
        """Returns how many requests wait."""
        return self._claims.waiting()

    def queue(self, count: int) -> None:
        """Says how many requests wait elsewhere, for the bound on their number."""
        self._claims.queue(count)

    def finish(self, filled: Filled, answered: bool) -> None:
        """Lets front ends have what a run gave.  answered: outputs lie in the tray; else messages tell."""
        self._words[filled.tray][ANSWERS, filled.firsts] = filled.turn
        with self._lock:
            locked = self._locked()
            processes = self._claims.finish(filled.tray, DONE if answered else APART)
            self._unlock(locked)
        for process in processes:
            self._memory.ring(process)

    def requests(self, filled: Filled) -> list[Request]:
        """Returns the requests of a tray, each of which messages will answer."""
        made = []
        arrays = self.inputs[filled.tray]
        for kind, number, first, end, arrived in zip(
            filled.kinds, filled.numbers, filled.firsts, filled.ends, filled.arrived, strict=True
        ):
            feeds = {name: array[first:end] for name, array in arrays.items()}
            made.append(Request(feeds, kind.form, kind.done(number), arrived))
        return made

    def pin(self, pinned: Callable[[Array], object | None]) -> bool:
        """Has a target pin the memory for as long as it is offered or in use; returns False where it cannot."""
        self._pinned = pinned(self._whole)
        return self._pinned is not None

    def unpin(self) -> None:
        """Lets the target forget the memory, which nothing refers to any more."""
        self._pinned = None

    def left(self, process: int, owner: object) -> None:
        """Gives up the rows of a process: it has ended.  owner: of its kinds; its requests are not run."""
        with self._lock:
            for found in [like for like in self._numbers if like[0] is owner]:
                del self._kinds[self._numbers.pop(found)]
        self._gone.add(process)
        self.settled(process)

    def settled(self, process: int) -> bool:
        """Returns True once the rows of a process that has ended are given up."""
        with self._lock:
            if self._gone and self._locked():
                for gone in self._gone:
                    self._claims.leave(gone)
                self._gone.clear()
                self._unlock(True)
            return process not in self._gone

    def end(self) -> None:
        """Offers the trays no more; what is marked stays, and the memory is used again once nobody needs it."""
        self.ended = True
        with self._lock:
            locked = self._locked()
            self._claims.withdraw()
            self._unlock(locked)

    def settle(self) -> bool:
        """Returns True if the memory of trays that have ended can be used again."""
        with self._lock:
            locked = self._locked()
            idle = locked and self._claims.idle()
            self._unlock(locked)
        return idle

    def _locked(self) -> bool:
        """Returns False where a process that was stopped has the lock."""
        try:
            self._claims.lock()
        except Held:
            self.uncertain = True
            return False
        self.uncertain = False
        return True

    def _unlock(self, locked: bool) -> None:
        if locked:
            self._claims.unlock()

    def _found(self, tray: tuple[int, int, int]) -> Filled | None:
        """Returns a tray with its requests whose clients wait; None where there are none.  tray: number, turn, claimed rows."""
        number, turn, claimed = tray
        words = self._words[number]
        found = Filled(number, turn, claimed, [], [], [], [], [])
        for row, mark in enumerate(words[MARKS, :claimed].tolist()):
            if mark > 0:
                which, request = read_mark(mark)
                kind = self._kinds.get(which)
                if kind is not None:
                    found.kinds.append(kind)
                    found.numbers.append(request)
                    found.firsts.append(row)
                    found.ends.append(row + kind.form.rows)
        found.arrived = (words[ARRIVALS, found.firsts] * 1e-9).tolist()
        return found if found.numbers else None


def _rows(block: Array, rows: int, places: Sequence[tuple[int, int]], laid: Laid) -> dict[str, Array]:
    """Returns all rows of each tensor of a tray."""
    return {
        name: block[at : at + rows * width].view(dtype).reshape(rows, *dims)
        for (name, dtype, dims), (at, width) in zip(laid, places, strict=True)
    }


class TrayMemory:
    """The memory of all trays, mapped once for as long as the engine's process lives.

    number: a descriptor, which it closes in the end; size: bytes; processes: front ends.
    bells: descriptors that wake the engine's process, and each front end.
    """

    def __init__(self, number: int, size: int, processes: int) -> None:
        self.number, self.size = number, size
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(ENGINE + 1 + processes)]
        for descriptor in (number, *self.bells):
            weakref.finalize(self, os.close, descriptor)
        self._mapped = mmap.mmap(number, size)
        self._whole: Any = np.frombuffer(self._mapped, np.uint8)
        self._blocks = Blocks(size // ALIGNMENT * ALIGNMENT)
        self._blocks.take(SETS * PAGE)
        self._sets: dict[int, Trays] = {}
        self._marks = self._kinds = 0

    def filling(self, own: int) -> tuple[int, int, int, int, int]:
        """Returns what `Filling` takes, for a front end."""
        return self.number, self.size, own, self.bells[ENGINE], self.bells[own]

    def number_of_kind(self) -> int:
        """Returns a number that no other kind of requests has."""
        self._kinds += 1
        return self._kinds

    def offer(self, rows: int, inputs: Laid, outputs: Laid, key: Hashable, most: int, held: int = 0) -> Trays | None:
        """Returns new trays for runs of so many rows; None where there is no room for them.

        most: requests that may wait; held: bytes that other trays of the same model take.
        """
        for number in [n for n, trays in self._sets.items() if trays.ended and trays.settle()]:
            ended = self._sets.pop(number)
            ended.unpin()
            plan = ended.plan
            self._blocks.take_back(plan.start)
            self._mapped.madvise(mmap.MADV_REMOVE, plan.start, TRAYS * plan.size)
        places: list[tuple[int, int]] = []
        size = -(-WORDS * rows * ITEM // PAGE) * PAGE
        for _, dtype, dims in (*inputs, *outputs):
            width = math.prod(dims) * dtype.itemsize
            places.append((size, width))
            size += -(-rows * width // ALIGNMENT) * ALIGNMENT
        size = -(-size // PAGE) * PAGE  # a tray has pages of its own
        free = next((n for n in range(SETS) if n not in self._sets), None)
        if free is None or held + TRAYS * size > self.size // MOST_SHARE:
            return None
        start = self._blocks.take(TRAYS * size)
        if start is None:
            return None
        self._marks += 1
        count = len(inputs)
        plan = Plan(free, self._marks, rows, start, size, places[:count], places[count:], most)
        whole = self._whole[start : start + TRAYS * size]
        claims = Claims(self.number, self._mapped, free)
        try:
            made = self._sets[free] = Trays(self, claims, whole, plan, (inputs, outputs), key)
        except LookupError:
            self._blocks.take_back(start)
            return None
        return made

    def ring(self, process: int) -> None:
        """Wakes a front end."""
        os.eventfd_write(self.bells[process], 1)

    def rung(self) -> None:
        """Wakes the queues of models: a front end has marked a request."""
        os.eventfd_read(self.bells[ENGINE])
        for trays in list(self._sets.values()):
            if trays.awake():
                trays.woken()

    def left(self, process: int, owner: object) -> None:
        """Gives up what a process has claimed: it has ended.  owner: of its kinds of requests."""
        for trays in self._sets.values():
            trays.left(process, owner)

    def settled(self, process: int) -> bool:
        """Returns True once the rows of a process that has ended are given up, so that another one may have its number."""
        settled = [trays.settled(process) for trays in self._sets.values()]
        return all(settled)
