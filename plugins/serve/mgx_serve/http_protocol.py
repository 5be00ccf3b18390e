"""HTTP's protocol of one connection: time limits, large bodies that are read to where they stay, small answers in one write."""

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
WHOLE: Final = "mgx.whole_body"  # among the extensions of a request's scope: a `WholeBody`, where its body is large
EXCHANGE: Final = "mgx.exchange"  # among them: an `Exchange`
LARGE: Final = 1 << 16  # bytes
# bytes of heads and small bodies that are read from a socket, and of what nobody wants any more
AT_A_TIME: Final = 1 << 16
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
Took = Callable[[int], None]


class TimedProtocol(HttpToolsProtocol):
    """Closes connections whose next request does not begin, or whose head does not end, in time.

    A connection has one timer, which is set anew once it ends: a request costs none.
    """

    _head_due = math.inf
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        # of asyncio's sockets: more would be a part of a large body, and copied on its way
        transport.max_size = AT_A_TIME
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_due = math.inf
        super().on_headers_complete()
        extensions: Any = {EXCHANGE: Exchange(self.cycle)}
        size = _announced(self.headers)
        if size > LARGE:
            extensions[WHOLE] = WholeBody(self, self.cycle, size)
        self.scope["extensions"] = extensions

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        super().connection_lost(exc)

    def body_came(self, cycle: RequestResponseCycle) -> None:
        """Goes on with the next request, after a body that did not pass the parser."""
        self.transport.set_protocol(self)
        self.parser = httptools.HttpRequestParser(self)
        cycle.more_body = False
        cycle.message_event.set()

    def _expect_head(self) -> None:
        self._head_due = self.loop.time() + HEAD_SECONDS
        if self._timer is None:
            self._timer = self.loop.call_at(self._head_due, self._look)

    def _look(self) -> None:
        """Closes the connection if its head is late; looks again when the one that is awaited now would be."""
        self._timer = None
        if self._head_due <= self.loop.time():
            self.transport.close()
        elif self._head_due < math.inf:
            self._timer = self.loop.call_at(self._head_due, self._look)


class Exchange:
    """A small request that came at once, and a small answer, without a message for each part of them."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle

    def body(self) -> bytes | None:
        """Returns the body if all of it is there."""
        cycle = self._cycle
        return None if cycle.more_body or cycle.disconnected else bytes(cycle.body)

    async def send(self, status: int, headers: Sequence[tuple[bytes, bytes]], body: bytes) -> None:
        """Sends an answer in one piece: its head and its body reach a client at once, by one call of the system and not two.

        headers: the body's length among them, none about the connection."""
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
    """The body of a request whose head says that it has `size` bytes.

    Without it, a body is cut to pieces by the parser, and copied by each of those who join them again.
    """

    def __init__(self, protocol: TimedProtocol, cycle: RequestResponseCycle, size: int) -> None:
        self._protocol, self._cycle, self.size = protocol, cycle, size

    async def read(self, took: Took) -> memoryview | None:
        """Returns the body, read from the socket to memory of its own; None if the client leaves before.

        took: called with the number of bytes whenever some have come; what it raises ends this.
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
    """Takes the place of a connection's protocol until the rest of a body has come.

    place: where it goes; done: True once all of it is there, False once the client has left.
    """

    def __init__(self, protocol: TimedProtocol, cycle: RequestResponseCycle, place: memoryview, took: Took) -> None:
        self._protocol, self._cycle, self._took = protocol, cycle, took
        self._left = len(place)
        self._place: memoryview | None = place
        self.done: asyncio.Future[bool] = protocol.loop.create_future()

    def discard(self) -> None:
        """Lets go of the memory: nobody waits for the body any more, and what comes of it is not kept."""
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
            self._protocol.body_came(self._cycle)
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
    """Returns the bytes that a body has by its head; 0 where it comes in pieces that say their own sizes."""
    given = dict(headers)
    length = given.get(b"content-length", b"")
    return int(length) if length.isdigit() and b"transfer-encoding" not in given else 0
