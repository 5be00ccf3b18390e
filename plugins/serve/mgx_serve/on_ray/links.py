"""Direct channels to a model's replicas on this machine, bypassing Ray."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import time
from collections.abc import Callable
from typing import Any, Final

import ray
from ray.exceptions import RayError

from ..channels.arena import Bytes, shared_memory
from ..channels.channel import Channel, Ends
from ..channels.sender import RequestSender
from ..channels.wire import read_signature
from ..inference import Answer, Call
from ..metrics import Recorder
from ..model import Signature
from .exchange import exchange
from .local_endpoint import GREETING, is_own

__all__ = ["Link", "Links"]

SIZE: Final = 1 << 28  # size of the tensor memory per direction; untouched pages are never allocated
POLL_INTERVAL: Final = 0.5  # polling interval in seconds
MAX_IDLE: Final = 30.0  # idle seconds after which polling stops
TIMEOUT: Final = 5.0  # timeout of connecting in seconds
log = logging.getLogger("mgx_serve")


class Link:
    """A channel to one replica.

    signature: of its version; pending: pending requests of this process; ended: called once it has exited or stopped
    accepting requests.
    """

    signature: Signature

    def __init__(self, recorder: Recorder, ended: Callable[[Link], None]) -> None:
        self.pending = 0
        self._recorder, self._ended, self._leaving = recorder, ended, False
        self._channel: Channel | None = None
        self._sender = RequestSender(lambda: self._channel)
        self._greeted: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def open(self, name: str) -> None:
        """Errors: OSError, TimeoutError if the replica does not answer."""
        loop = asyncio.get_running_loop()
        connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connected.setblocking(False)
        memory: list[int] = []
        try:
            await loop.sock_connect(connected, f"\0{name}")
            if not is_own(connected):
                raise PermissionError(f"{name} belongs to another user")
            memory += (shared_memory(f"{name}-{way}", SIZE) for way in ("requests", "answers"))
            socket.send_fds(connected, [GREETING.pack(SIZE)], memory)
            requests, answers = memory
            ends = Ends(connected.detach(), requests, answers, SIZE)
            self._channel = await Channel.opened(ends, self._received, self._lost)
        finally:
            connected.close()
            for number in memory:
                os.close(number)
        await asyncio.wait_for(self._greeted, TIMEOUT)

    async def ask(self, call: Call) -> Answer:
        """Runs a plain request.  Errors: any `ServeError`; Lost if the replica exits."""
        self.pending += 1
        try:
            return await self._sender.infer(call)
        finally:
            self.pending -= 1
            if self._leaving and not self.pending:
                self.close()

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()

    def _received(self, message: Any, parts: list[Bytes]) -> None:
        kind, _, content = message
        if kind == "answers":
            self._sender.receive_answers(content, parts)
        elif kind == "ran":
            for queued, seconds, rows in content:
                self._recorder.ran(self.signature, queued, seconds, rows)
        elif kind == "signature":
            self.signature = read_signature(content)
            if not self._greeted.done():
                self._greeted.set_result(None)
        elif kind == "leave":
            self._leaving = True
            self._ended(self)
            if not self.pending:
                self.close()

    def _lost(self) -> None:
        self._channel = None
        self._sender.lost()
        self._ended(self)
        if not self._greeted.done():
            self._greeted.set_exception(ConnectionError("the replica has ended"))


class Links:
    """Channels to the replicas of an application, used while all of them are on this machine.

    A replica renews its registration in the exchange on each of Ray's health checks.
    """

    def __init__(self, application: str, recorder: Recorder) -> None:
        self._application, self._recorder = application, recorder
        self._node = ray.get_runtime_context().get_node_id()
        self._open: dict[str, Link] = {}
        self._ended: set[str] = set()  # still registered
        self._all_local = False
        self._used, self._turn = 0.0, os.getpid()
        self._polling: asyncio.Task[None] | None = None

    def choose(self) -> Link | None:
        """Returns the link with the fewest pending requests of this process; None if Ray should choose."""
        self._used = time.monotonic()
        if self._polling is None or self._polling.done():
            self._polling = asyncio.get_running_loop().create_task(self._poll())
        if not self._all_local or not self._open:
            return None
        links = list(self._open.values())
        self._turn = first = (self._turn + 1) % len(links)  # spreads processes over replicas
        return min(links[first:] + links[:first], key=_pending_requests)

    def close(self) -> None:
        if self._polling is not None:
            self._polling.cancel()
        for link in list(self._open.values()):
            link.close()

    async def _poll(self) -> None:
        """Polls for new replicas while there are requests."""
        place = await asyncio.to_thread(exchange)
        while time.monotonic() < self._used + MAX_IDLE:
            try:
                await self._update(await place.members.remote(self._application))
            except RayError as error:
                log.warning("the replicas of %s are not known: %s", self._application, type(error).__name__)
            await asyncio.sleep(POLL_INTERVAL)

    async def _update(self, members: list[tuple[str, str]]) -> None:
        """Connects to new replicas on this node; members: node and name of each replica."""
        here = {name for node, name in members if node == self._node}
        self._ended &= here
        await asyncio.gather(*(self._connect(name) for name in here - self._ended - self._open.keys()))
        self._all_local = len(here) == len(members) and here <= self._ended | self._open.keys()

    async def _connect(self, name: str) -> None:
        link = Link(self._recorder, lambda _: self._forget(name))
        try:
            await link.open(name)
        except (OSError, TimeoutError):
            link.close()
        else:
            self._open[name] = link

    def _forget(self, name: str) -> None:
        if self._open.pop(name, None) is not None:
            self._ended.add(name)


def _pending_requests(link: Link) -> int:
    return link.pending
