"""Batches: queued requests, and the runs that several of them share."""

from __future__ import annotations

import bisect
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Final, Protocol

from .batch_buffers import BatchBuffer, BatchBufferPool
from .model import Model
from .padding import Padding
from .run_times import Spent
from .tensors import Array, DeferredInput, arrays_of

__all__ = [
    "BatchInputs",
    "Completion",
    "Outputs",
    "Request",
    "RequestSpec",
    "RunResult",
    "batch_inputs",
    "batch_size_for",
    "batch_size_of",
    "by_priority",
    "count_to_run",
    "kind_of",
    "measured_seconds",
    "requests_to_run",
    "run",
    "run_alone",
    "shapes_for",
    "shapes_of",
    "split_outputs",
]

RUN_OVERHEAD: Final = 100e-6  # seconds between two runs


class Completion(Protocol):
    """The completion interface of a request; implemented by futures."""

    def done(self) -> bool:
        """Returns True once it is completed or its client has disconnected."""

    def set_result(self, result: list[Array], /) -> None:
        """Completes it with a result."""

    def set_exception(self, exception: BaseException, /) -> None:
        """Completes it with an error."""


@dataclass(frozen=True, slots=True)
class RequestSpec:
    """The properties that requests with the same input shapes share.

    key: equal for requests that can be batched together, None for a request that runs alone; size: bytes of the inputs, 0 if one
    holds strings; priority: lower runs first; limit: timeout in seconds; wanted: positions of the requested outputs;
    padding: pads the inputs to the extents of the key.
    """

    rows: int
    key: Any
    size: int
    priority: int
    limit: float
    wanted: Sequence[int]
    padding: Padding | None = None


class Request:
    """One queued request with padded inputs.

    deadline: of `time.monotonic`; staged: the batch that its rows were staged in on arrival; other fields: see `RequestSpec`.
    """

    __slots__ = (
        "arrived",
        "deadline",
        "done",
        "feeds",
        "key",
        "padding",
        "priority",
        "rows",
        "size",
        "staged",
        "started",
        "wanted",
    )

    def __init__(
        self, feeds: Mapping[str, Array | DeferredInput], spec: RequestSpec, done: Completion, arrived: float
    ) -> None:
        self.feeds, self.done, self.arrived = feeds, done, arrived
        self.rows, self.key, self.size = spec.rows, spec.key, spec.size
        self.priority, self.wanted, self.padding = spec.priority, spec.wanted, spec.padding
        self.deadline = arrived + spec.limit
        self.started = 0.0
        self.staged: object = None


Outputs = Mapping[int, Array]  # outputs of a run by their positions
RunResult = tuple[Outputs, Spent]
# the inputs of a run, and the buffer that holds them, None if it belongs to a request
BatchInputs = tuple[Mapping[str, Array], BatchBuffer | None]


def by_priority(request: Request) -> int:
    """Returns the sort key: the priority.  A stable sort by it keeps requests of one priority in the order of arrival."""
    return request.priority


def kind_of(batch: Sequence[Request]) -> tuple[int, Any]:
    """Returns the key for run-time statistics: the total number of rows and the extents of the inputs."""
    first = batch[0]
    rows = first.rows if len(batch) == 1 else sum(r.rows for r in batch)
    return rows, first.key or tuple([v.shape for v in first.feeds.values()])


def shapes_of(model: Model, batch: Sequence[Request]) -> tuple[tuple[int, ...], ...]:
    """Returns the shapes of the inputs of a run."""
    first = batch[0]
    if first.key is None:
        return tuple([first.feeds[t.name].shape for t in model.signature.inputs])
    return shapes_for(model, {n: v.shape for n, v in first.feeds.items()}, batch_size_of(model, batch))


def requests_to_run(model: Model, batch: Sequence[Request]) -> int:
    """Returns how many requests of a batch, from the first on, to run together."""
    if len(batch) < 2 or batch[0].key is None:
        return len(batch)
    return count_to_run(model, [*accumulate([r.rows for r in batch])], {n: v.shape for n, v in batch[0].feeds.items()})


