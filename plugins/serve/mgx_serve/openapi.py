"""The OpenAPI description of the HTTP routes."""

from __future__ import annotations

from typing import Any

__all__ = ["document"]


def _region_paths(kind: str, memory: str, arguments: str) -> tuple[tuple[str, str, str], ...]:
    """Returns the routes that register regions of one kind of memory."""
    regions = f"/v2/{kind}sharedmemory"
    region = f"{regions}/region/{{name}}"
    return (
        (f"{regions}/status", "get", f"Lists the registered regions of {memory}."),
        (f"{region}/status", "get", "Returns one registered region."),
        (f"{region}/register", "post", f"Registers a region under a name: {arguments}."),
        (f"{region}/unregister", "post", "Unregisters a region."),
        (f"{regions}/unregister", "post", f"Unregisters all regions of {memory}."),
    )


_PATHS = (
    ("/v2/health/live", "get", "Reports that the server is alive."),
    ("/v2/health/ready", "get", "Reports whether all models are ready for inference."),
    ("/v2", "get", "Returns the server's name, version and extensions."),
    ("/v2/models/{name}", "get", "Returns the inputs and outputs of a model."),
    ("/v2/models/{name}/ready", "get", "Reports whether the model is ready for inference."),
    ("/v2/models/{name}/config", "get", "Returns the model's configuration in Triton's form."),
    ("/v2/models/{name}/stats", "get", "Returns statistics of a model."),
    ("/v2/models/{name}/infer", "post", "Runs the newest version of the model."),
    ("/v2/models/{name}/versions/{version}", "get", "Returns the inputs and outputs of a version."),
    ("/v2/models/{name}/versions/{version}/ready", "get", "Reports whether the version is ready for inference."),
    ("/v2/models/{name}/versions/{version}/config", "get", "Returns the configuration of a version."),
    ("/v2/models/{name}/versions/{version}/stats", "get", "Returns statistics of a version."),
    ("/v2/models/{name}/versions/{version}/infer", "post", "Runs the version."),
    ("/v2/repository/index", "post", "Lists the models of the repository and their states."),
    ("/v2/repository/models/{name}/load", "post", "Loads or reloads a model."),
    ("/v2/repository/models/{name}/unload", "post", "Unloads a model."),
    *_region_paths("system", "shared memory", "key, byte_size, offset"),
    *_region_paths("cuda", "device memory", "raw_handle, device_id, byte_size"),
    ("/v2/trace/setting", "get", "Reports whether requests are traced."),
    ("/v2/trace/setting", "post", "Rejects changes: tracing is set when the server starts."),
    ("/v2/models/{name}/trace/setting", "get", "Reports whether requests are traced."),
    ("/v2/models/{name}/trace/setting", "post", "Rejects changes: tracing is set when the server starts."),
    ("/v2/logging", "get", "Returns which messages are logged."),
    (
        "/v2/logging",
        "post",
        "Changes which messages are logged: log_info, log_warning, log_error, log_verbose_level.",
    ),
    ("/metrics", "get", "Returns metrics in Prometheus' text format."),
)
_ERRORS = {
    "400": "the request is invalid",
    "401": "the token is missing or invalid",
    "403": "the token does not permit access to the model",
    "404": "there is no such model",
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
            "responses": {"200": {"description": "success"}} | {k: {"description": v} for k, v in _ERRORS.items()},
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
