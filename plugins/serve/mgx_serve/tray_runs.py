"""Runs trays in place."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import numpy as np

from .batch import batch_size_for, count_to_run, measured_seconds, shapes_for
from .batch_buffers import BatchBufferPool
from .errors import Internal
from .model import Model
from .run_times import Spent
from .tensors import Array

if TYPE_CHECKING:  # needs a system with file locks
    from .trays import TakenTray, Trays

__all__ = ["Copies", "TrayRuns"]

COPY_RATE: Final = 1e10  # bytes per second
LARGE: Final = 1 << 20  # bytes of outputs: copying more takes longer than waking a thread
Rows = slice | list[int]
Copies = Sequence[tuple[Array, Rows, Array]]  # tray outputs: array, rows, values


@dataclass(frozen=True, slots=True)
class Part:
    """The rows of a tray in one run.  size: rows of the run, including padding."""

    rows: Rows
    count: int
    size: int


class TrayRuns:
    """Runs the trays of one set.  Thread-safe.

    last_used: start or end of the latest run, of `time.monotonic`.
    """

    def __init__(self, model: Model, trays: Trays, buffers: BatchBufferPool, threads: ThreadPoolExecutor) -> None:
        """threads: executor for copies of large outputs."""
        self._model, self.trays, self._buffers = model, trays, buffers
        self.last_used = time.monotonic()
        self._shapes = {name: array.shape for name, array in trays.inputs[0].items()}
        self._width = sum([array[0].nbytes for array in trays.inputs[0].values()])
        self._threads = threads
        self._initialized = [0 for _ in trays.inputs]  # number of initialized rows of each tray

    def run(self, tray: TakenTray) -> tuple[Spent, Copies]:
        """Runs a tray; returns the outputs still to be copied to it.  Errors: those of `Model.run`."""
        start, busy = time.monotonic(), time.thread_time()
        self.last_used = start
        copies: list[tuple[Array, Rows, Array]] = []
        wanted = tray.wanted()
        known = self._initialized[tray.index]
        self._initialized[tray.index] = 0  # if the run fails, any of the rows may be at fault
        taken = 0
        for part in self._parts(tray):
            made = self._run(tray, part, known, wanted)
            copies += self._copies(tray, part, wanted, made)
            if isinstance(part.rows, slice) and part.rows.start <= taken:
                taken = max(taken, part.rows.start + part.size)
        # rows written in this turn that no run has read may hold anything
        self._initialized[tray.index] = taken if taken < tray.claimed else max(taken, known)
        self.last_used = time.monotonic()
        return Spent(self.last_used - start, time.thread_time() - busy, start), copies

    def copy(self, copies: Copies, done: Callable[[], None]) -> None:
        """Copies outputs; large ones in a thread, so that the next run can start.  done: called afterwards, in that thread."""
        if sum([made.nbytes for *_, made in copies]) >= LARGE:
            with contextlib.suppress(RuntimeError):  # no thread can be started
                self._threads.submit(_copy_outputs, copies, done)
                return
        _copy_outputs(copies, done)

    def shapes(self, rows: int) -> tuple[tuple[int, ...], ...]:
        """Returns the shapes of the inputs of a run."""
        return shapes_for(self._model, self._shapes, batch_size_for(self._model, rows))

    def _parts(self, tray: TakenTray) -> Iterator[Part]:
        """Yields the runs of a tray: one, unless two were measured to be faster."""
        count = count_to_run(self._model, tray.ends, self._shapes)
        for first, last in ((0, count), (count, len(tray.ends))):
            if first < last:
                yield self._part(tray.firsts[first:last], tray.ends[first:last])

    def _part(self, firsts: list[int], ends: list[int]) -> Part:
        """Returns the rows from the first request to the last, including unused rows in between.

        If that needs a larger batch size than copying the requests' rows together would cost, or rows beyond the tray, only the
        requests' rows.
        """
        start, end = firsts[0], ends[-1]
        rows = sum(ends) - sum(firsts)
        size = batch_size_for(self._model, end - start)
        if start + size > self.trays.plan.rows or (
            size > batch_size_for(self._model, rows) and self._takes_longer(end - start, rows)
        ):
            indices = chain.from_iterable([range(*pair) for pair in zip(firsts, ends, strict=True)])
            return Part([*indices], rows, batch_size_for(self._model, rows))
        return Part(slice(start, end), end - start, size)

    def _takes_longer(self, more: int, rows: int) -> bool:
        """Returns True if a larger run takes longer than a copy and a smaller run, or was not measured."""
        spent, least = (measured_seconds(self._model, self._shapes, n) for n in (more, rows))
        return not spent <= least + rows * self._width / COPY_RATE

    def _run(self, tray: TakenTray, part: Part, known: int, wanted: list[int]) -> list[Array]:
        """Runs a part; returns its outputs.  known: number of rows, from the first on, whose contents earlier runs have read."""
        given, buffer = self.trays.inputs[tray.index], None
        feeds: Mapping[str, Array]
        if isinstance(part.rows, slice):
            start, end = part.rows.start, part.rows.start + part.size
            feeds = {name: array[start:end] for name, array in given.items()}
            free = max(part.rows.stop, tray.claimed, known)
            for array in given.values():
                array[free:end] = array[part.rows.stop - 1]  # a copy of a valid row for unused rows
        else:
            buffer = self._buffers.take()
            rows = part.rows + part.rows[-1:] * (part.size - part.count)
            feeds = {name: buffer.array(name, array, part.size) for name, array in given.items()}
            for name, place in feeds.items():
                np.take(given[name], rows, 0, place)
        made = self._model.run(feeds, wanted)
        if buffer is not None:  # a failed run may still be reading it
            self._buffers.give_back(buffer)
        return made

    def _copies(self, tray: TakenTray, part: Part, wanted: list[int], made: Sequence[Array]) -> Copies:
        """Returns the destinations of outputs in a tray.  Errors: Internal for outputs that contradict the model's signature."""
        copies = []
        for number, result in zip(wanted, made, strict=True):
            place = self.trays.outputs[tray.index][number]
            if result.dtype != place.dtype or result.shape[1:] != place.shape[1:] or len(result) < part.count:
                tensor = self._model.signature.outputs[number]
                raise Internal(f"output {tensor.name!r} is {tensor}, a run gave {result.dtype}{list(result.shape)}")
            copies.append((place, part.rows, result[: part.count]))
        return copies


def _copy_outputs(copies: Copies, done: Callable[[], None]) -> None:
    for place, rows, made in copies:
        place[rows] = made
    done()
