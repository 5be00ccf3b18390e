"""Traces, received by an OpenTelemetry collector."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_requests(
    serve: Callable[..., Any], small_model: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            received.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *arguments: object) -> None: ...

    collector = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=collector.serve_forever)
    thread.start()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{collector.server_port}")
    server = serve(small_model(tmp_path / "double.onnx"), "--traces")
    with tritonclient.http.InferenceServerClient(server.http) as c:
        given = tritonclient.http.InferInput("x", [3, 4], "FP32")
        given.set_data_from_numpy(np.ones((3, 4), np.float32))
        c.infer("double", [given], request_id="seven", headers={"traceparent": PARENT})
    server.process.terminate()
    assert server.process.wait(60) == 0
    collector.shutdown()
    thread.join()
    collector.server_close()
    spans: dict[str, Any] = {}
    for body in received:
        for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
            spans |= {span.name: span for scope in resource.scope_spans for span in scope.spans}
    infer = spans["infer"]
    assert infer.trace_id.hex() == PARENT[3:35] and infer.parent_span_id.hex() == PARENT[36:52]
    said = {a.key: a.value.string_value for a in infer.attributes}
    assert said["mgx.model"] == "double" and said["mgx.request"] == "seven"
    for name in ("queue", "run"):
        assert spans[name].parent_span_id == infer.span_id
        assert infer.start_time_unix_nano <= spans[name].end_time_unix_nano + 10**6
    assert spans["queue"].end_time_unix_nano == spans["run"].start_time_unix_nano
