"""Trays: batch buffers in shared memory that front ends fill and the engine process runs in place (see `tray_claims`)."""

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

from .batch import Completion, Request, RequestSpec
from .block_allocator import ALIGNMENT, BlockAllocator
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

__all__ = ["TakenTray", "TrayMemory", "Trays", "Waits"]

MOST_SHARE: Final = 4  # one model gets at most 1/MOST_SHARE of the memory
MOST_KINDS: Final = 1 << 12  # maximum number of kinds per set
RowLayouts = Sequence[tuple[str, np.dtype[Any], tuple[int, ...]]]  # name, element type and row extents of each tensor


@dataclass(frozen=True, slots=True)
class Kind:
    """Requests that differ only in their elements.

    done: returns the completion of a request by number, if it is answered by message.
    """

    spec: RequestSpec
    done: Callable[[int], Completion]


@dataclass(frozen=True, slots=True)
class Waits:
    """The waiting rows of trays.  oldest: arrival of the oldest request."""

    rows: int
    oldest: float


@dataclass(slots=True)
class TakenTray:
    """A taken tray and its requests, in row order.

    firsts, ends: of their rows; claimed: rows that a process may still write; arrived: arrival times of `time.monotonic`.
    """

    index: int
    turn: int
    claimed: int
    kinds: list[Kind]
    numbers: list[int]
    firsts: list[int]
    ends: list[int]
    arrived: list[float]

    @property
    def rows(self) -> int:
        return sum([kind.spec.rows for kind in self.kinds])

    def wanted(self) -> list[int]:
        """Returns the positions of all requested outputs, ascending."""
        return sorted({n for spec in {id(k): k.spec for k in self.kinds}.values() for n in spec.wanted})


