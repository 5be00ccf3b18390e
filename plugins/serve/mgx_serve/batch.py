"""Batches: requests that wait, and runs that several of them share."""

from __future__ import annotations

import asyncio
import bisect
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .model import Model
from .pace import Spent
from .tensors import Array

__all__ = ["Ran", "Request", "alone", "first_come", "kind_of", "run", "shapes_of"]


@dataclass(slots=True, eq=False)
class Request:
    """One request in the queue.

    priority: lower ones go first; deadline: by `time.monotonic`, after which it is given up; wanted: positions of the outputs
    that it is answered with.
    """

    feeds: Mapping[str, Array]
    rows: int
    key: Any
    priority: int
    deadline: float
    done: asyncio.Future[list[Array]]
    arrived: float
    wanted: Sequence[int]
    started: float = 0.0


Ran = tuple[list[list[Array]], Spent]  # the outputs that each request wants


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


def run(model: Model, batch: Sequence[Request]) -> Ran:
    """Runs requests together, filled up to one of the model's sizes.  Errors: those of `Model.run`."""
    start, busy = time.monotonic(), time.thread_time()
    rows = sum(r.rows for r in batch)
    spare = _size(model.sizes, batch[0], rows) - rows
    if len(batch) == 1 and not spare:
        results = [alone(model, batch[0])]
    else:
        feeds = {n: _stacked([r.feeds[n] for r in batch], spare) for n in batch[0].feeds}
        results = _apart(_needed(model, feeds, batch), batch)
    return results, Spent(time.monotonic() - start, time.thread_time() - busy, start)


def alone(model: Model, request: Request) -> list[Array]:
    """Returns what a request wants of a run that it has for itself.  Errors: those of `Model.run`."""
    made = _needed(model, request.feeds, (request,))
    return [made[n] for n in request.wanted]


def _needed(model: Model, feeds: Mapping[str, Array], batch: Sequence[Request]) -> Mapping[int, Array]:
    """Returns the outputs of a run that any of the requests wants, by their positions."""
    needed = sorted({n for r in batch for n in r.wanted})
    return dict(zip(needed, model.run(feeds, needed), strict=True))


def _apart(made: Mapping[int, Array], batch: Sequence[Request]) -> list[list[Array]]:
    """Returns for each request its rows of the outputs that it wants."""
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


def _stacked(values: Sequence[Array], spare: int) -> Array:
    """Returns values joined along the first axis, the last row repeated behind them: a row that the model takes."""
    given = [v for v in values if v.shape[0]] or list(values)
    return np.concatenate([*given, *[given[-1][-1:]] * spare])
