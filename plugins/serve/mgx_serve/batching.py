"""Dynamic batching: queues the requests of a model, batches them along the first axis and runs them."""

from __future__ import annotations

import asyncio
import functools
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .batch import (
    Completion,
    Outputs,
    Request,
    RequestSpec,
    RunResult,
    kind_of,
    requests_to_run,
    run,
    run_alone,
    shapes_of,
)
from .batch_buffers import BatchBufferPool
from .completion import Completions
from .deployment import Deployment
from .errors import Busy, Unavailable
from .input_staging import Inputs, InputStager
from .metrics import Recorder
from .model import Model, Signature
from .padding import Padding
from .request_queue import RequestQueue
from .run_times import RunTimes, Spent
from .tensors import OPEN, Array, DeferredInput, arrays_of
from .tray_runs import Copies
from .tray_sets import TrayRun, TraySets

if TYPE_CHECKING:  # needs a system with file locks
    from .trays import Trays

__all__ = ["Batcher"]

SHORTEST_WAIT = 50e-6  # seconds below the event loop's clock resolution
RETRY_LOCK = 20e-3  # seconds before retrying to lock trays


@dataclass(slots=True, eq=False)
class Job:
    """Work for a thread: a batch, or whatever is queued when the thread gets to it.

    inputs: returns the batch's inputs; dropped: requests that are not run; tray_run: a tray to run instead of a batch.
    """

    batch: list[Request] = field(default_factory=list)
    inputs: Inputs | None = None
    dropped: Sequence[Request] = ()
    started: bool = False
    tray_run: TrayRun | None = None


