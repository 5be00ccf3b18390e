"""The protocol's gRPC methods other than inference, on encoded messages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from .auth import EVERYTHING
from .budget import TENSOR_COST, Share
from .device_memory import DeviceRegion
from .errors import BadRequest, NotFound, ServeError
from .host_memory import HostRegion
from .inference import EXTENSIONS, Service, refuse_overrides
from .messages import SERVICE, messages

__all__ = ["NAMES", "Methods"]

HEALTH: Final = ("ServerLive", "ServerReady")
OPEN_TO_ALL: Final = (*HEALTH, "HealthCheck")
SERVING, NOT_SERVING = 1, 2  # of gRPC's health protocol
OF_A_MODEL: Final = ("ModelReady", "ModelMetadata", "ModelConfig", "ModelStatistics")
NAMES: Final = (
    *HEALTH,
    *OF_A_MODEL,
    "ServerMetadata",
    "RepositoryIndex",
    "RepositoryModelLoad",
    "RepositoryModelUnload",
    "SystemSharedMemoryStatus",
    "SystemSharedMemoryRegister",
    "SystemSharedMemoryUnregister",
    "CudaSharedMemoryStatus",
    "CudaSharedMemoryRegister",
    "CudaSharedMemoryUnregister",
    "TraceSetting",
    "LogSettings",
)


def _read(name: str, given: bytes, share: Share) -> Any:
    """Decodes a message.

    Errors: BadRequest if the bytes are not such a message; TooLarge, Busy if the memory budget is exceeded.
    """
    share.take(len(given) * TENSOR_COST)
    try:
        return messages()[name].FromString(given)
    except DecodeError as error:
        raise BadRequest(f"the request is no {name}: {error}") from None


class Methods:
    """The methods of one server, named as in the protocol."""

    def __init__(self, service: Service) -> None:
        self.service, self.messages = service, messages()

    async def answered(self, name: str, request: bytes, headers: Mapping[str, str]) -> bytes:
        """Handles an encoded request for one of `NAMES` or `HealthCheck`; returns the response.  Errors: any `ServeError`."""
        with Share(self.service.budget) as share:
            given = _read(f"{name}Request", request, share)
            if name not in OPEN_TO_ALL:
                model = given.name if name in OF_A_MODEL else ""
                self.service.access.check(headers.get("authorization"), model or EVERYTHING)
            made: bytes = (await getattr(self, name)(given)).SerializeToString()
            return made

    # the server

    async def ServerLive(self, request: Any) -> Any:
        return self.messages["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any) -> Any:
        return self.messages["ServerReadyResponse"](ready=self.service.ready())

    async def HealthCheck(self, request: Any) -> Any:
        """Implements the standard gRPC health protocol: reports whether the server is ready, as `ServerReady` does."""
        if request.service not in ("", SERVICE):
            raise NotFound(f"there is no service {request.service!r}; the health of {SERVICE} is told")
        return self.messages["HealthCheckResponse"](status=SERVING if self.service.ready() else NOT_SERVING)

    async def ServerMetadata(self, request: Any) -> Any:
        return self.messages["ServerMetadataResponse"](
            name=self.service.name, version=self.service.version, extensions=EXTENSIONS
        )

    # models

    async def ModelReady(self, request: Any) -> Any:
        try:
            ready = self.service.model_ready(request.name, request.version)
        except ServeError:
            ready = False
        return self.messages["ModelReadyResponse"](ready=ready)

    async def ModelMetadata(self, request: Any) -> Any:
        model = self.service.model(request.name, request.version)
        tensor = self.messages["TensorMetadata"]
        return self.messages["ModelMetadataResponse"](
            name=model.name,
            versions=self.service.versions(model.name),
            platform=f"mgx_{model.target}",
            inputs=[tensor(name=t.name, datatype=t.datatype, shape=t.shape) for t in model.inputs],
            outputs=[tensor(name=t.name, datatype=t.datatype, shape=t.shape) for t in model.outputs],
        )

    async def ModelConfig(self, request: Any) -> Any:
        made = self.messages["ModelConfigResponse"]()
        json_format.ParseDict(self.service.configuration(request.name, request.version), made.config)
        return made

    async def ModelStatistics(self, request: Any) -> Any:
        found = {"model_stats": self.service.statistics(request.name, request.version)}
        return json_format.ParseDict(found, self.messages["ModelStatisticsResponse"]())

    # traces and the log

    async def TraceSetting(self, request: Any) -> Any:
        kept = self.service.trace_settings(request.model_name)
        self.service.traces.require({name: list(s.value) for name, s in request.settings.items()})
        made = self.messages["TraceSettingResponse"]()
        for name, values in kept.items():
            made.settings[name].value.extend(values)
        return made

    async def LogSettings(self, request: Any) -> Any:
        self.service.log.change(
            {n: getattr(s, s.WhichOneof("parameter_choice") or "bool_param") for n, s in request.settings.items()}
        )
        made = self.messages["LogSettingsResponse"]()
        for name, value in self.service.log.values.items():
            kind = {bool: "bool_param", int: "uint32_param", str: "string_param"}[type(value)]
            setattr(made.settings[name], kind, value)
        return made

    # shared memory

    async def SystemSharedMemoryRegister(self, request: Any) -> Any:
        given = HostRegion(request.name, request.byte_size, request.key, request.offset)
        await self.service.regions.register(given)
        return self.messages["SystemSharedMemoryRegisterResponse"]()

    async def SystemSharedMemoryUnregister(self, request: Any) -> Any:
        self.service.regions.unregister(HostRegion, request.name)
        return self.messages["SystemSharedMemoryUnregisterResponse"]()

    async def SystemSharedMemoryStatus(self, request: Any) -> Any:
        made = self.messages["SystemSharedMemoryStatusResponse"]()
        for r in self.service.regions.status(HostRegion, request.name):
            status = made.regions[r.name]
            status.name, status.key, status.offset, status.byte_size = r.name, r.key, r.offset, r.size
        return made

    async def CudaSharedMemoryRegister(self, request: Any) -> Any:
        target = self.service.repository.settings.target
        given = DeviceRegion(request.name, request.byte_size, request.raw_handle, request.device_id, target)
        await self.service.regions.register(given)
        return self.messages["CudaSharedMemoryRegisterResponse"]()

    async def CudaSharedMemoryUnregister(self, request: Any) -> Any:
        self.service.regions.unregister(DeviceRegion, request.name)
        return self.messages["CudaSharedMemoryUnregisterResponse"]()

    async def CudaSharedMemoryStatus(self, request: Any) -> Any:
        made = self.messages["CudaSharedMemoryStatusResponse"]()
        for r in self.service.regions.status(DeviceRegion, request.name):
            status = made.regions[r.name]
            status.name, status.device_id, status.byte_size = r.name, r.device, r.size
        return made

    # the repository

    async def RepositoryIndex(self, request: Any) -> Any:
        rows = [self.messages["ModelIndex"](**row) for row in self.service.index(request.ready)]
        return self.messages["RepositoryIndexResponse"](models=rows)

    async def RepositoryModelLoad(self, request: Any) -> Any:
        refuse_overrides(request.parameters)
        await self.service.repository.load(request.model_name)
        return self.messages["RepositoryModelLoadResponse"]()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        await self.service.repository.unload(request.model_name)
        return self.messages["RepositoryModelUnloadResponse"]()
