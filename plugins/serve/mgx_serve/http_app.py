"""The HTTP application: the protocol, the status page and the metrics."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from .auth import EVERYTHING
from .budget import SMALL
from .errors import BadRequest, NotFound, WrongMethod
from .http_infer import INFERENCE, InferPaths, read_body, refusal
from .http_regions import DevicePaths, HostPaths
from .http_settings import SettingPaths
from .inference import EXTENSIONS, Service, refuse_overrides
from .openapi import document
from .page import page
from .tensors import Tensor

__all__ = ["app"]

Handler = Callable[[Request], Awaitable[Response]]


def app(service: Service, max_bytes: int) -> ASGIApp:
    """Returns the ASGI application.  max_bytes: limit of a request body."""
    paths = _Paths(service)
    model = "/v2/models/{name}"
    get: list[tuple[str, Handler, bool]] = [
        ("/", paths.page, True),
        ("/openapi.json", paths.openapi, True),
        ("/metrics", paths.metrics, True),
        ("/v2", paths.server, True),
        ("/v2/health/live", paths.live, False),
        ("/v2/health/ready", paths.ready, False),
        ("/v2/models/stats", paths.statistics, True),
    ]
    post: list[tuple[str, Handler, bool]] = [
        ("/v2/repository/index", paths.index, True),
        ("/v2/repository/models/{name}/load", paths.load, True),
        ("/v2/repository/models/{name}/unload", paths.unload, True),
    ]
    for at in (model, model + "/versions/{version}"):
        get += [
            (at, paths.model, False),
            (at + "/ready", paths.model_ready, False),
            (at + "/config", paths.configuration, False),
            (at + "/stats", paths.statistics, False),
        ]
    settings = SettingPaths(service, paths.object)
    for at in ("/v2/trace/setting", model + "/trace/setting"):
        get.append((at, settings.traces, True))
        post.append((at, settings.change_traces, True))
    get.append(("/v2/logging", settings.log, True))
    post.append(("/v2/logging", settings.change_log, True))
    for kind in (HostPaths, DevicePaths):
        regions = kind(service, paths.object, paths.body)
        path = "/v2/" + regions.path
        get += [(path + "/status", regions.status, True), (path + "/region/{name}/status", regions.status, True)]
        post += [
            (path + "/region/{name}/register", regions.register, True),
            (path + "/region/{name}/unregister", regions.unregister, True),
            (path + "/unregister", regions.unregister, True),
        ]
    routes = [
        Route(path, _guarded(service, h, whole), methods=[method])
        for method, paths_of in (("GET", get), ("POST", post))
        for path, h, whole in paths_of
    ]
    others = Starlette(routes=routes, exception_handlers={404: _no_path, 405: _no_path})
    return InferPaths(service, max_bytes, others)


async def _no_path(request: Request, error: Exception) -> Response:
    path = request.scope["path"]
    found = [r.methods for r in request.app.routes if isinstance(r, Route) and r.path_regex.fullmatch(path)]
    allowed = {"POST"} if INFERENCE.fullmatch(path) else {method for methods in found for method in methods or ()}
    if not allowed:
        return _refused(NotFound(f"there is no {request.method} {path}"), request)
    names = ", ".join(sorted(allowed))
    refused = _refused(WrongMethod(f"{path} requires {names}, got {request.method}"), request)
    refused.headers["Allow"] = names
    return refused


OPEN_TO_ALL = ("/v2/health/live", "/v2/health/ready")


def _guarded(service: Service, handler: Handler, whole: bool) -> Handler:
    """Returns a handler that checks the token first; whole: the path concerns the whole server, not one model."""

    async def handle(request: Request) -> Response:
        try:
            if request.scope["path"] not in OPEN_TO_ALL:  # and not the URL, which includes the client's Host header
                name = EVERYTHING if whole else request.path_params.get("name", EVERYTHING)
                service.access.check(request.headers.get("authorization"), name)
            return await handler(request)
        except Exception as error:
            return _refused(error, request)

    return handle


def _refused(error: Exception, request: Request) -> Response:
    status, headers, parts = refusal(error, f"{request.method} {request.url.path}")
    return Response(b"".join(parts), status, headers)


class _Paths:
    def __init__(self, service: Service) -> None:
        self.service = service

    # the server

    async def live(self, request: Request) -> Response:
        return JSONResponse({"live": True})

    async def ready(self, request: Request) -> Response:
        ready = self.service.ready()
        return JSONResponse({"ready": ready}, 200 if ready else 503)

    async def server(self, request: Request) -> Response:
        return JSONResponse(
            {"name": self.service.name, "version": self.service.version, "extensions": list(EXTENSIONS)}
        )

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(document(self.service.version))

    async def metrics(self, request: Request) -> Response:
        return Response(self.service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def page(self, request: Request) -> Response:
        return HTMLResponse(page(self.service))

    # models

    def _named(self, request: Request) -> tuple[str, str]:
        return request.path_params.get("name", ""), request.path_params.get("version", "")

    async def model(self, request: Request) -> Response:
        model = self.service.model(*self._named(request))
        made = {
            "name": model.name,
            "versions": self.service.versions(model.name),
            "platform": f"mgx_{model.target}",
            "inputs": list(map(_tensor, model.inputs)),
            "outputs": list(map(_tensor, model.outputs)),
        }
        return JSONResponse(made)

    async def configuration(self, request: Request) -> Response:
        return JSONResponse(self.service.configuration(*self._named(request)))

    async def model_ready(self, request: Request) -> Response:
        name, version = self._named(request)
        return JSONResponse({"name": name, "ready": self.service.model_ready(name, version)})

    async def statistics(self, request: Request) -> Response:
        return JSONResponse({"model_stats": self.service.statistics(*self._named(request))})

    async def body(self, request: Request) -> bytes:
        """Reads the body of a request without tensors.  Errors: those of `read_body`."""
        return await read_body(request.receive, request.headers, SMALL)

    # the repository

    async def index(self, request: Request) -> Response:
        given = await self.object(request)
        return JSONResponse(self.service.index(given.get("ready") is True))

    async def object(self, request: Request) -> dict[str, Any]:
        """Reads the JSON object in a request's body, empty for no body.  Errors: BadRequest, and those of `body`."""
        body = await self.body(request)
        try:
            given = json.loads(body or b"{}")
        except (ValueError, RecursionError) as error:
            raise BadRequest(f"the request is not JSON: {error}") from None
        return given if isinstance(given, dict) else {}

    async def load(self, request: Request) -> Response:
        refuse_overrides((await self.object(request)).get("parameters"))
        await self.service.repository.load(request.path_params["name"])
        return Response()

    async def unload(self, request: Request) -> Response:
        await self.body(request)
        await self.service.repository.unload(request.path_params["name"])
        return Response()


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {"name": tensor.name, "datatype": tensor.datatype, "shape": list(tensor.shape)}
