"""Message channels between two processes of one server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import msgpack

from .arena import Arena, Borrowed, Bytes

__all__ = ["Channel", "Ends"]

FRAME: Final = struct.Struct("<IQ")  # size of the header, size of the payload
SHARED_FROM: Final = 1 << 15  # bytes: smaller data is as fast over the socket
INLINE: Final = -1


@dataclass(frozen=True)
class Ends:
    """Descriptors of one end of a channel: the socket, the memory it writes and the memory it reads; size: of each memory."""

    socket: int
    written: int
    read: int
    size: int


class Channel(asyncio.Protocol):
    """One end of a channel.  A message is a msgpack value plus byte strings, which go through shared memory if they are large.

    received: called with each message and its byte strings; strings in shared memory stay valid while referenced, and are
    returned automatically.  ended: called once the other process has closed its end.
    """

    def __init__(
        self, ends: Ends, received: Callable[[Any, list[Bytes]], None], ended: Callable[[], None] = lambda: None
    ) -> None:
        self._memory: tuple[Arena, Borrowed] | None = (
            Arena(ends.written, ends.size),
            Borrowed(ends.read, ends.size, self._give_back),
        )
        self._received, self._ended = received, ended
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._unparsed = bytearray()
        self._outgoing: list[Bytes] = []  # to be sent at the end of this event-loop iteration
        self._returned: deque[int] = deque()  # blocks to return with the next message; appended by any thread
        self._return_scheduled = False

    @classmethod
    async def opened(
        cls, ends: Ends, received: Callable[[Any, list[Bytes]], None], ended: Callable[[], None] = lambda: None
    ) -> Self:
        """Opens an end; it takes ownership of the socket, and the memory descriptors may then be closed."""
        channel = cls(ends, received, ended)
        await channel._loop.create_unix_connection(lambda: channel, sock=socket.socket(fileno=ends.socket))
        return channel

    def send(self, message: Any, parts: Sequence[Bytes] = ()) -> None:
        """Queues a message, sent at the end of this event-loop iteration; dropped once the other end is closed.

        Errors: TypeError, ValueError or OverflowError for values that msgpack cannot encode.
        """
        if self._memory is None:
            return
        sizes = [len(part) for part in parts]
        start = self._memory[0].store(parts) if sum(sizes) >= SHARED_FROM else None
        returned = [self._returned.popleft() for _ in range(len(self._returned))]
        given = [message, sizes, INLINE if start is None else start, returned]
        try:
            head = msgpack.packb(given, unicode_errors="surrogatepass")
        except Exception:
            self._returned += returned
            if start is not None:
                self._memory[0].free(start)
            raise
        if not self._outgoing:
            self._loop.call_soon(self.flush)
        if start is None:
            self._outgoing += (FRAME.pack(len(head), sum(sizes)), head, *parts)
        else:
            self._outgoing += (FRAME.pack(len(head), 0), head)

    def flush(self) -> None:
        """Sends all queued messages now."""
        outgoing, self._outgoing = self._outgoing, []
        if outgoing and self._transport is not None:
            self._transport.write(b"".join(outgoing))

    def close(self) -> None:
        """Sends all queued messages and closes."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def _give_back(self, start: int) -> None:
        """Returns a block to the other process; called from any thread."""
        self._returned.append(start)
        if not self._return_scheduled:
            self._return_scheduled = True
            # the event loop is closed: one of the processes is exiting
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._return_blocks)

    def _return_blocks(self) -> None:
        self._return_scheduled = False
        if self._returned:
            self.send(None)

    # event-loop callbacks

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._memory = None  # its blocks are kept alive by the arrays that refer to them
        self._ended()

    def data_received(self, data: bytes) -> None:
        unparsed = self._unparsed
        unparsed += data
        at = 0
        while at + FRAME.size <= len(unparsed):
            length, payload_size = FRAME.unpack_from(unparsed, at)
            end = at + FRAME.size + length + payload_size
            if end > len(unparsed):
                break
            head = bytes(unparsed[at + FRAME.size : at + FRAME.size + length])
            self._take(head, bytes(unparsed[end - payload_size : end]))
            at = end
        del unparsed[:at]

    def _take(self, head: bytes, payload: bytes) -> None:
        message, sizes, start, returned = msgpack.unpackb(head, unicode_errors="surrogatepass")
        assert self._memory is not None, "messages come before the end"
        arena, borrowed = self._memory
        for block in returned:
            arena.free(block)
        if message is None:
            return
        parts: list[Bytes] = []
        if start != INLINE:
            parts += borrowed.parts(start, sizes)
        else:
            rest = memoryview(payload)
            for size in sizes:
                parts.append(rest[:size])
                rest = rest[size:]
        self._received(message, parts)
