"""Server metrics, for Prometheus and the protocol's statistics."""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from .model import Signature
from .tracing import NoTraces

__all__ = ["Metrics", "Record", "Recorder"]

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
LABELS = ("model", "version")


class Buckets:
    """A histogram: counts by upper bound, and the sum."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, *values: float) -> None:
        """Adds values; in one step if all fall into one bucket."""
        first, last = (bisect_left(self.bounds, value) for value in (min(values), max(values)))
        for value in values if first < last else ():
            self.counts[bisect_left(self.bounds, value)] += 1
        if first == last:
            self.counts[first] += len(values)
        self.sum += sum(values)

    def cumulative(self) -> list[tuple[str, float]]:
        """Returns the cumulative count for each bound."""
        made, total = [], 0
        for bound, count in zip((*map(float, self.bounds), float("inf")), self.counts, strict=True):
            total += count
            made.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        return made


@dataclass
class Record:
    """Counters and total nanoseconds of one model version.

    queue: seconds each request was queued; compute: seconds per run; sizes: rows per run; compiled: seconds of loading and
    compiling.
    """

    requests: int = 0
    runs: int = 0
    failures: int = 0
    refusals: int = 0
    queue_ns: int = 0
    compute_ns: int = 0
    last_ms: int = 0
    compiled: float = 0.0
    # size -> runs, nanoseconds
    by_size: dict[int, list[int]] = field(default_factory=lambda: defaultdict(lambda: [0, 0]))
    queue: Buckets = field(default_factory=lambda: Buckets(SECONDS))
    compute: Buckets = field(default_factory=lambda: Buckets(SECONDS))
    sizes: Buckets = field(default_factory=lambda: Buckets(SIZES))
    waiting_in: dict[object, int] = field(default_factory=dict)
    waiting_too: Callable[[], int] = lambda: 0

    @property
    def waiting(self) -> int:
        """Number of requests in all queues."""
        return sum(self.waiting_in.values()) + self.waiting_too()

    def statistics(self) -> dict[str, Any]:
        """Returns the protocol's statistics.

        Clients require every field.  Assembling inputs and splitting outputs count as compute; there is no response cache.
        """
        all_of_them, inside, none = {"count": self.requests}, {"count": self.requests, "ns": 0}, {"count": 0, "ns": 0}
        return {
            "last_inference": self.last_ms,
            "inference_count": int(self.sizes.sum),  # each row is one
            "execution_count": self.runs,
            "inference_stats": {
                "success": all_of_them | {"ns": self.queue_ns + self.compute_ns},
                "fail": {"count": self.failures, "ns": 0},
                "queue": all_of_them | {"ns": self.queue_ns},
                "compute_input": inside,
                "compute_infer": all_of_them | {"ns": self.compute_ns},
                "compute_output": inside,
                "cache_hit": none,
                "cache_miss": none,
            },
            "batch_stats": [
                {
                    "batch_size": size,
                    "compute_input": {"count": runs, "ns": 0},
                    "compute_infer": {"count": runs, "ns": ns},
                    "compute_output": {"count": runs, "ns": 0},
                }
                for size, (runs, ns) in sorted(self.by_size.items())
            ],
        }


class Recorder(ABC):
    """Receives the events of queues and runs."""

    @abstractmethod
    def waiting(self, model: Signature, count: int) -> None:
        """Sets the current number of queued requests."""

    def waiting_too(self, model: Signature, count: Callable[[], int]) -> None:
        """Registers a function that returns the number of requests waiting outside the queue.  Default: ignored."""
        return

    @abstractmethod
    def refused(self, model: Signature) -> None:
        """A request was rejected because the queue was full."""

    @abstractmethod
    def failed(self, model: Signature) -> None:
        """A request's run failed."""

    @abstractmethod
    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        """A run finished: seconds each request was queued, seconds of the run, total rows; called from any thread."""

    def answered(self, arrived: float, started: float, ended: float, rows: int) -> None:
        """Records that the current task's request was completed; times of `time.monotonic`.  Default: ignored."""
        return


class Metrics(Recorder, Collector):
    """Collects the metrics of all models of one server.

    Requests only increment plain counters; Prometheus series are built from them on scrape.
    """

    def __init__(self, traces: NoTraces) -> None:
        self.traces = traces
        self.records: dict[tuple[str, str], Record] = defaultdict(Record)
        self._lock = threading.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(self)

    def loaded(self, model: Signature, seconds: float) -> None:
        self.records[model.name, model.version].compiled = seconds

    def unloaded(self, model: Signature) -> None:
        """Drops the metrics of an unloaded version, so that they do not accumulate."""
        self.records.pop((model.name, model.version), None)

    def waiting(self, model: Signature, count: int, place: object = None) -> None:
        """Records the length of a model's queue; place: which of several processes owns it."""
        self.records[model.name, model.version].waiting_in[place] = count

    def waiting_too(self, model: Signature, count: Callable[[], int]) -> None:
        self.records[model.name, model.version].waiting_too = count

    def refused(self, model: Signature) -> None:
        self.records[model.name, model.version].refusals += 1

    def failed(self, model: Signature) -> None:
        self.records[model.name, model.version].failures += 1

    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        with self._lock:
            self._ran(self.records[model.name, model.version], queued, seconds, rows)

    def _ran(self, record: Record, queued: Sequence[float], seconds: float, rows: int) -> None:
        spent = int(seconds * 1e9)
        record.requests += len(queued)
        record.runs += 1
        record.queue_ns += int(sum(queued) * 1e9)
        record.compute_ns += spent * len(queued)
        record.last_ms = int(time.time() * 1000)
        size = record.by_size[rows]
        size[0] += 1
        size[1] += spent
        record.queue.add(*queued)
        record.compute.add(seconds)
        record.sizes.add(rows)

    def answered(self, arrived: float, started: float, ended: float, rows: int) -> None:
        self.traces.phases(arrived, started, ended, rows)

    def collect(self) -> Iterator[Metric]:
        """Yields all metrics as Prometheus families."""
        requests = CounterMetricFamily("mgx_requests", "Requests that were answered.", labels=LABELS)
        failures = CounterMetricFamily("mgx_failures", "Requests whose run failed.", labels=LABELS)
        refusals = CounterMetricFamily("mgx_refusals", "Requests that found the queue full.", labels=LABELS)
        waiting = GaugeMetricFamily("mgx_waiting_requests", "Requests in the queue.", labels=LABELS)
        compiled = GaugeMetricFamily("mgx_compile_seconds", "Time that loading and compiling took.", labels=LABELS)
        queue = HistogramMetricFamily("mgx_queue_seconds", "Time in the queue.", labels=LABELS)
        compute = HistogramMetricFamily("mgx_compute_seconds", "Time of a run.", labels=LABELS)
        sizes = HistogramMetricFamily("mgx_batch_size", "Rows of a run.", labels=LABELS)
        for key, record in self.records.items():
            requests.add_metric(key, record.requests)
            failures.add_metric(key, record.failures)
            refusals.add_metric(key, record.refusals)
            waiting.add_metric(key, record.waiting)
            compiled.add_metric(key, record.compiled)
            for family, buckets in ((queue, record.queue), (compute, record.compute), (sizes, record.sizes)):
                family.add_metric(key, buckets.cumulative(), buckets.sum)
        yield from (requests, failures, refusals, waiting, compiled, queue, compute, sizes)

    def text(self) -> bytes:
        """Returns the metrics in Prometheus's text format."""
        return generate_latest(self._registry)
