"""A local endpoint of a replica: processes on the same machine send requests to it directly, bypassing Ray."""

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
from ..channels.receiver import RequestReceiver
from ..channels.wire import signature_message

__all__ = ["GREETING", "LocalEndpoint", "is_own"]

GREETING: Final = struct.Struct("<Q")  # first message of a client, sent with two memory descriptors: their size
PATIENCE: Final = 5.0  # timeout of that message in seconds
PEER: Final = struct.Struct("3i")  # SO_PEERCRED: pid, uid, gid


def is_own(connected: socket.socket) -> bool:
    """Returns True if the peer belongs to the same user: any user can connect to or bind an abstract socket name."""
    _, user, _ = PEER.unpack(connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, PEER.size))
    return bool(user == os.getuid())


class LocalEndpoint:
    """Accepts requests to a replica's queue from processes on this machine, each over its own channel.

    name: abstract socket name, which disappears with the process; runs: returns the metrics of the runs since the last call.
    Bound to the event loop of the queue.
    """

    def __init__(self, queue: Batcher, runs: Callable[[], Sequence[Any]]) -> None:
        self.name = f"mgx-serve-{uuid.uuid4().hex}"
        self.queue, self.runs = queue, runs
        self._listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listening.setblocking(False)
        self._listening.bind(f"\0{self.name}")
        self._listening.listen()
        self._visitors: set[_Client] = set()
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
        visitor = _Client(self, Budget(size))
        self._visitors.add(visitor)
        try:
            await visitor.open(Ends(connected.detach(), written, read, size))
        finally:
            os.close(read)
            os.close(written)

    def left(self, visitor: _Client) -> None:
        """Forgets a client process that has closed its channel."""
        self._visitors.discard(visitor)
        self._empty.set()

    async def close(self) -> None:
        """Asks all clients to disconnect, finishes their pending requests, and returns once they have."""
        for task in self._tasks:
            task.cancel()
        self._listening.close()
        for visitor in self._visitors:
            visitor.send_away()
        while self._visitors:
            self._empty.clear()
            await self._empty.wait()


class _Client:
    """A connected client process."""

    def __init__(self, endpoint: LocalEndpoint, budget: Budget) -> None:
        self._endpoint = endpoint
        self._taken = RequestReceiver(lambda model, version: endpoint.queue, budget, self._answer)
        self._channel: Channel | None = None

    async def open(self, ends: Ends) -> None:
        self._channel = await Channel.opened(ends, self._received, self._ended)
        self._channel.send(["signature", 0, signature_message(self._endpoint.queue.signature)])

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
        runs = self._endpoint.runs()
        if runs:
            self._channel.send(["ran", 0, runs])

    def _ended(self) -> None:
        self._taken.close()
        self._endpoint.left(self)