class Trays:
    """A set of trays of one model, in the engine process.  Thread-safe.

    key: batching key of its requests; plan: memory layout; inputs, outputs: the tensors; ended: the set is withdrawn.
    uncertain: a stopped process holds the lock; its marks must be looked for later.
    on_marked: called when a request was marked while no thread was looking for trays.
    """

    def __init__(
        self,
        memory: TrayMemory,
        claims: Claims,
        whole: Array,
        plan: Plan,
        layouts: tuple[RowLayouts, RowLayouts],
        key: Hashable,
    ) -> None:
        self.plan, self.key, self.ended, self.uncertain = plan, key, False, False
        self.on_marked: Callable[[], None] = lambda: None
        self.inputs: list[dict[str, Array]] = []
        self.outputs: list[list[Array]] = []
        self._memory = memory  # its descriptor is used by the claims
        self._pinned: object | None = None
        self._claims, self._whole = claims, whole
        self._lock = threading.Lock()
        self._exited: set[int] = set()  # exited processes whose rows are to be released
        self._kinds: dict[int, Kind] = {}
        self._numbers: dict[tuple[object, Hashable], int] = {}
        self._words = []
        for tray in range(TRAYS):
            block = whole[tray * plan.size :][: plan.size]
            self._words.append(block[: WORDS * plan.rows * ITEM].view(np.int64).reshape(WORDS, plan.rows))
            self.inputs.append(_rows(block, plan.rows, plan.inputs, layouts[0]))
            self.outputs.append([*_rows(block, plan.rows, plan.outputs, layouts[1]).values()])
        claims.lock()
        claims.offer(plan.mark)
        claims.unlock()

    def add(self, owner: object, spec: RequestSpec, done: Callable[[int], Completion]) -> Offer | None:
        """Adds a kind of requests; returns the offer for the front end, None if there are too many kinds.

        owner: sends responses by message to that front end.
        """
        like = owner, (spec.rows, tuple(spec.wanted), spec.padding)  # timeouts are enforced by the front end
        number = self._numbers.get(like)
        if number is None:
            if len(self._kinds) >= MOST_KINDS:
                return None
            number = self._numbers[like] = self._memory.number_of_kind()
            self._kinds[number] = Kind(spec, done)
        return Offer(self.plan, number, spec.limit, list(spec.wanted), self._cuts(spec))

    def _cuts(self, spec: RequestSpec) -> list[Cut]:
        """Returns padding and cropping in the order of the plan; empty if none is needed."""
        if spec.padding is None:
            return []
        arrays = self.inputs[0]
        padded = {n: (own, dims, arrays[n].itemsize, element) for n, own, dims, element in spec.padding.inputs}
        made = [(spec.padding.outputs[n], self.outputs[0][n]) for n in spec.wanted]
        return [*map(padded.__getitem__, arrays), *((own, o.shape[1:], o.itemsize, b"") for own, o in made)]

    @property
    def bytes(self) -> int:
        """Size of the set in bytes."""
        return TRAYS * self.plan.size

    def take(self) -> TakenTray | None:
        """Takes the tray that has waited longest and closes it to further requests.

        Returns None if none is waiting; the next request marked then calls `on_marked`.
        """
        with self._lock:
            locked = self._locked()
            found = next((f for f in map(self._found, self._claims.open_trays()) if f is not None), None)
            if found is not None:
                self._claims.take(found.index)
            else:
                self._claims.request_wakeup()
            self._unlock(locked)
        return found

    def waits(self, enough: int = 1) -> Waits | None:
        """Returns the waiting rows; None if there are none: the next request that is marked then calls `on_marked`.

        Otherwise `on_marked` is called once that many rows are waiting.
        """
        with self._lock:
            locked = self._locked()
            found = [f for f in map(self._found, self._claims.open_trays()) if f is not None]
            self._claims.request_wakeup(enough if found else 1)
            self._unlock(locked)
        return Waits(sum([f.rows for f in found]), min([min(f.arrived) for f in found])) if found else None

    def oldest(self) -> float:
        """Returns the arrival of the oldest waiting request, infinity if there is none; lock-free and approximate."""
        marked = []
        for tray, _, claimed in self._claims.open_trays():
            words = self._words[tray][:, :claimed]
            marked += words[ARRIVALS, words[MARKS] > 0].tolist()
        return min(marked) * 1e-9 if marked else math.inf

    def was_woken(self) -> bool:
        """Returns True if a request was marked since no tray was found, or a run continues with marked requests."""
        return self._claims.was_woken()

    def waiting(self) -> int:
        """Returns the number of waiting requests."""
        return self._claims.waiting()

    def queue(self, count: int) -> None:
        """Publishes the number of requests waiting elsewhere, for the queue limit."""
        self._claims.queue(count)

    def finish(self, tray: TakenTray, answered: bool) -> None:
        """Releases a tray to the front ends after its run.  answered: its outputs are valid; otherwise messages were sent."""
        self._words[tray.index][ANSWERS, tray.firsts] = tray.turn
        with self._lock:
            locked = self._locked()
            processes = self._claims.finish(tray.index, DONE if answered else APART)
            self._unlock(locked)
        for process in processes:
            self._memory.ring(process)

    def requests(self, tray: TakenTray) -> list[Request]:
        """Returns the requests of a tray for completion by messages."""
        made = []
        arrays = self.inputs[tray.index]
        for kind, number, first, end, arrived in zip(
            tray.kinds, tray.numbers, tray.firsts, tray.ends, tray.arrived, strict=True
        ):
            feeds = {name: array[first:end] for name, array in arrays.items()}
            made.append(Request(feeds, kind.spec, kind.done(number), arrived))
        return made

    def pin(self, pinned: Callable[[Array], object | None]) -> bool:
        """Pins the memory for the target while it is in use; returns False if that is not supported."""
        self._pinned = pinned(self._whole)
        return self._pinned is not None

    def unpin(self) -> None:
        """Unpins the memory, to which nothing refers any more."""
        self._pinned = None

    def process_exited(self, process: int, owner: object) -> None:
        """Releases the rows of an exited process; its requests do not run.  owner: of its kinds."""
        with self._lock:
            for found in [like for like in self._numbers if like[0] is owner]:
                del self._kinds[self._numbers.pop(found)]
        self._exited.add(process)
        self.settled(process)

    def settled(self, process: int) -> bool:
        """Returns True once the rows of an exited process are released."""
        with self._lock:
            if self._exited and self._locked():
                for exited in self._exited:
                    self._claims.release_all(exited)
                self._exited.clear()
                self._unlock(True)
            return process not in self._exited

    def end(self) -> None:
        """Withdraws the trays; marked requests still run, and the memory is reused once it is idle."""
        self.ended = True
        with self._lock:
            locked = self._locked()
            self._claims.withdraw()
            self._unlock(locked)

    def settle(self) -> bool:
        """Returns True if the memory of a withdrawn set can be reused."""
        with self._lock:
            locked = self._locked()
            idle = locked and self._claims.idle()
            self._unlock(locked)
        return idle

    def _locked(self) -> bool:
        """Acquires the lock; returns False if a stopped process holds it."""
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

    def _found(self, tray: tuple[int, int, int]) -> TakenTray | None:
        """Returns a tray with its live requests; None if it has none.  tray: number, turn, claimed rows."""
        number, turn, claimed = tray
        words = self._words[number]
        found = TakenTray(number, turn, claimed, [], [], [], [], [])
        for row, mark in enumerate(words[MARKS, :claimed].tolist()):
            if mark > 0:
                which, request = read_mark(mark)
                kind = self._kinds.get(which)
                if kind is not None:
                    found.kinds.append(kind)
                    found.numbers.append(request)
                    found.firsts.append(row)
                    found.ends.append(row + kind.spec.rows)
        found.arrived = (words[ARRIVALS, found.firsts] * 1e-9).tolist()
        return found if found.numbers else None


