"""The way into a replica for processes of its own machine, past Ray."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..batching import Batcher
from ..budget import Budget
from ..channels.arena import Bytes
from ..channels.channel import Channel, Ends
from ..channels.taken import Taken
from ..channels.wire import signature_message

__all__ = ["GREETING", "Door", "is_own"]

GREETING: Final = struct.Struct("<Q")  # what a visitor sends first, beside two descriptors of memory: their size
PATIENCE: Final = 5.0  # seconds in which it has to come
PEER: Final = struct.Struct("3i")  # of a socket's other end: process, user, group


def is_own(connected: socket.socket) -> bool:
    """Returns True if the other end of a socket belongs to this process's user: anybody can reach or take an abstract name."""
    _, user, _ = PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return bool(user == os.getuid())


class Door:
    """Lets processes of this machine put requests into the queue of a replica, each over a channel of its own.

    name: of the socket, without a place in any folder, so that it ends with the process; runs: returns what is told of the runs
    since the last call.  Lives in the event loop of the queue.
    """

    def __init__(self, queue: Batcher, runs: Callable[[], Sequence[Any]]) -> None:
        self.name = f"mgx-serve-{uuid.uuid4().hex}"
        self.queue, self.runs = queue, runs
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.setblocking(False)
        self._listening.bind(f"\0{self.name}")
        self._listening.listen()
        self._visitors: set[_Visitor] = set()
        self._empty = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._keep(self._accepted())

    def _keep(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _accepted(self) -> None:
        while True:
            connected, _ = await asyncio.get_running_loop().sock_accept(self._listening)
            if is_own(connected):
                self._keep(self._greeted(connected))
            else:
                connected.close()

    async def _greeted(self, connected: socket.socket) -> None:
        connected.settimeout(PATIENCE)
        try:
            said, memory, *_ = await asyncio.to_thread(socket.recv_fds, connected, GREETING.size, 2)
            (size,) = GREETING.unpack(said)
            read, written = memory
        except (OSError, ValueError, struct.error):
            connected.close()
            return
        visitor = _Visitor(self, Budget(size))
        self._visitors.add(visitor)
        try:
            await visitor.open(Ends(connected.detach(), written, read, size))
        finally:
            os.close(read)
            os.close(written)

    def left(self, visitor: _Visitor) -> None:
        """Notes that a process has ended its channel."""
        self._visitors.discard(visitor)
        self._empty.set()

    async def close(self) -> None:
        """Asks all to go, answers what they have asked by then, and returns once they are gone."""
        for task in self._tasks:
            task.cancel()
        self._listening.close()
        for visitor in self._visitors:
            visitor.send_away()
        while self._visitors:
            self._empty.clear()
            await self._empty.wait()


class _Visitor:
    """A process that asks."""

    def __init__(self, door: Door, budget: Budget) -> None:
        self._door = door
        self._taken = Taken(lambda model, version: door.queue, budget, self._answer)
        self._channel: Channel | None = None

    async def open(self, ends: Ends) -> None:
        self._channel = await Channel.opened(ends, self._received, self._ended)
        self._channel.send(["signature", 0, signature_message(self._door.queue.signature)])

    def send_away(self) -> None:
        if self._channel is not None:
            self._channel.send(["leave", 0, None])

    def _received(self, message: Any, parts: list[Bytes]) -> None:
        kind, _, content = message
        if kind == "requests":
            self._taken.take(content, parts)
        elif kind == "cancelled":
            self._taken.cancel(content)

    def _answer(self, content: Any, parts: Sequence[Bytes]) -> None:
        assert self._channel is not None, "requests come over it"
        self._channel.send(["answers", 0, content], parts)
        runs = self._door.runs()
        if runs:
            self._channel.send(["ran", 0, runs])

    def _ended(self) -> None:
        self._taken.close()
        self._door.left(self)
