"""HTTP routes for shared-memory regions of the host and of devices."""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from .device_memory import DeviceRegion
from .errors import BadRequest
from .host_memory import HostRegion
from .inference import Service
from .shared_memory import Region

__all__ = ["DevicePaths", "HostPaths", "RegionPaths"]


class RegionPaths(ABC):
    """Routes for one kind of regions.

    path: prefix of the routes; kind: of regions; read: returns the JSON object in a request's body; drain: reads
    and discards the body.
    """

    path: str
    kind: type[Region]

    def __init__(
        self,
        service: Service,
        read: Callable[[Request], Awaitable[Mapping[str, Any]]],
        drain: Callable[[Request], Awaitable[bytes]],
    ) -> None:
        self.service, self._read, self._drain = service, read, drain

    @abstractmethod
    def region(self, name: str, given: Mapping[str, Any]) -> Region:
        """Returns the region to register.  Errors: BadRequest."""

    @abstractmethod
    def described(self, name: str) -> list[dict[str, Any]]:
        """Describes one region, or all of the kind.  Errors: NotFound."""

    async def register(self, request: Request) -> Response:
        given = await self._read(request)
        await self.service.regions.register(self.region(request.path_params["name"], given))
        return Response()

    async def unregister(self, request: Request) -> Response:
        await self._drain(request)
        self.service.regions.unregister(self.kind, request.path_params.get("name", ""))
        return Response()

    async def status(self, request: Request) -> Response:
        return JSONResponse(self.described(request.path_params.get("name", "")))


class HostPaths(RegionPaths):
    """Routes for host regions, registered by key, byte_size and offset."""

    path, kind = "systemsharedmemory", HostRegion

    def region(self, name: str, given: Mapping[str, Any]) -> Region:
        key, size, offset = given.get("key"), given.get("byte_size"), given.get("offset", 0)
        if not isinstance(key, str) or type(size) is not int or type(offset) is not int:
            raise BadRequest("key (a string), byte_size and offset (numbers) are required")
        return HostRegion(name, size, key, offset)

    def described(self, name: str) -> list[dict[str, Any]]:
        found = self.service.regions.status(HostRegion, name)
        return [{"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.size} for r in found]


class DevicePaths(RegionPaths):
    """Routes for device regions, registered by raw_handle (base64 of the driver's handle), byte_size and device_id."""

    path, kind = "cudasharedmemory", DeviceRegion

    def region(self, name: str, given: Mapping[str, Any]) -> Region:
        handle, size, device = given.get("raw_handle"), given.get("byte_size"), given.get("device_id", 0)
        text = handle.get("b64") if isinstance(handle, dict) else None
        if not isinstance(text, str) or type(size) is not int or type(device) is not int:
            raise BadRequest(
                "raw_handle (an object with b64, a string), byte_size and device_id (numbers) are required"
            )
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError) as error:
            raise BadRequest(f"raw_handle: {error}") from None
        return DeviceRegion(name, size, data, device, self.service.repository.settings.target)

    def described(self, name: str) -> list[dict[str, Any]]:
        found = self.service.regions.status(DeviceRegion, name)
        return [{"name": r.name, "device_id": r.device, "byte_size": r.size} for r in found]
