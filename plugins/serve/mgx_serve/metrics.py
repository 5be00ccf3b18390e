"""Figures of a server, for Prometheus and for the protocol's statistics."""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .model import Signature
from .tracing import NoTraces

__all__ = ["Metrics", "Record", "Recorder"]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass
class Record:
    """Counts and nanoseconds of one model version."""

    requests: int = 0
    runs: int = 0
    failures: int = 0
    refusals: int = 0
    waiting: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    last_ms: int = 0
    by_size: dict[int, list[int]] = field(
        default_factory=lambda: defaultdict(lambda: [0, 0])
    )  # size -> runs, nanoseconds


@dataclass(frozen=True)
class _Series:
    """One model version's record, and its series for Prometheus."""

    record: Record
    requests: Counter
    failures: Counter
    refusals: Counter
    queue: Histogram
    compute: Histogram
    size: Histogram
    waiting: Gauge


class Recorder(ABC):
    """A listener to what queues and runs report."""

    @abstractmethod
    def waiting(self, model: Signature, count: int) -> None:
        """Requests that are in the queue now."""

    @abstractmethod
    def refused(self, model: Signature) -> None:
        """A request found the queue full."""

    @abstractmethod
    def failed(self, model: Signature) -> None:
        """A request's run failed."""

    @abstractmethod
    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        """One run: seconds in the queue of each request, seconds of the run, rows in all."""

    def answered(self, arrived: float, started: float, ended: float, rows: int) -> None:
        """The request of the current task; times by `time.monotonic`.  Default: not kept."""
        return


class Metrics(Recorder):
    """Collects from every model of one server."""

    def __init__(self, traces: NoTraces) -> None:
        self.traces = traces
        self.registry = CollectorRegistry()
        labels = ("model", "version")
        make: dict[str, Any] = {"registry": self.registry, "labelnames": labels}
        self._requests = Counter("mgx_requests", "Requests that were answered.", **make)
        self._failures = Counter("mgx_failures", "Requests whose run failed.", **make)
        self._refusals = Counter("mgx_refusals", "Requests that found the queue full.", **make)
        self._queue = Histogram("mgx_queue_seconds", "Time in the queue.", buckets=SECONDS, **make)
        self._compute = Histogram("mgx_compute_seconds", "Time of a run.", buckets=SECONDS, **make)
        self._size = Histogram("mgx_batch_size", "Rows of a run.", buckets=SIZES, **make)
        self._waiting = Gauge("mgx_waiting_requests", "Requests in the queue.", **make)
        self._compile = Gauge("mgx_compile_seconds", "Time that loading and compiling took.", **make)
        self.records: dict[tuple[str, str], Record] = defaultdict(Record)
        self._series: dict[tuple[str, str], _Series] = {}

    def _of(self, model: Signature) -> _Series:
        """The figures of one model version, looked up once: a look-up of labels takes longer than to count."""
        key = model.name, model.version
        found = self._series.get(key)
        if found is None:
            found = self._series[key] = _Series(
                self.records[key],
                self._requests.labels(*key),
                self._failures.labels(*key),
                self._refusals.labels(*key),
                self._queue.labels(*key),
                self._compute.labels(*key),
                self._size.labels(*key),
                self._waiting.labels(*key),
            )
        return found

    def loaded(self, model: Signature, seconds: float) -> None:
        self._compile.labels(model.name, model.version).set(seconds)

    def unloaded(self, model: Signature) -> None:
        """Forgets a version that is served no more, so that figures do not grow with every version that ever was."""
        key = model.name, model.version
        if self._series.pop(key, None) is not None:
            counters = (self._requests, self._failures, self._refusals, self._queue, self._compute, self._size)
            for collector in (*counters, self._waiting, self._compile):
                with contextlib.suppress(KeyError):
                    collector.remove(*key)
        self.records.pop(key, None)

    def waiting(self, model: Signature, count: int) -> None:
        series = self._of(model)
        series.record.waiting = count
        series.waiting.set(count)

    def refused(self, model: Signature) -> None:
        series = self._of(model)
        series.record.refusals += 1
        series.refusals.inc()

    def failed(self, model: Signature) -> None:
        series = self._of(model)
        series.record.failures += 1
        series.failures.inc()

    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        series = self._of(model)
        record, spent = series.record, int(seconds * 1e9)
        record.requests += len(queued)
        record.runs += 1
        record.queue_ns += int(sum(queued) * 1e9)
        record.compute_ns += spent * len(queued)
        record.last_ms = int(time.time() * 1000)
        size = record.by_size[rows]
        size[0] += 1
        size[1] += spent
        series.requests.inc(len(queued))
        for waited in queued:
            series.queue.observe(waited)
        series.compute.observe(seconds)
        series.size.observe(rows)

    def answered(self, arrived: float, started: float, ended: float, rows: int) -> None:
        self.traces.phases(arrived, started, ended, rows)

    def text(self) -> bytes:
        """Returns the figures in Prometheus' text form."""
        return generate_latest(self.registry)
