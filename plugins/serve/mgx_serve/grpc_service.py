"""The protocol over gRPC."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final

import grpc
from google.protobuf.message import DecodeError

from .access import EVERYTHING
from .budget import JSON_COST, TENSOR_COST, Share
from .errors import BadRequest, ServeError, Unsupported
from .inference import EXTENSIONS, Answer, Call, Service, Stored, place, priority, seconds
from .messages import SERVICE, messages
from .shared_memory import Region
from .tensors import from_bytes, from_list, of_items, to_bytes

__all__ = ["handler"]

log = logging.getLogger("mgx_serve")

# where the elements of a tensor are that does not come as bytes
CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
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
    ):
        made[name] = grpc.unary_unary_rpc_method_handler(
            calls.guarded(name, getattr(calls, name)),
            response_serializer=known[f"{name}Response"].SerializeToString,
        )
    made["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        calls.stream,
        response_serializer=known["ModelStreamInferResponse"].SerializeToString,
    )
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
        if method in HEALTH:
            return
        header = _headers(context).get("authorization")
        name = ""
        if method in ANY_MODEL:
            name = request.model_name if method.endswith("Infer") else request.name
        self.service.access.check(header, name or EVERYTHING)

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Answers in the order of the requests; a failing one is told in its own answer."""
        answer = self.messages["ModelStreamInferResponse"]
        async for given in requests:
            identity = ""
            try:
                with Share(self.service.budget) as share:
                    request = self._read("ModelInferRequest", given, share)
                    identity = request.id
                    self._allow("ModelStreamInfer", request, context)
                    made = answer(infer_response=await self.ModelInfer(request, context, share))
                yield made
            except ServeError as error:
                made = answer(error_message=str(error))
                made.infer_response.id = identity
                yield made
            except Exception:
                log.exception("ModelStreamInfer")
                made = answer(error_message="the server failed; the reason is in its log")
                made.infer_response.id = identity
                yield made

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

    async def ModelInfer(self, request: Any, context: Any, share: Share) -> Any:
        call = _call(request)
        call.headers = _headers(context)
        return self._answered(await self.service.infer(call, share))

    def _answered(self, answer: Answer) -> Any:
        tensor = self.messages["InferOutputTensor"]
        if answer.places:
            return self._answered_in_places(answer)
        return self.messages["ModelInferResponse"](
            model_name=answer.model.name,
            model_version=answer.model.version,
            id=answer.id,
            outputs=[tensor(name=t.name, datatype=t.datatype, shape=a.shape) for t, a in answer.outputs],
            raw_output_contents=[to_bytes(a) for _, a in answer.outputs],
        )

    def _answered_in_places(self, answer: Answer) -> Any:
        """The answer where some outputs lie in shared memory; the protocol has an empty item of raw bytes for each of these."""
        made = self.messages["ModelInferResponse"](
            model_name=answer.model.name, model_version=answer.model.version, id=answer.id
        )
        for tensor, array in answer.outputs:
            output = made.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=array.shape)
            lies = answer.places.get(tensor.name)
            made.raw_output_contents.append(to_bytes(array) if lies is None else b"")
            if lies is not None:
                output.parameters["shared_memory_region"].string_param = lies.region
                output.parameters["shared_memory_byte_size"].int64_param = lies.size
                output.parameters["shared_memory_offset"].int64_param = lies.offset
        return made

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
        self.service.regions.register(Region(request.name, request.key, request.offset, request.byte_size))
        return self.messages["SystemSharedMemoryRegisterResponse"]()

    async def SystemSharedMemoryUnregister(self, request: Any) -> Any:
        self.service.regions.unregister(request.name)
        return self.messages["SystemSharedMemoryUnregisterResponse"]()

    async def SystemSharedMemoryStatus(self, request: Any) -> Any:
        made = self.messages["SystemSharedMemoryStatusResponse"]()
        for r in self.service.regions.status(request.name):
            status = made.regions[r.name]
            status.name, status.key, status.offset, status.byte_size = r.name, r.key, r.offset, r.size
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


def _call(request: Any) -> Call:
    """Errors: BadRequest."""
    feeds, stored = _inputs(request)
    parameters = _plain(request.parameters)
    stated = {o.name: place(_plain(o.parameters), o.name) for o in request.outputs}
    places = {n: p for n, p in stated.items() if p is not None}
    return Call(
        request.model_name,
        request.model_version,
        feeds,
        stored,
        [o.name for o in request.outputs],
        request.id,
        priority(parameters),
        seconds(parameters),
        places,
    )


def _inputs(request: Any) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Returns the inputs that the message holds, and those that lie in shared memory.  Errors: BadRequest."""
    raw = list(request.raw_input_contents)
    sources = [place(_plain(given.parameters), given.name) for given in request.inputs]
    sent = sources.count(None)
    if raw and len(raw) != sent:
        raise BadRequest(f"raw_input_contents: one item for each of {sent} inputs is required, got {len(raw)}")
    feeds: dict[str, Any] = {}
    stored: dict[str, Stored] = {}
    left = iter(raw)
    for given, source in zip(request.inputs, sources, strict=True):
        name, shape = given.name, list(given.shape)
        if name in feeds or name in stored:
            raise BadRequest(f"input {name!r} is given twice")
        if (raw or source is not None) and given.HasField("contents"):
            raise BadRequest(f"input {name!r}: its elements are given twice, one of them in contents")
        if source is not None:
            stored[name] = Stored(given.datatype, shape, source)
        elif raw:
            feeds[name] = from_bytes(name, given.datatype, shape, next(left))
        else:
            feeds[name] = _contents(given, shape)
    return feeds, stored


def _headers(context: Any) -> Mapping[str, str]:
    return {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}


def _contents(given: Any, shape: list[int]) -> Any:
    field = CONTENTS.get(given.datatype)
    if field is None:
        raise BadRequest(f"input {given.name!r}: {given.datatype!r} is taken from raw_input_contents alone")
    items = list(getattr(given.contents, field))
    if given.datatype == "BYTES":
        return of_items(given.name, shape, items)
    return from_list(given.name, given.datatype, shape, items)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        made[name] = None if kind is None else getattr(value, kind)
    return made