class Batcher(Deployment):
    """The request queue of one model and its scheduler; bound to one event loop.

    A run starts as soon as an instance is free and either the queue holds the largest or a preferred batch, or the oldest
    request has waited for the queue delay.  While all instances are busy, each has one batch pending, which its thread starts
    directly after the current run, without a round trip through the event loop.  A full batch is assembled meanwhile; one that
    requests can still join is composed when it starts, with large inputs staged beforehand (`InputStager`).  Outputs are split in
    the event loop while the thread runs the next batch.  The requests of a failed batch are run again one by one, so that only
    the faulty one fails.  Batches are padded to one of the model's batch sizes unless two smaller runs were measured to be
    faster.  Runs use worker threads, except for kinds of runs that were measured to take less time than waking a thread
    (`RunTimes`); the first run of a kind always uses a thread, because timings measured on zeros may be too short.

    Rows that front ends write to trays (`trays`) do not pass through this queue unless their run fails: a run's thread takes
    the next tray itself and leaves the outputs there.  Between the queue and the trays, whichever holds the oldest request is
    served first.
    """

    reads_deferred = True

    def __init__(self, model: Model, metrics: Recorder) -> None:
        self.model, self.metrics, self.signature = model, metrics, model.signature
        self._settings = model.settings
        self._loop = asyncio.get_running_loop()
        self._waiting = RequestQueue(self._settings.max_batch, functools.partial(requests_to_run, model))
        self._lock = threading.Lock()  # guards the queue, which threads take from
        self._free = self._settings.instances  # below 0: jobs are waiting for a thread
        self._pending: Job | None = None  # waits for a thread and is composed when it starts
        self._runs_are_long = True  # runs are long enough for threads
        self._unanswered = 0  # runs that have ended
        self._closing = self._hurrying = self._scheduled = self._refuses_trays = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._again: set[asyncio.Task[None]] = set()
        self._threads = ThreadPoolExecutor(self._settings.instances, f"mgx-serve-{self.signature.name}")
        self._buffers = BatchBufferPool(model.host_memory, self._settings.max_batch)
        self._stager = InputStager(model, self._buffers, self._settings.instances)
        self.trays = TraySets(model, self._buffers, self._start)  # batches that front ends write to
        self._run_times = RunTimes()
        self._completions = Completions(self.signature, metrics)

    async def infer(
        self,
        feeds: Mapping[str, Array | DeferredInput],
        priority: int = 0,
        timeout: float = 0.0,
        wanted: Sequence[str] = (),
    ) -> tuple[Signature, list[Array]]:
        spec = self.spec(feeds, priority, timeout, wanted)
        done: asyncio.Future[list[Array]] = self._loop.create_future()
        request = self.put(feeds, spec, done)
        try:
            result = done.result() if done.done() else await done  # a short run was executed inline
        finally:
            self._completions.deadlines.discard(request)
        self.metrics.answered(request.arrived, request.started, time.monotonic(), spec.rows)
        return self.signature, result

    def spec(
        self, feeds: Mapping[str, Array | DeferredInput], priority: int, timeout: float, wanted: Sequence[str]
    ) -> RequestSpec:
        """Returns the `RequestSpec` of requests with these input shapes.  Errors: BadRequest if they do not fit the model."""
        self.signature.check(feeds)
        rows, key, padding = self._joinable(feeds)
        priority, limit = priority or self._settings.priority, timeout or self._settings.timeout
        size = 0 if any(v.dtype.hasobject for v in feeds.values()) else sum([v.nbytes for v in feeds.values()])
        if padding is not None:
            size = rows * sum([math.prod(dims) * feeds[n].dtype.itemsize for n, dims in padding.rows.items()])
        return RequestSpec(rows, key, size, priority, limit, self.signature.chosen(wanted), padding)

    @property
    def fills_trays(self) -> bool:
        """True if requests are batched, so that trays can serve them."""
        texts = any(t.dtype.hasobject for t in (*self.signature.inputs, *self.signature.outputs))
        return self.model.batches and not texts and not self._refuses_trays and not self._closing

    @property
    def of_one_shape(self) -> bool:
        """True if all requests have the same extents except for the number of rows."""
        return not any(OPEN in t.shape[1:] for t in self.signature.inputs)

    def use(self, trays: Trays) -> None:
        """Enables trays, unless the target has device memory and cannot copy from pinned trays."""
        self._refuses_trays = self.model.own_memory and not trays.pin(self.model.pin)
        if self._refuses_trays:
            trays.end()
        else:
            self.trays.add(trays)
            self.metrics.waiting_too(self.signature, self.trays.waiting)

    def put(self, feeds: Mapping[str, Array | DeferredInput], spec: RequestSpec, done: Completion) -> Request:
        """Queues a request.

        done: completed in this event loop, possibly before this method returns.
        Errors: Busy if the queue is full, Unavailable when the model is unloaded.
        """
        if self._closing:
            raise Unavailable(f"model {self.signature.name!r} is being unloaded")
        if self._waiting_count() >= self._settings.queue_size:
            with self._lock:
                disconnected = self._waiting.remove_disconnected()
            for dropped in disconnected:
                self._completions.deadlines.discard(dropped)
        if self._waiting_count() >= self._settings.queue_size:
            self.metrics.refused(self.signature)
            raise Busy(f"{self._waiting_count()} requests wait for model {self.signature.name!r}; try again later", 1.0)
        if spec.padding is not None:
            feeds = spec.padding.fill(arrays_of(feeds))
        request = Request(feeds, spec, done, time.monotonic())
        with self._lock:
            self._waiting.add(request)
        if self._free > -self._settings.instances or self._pending is not None:
            self._schedule()
        if not done.done():
            self._report_waiting()
            self._completions.deadlines.add(request)
        return request

    def _waiting_count(self) -> int:
        return len(self._waiting) + self.trays.waiting()

    def _report_waiting(self) -> None:
        count = len(self._waiting)
        self.metrics.waiting(self.signature, count)
        self.trays.queue(count)

    def _joinable(self, feeds: Mapping[str, Array | DeferredInput]) -> tuple[int, Any, Padding | None]:
        """Returns a request's number of rows, its batching key (None if it runs alone) and its padding."""
        if not self.model.batches:
            return 1, None, None
        rows = next(iter(feeds.values())).shape[0]
        if any(v.shape[0] != rows for v in feeds.values()):
            return 1, None, None  # running it reports the error
        dims = {n: v.shape[1:] for n, v in feeds.items()}
        padding = self.model.padding(dims)
        if padding is not None:
            dims |= padding.rows
        return rows, tuple(dims.items()), padding

    def hurry(self) -> None:
        self._hurrying = True
        self._start()

    async def close(self) -> None:
        self._closing = True
        self.trays.end()
        self.hurry()
        while self._has_waiting() or self._free < self._settings.instances or self._unanswered:
            self._idle.clear()
            await self._idle.wait()
        self._threads.shutdown()
        self.trays.close()
        self._stager.close()
        self._completions.deadlines.close()

    def _has_waiting(self) -> bool:
        return bool(self._waiting) or self.trays.waits() is not None

    def _schedule(self) -> None:
        """Starts all runs that can start; batchable requests only after all events that are already pending."""
        if self._settings.max_batch <= 1:
            self._start()
        elif not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._start)

    def _start(self) -> None:
        self._scheduled = False
        while self._free > 0:
            left = self._seconds_to_wait()
            if left > 0:
                if self._timer is None:
                    self._timer = self._loop.call_later(left, self._timer_fired)
                self._stage()
                return
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            tray_run = self._take_tray()
            if tray_run is not None:
                self._run_tray(tray_run)
            elif not self._waiting:
                break
            else:
                batch, inputs = self._next_batch()
                if inputs is not None:
                    self._run(batch, inputs)
        if self.trays.uncertain and self._timer is None:
            self._timer = self._loop.call_later(RETRY_LOCK, self._timer_fired)
        self._submit_pending()
        self._stage()
        self._idle.set()

    def _timer_fired(self) -> None:
        self._timer = None  # the request it was set for may have been cancelled; others then need a timer of their own
        self._start()

    def _seconds_to_wait(self) -> float:
        """Returns for how many more seconds to wait for requests to batch."""
        delay = self._settings.queue_delay
        if not delay or self._hurrying:
            return 0.0
        enough = 1 if self._settings.preferred else self._settings.max_batch
        in_trays = self.trays.waits(enough)
        with self._lock:
            if not self._waiting and in_trays is None:
                return 0.0
            rows, oldest = self._waiting.rows(), self._waiting.oldest() if self._waiting else math.inf
        if in_trays is not None:
            rows, oldest = max(rows, in_trays.rows), min(oldest, in_trays.oldest)
        if rows >= self._settings.max_batch or rows in self._settings.preferred:
            return 0.0
        left = oldest + delay - time.monotonic()
        return left if left > SHORTEST_WAIT else 0.0

    def _next_batch(self) -> tuple[list[Request], Inputs | None]:
        """Removes the next batch from the queue; returns its requests and a callable for their inputs."""
        with self._lock:
            batch, dropped, inputs = self._take_batch(ahead=False)
        self._completions.give_up(dropped)
        self._report_waiting()
        return batch, inputs

    def _take_tray(self) -> TrayRun | None:
        """Takes the next tray; returns None if none is waiting or the queue holds an older request."""
        if not self.trays:
            return None
        with self._lock:
            first = self._waiting.first()
        return self.trays.take() if first is None or self._trays_before(first) else None

    def _trays_before(self, first: Request) -> bool:
        """Returns True if a tray is waiting that holds an older request than the queue."""
        oldest = self.trays.oldest()
        return oldest < math.inf and (self._settings.priority, oldest) <= (first.priority, first.arrived)

    def _take_batch(self, ahead: bool) -> tuple[list[Request], Sequence[Request], Inputs | None]:
        """Removes the next batch from the queue; the caller holds the lock.  ahead: assembles its inputs during another run."""
        batch, dropped = self._waiting.take()
        if not batch:
            self._stager.forget()
            return batch, dropped, None
        return batch, dropped, self._stager.inputs(batch, ahead)

    def _stage(self) -> None:
        """Stages inputs that the next batch will contain."""
        if self.model.batches:
            with self._lock:
                if self._waiting:  # a thread may have taken them
                    self._stager.stage(self._waiting.requests())

    def _submit_pending(self) -> None:
        """Gives busy threads a pending batch each."""
        while self._waiting and self._free <= 0:
            first = self._waiting.first()  # a thread may have taken it
            fills_batch = first is not None and self._waiting.fills_batch() and not self._trays_before(first)
            if self._pending is None or self._pending.started:
                self._pending = None
                if self._free <= -self._settings.instances or not (
                    fills_batch or (self._runs_are_long and self._seconds_to_wait() <= 0)
                ):
                    return
            elif not fills_batch:
                return
            job = self._pending or Job()
            if fills_batch:
                self._compose(job)
            if self._pending is None:
                self._submit(job)
            self._pending = None if fills_batch else job

    def _compose(self, job: Job) -> None:
        """Fixes the composition of a pending run unless it has started, and starts assembling its inputs."""
        with self._lock:
            if job.started:
                return
            job.batch, dropped, job.inputs = self._take_batch(ahead=True)
        self._completions.give_up(dropped)

    def _run(self, batch: list[Request], inputs: Inputs) -> None:
        kind = kind_of(batch)
        if not self._run_times.short(kind):
            self._submit(Job(batch, inputs))
            return
        self._free -= 1
        try:
            made, spent = run(self.model, batch, self._buffers, inputs)
        except Exception as error:
            self._run_times.in_loop(kind, None)
            self._batch_failed(batch, error)
        else:
            self._run_times.in_loop(kind, spent)
            self._free += 1
            self._completions.ran(batch, kind[0], made, spent)
        self._runs_are_long = not self._run_times.short(kind)

    def _run_tray(self, tray_run: TrayRun) -> None:
        kind = tray_run.kind
        if not self._run_times.short(kind):
            self._submit(Job(tray_run=tray_run))
            return
        self._free -= 1
        try:
            spent, copies = tray_run.runs.run(tray_run.tray)
        except Exception as error:
            self._run_times.in_loop(kind, None)
            self._tray_failed(tray_run, error)
        else:
            self._run_times.in_loop(kind, spent)
            self._free += 1
            self._finish_tray(tray_run, spent, copies)
        self._runs_are_long = not self._run_times.short(kind)

    def _submit(self, job: Job) -> None:
        self._free -= 1
        try:
            running = self._loop.run_in_executor(self._threads, self._work, job)
        except RuntimeError as error:  # no thread can be started
            self._job_failed(job, error)
            return
        running.add_done_callback(functools.partial(self._job_ended, job))

    def _work(self, job: Job) -> RunResult | None:
        """Runs a batch in a worker thread; composes it from the queue if that was left open.  Returns None if the queue is empty.

        After a tray the thread continues with the next tray unless other jobs are waiting.
        """
        with self._lock:
            job.started = True
            decided = bool(job.batch)
        if not decided and job.tray_run is None:
            job.tray_run = self._take_tray()
        while job.tray_run is not None:
            self._run_in_thread(job.tray_run)
            following = self._take_tray() if self._free >= 0 and self._seconds_to_wait() <= 0 else None
            if following is None:
                return None
            job.tray_run = following
        if not decided:
            with self._lock:
                job.batch, job.dropped, job.inputs = self._take_batch(ahead=False)
        if job.inputs is None:
            return None
        return run(self.model, job.batch, self._buffers, job.inputs)

    def _job_ended(self, job: Job, running: asyncio.Future[RunResult | None]) -> None:
        self._completions.give_up(job.dropped)
        if self._pending is job:
            self._pending = None  # it would keep the requests' memory alive until the next ones arrive
        error = running.exception()
        if error is not None:
            self._job_failed(job, error)
            self._start()
            return
        self._free += 1
        self._start()  # before completing requests: the instance may be idle
        result = running.result()
        if result is not None:  # one iteration later, so that the thread gets the GIL sooner
            self._unanswered += 1
            self._loop.call_soon(self._record_run, job.batch, *result)

    def _record_run(self, batch: Sequence[Request], made: Outputs, spent: Spent) -> None:
        """Completes the requests of a run that used a thread."""
        kind = kind_of(batch)
        # times measured in threads include waits for the GIL; those of `Model.warm` do not
        self._run_times.in_thread(kind, spent, lambda: self.model.seconds.get(shapes_of(self.model, batch), math.inf))
        self._runs_are_long = not self._run_times.short(kind)
        self._completions.ran(batch, kind[0], made, spent)
        self._unanswered -= 1
        self._idle.set()

    def _run_in_thread(self, tray_run: TrayRun) -> None:
        runs, kind = tray_run.runs, tray_run.kind
        spent, copies = runs.run(tray_run.tray)
        self._run_times.in_thread(kind, spent, lambda: self.model.seconds.get(runs.shapes(kind[0]), math.inf))
        self._runs_are_long = not self._run_times.short(kind)
        self._finish_tray(tray_run, spent, copies)

    def _finish_tray(self, tray_run: TrayRun, spent: Spent, copies: Copies) -> None:
        """Publishes a tray's outputs to the front ends, after the metrics were updated."""
        runs, tray = tray_run.runs, tray_run.tray
        queued = [spent.began - arrived for arrived in tray.arrived]
        self.metrics.ran(self.signature, queued, spent.seconds, tray.rows)
        runs.copy(copies, functools.partial(runs.trays.finish, tray, True))

    def _job_failed(self, job: Job, error: BaseException) -> None:
        if job.tray_run is None:
            self._batch_failed(job.batch, error)
        else:
            self._tray_failed(job.tray_run, error)

    def _tray_failed(self, tray_run: TrayRun, error: BaseException) -> None:
        """Completes the requests of a failed tray by messages."""
        trays, tray = tray_run.runs.trays, tray_run.tray
        self._batch_failed(trays.requests(tray), error, functools.partial(trays.finish, tray, False))

    def _batch_failed(
        self, batch: Sequence[Request], error: BaseException, answered: Callable[[], None] = lambda: None
    ) -> None:
        """Fails a batch of one request; runs the requests of a larger one separately, since one may be at fault.

        answered: called when all requests are completed.
        """
        if len(batch) == 1:
            self._free += 1
            self._completions.fail(batch[0], error)
            answered()
            return
        task = self._loop.create_task(self._one_by_one(batch, answered))
        self._again.add(task)
        task.add_done_callback(self._again.discard)

    async def _one_by_one(self, batch: Sequence[Request], answered: Callable[[], None]) -> None:
        for request in batch:
            request.started = started = time.monotonic()
            try:
                result = await self._loop.run_in_executor(self._threads, run_alone, self.model, request)
            except Exception as error:
                self._completions.fail(request, error)
            else:
                spent = time.monotonic() - started
                self.metrics.ran(self.signature, [started - request.arrived], spent, request.rows)
                self._completions.end(request, result)
        answered()
        self._free += 1
        self._start()
