"""A front end's proxy of the engine process."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from starlette.types import Receive, Scope, Send

from ..auth import EVERYTHING, Access
from ..budget import SMALL, Budget, Share
from ..channels.arena import Bytes
from ..channels.channel import Channel, Ends
from ..channels.sender import RequestSender, is_plain, is_plain_in_shared_memory
from ..channels.wire import call_message, read_answer, read_error
from ..errors import Unavailable
from ..http_infer import headers_of, read_body, refusal, send_response
from ..inference import Answer, Call, Inference
from ..settings import Settings
from ..tray_writer import TrayWriter

__all__ = ["Engine", "Others"]

log = logging.getLogger("mgx_serve")
Reply = tuple[Any, list[Bytes]]


class Engine(Inference):
    """Calls the engine process over a channel.

    on_message: called with one-way messages; ended: set once the engine process has exited.
    """

    def __init__(self, settings: Settings, on_message: Callable[[str, Any], None]) -> None:
        self.access, self.budget = Access(settings.tokens), Budget(settings.memory)
        self.reads_headers = self.access.required or settings.traces
        self.ending, self.ended = asyncio.Event(), asyncio.Event()
        self._on_message, self._traces = on_message, settings.traces
        self._has_models = settings.ray is None  # and not a Ray worker
        self._channel: Channel | None = None
        self._waiting: dict[int, asyncio.Future[Reply]] = {}
        self._numbers = itertools.count(1)
        self._sender = RequestSender(lambda: self._channel)

    async def connect(self, ends: Ends) -> None:
        self._channel = await Channel.opened(ends, self._received, self._lost)

    async def close(self) -> None:
        """Sends all queued messages and closes the channel."""
        if self._channel is not None:
            self._channel.close()

    def use_trays(self, writer: TrayWriter) -> None:
        """Enables writing requests to trays that the engine process offers."""
        self._sender.use_trays(writer)

    def changed(self) -> None:
        """Invalidates cached heads: the served models or versions have changed."""
        self._sender.changed()

    async def infer(self, call: Call, share: Share) -> Answer:
        if not self._traces:
            if is_plain(call):
                return await self._sender.infer(call)
            if self._has_models and is_plain_in_shared_memory(call):
                self.access.check(call.headers.get("authorization"), EVERYTHING)
                return await self._sender.infer(call)
        return read_answer(*await self.request("infer", *call_message(call, self.reads_headers)))

    async def grpc(self, name: str, request: bytes, headers: Mapping[str, str]) -> bytes:
        """Calls a gRPC method other than inference; returns the encoded response.  Errors: any `ServeError`."""
        given = {"authorization": headers["authorization"]} if "authorization" in headers else {}
        _, (answer,) = await self.request("grpc", [name, given], [request])
        return bytes(answer)

    async def request(self, kind: str, content: Any, parts: Sequence[Bytes] = ()) -> Reply:
        """Sends a request; returns the response.  Errors: any `ServeError`; Unavailable if the engine process exits."""
        if self._channel is None:
            raise Unavailable("the engine's process has ended")
        number = next(self._numbers)
        self._waiting[number] = reply = asyncio.get_running_loop().create_future()
        self.tell(kind, number, content, parts)
        try:
            made: Reply = await reply
            return made
        except asyncio.CancelledError:
            self.tell("cancel", number)
            raise
        finally:
            del self._waiting[number]

    def tell(self, kind: str, number: int = 0, content: Any = None, parts: Sequence[Bytes] = ()) -> None:
        """Sends a one-way message; dropped if the engine process has exited."""
        if self._channel is not None:
            self._channel.send([kind, number, content], parts)

    def _received(self, message: Any, parts: list[Bytes]) -> None:
        kind, number, content = message
        if kind == "answers":
            self._sender.receive_answers(content, parts)
            return
        if not number:
            self._on_message(kind, content)
            return
        reply = self._waiting.get(number)
        if reply is None or reply.done():
            return  # the client has disconnected
        if kind == "answer":
            reply.set_result((content, parts))
        else:
            reply.set_exception(read_error(content))

    def _lost(self) -> None:
        self._channel = None
        self.ended.set()
        self._sender.lost()
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(Unavailable("the engine's process has ended"))


class Others:
    """An ASGI application that forwards all requests other than inference to the engine process."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status, headers, parts = await self._answered(scope, receive)
        await send_response(send, status, headers, parts)

    async def _answered(self, scope: Scope, receive: Receive) -> tuple[int, Mapping[str, str], list[Bytes]]:
        method, path = scope["method"], scope["path"]
        try:
            headers = headers_of(scope)
            body = await read_body(receive, headers, SMALL) if method == "POST" else b""
            given = {k: v for k, v in headers.items() if k != "content-encoding"}  # the body has been decompressed
            content = [method, path, scope["query_string"], given]
            (status, answered), parts = await self.engine.request("http", content, [body])
        except Exception as error:
            return refusal(error, f"{method} {path}")
        return status, answered, parts
