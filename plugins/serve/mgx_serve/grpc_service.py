"""The protocol over gRPC."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from .access import EVERYTHING
from .budget import JSON_COST, TENSOR_COST, Share
from .device_memory import DeviceRegion
from .errors import BadRequest, ServeError, Unsupported
from .grpc_messages import answer_message, read_call, stream_message
from .host_memory import HostRegion
from .inference import EXTENSIONS, Service
from .messages import SERVICE, messages

__all__ = ["handler"]

log = logging.getLogger("mgx_serve")

HEALTH: Final = ("ServerLive", "ServerReady")
ANY_MODEL: Final = ("ModelInfer", "ModelStreamInfer", "ModelReady", "ModelMetadata", "ModelStatistics")
Method = Callable[[Any], Awaitable[Any]]


def handler(service: Service) -> grpc.GenericRpcHandler:
    """Returns what a gRPC server is given to offer the protocol."""
    calls = _Calls(service)
    known = messages()
    made: dict[str, grpc.RpcMethodHandler] = {}
    for name in (
        *HEALTH,
        "ServerMetadata",
        "ModelReady",
        "ModelMetadata",
        "ModelInfer",
        "ModelStatistics",
        "RepositoryIndex",
        "RepositoryModelLoad",
        "RepositoryModelUnload",
        "SystemSharedMemoryStatus",
        "SystemSharedMemoryRegister",
        "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus",
        "CudaSharedMemoryRegister",
        "CudaSharedMemoryUnregister",
    ):
        made[name] = grpc.unary_unary_rpc_method_handler(
            calls.guarded(name, getattr(calls, name)),
            response_serializer=None if name == "ModelInfer" else known[f"{name}Response"].SerializeToString,
        )
    made["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(calls.stream)
    return grpc.method_handlers_generic_handler(SERVICE, made)


class _Calls:
    """One method for each of the protocol's, by its name."""

    def __init__(self, service: Service) -> None:
        self.service, self.messages = service, messages()

    def guarded(self, name: str, method: Method) -> Callable[[Any, Any], Awaitable[Any]]:
        async def call(request: bytes, context: Any) -> Any:
            try:
                with Share(self.service.budget) as share:
                    read = self._read(f"{name}Request", request, share)
                    self._allow(name, read, context)
                    return await (self.ModelInfer(read, context, share) if name == "ModelInfer" else method(read))
            except ServeError as error:
                if error.retry_after is not None:
                    context.set_trailing_metadata((("retry-after", str(error.retry_after)),))
                await context.abort(error.grpc, str(error))
            except Exception:
                log.exception("%s", name)
                await context.abort(grpc.StatusCode.INTERNAL, "the server failed; the reason is in its log")

        return call

    def _read(self, name: str, given: bytes, share: Share) -> Any:
        """Errors: BadRequest for bytes that are no such message; TooLarge, Busy for those that there is no memory for."""
        share.take(len(given) * TENSOR_COST)
        try:
            read = self.messages[name].FromString(given)
        except DecodeError as error:
            raise BadRequest(f"the request is no {name}: {error}") from None
        if name == "ModelInferRequest" and not read.raw_input_contents:
            share.take(len(given) * JSON_COST)
        return read

    def _allow(self, method: str, request: Any, context: Any) -> None:
        if method in HEALTH or not self.service.access.required:
            return
        header = _headers(context).get("authorization")
        name = ""
        if method in ANY_MODEL:
            name = request.model_name if method.endswith("Infer") else request.name
        self.service.access.check(header, name or EVERYTHING)

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Answers in the order of the requests; the failure of one is its own answer."""
        async for given in requests:
            identity = ""
            try:
                with Share(self.service.budget) as share:
                    request = self._read("ModelInferRequest", given, share)
                    identity = request.id
                    self._allow("ModelStreamInfer", request, context)
                    made = stream_message(await self.ModelInfer(request, context, share))
            except ServeError as error:
                made = self._failure(identity, str(error))
            except Exception:
                log.exception("ModelStreamInfer")
                made = self._failure(identity, "the server failed; the reason is in its log")
            yield made

    def _failure(self, identity: str, text: str) -> bytes:
        """Returns the encoded answer in a stream to a request that failed."""
        made = self.messages["ModelStreamInferResponse"](error_message=text)
        made.infer_response.id = identity
        encoded: bytes = made.SerializeToString()
        return encoded

    # the server

    async def ServerLive(self, request: Any) -> Any:
        return self.messages["ServerLiveResponse"](live=True)

    async def ServerReady(self, request: Any) -> Any:
        return self.messages["ServerReadyResponse"](ready=self.service.ready())

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

    async def ModelInfer(self, request: Any, context: Any, share: Share) -> bytes:
        """Returns the encoded answer."""
        call = read_call(request)
        if self.service.reads_headers:
            call.headers = _headers(context)
        return answer_message(await self.service.infer(call, share))

    async def ModelStatistics(self, request: Any) -> Any:
        known = self.messages
        spent = known["StatisticDuration"]
        found = []
        for model, r in self.service.statistics(request.name, request.version):
            stats = known["InferStatistics"](
                success=spent(count=r.requests, ns=r.queue_ns + r.compute_ns),
                fail=spent(count=r.failures),
                queue=spent(count=r.requests, ns=r.queue_ns),
                compute_infer=spent(count=r.requests, ns=r.compute_ns),
            )
            sizes = [
                known["InferBatchStatistics"](batch_size=size, compute_infer=spent(count=runs, ns=ns))
                for size, (runs, ns) in sorted(r.by_size.items())
            ]
            found.append(
                known["ModelStatistics"](
                    name=model.name,
                    version=model.version,
                    last_inference=r.last_ms,
                    inference_count=r.requests,
                    execution_count=r.runs,
                    inference_stats=stats,
                    batch_stats=sizes,
                )
            )
        return known["ModelStatisticsResponse"](model_stats=found)

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
        if request.parameters:
            raise Unsupported(
                "models are loaded as they lie on disk; a configuration or files in the request are not taken"
            )
        await self.service.repository.load(request.model_name)
        return self.messages["RepositoryModelLoadResponse"]()

    async def RepositoryModelUnload(self, request: Any) -> Any:
        await self.service.repository.unload(request.model_name)
        return self.messages["RepositoryModelUnloadResponse"]()


def _headers(context: Any) -> Mapping[str, str]:
    return {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
