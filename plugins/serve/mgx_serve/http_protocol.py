"""The HTTP protocol of one connection: timeouts, zero-copy reads of large bodies, small responses in one write."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import httptools
import numpy as np
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

__all__ = ["EXCHANGE", "WHOLE", "Exchange", "TimedProtocol", "WholeBody"]

HEAD_SECONDS: Final = 30.0
WHOLE: Final = "mgx.whole_body"  # key of scope["extensions"]: a `WholeBody` for a large body
EXCHANGE: Final = "mgx.exchange"  # key of scope["extensions"]: an `Exchange`
LARGE: Final = 1 << 16  # bytes
# read size for headers, small bodies and discarded data
AT_A_TIME: Final = 1 << 16
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
Took = Callable[[int], None]


class TimedProtocol(HttpToolsProtocol):
    """Closes connections on which the next request does not start, or its headers do not end, in time.

    Each connection has one timer, rearmed when it fires, so that requests set none.
    """

    _head_due = math.inf
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        # asyncio's read size: more would include part of a large body, which would then be copied
        transport.max_size = AT_A_TIME
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_due = math.inf
        super().on_headers_complete()
        self.cycle.keep_alive &= self.parser.should_keep_alive()  # uvicorn before 0.53 asks only for the version
        extensions: Any = {EXCHANGE: Exchange(self.cycle)}
        size = _announced(self.headers)
        if size > LARGE:
            extensions[WHOLE] = WholeBody(self, self.cycle, size)
        self.scope["extensions"] = extensions

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def body_received(self, cycle: RequestResponseCycle) -> None:
        """Resumes parsing after a body that bypassed the parser."""
        self.transport.set_protocol(self)
        self.parser = httptools.HttpRequestParser(self)
        cycle.more_body = False
        cycle.message_event.set()

    def _expect_head(self) -> None:
        self._head_due = self.loop.time() + HEAD_SECONDS
        if self._timer is None:
            self._timer = self.loop.call_at(self._head_due, self._look)

    def _look(self) -> None:
        """Closes the connection if its headers are overdue; otherwise rearms the timer for the current deadline."""
        self._timer = None
        if self._head_due <= self.loop.time():
            self.transport.close()
        elif self._head_due < math.inf:
            self._timer = self.loop.call_at(self._head_due, self._look)


class Exchange:
    """Fast path for a small request that arrived in one piece and a small response, without ASGI messages for their parts."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body(self) -> bytes | None:
        """Returns the body if it is complete."""
        cycle = self._cycle
        return None if cycle.more_body or cycle.disconnected else bytes(cycle.body)

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Sends headers and body in one system call.

        headers: include Content-Length, and none of the connection."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        lines = [b"%b: %b\r\n" % header for header in (*cycle.default_headers, *headers)]
        if not cycle.keep_alive:
            lines.append(b"connection: close\r\n")
        cycle.response_started, cycle.waiting_for_100_continue = True, False
        cycle.transport.write(b"".join([STATUS_LINE[status], *lines, b"\r\n", body]))
        cycle.response_complete = True
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


class WholeBody:
    """The body of a request with a Content-Length of `size`, read directly into its final buffer.

    Without it, the parser splits the body, and each layer that joins the pieces copies them.
    """

    def __init__(self, protocol: TimedProtocol, cycle: RequestResponseCycle, size: int) -> None:
        self._protocol, self._cycle, self.size = protocol, cycle, size

    async def read(self, took: Took) -> memoryview | None:
        """Reads the body from the socket into its own buffer; returns None if the client disconnects.

        took: called with the number of bytes received each time; its exceptions abort the read.
        """
        protocol, cycle = self._protocol, self._cycle
        if cycle.disconnected:
            return None
        made = memoryview(np.empty(self.size, np.uint8))
        at = len(cycle.body)
        made[:at] = cycle.body
        cycle.body = bytearray()
        took(at)
        if not cycle.more_body:
            return made
        rest = _Rest(protocol, cycle, made[at:], took)
        protocol.transport.set_protocol(rest)
        if cycle.waiting_for_100_continue and not protocol.transport.is_closing():
            protocol.transport.write(CONTINUE)
            cycle.waiting_for_100_continue = False
        protocol.flow.resume_reading()
        try:
            return made if await rest.done else None
        finally:
            rest.discard()


class _Rest(asyncio.BufferedProtocol):
    """Replaces a connection's protocol until the rest of a body has arrived.

    place: destination buffer; done: True when complete, False when the client has disconnected.
    """

    def __init__(self, protocol: TimedProtocol, cycle: RequestResponseCycle, place: memoryview, took: Took) -> None:
        self._protocol, self._cycle, self._took = protocol, cycle, took
        self._left = len(place)
        self._place: memoryview | None = place
        self.done: asyncio.Future[bool] = protocol.loop.create_future()

    def discard(self) -> None:
        """Releases the buffer and discards the rest of the body."""
        self._place = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(bytearray(min(self._left, AT_A_TIME))) if self._place is None else self._place

    def buffer_updated(self, nbytes: int) -> None:
        self._left -= nbytes
        if self._place is not None:
            self._place = self._place[nbytes:]
            try:
                self._took(nbytes)
            except Exception as error:
                self.discard()
                if not self.done.done():
                    self.done.set_exception(error)
        if not self._left:
            self._protocol.body_received(self._cycle)
            self._end(True)

    def _end(self, came: bool) -> None:
        if not self.done.done():
            self.done.set_result(came)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(False)
        self._protocol.connection_lost(exc)

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()


def _announced(headers: Sequence[tuple[bytes, bytes]]) -> int:
    """Returns the Content-Length; 0 for a chunked body."""
    given = dict(headers)
    length = given.get(b"content-length", b"")
    return int(length) if length.isdigit() and b"transfer-encoding" not in given else 0
