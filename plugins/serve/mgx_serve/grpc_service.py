"""The gRPC service of the protocol."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Final, NoReturn

import grpc

from .budget import SMALL, Share
from .errors import ServeError, TooLarge, Unavailable
from .grpc_answers import answer_message, stream_message
from .grpc_methods import NAMES
from .grpc_requests import Request, read_request
from .inference import Inference
from .messages import HEALTH_SERVICE, SERVICE, messages

__all__ = ["Others", "handler"]

log = logging.getLogger("mgx_serve")
LAST_WORD: Final = 0.1  # seconds to wait on shutdown for a client's half-close that is already in flight
Others = Callable[[str, bytes, Mapping[str, str]], Awaitable[bytes]]


def handler(inference: Inference, others: Others) -> grpc.GenericRpcHandler:
    """Returns the handler to register with a gRPC server.

    others: handles methods other than inference, as `Methods.answered` does.
    """
    calls = _Calls(inference)
    made = {_path(SERVICE, name): grpc.unary_unary_rpc_method_handler(_unary(name, others)) for name in NAMES}
    made[_path(SERVICE, "ModelInfer")] = grpc.unary_unary_rpc_method_handler(calls.infer)
    made[_path(SERVICE, "ModelStreamInfer")] = grpc.stream_stream_rpc_method_handler(calls.stream)
    made[_path(HEALTH_SERVICE, "Check")] = grpc.unary_unary_rpc_method_handler(_unary("HealthCheck", others))
    return _Handler(made)


def _path(service: str, name: str) -> str:
    return f"/{service}/{name}"


class _Handler(grpc.GenericRpcHandler):  # type: ignore[misc]
    """Dispatches methods by path."""

    def __init__(self, methods: Mapping[str, grpc.RpcMethodHandler]) -> None:
        self._methods = methods

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return self._methods.get(details.method)


def _unary(name: str, others: Others) -> Callable[[bytes, Any], Awaitable[bytes]]:
    async def call(request: bytes, context: Any) -> bytes:
        try:
            if len(request) > SMALL:
                raise TooLarge(f"a request without tensors has at most {SMALL} bytes, got {len(request)}")
            return await others(name, request, _headers(context))
        except Exception as error:
            await _refuse(context, name, error)

    return call


class _Calls:
    """Handlers of unary and streaming inference."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    async def infer(self, request: bytes, context: Any) -> bytes:
        try:
            with Share(self.inference.budget) as share:
                return await self._answered(read_request(request, share), context, share)
        except Exception as error:
            await _refuse(context, "ModelInfer", error)

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:
        """Responds in request order; a failed request gets an error response and the stream continues."""
        try:
            async for given in _until(self.inference.ending, requests):
                identity = ""
                try:
                    with Share(self.inference.budget) as share:
                        request = read_request(given, share)
                        identity = request.id
                        made = stream_message(await self._answered(request, context, share), request.head.marked)
                except Exception as error:
                    made = _failure(identity, str(_serve_error("ModelStreamInfer", error)))
                yield made
        except Unavailable as error:
            await _refuse(context, "ModelStreamInfer", error)

    async def _answered(self, request: Request, context: Any, share: Share) -> bytes:
        """Runs a request; returns the encoded response."""
        headers = _headers(context) if self.inference.reads_headers else {}
        self.inference.access.check(headers.get("authorization"), request.head.model)
        call = request.call()
        call.headers = headers
        return answer_message(await self.inference.infer(call, share))


async def _until(ending: asyncio.Event, requests: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yields the requests of a stream until the server shuts down, because a client may keep a stream open forever.

    Errors: Unavailable on shutdown, unless the client has half-closed the stream by then.
    """
    ended = asyncio.ensure_future(ending.wait())
    coming: asyncio.Future[bytes] | None = None
    try:
        while True:
            late = ending.is_set()
            if coming is None:
                coming = asyncio.ensure_future(anext(requests))
            if late:
                await asyncio.wait((coming,), timeout=LAST_WORD)
            else:
                await asyncio.wait((coming, ended), return_when=asyncio.FIRST_COMPLETED)
            if coming.done():
                try:
                    given = coming.result()
                except StopAsyncIteration:
                    return
                coming = None
                if not late:
                    yield given
            if late:
                raise Unavailable("the server is ending; requests that it has not answered are not run")
    finally:
        ended.cancel()
        if coming is not None:
            coming.cancel()


def _serve_error(what: str, error: Exception) -> ServeError:
    """Returns the error to send to the client; unexpected exceptions are logged."""
    if isinstance(error, ServeError):
        return error
    log.error("%s", what, exc_info=error)
    return ServeError("the server failed; the reason is in its log")


async def _refuse(context: Any, what: str, error: Exception) -> NoReturn:
    refusal = _serve_error(what, error)
    if refusal.retry_after is not None:
        context.set_trailing_metadata((("retry-after", str(refusal.retry_after)),))
    await context.abort(refusal.grpc, str(refusal))
    raise AssertionError("the call was ended")


def _failure(identity: str, text: str) -> bytes:
    """Returns the encoded stream response for a failed request."""
    made = messages()["ModelStreamInferResponse"](error_message=text)
    made.infer_response.id = identity
    encoded: bytes = made.SerializeToString()
    return encoded


def _headers(context: Any) -> Mapping[str, str]:
    return {k: v for k, v in context.invocation_metadata() or () if isinstance(v, str)}
