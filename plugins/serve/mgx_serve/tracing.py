"""OpenTelemetry traces: a span per request, with child spans for queueing and running."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from mgx_core import ParameterError

from .errors import Unsupported

__all__ = ["NoTraces", "Traces", "opened"]


class NoTraces:
    """Tracing disabled.  kept: True in subclasses that record traces."""

    kept = False

    def settings(self) -> dict[str, list[str]]:
        """Returns the trace settings under Triton's names."""
        fixed = {"trace_rate": ["1"], "trace_count": ["-1"], "trace_mode": ["opentelemetry"]}
        return {"trace_level": ["TIMESTAMPS" if self.kept else "OFF"], **fixed}

    def require(self, wanted: Mapping[str, Sequence[str]]) -> None:
        """Errors: Unsupported for settings that differ from the present ones."""
        there = self.settings()
        for name, values in wanted.items():
            if list(values) not in ([], there.get(name)):
                raise Unsupported(
                    f"{name} cannot be changed by requests, and is {', '.join(there.get(name, [])) or 'no setting here'}; "
                    "it is set by the option --traces and the environment of OpenTelemetry"
                )

    def request(self, headers: Mapping[str, str], model: str, identity: str) -> AbstractContextManager[Any]:
        return nullcontext()

    def phases(self, arrived: float, started: float, ended: float, rows: int) -> None: ...

    def close(self) -> None: ...


class Traces(NoTraces):
    """Exports spans as configured by the environment (``OTEL_EXPORTER_OTLP_ENDPOINT`` and others)."""

    kept = True

    def __init__(self) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = TracerProvider(resource=Resource.create({"service.name": "mgx-serve"}))
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._provider.get_tracer("mgx_serve")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def _span(self, headers: Mapping[str, str], model: str, identity: str) -> Iterator[Any]:
        from opentelemetry.trace import SpanKind

        given = {"mgx.model": model, "mgx.request": identity}
        parent = self._propagator.extract(headers)
        with self._tracer.start_as_current_span("infer", parent, SpanKind.SERVER, given) as span:
            yield span

    def request(self, headers: Mapping[str, str], model: str, identity: str) -> AbstractContextManager[Any]:
        """Opens the span of a request; its parent is the caller's span, if the headers name one."""
        return self._span(headers, model, identity)

    def phases(self, arrived: float, started: float, ended: float, rows: int) -> None:
        """Adds queue and run spans to the current request; times of `time.monotonic`."""
        offset = time.time() - time.monotonic()
        for name, begin, end in (("queue", arrived, started), ("run", started, ended)):
            span = self._tracer.start_span(
                name, start_time=round((begin + offset) * 1e9), attributes={"mgx.rows": rows}
            )
            span.end(round((end + offset) * 1e9))

    def close(self) -> None:
        self._provider.shutdown()


def opened(wanted: bool) -> NoTraces:
    """Errors: ParameterError if traces are enabled and OpenTelemetry is not installed."""
    if not wanted:
        return NoTraces()
    try:
        return Traces()
    except ImportError as error:
        raise ParameterError(f"OpenTelemetry is required: pip install 'mgx-serve[traces]' ({error})") from error
