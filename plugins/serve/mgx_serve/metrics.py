"""Figures of a server, for Prometheus and for the protocol's statistics."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from .model import Model

__all__ = ["Metrics", "Record"]

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


class Metrics:
    """Collects from every model of one server."""

    def __init__(self) -> None:
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

    def _record(self, model: Model) -> Record:
        return self.records[model.name, model.version]

    def loaded(self, model: Model, seconds: float) -> None:
        self._compile.labels(model.name, model.version).set(seconds)

    def waiting(self, model: Model, count: int) -> None:
        self._record(model).waiting = count
        self._waiting.labels(model.name, model.version).set(count)

    def refused(self, model: Model) -> None:
        self._record(model).refusals += 1
        self._refusals.labels(model.name, model.version).inc()

    def failed(self, model: Model) -> None:
        self._record(model).failures += 1
        self._failures.labels(model.name, model.version).inc()

    def ran(self, model: Model, queued: Sequence[float], seconds: float, rows: int) -> None:
        """One run: seconds in the queue of each request, seconds of the run, rows in all."""
        labels = (model.name, model.version)
        record, spent = self._record(model), int(seconds * 1e9)
        record.requests += len(queued)
        record.runs += 1
        record.queue_ns += int(sum(queued) * 1e9)
        record.compute_ns += spent * len(queued)
        record.last_ms = int(time.time() * 1000)
        size = record.by_size[rows]
        size[0] += 1
        size[1] += spent
        self._requests.labels(*labels).inc(len(queued))
        for waited in queued:
            self._queue.labels(*labels).observe(waited)
        self._compute.labels(*labels).observe(seconds)
        self._size.labels(*labels).observe(rows)

    def text(self) -> bytes:
        """Returns the figures in Prometheus' text form."""
        return generate_latest(self.registry)
