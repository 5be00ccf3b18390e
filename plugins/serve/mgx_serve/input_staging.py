"""Assembles the inputs of the next batch while the current one runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from .batch import BatchInputs, Request, batch_inputs, batch_size_of
from .batch_buffers import BatchBuffer, BatchBufferPool, put
from .model import Model
from .tensors import Array, DeferredInput

__all__ = ["InputStager", "Inputs"]

AT_ONCE: Final = 1 << 17  # bytes of inputs: assembling fewer takes no longer than waking a thread
LARGE: Final = 1 << 15  # bytes of a request whose rows are staged on arrival
PART: Final = 1 << 22  # bytes per thread
MOST_THREADS: Final = 4  # two threads saturate the memory bandwidth of many machines
T = TypeVar("T")
Inputs = Callable[[], BatchInputs]
Rows = Sequence[tuple[Request, int]]  # requests, each with its first row in the batch


@dataclass(eq=False)
class StagedBatch:
    """A batch under assembly: each request's rows are copied to their final position when the request arrives.

    key: the batching key of its requests; sample: inputs of one of them; rows: total rows; copies: copies under way in threads.
    """

    key: Any
    sample: Mapping[str, Array | DeferredInput]
    buffer: BatchBuffer
    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    copies: list[Future[None]] = field(default_factory=list)

    def add(self, request: Request) -> tuple[Request, int]:
        """Adds a request; returns the index of its first row."""
        start, self.rows = self.rows, self.rows + request.rows
        self.requests.append(request)
        request.staged = self
        return request, start

    def keep(self, count: int) -> None:
        """Drops all requests after the first `count`; rows already copied for them follow the batch's rows and are ignored."""
        for request in self.requests[count:]:
            request.staged = None
            self.rows -= request.rows
        del self.requests[count:]

    def detach(self) -> list[Request]:
        """Returns the requests and drops all references to them, so that their memory is freed once they are answered."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.staged = None
        return requests


class InputStager:
    """Assembles the input batches of one model; large inputs are copied by worker threads.

    Large inputs are copied to the next batch's memory as soon as their request arrives, so that the batch can start when the
    current run ends.  The batch's composition is decided later: if a request in it was cancelled or displaced by a request of
    higher priority, the whole batch is copied again.

    Methods other than `close` must not be called concurrently.
    """

    def __init__(self, model: Model, buffers: BatchBufferPool, runs: int) -> None:
        """runs: maximum number of concurrent runs."""
        self._model, self._buffers, self._most = model, buffers, model.settings.max_batch
        threads = max(runs, min(MOST_THREADS, (os.cpu_count() or 1) // 2))
        self._threads = ThreadPoolExecutor(threads, f"mgx-serve-{model.signature.name}-inputs")
        self._staged: StagedBatch | None = None

    def stage(self, waiting: Sequence[Request]) -> None:
        """Starts copying the requests that are expected in the next batch.  waiting: in queue order."""
        if not waiting or not _is_large(waiting[0]):
            return
        first = waiting[0]
        staged = self._staged
        if staged is not None and staged.key != first.key:
            if any(r.staged is staged for r in waiting):
                return  # it runs in a later batch
            self.forget()
            staged = None
        new = [r for r in waiting if r.staged is None and r.key == first.key]
        if sum([r.size for r in new]) < PART:
            return
        if staged is None:
            if len(new) == 1 and not self._model.own_memory:  # runs in place, without a copy, if it stays alone
                return
            staged = self._staged = self._new(first)
        self._copy(staged, [staged.add(r) for r in new if staged.rows + r.rows <= self._most])

    def inputs(self, batch: list[Request], ahead: bool) -> Inputs:
        """Returns a callable that returns the inputs of a batch, padded to one of the model's batch sizes.

        batch: reordered to match the rows already copied; ahead: another run is under way, so assembly starts now.
        """
        staged = self._usable_rows(batch)
        if not _is_large(batch[0]) or self._needs_no_copy(batch, ahead):
            if staged is not None:
                self._drop(staged)
            return self._unstaged(batch, ahead)
        staged = staged or self._new(batch[0])
        rest = [staged.add(r) for r in batch if r.staged is not staged]
        batch[:] = staged.detach()
        last: Rows = ()
        if not ahead and rest:
            *others, last = _parts(rest)
            rest = [r for part in others for r in part]
        self._copy(staged, rest)
        return partial(self._assembled, staged, last, batch_size_of(self._model, batch))

    def forget(self) -> None:
        """Drops the staged batch; called when the queue is empty."""
        if self._staged is not None:
            self._drop(self._staged)
            self._staged = None

    def _new(self, first: Request) -> StagedBatch:
        return StagedBatch(first.key, first.feeds, self._buffers.take())

    def _needs_no_copy(self, batch: Sequence[Request], ahead: bool) -> bool:
        """Returns True for a request that runs alone in its own memory, and for one larger than any batch."""
        rows = batch[0].rows
        if len(batch) > 1:
            return False
        return rows > self._most or (
            rows == batch_size_of(self._model, batch) and not (ahead and self._model.own_memory)
        )

    def _usable_rows(self, batch: Sequence[Request]) -> StagedBatch | None:
        """Returns the staged rows that a batch can use; None if there are none.

        They are usable if they are a prefix of the batch; copies still in flight past that prefix rule out appending others.
        """
        staged = self._staged
        if staged is None or staged.key != batch[0].key:
            return None
        self._staged = None
        count = sum([r.staged is staged for r in batch])
        if count < len(staged.requests) and set(staged.requests[:count]) != set(batch):
            self._drop(staged)
            return None
        staged.keep(count)
        return staged

    def _drop(self, staged: StagedBatch) -> None:
        staged.detach()
        self._submit(self._give_back, staged)

    def _give_back(self, staged: StagedBatch) -> None:
        if not [copy for copy in staged.copies if copy.exception() is not None]:  # copies may still be in flight
            self._buffers.give_back(staged.buffer)

    def _submit(self, function: Callable[..., T], *given: Any) -> Future[T]:
        """Runs a task in a worker thread; returns its future, which holds the error if no thread can be started."""
        try:
            return self._threads.submit(function, *given)
        except RuntimeError as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _unstaged(self, batch: Sequence[Request], ahead: bool) -> Inputs:
        make = partial(batch_inputs, self._model, batch, self._buffers, ahead)
        if not ahead:
            return make
        if sum([r.size for r in batch]) > AT_ONCE:
            return self._submit(make).result
        made: Future[BatchInputs] = Future()
        try:
            made.set_result(make())
        except Exception as error:
            made.set_exception(error)
        return made.result

    def _copy(self, staged: StagedBatch, rows: Rows) -> None:
        for part in _parts(rows):
            staged.copies.append(self._submit(_copy_rows, staged, part, self._most))

    def _assembled(self, staged: StagedBatch, last: Rows, size: int) -> BatchInputs:
        """Waits for all copies and returns the inputs.  last: rows that the calling thread copies."""
        if last:
            _copy_rows(staged, last, self._most)
        for copy in staged.copies:
            copy.result()
        made: Mapping[str, Array] = {n: staged.buffer.array(n, v, self._most)[:size] for n, v in staged.sample.items()}
        for place in made.values():
            place[staged.rows :] = place[staged.rows - 1]  # padding repeats a row that is valid input
        return made, staged.buffer

    def close(self) -> None:
        self._threads.shutdown()


def _is_large(request: Request) -> bool:
    return request.key is not None and request.size >= LARGE


def _parts(rows: Rows) -> list[Rows]:
    """Splits the rows into parts large enough for a thread each."""
    parts: list[list[tuple[Request, int]]] = []
    size = PART
    for request, start in rows:
        if size >= PART:
            parts.append([])
            size = 0
        parts[-1].append((request, start))
        size += request.size
    return list(parts)


def _copy_rows(staged: StagedBatch, rows: Rows, most: int) -> None:
    """Copies consecutive rows.  Errors: BadRequest if an input's shared memory was released."""
    _, start = rows[0]
    for name, sample in staged.sample.items():
        put([request.feeds[name] for request, _ in rows], staged.buffer.array(name, sample, most)[start:])
