"""Handles HTTP inference requests before general routing, for latency."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Mapping
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from .budget import JSON_COST, TENSOR_COST, Share
from .content_encoding import Decompressor
from .errors import ServeError, TooLarge, TooSlow
from .http_messages import HEADER_LENGTH, answer_body, json_length, read_call
from .http_protocol import EXCHANGE, WHOLE, Exchange, WholeBody
from .inference import Inference

__all__ = ["INFERENCE", "Headers", "InferPaths", "headers_of", "read_body", "read_whole", "refusal", "send_response"]

LARGE: Final = 1 << 18  # bytes of JSON
FEW: Final = 1 << 16  # responses up to this many bytes are joined and sent at once
BODY_SECONDS: Final = 60.0
INFERENCE: Final = re.compile(r"/v2/models/([^/]+)(?:/versions/([^/]+))?/infer")
LEFT: Final = 499  # status for a disconnected client, never sent
log = logging.getLogger("mgx_serve")
Headers = Mapping[str, str]


class InferPaths:
    """An ASGI application that handles inference requests and forwards all others to another application.

    max_bytes: limit of a request body.
    """

    def __init__(self, inference: Inference, max_bytes: int, others: ASGIApp) -> None:
        self.inference, self.max_bytes, self.others = inference, max_bytes, others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        matched = INFERENCE.fullmatch(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        if matched is None:
            await self.others(scope, receive, send)
            return
        extensions = scope.get("extensions", {})
        exchange: Exchange | None = extensions.get(EXCHANGE)
        try:
            headers = headers_of(scope)
            self.inference.access.check(headers.get("authorization"), matched[1])
            way = receive, extensions.get(WHOLE), exchange
            status, given, parts = await self._answered(matched[1], matched[2] or "", headers, *way)
        except Exception as error:
            status, given, parts = refusal(error, f"POST {scope['path']}")
        await send_response(send, status, given, parts, exchange)

    async def _answered(
        self,
        name: str,
        version: str,
        headers: Headers,
        receive: Receive,
        whole: WholeBody | None,
        exchange: Exchange | None,
    ) -> tuple[int, Headers, list[bytes | memoryview]]:
        length_given = headers.get(HEADER_LENGTH.lower())
        with Share(self.inference.budget) as share:
            body: bytes | memoryview | None = None
            packed = "content-encoding" in headers
            if exchange is not None and not packed and (body := exchange.body()) is not None:
                if len(body) > self.max_bytes:
                    raise TooLarge(f"a request has at most {self.max_bytes} bytes")
                share.take(len(body) * TENSOR_COST)
            elif whole is None or packed:
                body = await read_body(receive, headers, self.max_bytes, share)
            else:
                body = await read_whole(whole, self.max_bytes, share)
            text = json_length(body, length_given)
            share.take(text * JSON_COST)
            given = (name, version, body, length_given)
            large = text > LARGE  # reading it would delay other requests
            call, binary = await asyncio.to_thread(read_call, *given) if large else read_call(*given)
            call.headers = headers
            parts, length = answer_body(await self.inference.infer(call, share), binary, share)
        if length is None:
            return 200, {"content-type": "application/json"}, parts
        return 200, {"content-type": "application/octet-stream", HEADER_LENGTH: str(length)}, parts


class ClientLeft(Exception):
    """The connection was closed before the request was complete."""


def headers_of(scope: Scope) -> Headers:
    """Returns the headers by lower-case name; the first value wins."""
    return {k.decode("latin-1"): v.decode("latin-1") for k, v in reversed(scope["headers"])}


async def read_body(receive: Receive, headers: Headers, limit: int, share: Share | None = None) -> bytes:
    """Reads a request's body and decompresses it if necessary.

    share: memory reservation, which grows as data arrives.
    Errors: TooLarge as soon as the limit is exceeded; BadRequest for invalid compressed data; TooSlow on timeout; ClientLeft.
    """
    packed = Decompressor.of(headers.get("content-encoding", "identity"))
    parts, size, received, more = [], 0, 0, True
    try:
        async with asyncio.timeout(BODY_SECONDS):
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise ClientLeft
                came, more = message.get("body", b""), message.get("more_body", False)
                received += len(came)
                if received > 2 * limit:  # compressed data may continue indefinitely without output
                    raise TooLarge(f"a request has at most {limit} bytes")
                for part in (came,) if packed is None else packed.parts(came):
                    size += len(part)
                    if size > limit:
                        raise TooLarge(f"a request has at most {limit} bytes")
                    if share is not None:
                        share.take(len(part) * TENSOR_COST)
                    if part:  # compressed data may have any number of empty members
                        parts.append(part)
                    if packed is not None:
                        await asyncio.sleep(0)  # a small input may decompress to much; let other requests run
    except TimeoutError:
        raise TooSlow(f"the request's body did not come within {BODY_SECONDS} s") from None
    if packed is not None:
        packed.require_end()
    return parts[0] if len(parts) == 1 else b"".join(parts)


async def read_whole(whole: WholeBody, limit: int, share: Share) -> memoryview:
    """Reads a large uncompressed body.  share: memory reservation for it.

    Errors: TooLarge (before reading, if the headers announce it), TooSlow, ClientLeft, as `read_body`.
    """
    if whole.size > limit:
        raise TooLarge(f"a request has at most {limit} bytes")
    try:
        async with asyncio.timeout(BODY_SECONDS):
            body = await whole.read(lambda came: share.take(came * TENSOR_COST))
    except TimeoutError:
        raise TooSlow(f"the request's body did not come within {BODY_SECONDS} s") from None
    if body is None:
        raise ClientLeft
    return body


def refusal(error: Exception, what: str) -> tuple[int, Headers, list[bytes | memoryview]]:
    """Returns status, headers and body for a failed request.  what: describes the request in the log."""
    if isinstance(error, ClientLeft):
        return LEFT, {}, [b""]
    if not isinstance(error, ServeError):
        log.error("%s", what, exc_info=error)
        error = ServeError("the server failed; the reason is in its log")
    headers = {"content-type": "application/json"}
    if error.retry_after is not None:
        headers["Retry-After"] = str(max(1, round(error.retry_after)))
    if error.http == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return error.http, headers, [json.dumps({"error": str(error)}, ensure_ascii=False).encode()]


async def send_response(
    send: Send, status: int, headers: Headers, parts: list[bytes | memoryview], exchange: Exchange | None = None
) -> None:
    """Sends a response; the parts of a large body are not copied together.  exchange: sends a small one."""
    size = sum(map(len, parts))
    raw = [(b"content-length", str(size).encode())]
    raw += [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    if size <= FEW:
        parts = [b"".join(parts)]
        if exchange is not None:
            await exchange.send(status, raw, bytes(parts[0]))
            return
    await send({"type": "http.response.start", "status": status, "headers": raw})
    for number, part in enumerate(parts, 1):
        await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})
