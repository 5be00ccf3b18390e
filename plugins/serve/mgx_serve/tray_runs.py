"""Runs of what lies in trays, where it lies."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from .batch import kept, shapes_for, size_for
from .errors import Internal
from .model import Model
from .pace import Spent
from .stacks import Stacks
from .tensors import Array

if TYPE_CHECKING:  # which needs a system with locks of files
    from .trays import Filled, Trays

__all__ = ["TrayRuns"]


@dataclass(frozen=True, slots=True)
class Part:
    """Rows of a tray that one run has.  size: rows of the run, those that fill it up, too."""

    rows: slice | list[int]
    count: int
    size: int


class TrayRuns:
    """Runs the trays of one model; several threads may."""

    def __init__(self, model: Model, trays: Trays, stacks: Stacks) -> None:
        self._model, self._trays, self._stacks = model, trays, stacks
        self._like = {name: array.shape for name, array in trays.inputs[0].items()}
        self._known = [0 for _ in trays.inputs]  # rows of each tray, from the first on, that runs took

    def run(self, filled: Filled) -> Spent:
        """Runs a tray, in which the outputs lie then.  Errors: those of `Model.run`."""
        start, busy = time.monotonic(), time.thread_time()
        wanted = filled.wanted()
        known, self._known[filled.tray] = self._known[filled.tray], 0  # where this fails, any row may be the one
        for part in self._parts(filled):
            known = self._run(filled, part, wanted, known)
        self._known[filled.tray] = known
        return Spent(time.monotonic() - start, time.thread_time() - busy, start)

    def shapes(self, rows: int) -> tuple[tuple[int, ...], ...]:
        """Returns the shapes of the inputs of a run."""
        return shapes_for(self._model, self._like, size_for(self._model, rows))

    def _parts(self, filled: Filled) -> Iterator[Part]:
        """Yields the runs of a tray: one, unless two were measured to end sooner."""
        count = kept(self._model, filled.ends, self._like)
        for first, last in ((0, count), (count, len(filled.ends))):
            if first < last:
                yield self._part(filled.firsts[first:last], filled.ends[first:last])

    def _part(self, firsts: list[int], ends: list[int]) -> Part:
        """Returns the rows from the first request to the last, those between them, too, which are others'.

        Where that would take a larger run, or rows that the tray has not, those of the requests alone.
        """
        start, end = firsts[0], ends[-1]
        rows = sum(ends) - sum(firsts)
        size = size_for(self._model, end - start)
        if size > size_for(self._model, rows) or start + size > self._trays.plan.rows:
            apart = chain.from_iterable([range(*pair) for pair in zip(firsts, ends, strict=True)])
            return Part([*apart], rows, size_for(self._model, rows))
        return Part(slice(start, end), end - start, size)

    def _run(self, filled: Filled, part: Part, wanted: list[int], known: int) -> int:
        """Returns how many rows of the tray, from the first on, were taken by runs; known: before."""
        given, stack = self._trays.inputs[filled.tray], None
        feeds: Mapping[str, Array]
        if isinstance(part.rows, slice):
            start, end = part.rows.start, part.rows.start + part.size
            feeds = {name: array[start:end] for name, array in given.items()}
            free = max(part.rows.stop, filled.claimed, known)
            for array in given.values():
                array[free:end] = array[part.rows.stop - 1]  # a row that the model takes, where nobody writes
            known = max(known, end) if start <= known else known
        else:
            stack = self._stacks.take()
            rows = part.rows + part.rows[-1:] * (part.size - part.count)
            feeds = {name: stack.place(name, array, part.size) for name, array in given.items()}
            for name, place in feeds.items():
                np.take(given[name], rows, 0, place)
        made = self._model.run(feeds, wanted)
        if stack is not None:  # one of a run that failed may still be read
            self._stacks.give_back(stack)
        for number, result in zip(wanted, made, strict=True):
            place = self._trays.outputs[filled.tray][number]
            if result.dtype != place.dtype or result.shape[1:] != place.shape[1:] or len(result) < part.count:
                told = self._model.signature.outputs[number]
                raise Internal(f"output {told.name!r} is {told}, a run gave {result.dtype}{list(result.shape)}")
            place[part.rows] = result[: part.count]
        return known