def _rows(block: Array, rows: int, places: Sequence[tuple[int, int]], layouts: RowLayouts) -> dict[str, Array]:
    """Returns arrays over all rows of each tensor of a tray."""
    return {
        name: block[at : at + rows * width].view(dtype).reshape(rows, *dims)
        for (name, dtype, dims), (at, width) in zip(layouts, places, strict=True)
    }


class TrayMemory:
    """The memory of all trays, mapped once for the lifetime of the engine process.

    number: descriptor, owned by this object; size: in bytes; processes: number of front ends.
    bells: event descriptors that wake the engine process and each front end.
    """

    def __init__(self, number: int, size: int, processes: int) -> None:
        self.number, self.size = number, size
        self.bells = [os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC) for _ in range(ENGINE + 1 + processes)]
        for descriptor in (number, *self.bells):
            weakref.finalize(self, os.close, descriptor)
        self._mapped = mmap.mmap(number, size)
        self._whole: Any = np.frombuffer(self._mapped, np.uint8)
        self._blocks = BlockAllocator(size // ALIGNMENT * ALIGNMENT)
        self._blocks.allocate(SETS * PAGE)
        self._sets: dict[int, Trays] = {}
        self._marks = self._kinds = 0

    def writer_arguments(self, own: int) -> tuple[int, int, int, int, int]:
        """Returns the arguments of `TrayWriter` for a front end."""
        return self.number, self.size, own, self.bells[ENGINE], self.bells[own]

    def number_of_kind(self) -> int:
        """Returns a unique number for a kind of requests."""
        self._kinds += 1
        return self._kinds

    def offer(
        self, rows: int, inputs: RowLayouts, outputs: RowLayouts, key: Hashable, most: int, held: int = 0
    ) -> Trays | None:
        """Creates a set of trays for runs of this many rows; None if there is no room.

        most: maximum number of waiting requests; held: bytes of other sets of the same model.
        """
        for number in [n for n, trays in self._sets.items() if trays.ended and trays.settle()]:
            ended = self._sets.pop(number)
            ended.unpin()
            plan = ended.plan
            self._blocks.free(plan.start)
            self._mapped.madvise(mmap.MADV_REMOVE, plan.start, TRAYS * plan.size)
        places: list[tuple[int, int]] = []
        size = -(-WORDS * rows * ITEM // PAGE) * PAGE
        for _, dtype, dims in (*inputs, *outputs):
            width = math.prod(dims) * dtype.itemsize
            places.append((size, width))
            size += -(-rows * width // ALIGNMENT) * ALIGNMENT
        size = -(-size // PAGE) * PAGE  # trays are page-aligned
        free = next((n for n in range(SETS) if n not in self._sets), None)
        if free is None or held + TRAYS * size > self.size // MOST_SHARE:
            return None
        start = self._blocks.allocate(TRAYS * size)
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
            self._blocks.free(start)
            return None
        return made

    def ring(self, process: int) -> None:
        """Wakes a front end."""
        os.eventfd_write(self.bells[process], 1)

    def on_bell(self) -> None:
        """Wakes the queues: a front end has marked a request."""
        os.eventfd_read(self.bells[ENGINE])
        for trays in list(self._sets.values()):
            if trays.was_woken():
                trays.on_marked()

    def process_exited(self, process: int, owner: object) -> None:
        """Releases the rows of an exited process.  owner: of its kinds of requests."""
        for trays in self._sets.values():
            trays.process_exited(process, owner)

    def settled(self, process: int) -> bool:
        """Returns True once the rows of an exited process are released, so that its index can be reused."""
        settled = [trays.settled(process) for trays in self._sets.values()]
        return all(settled)
