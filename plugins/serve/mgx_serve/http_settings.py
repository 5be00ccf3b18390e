"""HTTP routes for trace and log settings."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .errors import BadRequest
from .inference import Service

__all__ = ["SettingPaths"]


class SettingPaths:
    """Routes that report and change settings of tracing and logging.

    read: returns the JSON object in a request's body.
    """

    def __init__(self, service: Service, read: Callable[[Request], Awaitable[Mapping[str, Any]]]) -> None:
        self.service, self._read = service, read

    async def traces(self, request: Request) -> Response:
        there = self.service.trace_settings(request.path_params.get("name", ""))
        return JSONResponse({name: v if name == "trace_level" else v[0] for name, v in there.items()})

    async def change_traces(self, request: Request) -> Response:
        self.service.trace_settings(request.path_params.get("name", ""))
        given = await self._read(request)
        self.service.traces.require({name: _texts(name, value) for name, value in given.items()})
        return await self.traces(request)

    async def log(self, request: Request) -> Response:
        return JSONResponse(self.service.log.values)

    async def change_log(self, request: Request) -> Response:
        self.service.log.change(await self._read(request))
        return await self.log(request)


def _texts(name: str, value: Any) -> list[str]:
    """Returns a setting as a list of strings; empty resets it to its initial value.  Errors: BadRequest."""
    given = [] if value is None else value if isinstance(value, list) else [value]
    if any(not isinstance(v, (str, int, float)) for v in given):
        raise BadRequest(f"{name} must be a text, a number or a list of them")
    return [str(v) for v in given]
