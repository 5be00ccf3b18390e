"""Messages between two processes of one server."""

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

FRAME: Final = struct.Struct("<IQ")  # bytes of the head, bytes behind it
LENT_FROM: Final = 1 << 15  # bytes: with fewer, a socket takes no longer than a block
INLINE: Final = -1


@dataclass(frozen=True)
class Ends:
    """Descriptors of one end of a channel: a socket, memory that this process writes, memory that it reads; size: of either."""

    socket: int
    written: int
    read: int
    size: int


class Channel(asyncio.Protocol):
    """One end.  A message is what msgpack can write, and byte strings, which go through shared memory if there are many bytes.

    received: called with each message and its byte strings; those that lie in shared memory may be kept for as long as they are
    needed, and are given back by themselves.  ended: called once the other process has closed its end.
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
        self._came = bytearray()
        self._leaves: list[Bytes] = []  # what is sent at the end of this turn of the event loop
        self._done: deque[int] = deque()  # blocks to be given back with the next message; threads add to them
        self._announced = False

    @classmethod
    async def opened(
        cls, ends: Ends, received: Callable[[Any, list[Bytes]], None], ended: Callable[[], None] = lambda: None
    ) -> Self:
        """Returns an end that takes over the socket; the descriptors of memory can be closed."""
        channel = cls(ends, received, ended)
        await channel._loop.create_unix_connection(lambda: channel, sock=socket.socket(fileno=ends.socket))
        return channel

    def send(self, message: Any, parts: Sequence[Bytes] = ()) -> None:
        """Sends a message at the end of this turn of the event loop; none once the other end is closed.

        Errors: TypeError, ValueError or OverflowError for what msgpack cannot write.
        """
        if self._memory is None:
            return
        sizes = [len(part) for part in parts]
        start = self._memory[0].lend(parts) if sum(sizes) >= LENT_FROM else None
        done = [self._done.popleft() for _ in range(len(self._done))]
        given = [message, sizes, INLINE if start is None else start, done]
        try:
            head = msgpack.packb(given, unicode_errors="surrogatepass")
        except Exception:
            self._done += done
            if start is not None:
                self._memory[0].take_back(start)
            raise
        if not self._leaves:
            self._loop.call_soon(self.flush)
        if start is None:
            self._leaves += (FRAME.pack(len(head), sum(sizes)), head, *parts)
        else:
            self._leaves += (FRAME.pack(len(head), 0), head)

    def flush(self) -> None:
        """Sends at once what would leave at the end of this turn of the event loop."""
        leaves, self._leaves = self._leaves, []
        if leaves and self._transport is not None:
            self._transport.write(b"".join(leaves))

    def close(self) -> None:
        """Sends what has not left yet, and ends."""
        self.flush()
        if self._transport is not None:
            self._transport.close()

    def _give_back(self, start: int) -> None:
        """Lets the other process have a block again; called from any thread."""
        self._done.append(start)
        if not self._announced:
            self._announced = True
            # the event loop has ended, and with it the process or the other one
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._announce)

    def _announce(self) -> None:
        self._announced = False
        if self._done:
            self.send(None)

    # what the event loop calls

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = self._memory = None  # what lies in it is kept by those who read it, and by nobody else
        self._ended()

    def data_received(self, data: bytes) -> None:
        came = self._came
        came += data
        at = 0
        while at + FRAME.size <= len(came):
            length, behind = FRAME.unpack_from(came, at)
            end = at + FRAME.size + length + behind
            if end > len(came):
                break
            head = bytes(came[at + FRAME.size : at + FRAME.size + length])
            self._take(head, bytes(came[end - behind : end]))
            at = end
        del came[:at]

    def _take(self, head: bytes, behind: bytes) -> None:
        message, sizes, start, done = msgpack.unpackb(head, unicode_errors="surrogatepass")
        assert self._memory is not None, "messages come before the end"
        arena, borrowed = self._memory
        for block in done:
            arena.take_back(block)
        if message is None:
            return
        parts: list[Bytes] = []
        if start != INLINE:
            parts += borrowed.parts(start, sizes)
        else:
            left = memoryview(behind)
            for size in sizes:
                parts.append(left[:size])
                left = left[size:]
        self._received(message, parts)
