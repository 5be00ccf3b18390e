"""Batches: requests that wait, and runs that several of them share."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Protocol

from .model import Model
from .pace import Spent
from .padding import Padding
from .stacks import Stack, Stacks
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
    "kept",
    "kind_of",
    "run",
    "seconds_for",
    "shapes_for",
    "shapes_of",
    "size_for",
    "size_of",
    "together",
    "worth",
]

BETWEEN: Final = 100e-6  # seconds between two runs


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

    key: equal in requests that can be joined, None for what is run by itself; size: bytes of the inputs, 0 where one holds text;
    priority: lower ones go first; limit: seconds after which one is given up; wanted: positions of the outputs that it gets;
    padding: of the inputs, after which they have the extents of the key.
    """

    rows: int
    key: Any
    size: int
    priority: int
    limit: float
    wanted: Sequence[int]
    padding: Padding | None = None


class Request:
    """One request in the queue, its inputs padded.

    deadline: by `time.monotonic`, after which it is given up; laid: in what its rows were put as they came; for the rest, see
    `Form`.
    """

    __slots__ = (
        "arrived",
        "deadline",
        "done",
        "feeds",
        "key",
        "laid",
        "padding",
        "priority",
        "rows",
        "size",
        "started",
        "wanted",
    )

    def __init__(self, feeds: Mapping[str, Array | Lying], form: Form, done: Done, arrived: float) -> None:
        self.feeds, self.done, self.arrived = feeds, done, arrived
        self.rows, self.key, self.size = form.rows, form.key, form.size
        self.priority, self.wanted, self.padding = form.priority, form.wanted, form.padding
        self.deadline = arrived + form.limit
        self.started = 0.0
        self.laid: object = None


Made = Mapping[int, Array]  # outputs of a run by their positions
Ran = tuple[Made, Spent]
# the inputs of a run, and the memory that they lie in unless it is a request's
Together = tuple[Mapping[str, Array], Stack | None]


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
    if first.key is None:
        return tuple([first.feeds[t.name].shape for t in model.signature.inputs])
    return shapes_for(model, {n: v.shape for n, v in first.feeds.items()}, size_of(model, batch))


def worth(model: Model, batch: Sequence[Request]) -> int:
    """Returns how many requests of a batch are to be run together, from the first on."""
    if len(batch) < 2 or batch[0].key is None:
        return len(batch)
    return kept(model, [*accumulate([r.rows for r in batch])], {n: v.shape for n, v in batch[0].feeds.items()})


def kept(model: Model, ends: Sequence[int], like: Mapping[str, Sequence[int]]) -> int:
    """Returns how many requests that can be joined are to be run together, from the first on.

    Where a run would be filled up to the next size, and two runs without it were measured to end sooner, the others are left for
    the next one.
    ends: of their rows; like: the shapes of one's inputs.
    """
    rows = ends[-1]
    if len(ends) < 2 or rows == size_for(model, rows):
        return len(ends)
    count = bisect.bisect(ends, model.sizes[bisect.bisect_left(model.sizes, rows) - 1])
    if not count:
        return len(ends)
    first = ends[count - 1]
    together, one, other = (seconds_for(model, like, n) for n in (rows, first, rows - first))
    return count if one + other + BETWEEN < together else len(ends)


def seconds_for(model: Model, like: Mapping[str, Sequence[int]], rows: int) -> float:
    """Returns how long a run of so many rows takes; NaN if that was not measured."""
    return model.seconds.get(shapes_for(model, like, size_for(model, rows)), math.nan)


def shapes_for(model: Model, like: Mapping[str, Sequence[int]], rows: int) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the inputs of a run of so many rows.  like: those of a request."""
    return tuple([(rows, *like[t.name][1:]) for t in model.signature.inputs])


def together(model: Model, batch: Sequence[Request], stacks: Stacks, ahead: bool = False) -> Together:
    """Returns the inputs of a run, filled up to one of the model's sizes.

    ahead: another run is under way; the inputs of one request, too, are then copied to where the target takes them from sooner.
    """
    first = batch[0]
    rows = sum(r.rows for r in batch)
    spare = size_of(model, batch) - rows
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


def size_of(model: Model, batch: Sequence[Request]) -> int:
    """Returns the rows of a run of requests: the next size, where there are sizes."""
    rows = sum([r.rows for r in batch])
    return rows if batch[0].key is None else size_for(model, rows)


def size_for(model: Model, rows: int) -> int:
    """Returns the rows of a run of so many rows of joined requests."""
    at = bisect.bisect_left(model.sizes, rows)
    return rows if at == len(model.sizes) else model.sizes[at]
