"""Requests that wait for a model, joined along the batch and run together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from .errors import Busy, DeadlinePassed, Internal, ServeError, Unavailable
from .metrics import Metrics
from .model import Model
from .tensors import Array

__all__ = ["Batcher", "Request"]

log = logging.getLogger("mgx_serve")


@dataclass(slots=True)
class Request:
    """One request in the queue.

    priority: lower ones go first; deadline: by `time.monotonic`, after which it is given up.
    """

    feeds: Mapping[str, Array]
    rows: int
    key: Any
    priority: int
    deadline: float
    done: asyncio.Future[list[Array]]
    arrived: float = field(default_factory=time.monotonic)


class Batcher:
    """The queue of one model and what takes from it; lives in one event loop.

    A run starts as soon as an instance is free and either the largest or a preferred batch is there, or the oldest request has
    waited for the queue delay.  A batch that fails is run again request by request, so that a bad one fails alone.
    """

    def __init__(self, model: Model, metrics: Metrics) -> None:
        self.model, self.metrics = model, metrics
        self._settings = model.settings
        self._waiting: list[Request] = []
        self._arrival = asyncio.Event()
        self._closing = self._hurrying = False
        self._running: set[asyncio.Task[None]] = set()
        self._free = asyncio.Semaphore(self._settings.instances)
        self._threads = ThreadPoolExecutor(self._settings.instances, f"mgx-serve-{model.name}")
        self._task = asyncio.create_task(self._serve())

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    async def infer(self, feeds: Mapping[str, Array], priority: int = 0, timeout: float = 0.0) -> list[Array]:
        """Returns the model's outputs for one request.

        Errors: BadRequest if it does not fit, Busy if the queue is full, DeadlinePassed, Unavailable when the model is unloaded.
        """
        self.model.check(feeds)
        if self._closing:
            raise Unavailable(f"model {self.model.name!r} is being unloaded")
        if len(self._waiting) >= self._settings.queue_size:
            self._waiting = [r for r in self._waiting if not r.done.done()]  # whose clients have left
        if len(self._waiting) >= self._settings.queue_size:
            self.metrics.refused(self.model)
            raise Busy(f"{len(self._waiting)} requests wait for model {self.model.name!r}; try again later", 1.0)
        rows, key = 1, None
        if self.model.batches:
            rows = next(iter(feeds.values())).shape[0]
            if any(v.shape[0] != rows for v in feeds.values()):
                rows, key = 1, object()  # the program says what is wrong
            else:
                key = tuple((n, v.shape[1:]) for n, v in feeds.items())
        deadline = time.monotonic() + (timeout or self._settings.timeout)
        request = Request(feeds, rows, key, priority, deadline, asyncio.get_running_loop().create_future())
        self._waiting.append(request)
        self._waiting.sort(key=lambda r: r.priority)  # stable: first come, first served within a priority
        self._arrival.set()
        self.metrics.waiting(self.model, len(self._waiting))
        return await request.done

    def hurry(self) -> None:
        """Lets no request wait for others any more."""
        self._hurrying = True
        self._arrival.set()

    async def close(self) -> None:
        """Lets what is queued be run, then ends.  New requests are refused from now on."""
        self._closing = True
        self.hurry()
        await self._task
        await asyncio.gather(*self._running, return_exceptions=True)
        self._threads.shutdown()

    async def _serve(self) -> None:
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._arrival.clear()
                await self._arrival.wait()
                continue
            await self._free.acquire()
            await self._gather()
            batch = self._take()
            if not batch:
                self._free.release()
                continue
            task = asyncio.create_task(self._run(batch))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def _gather(self) -> None:
        """Waits until a batch is worth running."""
        delay = self._settings.queue_delay
        while self._waiting and delay and not self._hurrying:
            oldest = min(r.arrived for r in self._waiting)
            left = oldest + delay - time.monotonic()
            rows = sum(r.rows for r in self._waiting)
            if left <= 0 or rows >= self._settings.max_batch or rows in self._settings.preferred:
                return
            self._arrival.clear()
            try:
                await asyncio.wait_for(self._arrival.wait(), left)
            except TimeoutError:
                return

    def _take(self) -> list[Request]:
        """Returns the requests of the next batch: the first in the queue and those that can join it."""
        now = time.monotonic()
        alive = []
        for request in self._waiting:
            if request.done.done():
                continue  # the client has left
            if request.deadline <= now:
                request.done.set_exception(
                    DeadlinePassed(
                        f"the request waited for {now - request.arrived:.3f} s for model {self.model.name!r}"
                    )
                )
            else:
                alive.append(request)
        batch: list[Request] = []
        rows = 0
        for request in alive:
            fits = not batch or (
                request.key == batch[0].key
                and request.key is not None
                and rows + request.rows <= self._settings.max_batch
            )
            if fits:
                batch.append(request)
                rows += request.rows
        taken = set(map(id, batch))
        self._waiting = [r for r in alive if id(r) not in taken]
        self.metrics.waiting(self.model, len(self._waiting))
        return batch

    async def _run(self, batch: Sequence[Request]) -> None:
        loop = asyncio.get_running_loop()
        started = time.monotonic()
        try:
            try:
                results = await loop.run_in_executor(self._threads, self._joined, batch)
            except Exception as error:
                if len(batch) > 1:
                    await self._one_by_one(batch)
                else:
                    self._fail(batch[0], error)
                return
            ended = time.monotonic()
            self.metrics.ran(
                self.model, [started - r.arrived for r in batch], ended - started, sum(r.rows for r in batch)
            )
            for request, result in zip(batch, results, strict=True):
                if not request.done.done():
                    request.done.set_result(result)
        finally:
            self._free.release()

    async def _one_by_one(self, batch: Sequence[Request]) -> None:
        loop = asyncio.get_running_loop()
        for request in batch:
            started = time.monotonic()
            try:
                result = await loop.run_in_executor(self._threads, self.model.run, request.feeds)
            except Exception as error:
                self._fail(request, error)
            else:
                spent = time.monotonic() - started
                self.metrics.ran(self.model, [started - request.arrived], spent, request.rows)
                if not request.done.done():
                    request.done.set_result(result)

    def _fail(self, request: Request, error: Exception) -> None:
        self.metrics.failed(self.model)
        if not isinstance(error, ServeError):
            log.exception("model %s failed", self.model.name, exc_info=error)
            error = Internal(f"model {self.model.name!r} failed; the reason is in the server's log")
        if not request.done.done():
            request.done.set_exception(error)

    def _joined(self, batch: Sequence[Request]) -> list[list[Array]]:
        if len(batch) == 1:
            return [self.model.run(batch[0].feeds)]
        feeds = {n: np.concatenate([r.feeds[n] for r in batch]) for n in batch[0].feeds}
        results = self.model.run(feeds)
        ends = np.cumsum([r.rows for r in batch])[:-1]
        parts = [np.split(r, ends) for r in results]
        return [list(rows) for rows in zip(*parts, strict=True)]
