"""Batches: requests that wait, and runs that several of them share."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np

from .model import Model
from .pace import Spent
from .tensors import Array, Lying, arrays_of

__all__ = [
    "Done",
    "Form",
    "Made",
    "Ran",
    "Request",
    "Together",
    "alone",
    "apart",
    "first_come",
    "kind_of",
    "run",
    "shapes_of",
    "together",
]


class Done(Protocol):
    """What a request is answered with; a future is one."""

    def done(self) -> bool:
        """Returns True once it is answered, or its client has left."""

    def set_result(self, result: list[Array], /) -> None:
        """Answers it."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Refuses it."""


@dataclass(frozen=True, slots=True)
class Form:
    """What requests of the same shapes have in common.

    key: equal in requests that can be joined, None for what is run by itself; priority: lower ones go first; limit: seconds after
    which one is given up; wanted: positions of the outputs that it is answered with.
    """

    rows: int
    key: Any
    priority: int
    limit: float
    wanted: Sequence[int]


class Request:
    """One request in the queue.

    deadline: by `time.monotonic`, after which it is given up; for the rest, see `Form`.
    """

    __slots__ = ("arrived", "deadline", "done", "feeds", "key", "priority", "rows", "started", "wanted")

    def __init__(self, feeds: Mapping[str, Array | Lying], form: Form, done: Done, arrived: float) -> None:
        self.feeds, self.done, self.arrived = feeds, done, arrived
        self.rows, self.key, self.priority, self.wanted = form.rows, form.key, form.priority, form.wanted
        self.deadline = arrived + form.limit
        self.started = 0.0


class Stack:
    """The memory of one batch at a time.

    memory: returns bytes, unset; rows: of the largest run, for which it is taken at once.
    """

    def __init__(self, memory: Callable[[int], Array], rows: int) -> None:
        self._memory, self._rows = memory, rows
        self._held: dict[str, Array] = {}

    def joined(self, name: str, values: Sequence[Array | Lying], spare: int) -> Array:
        """Returns an input's values joined along the first axis, the last row repeated `spare` times: a row that the model takes.

        It is valid until the next batch is put together here.
        """
        given = [v for v in values if v.shape[0]] or list(values)
        first = given[0]
        if first.dtype.hasobject:
            objects = cast("list[Array]", given)  # of which none lies elsewhere
            return np.concatenate([*objects, *[objects[-1][-1:]] * spare])
        rows = sum([v.shape[0] for v in given])
        lens = (rows + spare if rows else 0, *first.shape[1:])
        row = math.prod(lens[1:]) * first.dtype.itemsize
        held = self._held.get(name)
        if held is None or held.nbytes < lens[0] * row:
            held = self._held[name] = self._memory(max(lens[0], self._rows) * row)
        place: Array = held[: lens[0] * row].view(first.dtype).reshape(lens)
        arrays = [v for v in given if not isinstance(v, Lying)]
        if len(arrays) == len(given):
            np.concatenate(arrays, out=place[:rows])
        else:
            _read(given, place)
        if rows < len(place):
            place[rows:] = place[rows - 1]
        return place


def _read(values: Sequence[Array | Lying], place: Array) -> None:
    """Joins values along the first axis from the first row of an array on, each copied once.  Errors: BadRequest."""
    start = 0
    for value in values:
        end = start + value.shape[0]
        if isinstance(value, Lying):
            value.read_into(place[start:end])
        else:
            place[start:end] = value
        start = end


class Stacks:
    """Stacks that batches use one after another; several threads may take and give back.

    memory, rows: see `Stack`.  Fresh memory would be mapped and zeroed page by page for each batch.
    """

    def __init__(self, memory: Callable[[int], Array], rows: int) -> None:
        self._memory, self._rows = memory, rows
        self._idle: list[Stack] = []

    def take(self) -> Stack:
        try:
            return self._idle.pop()
        except IndexError:
            return Stack(self._memory, self._rows)

    def give_back(self, stack: Stack) -> None:
        """Lets another batch have it, once nothing reads what was put together in it."""
        self._idle.append(stack)


Made = Mapping[int, Array]  # outputs of a run by their positions
Ran = tuple[Made, Spent]
Together = tuple[
    Mapping[str, Array], Stack | None
]  # the inputs of a run, and the memory that they lie in unless it is a request's


def first_come(request: Request) -> int:
    """Returns the sort key: the priority.  A stable sort by it keeps requests of one priority in the order of arrival."""
    return request.priority


def kind_of(batch: Sequence[Request]) -> tuple[int, Any]:
    """Returns the key under which times of runs are kept: the total of the rows, and the extents of the inputs."""
    first = batch[0]
    rows = first.rows if len(batch) == 1 else sum(r.rows for r in batch)
    return rows, first.key or tuple([v.shape for v in first.feeds.values()])


def shapes_of(model: Model, batch: Sequence[Request]) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the inputs of a run."""
    first = batch[0]
    given = [first.feeds[t.name].shape for t in model.signature.inputs]
    if first.key is None:
        return tuple(given)
    size = _size(model.sizes, first, sum(r.rows for r in batch))
    return tuple([(size, *shape[1:]) for shape in given])


def together(model: Model, batch: Sequence[Request], stacks: Stacks, ahead: bool = False) -> Together:
    """Returns the inputs of a run, filled up to one of the model's sizes.

    ahead: another run is under way; the inputs of one request, too, are then copied to where the target takes them from sooner.
    """
    first = batch[0]
    rows = sum(r.rows for r in batch)
    spare = _size(model.sizes, first, rows) - rows
    sooner = ahead and model.own_memory and first.key is not None and rows <= model.settings.max_batch
    if len(batch) == 1 and not spare and not sooner:
        return arrays_of(first.feeds), None
    stack = stacks.take()
    return {n: stack.joined(n, [r.feeds[n] for r in batch], spare) for n in first.feeds}, stack


def run(model: Model, batch: Sequence[Request], stacks: Stacks, inputs: Callable[[], Together]) -> Ran:
    """Runs requests together.  inputs: gives what `together` does.  Errors: those of `Model.run`."""
    start, busy = time.monotonic(), time.thread_time()
    feeds, stack = inputs()
    made = _needed(model, feeds, batch)
    if stack is not None:  # one of a run that failed may still be read
        stacks.give_back(stack)
    return made, Spent(time.monotonic() - start, time.thread_time() - busy, start)


def alone(model: Model, request: Request) -> list[Array]:
    """Returns what a request wants of a run that it has for itself.  Errors: those of `Model.run`."""
    made = _needed(model, arrays_of(request.feeds), (request,))
    return [made[n] for n in request.wanted]


def _needed(model: Model, feeds: Mapping[str, Array], batch: Sequence[Request]) -> Made:
    """Returns the outputs of a run that any of the requests wants."""
    needed = sorted({n for r in batch for n in r.wanted})
    return dict(zip(needed, model.run(feeds, needed), strict=True))


def apart(made: Made, batch: Sequence[Request]) -> list[list[Array]]:
    """Returns for each request its rows of the outputs that it wants."""
    if batch[0].key is None:
        return [[made[n] for n in batch[0].wanted]]
    results, start = [], 0
    for request in batch:
        end = start + request.rows
        results.append([made[n][start:end] for n in request.wanted])
        start = end
    return results


def _size(sizes: Sequence[int], first: Request, rows: int) -> int:
    """Returns the rows of a run: the next size, where there are sizes."""
    at = bisect.bisect_left(sizes, rows)
    return rows if first.key is None or at == len(sizes) else sizes[at]
