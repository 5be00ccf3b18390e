"""The OpenAPI description of the HTTP routes."""

from __future__ import annotations

from typing import Any

__all__ = ["document"]

_PATHS = (
    ("/v2/health/live", "get", "The process is alive."),
    ("/v2/health/ready", "get", "Every model can be asked."),
    ("/v2", "get", "The server's name, version and extensions."),
    ("/v2/models/{name}", "get", "Inputs and outputs of a model."),
    ("/v2/models/{name}/ready", "get", "The model can be asked."),
    ("/v2/models/{name}/config", "get", "The model's configuration, as Triton writes it."),
    ("/v2/models/{name}/stats", "get", "Counts and times of a model."),
    ("/v2/models/{name}/infer", "post", "Runs the model."),
    ("/v2/models/{name}/versions/{version}", "get", "Inputs and outputs of a version."),
    ("/v2/models/{name}/versions/{version}/ready", "get", "The version can be asked."),
    ("/v2/models/{name}/versions/{version}/config", "get", "The configuration of a version."),
    ("/v2/models/{name}/versions/{version}/stats", "get", "Counts and times of a version."),
    ("/v2/models/{name}/versions/{version}/infer", "post", "Runs the version."),
    ("/v2/repository/index", "post", "The models on disk and their states."),
    ("/v2/repository/models/{name}/load", "post", "Loads or reloads a model."),
    ("/v2/repository/models/{name}/unload", "post", "Stops serving a model."),
    ("/v2/systemsharedmemory/status", "get", "The regions of shared memory."),
    ("/v2/systemsharedmemory/region/{name}/status", "get", "One region."),
    ("/v2/systemsharedmemory/region/{name}/register", "post", "Names a region: key, byte_size, offset."),
    ("/v2/systemsharedmemory/region/{name}/unregister", "post", "Forgets a region."),
    ("/v2/systemsharedmemory/unregister", "post", "Forgets all regions."),
    ("/v2/cudasharedmemory/status", "get", "The regions of device memory."),
    ("/v2/cudasharedmemory/region/{name}/status", "get", "One region."),
    ("/v2/cudasharedmemory/region/{name}/register", "post", "Names a region: raw_handle, device_id, byte_size."),
    ("/v2/cudasharedmemory/region/{name}/unregister", "post", "Forgets a region."),
    ("/v2/cudasharedmemory/unregister", "post", "Forgets all regions of device memory."),
    ("/v2/trace/setting", "get", "Whether traces of requests are kept."),
    ("/v2/trace/setting", "post", "Refuses other settings of traces."),
    ("/v2/models/{name}/trace/setting", "get", "The same."),
    ("/v2/models/{name}/trace/setting", "post", "The same."),
    ("/v2/logging", "get", "Which messages the log takes."),
    (
        "/v2/logging",
        "post",
        "Changes which messages the log takes: log_info, log_warning, log_error, log_verbose_level.",
    ),
    ("/metrics", "get", "Figures in Prometheus' text form."),
)
_ERRORS = {
    "400": "the request does not fit",
    "401": "no valid token",
    "403": "the token does not allow it",
    "404": "no such model",
    "429": "the queue is full",
    "503": "the model is not ready",
}


def document(version: str) -> dict[str, Any]:
    """Returns the OpenAPI document."""
    paths: dict[str, Any] = {}
    for path, method, text in _PATHS:
        names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
        described = {
            "summary": text,
            "parameters": [{"name": n, "in": "path", "required": True, "schema": {"type": "string"}} for n in names],
            "responses": {"200": {"description": "done"}} | {k: {"description": v} for k, v in _ERRORS.items()},
        }
        if path.endswith("/infer"):
            described["requestBody"] = {"required": True, "content": {"application/json": {"schema": _REQUEST}}}
        paths.setdefault(path, {})[method] = described
    return {"openapi": "3.1.0", "info": {"title": "Open Inference Protocol", "version": version}, "paths": paths}


_TENSOR = {
    "type": "object",
    "required": ["name", "datatype", "shape"],
    "properties": {
        "name": {"type": "string"},
        "datatype": {"type": "string"},
        "shape": {"type": "array", "items": {"type": "integer"}},
        "data": {"type": "array"},
        "parameters": {"type": "object"},
    },
}
_REQUEST = {
    "type": "object",
    "required": ["inputs"],
    "properties": {
        "id": {"type": "string"},
        "parameters": {"type": "object"},
        "inputs": {"type": "array", "items": _TENSOR},
        "outputs": {"type": "array", "items": {"type": "object", "required": ["name"]}},
    },
}