def count_to_run(model: Model, ends: Sequence[int], shapes: Mapping[str, Sequence[int]]) -> int:
    """Returns how many batchable requests, from the first on, to run together.

    If padding to the next batch size was measured to take longer than two smaller runs, the remaining requests are left for the
    next run.
    ends: of their rows; shapes: the shapes of one's inputs.
    """
    rows = ends[-1]
    if len(ends) < 2 or rows == batch_size_for(model, rows):
        return len(ends)
    count = bisect.bisect(ends, model.sizes[bisect.bisect_left(model.sizes, rows) - 1])
    if not count:
        return len(ends)
    first = ends[count - 1]
    whole, one, other = (measured_seconds(model, shapes, n) for n in (rows, first, rows - first))
    return count if one + other + RUN_OVERHEAD < whole else len(ends)


def measured_seconds(model: Model, shapes: Mapping[str, Sequence[int]], rows: int) -> float:
    """Returns the measured seconds of a run of this many rows; NaN if not measured."""
    return model.seconds.get(shapes_for(model, shapes, batch_size_for(model, rows)), math.nan)


def shapes_for(model: Model, shapes: Mapping[str, Sequence[int]], rows: int) -> tuple[tuple[int, ...], ...]:
    """Returns the input shapes of a run of this many rows.  shapes: input shapes of a request."""
    return tuple([(rows, *shapes[t.name][1:]) for t in model.signature.inputs])


def batch_inputs(model: Model, batch: Sequence[Request], buffers: BatchBufferPool, ahead: bool = False) -> BatchInputs:
    """Returns the inputs of a run, padded to one of the model's batch sizes.

    ahead: another run is under way; even a single request's inputs are then copied to memory that the target transfers faster.
    """
    first = batch[0]
    rows = sum(r.rows for r in batch)
    spare = batch_size_of(model, batch) - rows
    copies = ahead and model.own_memory and first.key is not None and rows <= model.settings.max_batch
    if len(batch) == 1 and not spare and not copies:
        return arrays_of(first.feeds), None
    buffer = buffers.take()
    return {n: buffer.concatenated(n, [r.feeds[n] for r in batch], spare) for n in first.feeds}, buffer


def run(
    model: Model, batch: Sequence[Request], buffers: BatchBufferPool, inputs: Callable[[], BatchInputs]
) -> RunResult:
    """Runs requests as one batch.  inputs: returns the inputs as `batch_inputs` does.  Errors: those of `Model.run`."""
    start, busy = time.monotonic(), time.thread_time()
    feeds, buffer = inputs()
    made = _needed(model, feeds, batch)
    if buffer is not None:  # a failed run may still be reading it
        buffers.give_back(buffer)
    return made, Spent(time.monotonic() - start, time.thread_time() - busy, start)


def run_alone(model: Model, request: Request) -> list[Array]:
    """Runs a request alone; returns the outputs it requests.  Errors: those of `Model.run`."""
    made = _needed(model, arrays_of(request.feeds), (request,))
    return [made[n] for n in request.wanted]


def _needed(model: Model, feeds: Mapping[str, Array], batch: Sequence[Request]) -> Outputs:
    """Returns the positions of all outputs that any of the requests needs."""
    needed = sorted({n for r in batch for n in r.wanted})
    return dict(zip(needed, model.run(feeds, needed), strict=True))


def split_outputs(made: Outputs, batch: Sequence[Request]) -> list[list[Array]]:
    """Splits the outputs of a run into each request's rows of the outputs it requests."""
    if batch[0].key is None:
        return [[made[n] for n in batch[0].wanted]]
    results, start = [], 0
    for request in batch:
        end = start + request.rows
        results.append([made[n][start:end] for n in request.wanted])
        start = end
    return results


def batch_size_of(model: Model, batch: Sequence[Request]) -> int:
    """Returns the number of rows of a run: the next batch size if the model has batch sizes."""
    rows = sum([r.rows for r in batch])
    return rows if batch[0].key is None else batch_size_for(model, rows)


def batch_size_for(model: Model, rows: int) -> int:
    """Returns the number of rows of a run for this many batched rows."""
    at = bisect.bisect_left(model.sizes, rows)
    return rows if at == len(model.sizes) else model.sizes[at]
