"""Assembles the inputs of the next batch while the current one runs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar

from .batch import Request, Together, size_of, together
from .batch_buffers import BatchBuffer, BatchBufferPool, put
from .model import Model
from .tensors import Array, DeferredInput

__all__ = ["InputStager", "Inputs"]

AT_ONCE: Final = 1 << 17  # bytes of inputs: assembling fewer takes no longer than waking a thread
LARGE: Final = 1 << 15  # bytes of a request whose rows are staged on arrival
PART: Final = 1 << 22  # bytes per thread
MOST_THREADS: Final = 4  # two threads saturate the memory bandwidth of many machines
T = TypeVar("T")
Inputs = Callable[[], Together]
Rows = Sequence[tuple[Request, int]]  # requests, each with its first row in the batch


@dataclass(eq=False)
class StagedBatch:
    """A batch under assembly: each request's rows are copied to their final position when the request arrives.

    key: the batching key of its requests; like: inputs of one of them; rows: total rows; copies: copies under way in threads.
    """

    key: Any
    like: Mapping[str, Array | DeferredInput]
    stack: BatchBuffer
    requests: list[Request] = field(default_factory=list)
    rows: int = 0
    copies: list[Future[None]] = field(default_factory=list)

    def add(self, request: Request) -> tuple[Request, int]:
        """Adds a request; returns the index of its first row."""
        start, self.rows = self.rows, self.rows + request.rows
        self.requests.append(request)
        request.laid = self
        return request, start

    def keep(self, count: int) -> None:
        """Drops all requests after the first `count`; rows already copied for them follow the batch's rows and are ignored."""
        for request in self.requests[count:]:
            request.laid = None
            self.rows -= request.rows
        del self.requests[count:]

    def all_of_them(self) -> list[Request]:
        """Returns the requests and drops all references to them, so that their memory is freed once they are answered."""
        requests, self.requests = self.requests, []
        for request in requests:
            request.laid = None
        return requests


class InputStager:
    """Assembles the input batches of one model; large inputs are copied by worker threads.

    Large inputs are copied to the next batch's memory as soon as their request arrives, so that the batch can start when the
    current run ends.  The batch's composition is decided later: if a request in it was cancelled or displaced by a request of
    higher priority, the whole batch is copied again.

    Methods other than `close` must not be called concurrently.
    """

    def __init__(self, model: Model, stacks: BatchBufferPool, runs: int) -> None:
        """runs: maximum number of concurrent runs."""
        self._model, self._buffers, self._most = model, stacks, model.settings.max_batch
        threads = max(runs, min(MOST_THREADS, (os.cpu_count() or 1) // 2))
        self._threads = ThreadPoolExecutor(threads, f"mgx-serve-{model.signature.name}-inputs")
        self._staged: StagedBatch | None = None

    def lay(self, waiting: Sequence[Request]) -> None:
        """Starts copying the requests that are expected in the next batch.  waiting: in queue order."""
        if not waiting or not _is_large(waiting[0]):
            return
        first = waiting[0]
        laid = self._staged
        if laid is not None and laid.key != first.key:
            if any(r.laid is laid for r in waiting):
                return  # it runs in a later batch
            self.forget()
            laid = None
        new = [r for r in waiting if r.laid is None and r.key == first.key]
        if sum([r.size for r in new]) < PART:
            return
        if laid is None:
            if len(new) == 1 and not self._model.own_memory:  # runs in place, without a copy, if it stays alone
                return
            laid = self._staged = self._new(first)
        self._copy(laid, [laid.add(r) for r in new if laid.rows + r.rows <= self._most])

    def inputs(self, batch: list[Request], sooner: bool) -> Inputs:
        """Returns a callable that returns the inputs of a batch, padded to one of the model's batch sizes.

        batch: reordered to match the rows already copied; sooner: another run is under way, so assembly starts now.
        """
        laid = self._taken(batch)
        if not _is_large(batch[0]) or self._lies_well(batch, sooner):
            if laid is not None:
                self._drop(laid)
            return self._plain(batch, sooner)
        laid = laid or self._new(batch[0])
        rest = [laid.add(r) for r in batch if r.laid is not laid]
        batch[:] = laid.all_of_them()
        last: Rows = ()
        if not sooner and rest:
            *others, last = _parts(rest)
            rest = [r for part in others for r in part]
        self._copy(laid, rest)
        return partial(self._made, laid, last, size_of(self._model, batch))

    def forget(self) -> None:
        """Called when the queue is empty."""
        if self._staged is not None:
            self._drop(self._staged)
            self._staged = None

    def _new(self, first: Request) -> StagedBatch:
        return StagedBatch(first.key, first.feeds, self._buffers.take())

    def _lies_well(self, batch: Sequence[Request], sooner: bool) -> bool:
        """Returns True for a request that runs alone in its own memory, and for one larger than any batch."""
        rows = batch[0].rows
        if len(batch) > 1:
            return False
        return rows > self._most or (rows == size_of(self._model, batch) and not (sooner and self._model.own_memory))

    def _taken(self, batch: Sequence[Request]) -> StagedBatch | None:
        """Returns the staged rows that a batch can use; None if there are none.

        They are usable if they are a prefix of the batch; copies still in flight past that prefix rule out appending others.
        """
        laid = self._staged
        if laid is None or laid.key != batch[0].key:
            return None
        self._staged = None
        count = sum([r.laid is laid for r in batch])
        if count < len(laid.requests) and set(laid.requests[:count]) != set(batch):
            self._drop(laid)
            return None
        laid.keep(count)
        return laid

    def _drop(self, laid: StagedBatch) -> None:
        laid.all_of_them()
        self._submit(self._give_back, laid)

    def _give_back(self, laid: StagedBatch) -> None:
        if not [copy for copy in laid.copies if copy.exception() is not None]:  # copies may still be in flight
            self._buffers.give_back(laid.stack)

    def _submit(self, function: Callable[..., T], *given: Any) -> Future[T]:
        """Runs a task in a worker thread; returns its future, which holds the error if no thread can be started."""
        try:
            return self._threads.submit(function, *given)
        except RuntimeError as error:
            failed: Future[T] = Future()
            failed.set_exception(error)
            return failed

    def _plain(self, batch: Sequence[Request], sooner: bool) -> Inputs:
        make = partial(together, self._model, batch, self._buffers, sooner)
        if not sooner:
            return make
        if sum([r.size for r in batch]) > AT_ONCE:
            return self._submit(make).result
        made: Future[Together] = Future()
        try:
            made.set_result(make())
        except Exception as error:
            made.set_exception(error)
        return made.result

    def _copy(self, laid: StagedBatch, rows: Rows) -> None:
        for part in _parts(rows):
            laid.copies.append(self._submit(_copied, laid, part, self._most))

    def _made(self, laid: StagedBatch, last: Rows, size: int) -> Together:
        """Waits for all copies and returns the inputs.  last: rows that the calling thread copies."""
        if last:
            _copied(laid, last, self._most)
        for copy in laid.copies:
            copy.result()
        made: Mapping[str, Array] = {n: laid.stack.place(n, v, self._most)[:size] for n, v in laid.like.items()}
        for place in made.values():
            place[laid.rows :] = place[laid.rows - 1]  # padding repeats a row that is valid input
        return made, laid.stack

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


def _copied(laid: StagedBatch, rows: Rows, most: int) -> None:
    """Copies consecutive rows.  Errors: BadRequest if an input's shared memory was released."""
    _, start = rows[0]
    for name, like in laid.like.items():
        put([request.feeds[name] for request, _ in rows], laid.stack.place(name, like, most)[start:])
