"""Starts, supervises and restarts the front ends of a server."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import os
import socket
import sys
from collections.abc import Sequence
from typing import Final

from starlette.types import ASGIApp

from mgx_core import ParameterError

from ..channels.arena import shared_memory
from ..channels.channel import Channel, Ends
from ..connection_balancer import BalancerState
from ..grpc_methods import Methods
from ..inference import Service
from ..listening import reserved
from ..settings import Settings
from ..tray_claims import ENGINE, MOST_FRONTENDS, PAGE, SETS
from ..trays import TrayMemory
from .handlers import FrontEndHandlers
from .start import arguments

__all__ = ["FrontEnds"]

START: Final = """
from mgx_serve.malloc_tuning import keep_freed_memory
from mgx_serve.grpc_polling import direct_polling
keep_freed_memory()
with direct_polling():
    from mgx_serve.frontends.process import main
main()
"""
COMMAND: Final = ("-P", "-c", START)  # -P: does not import modules from the current directory
PATIENCE: Final = 5.0  # seconds after the drain timeout before a front end is killed
PAUSE: Final = 0.1  # seconds before a restart, doubled after each failed start
LONGEST_PAUSE: Final = 10.0
log = logging.getLogger("mgx_serve")


class FrontEnds:
    """The front-end processes of one service, as many as the settings request.

    http_port, grpc_port: ports that all of them listen on.
    """

    def __init__(self, settings: Settings, service: Service, app: ASGIApp, methods: Methods) -> None:
        self._settings, self._service, self._app, self._methods = settings, service, app, methods
        self.http_port = self.grpc_port = -1
        self._reserved: list[socket.socket] = []
        self._members: list[_Member] = []
        self._balancing: BalancerState | None = None
        self._trays: TrayMemory | None = None

    async def open(self) -> None:
        """Errors: OSError if a port is in use; ParameterError if a front end cannot be started."""
        if not hasattr(os, "memfd_create"):
            raise ParameterError("front ends need Linux: they share memory without a name, and ports")
        try:
            await self._open()
        except BaseException:
            await self.close()
            raise
        for member in self._members:
            member.watch()
        self._service.repository.changed = self._changed

    async def _open(self) -> None:
        given, count = self._settings, self._settings.frontends
        self.http_port, self.grpc_port = (self._port(port) for port in (given.http_port, given.grpc_port))
        share = dataclasses.replace(
            given,
            http_port=self.http_port,
            grpc_port=self.grpc_port,
            memory=max(given.memory // count, 1),
            connections=max(given.connections // count, 1),
        )
        self._balancing = balancing = BalancerState(count, shared_memory)
        if count <= MOST_FRONTENDS and not given.traces and given.ray is None:
            size = SETS * PAGE + given.memory
            self._trays = trays = TrayMemory(shared_memory("mgx-serve-trays", size), size, count)
            asyncio.get_running_loop().add_reader(trays.bells[ENGINE], trays.on_bell)
        self._members = [self._member(share, balancing, number) for number in range(count)]
        started = await asyncio.gather(*(member.start() for member in self._members), return_exceptions=True)
        for error in started:
            if error is not None:
                raise error

    def _member(self, settings: Settings, balancing: BalancerState, number: int) -> _Member:
        own, trays = ENGINE + 1 + number, self._trays
        handlers = FrontEndHandlers(self._service, self._app, self._methods, trays, own)
        return _Member(settings, handlers, balancing, number, () if trays is None else trays.writer_arguments(own))

    def _changed(self) -> None:
        for member in self._members:
            member.handlers.changed()

    def _port(self, port: int) -> int:
        """Reserves a port; -1 for none."""
        if port < 0:
            return port
        self._reserved.append(reserved(self._settings.host, port))
        return int(self._reserved[-1].getsockname()[1])

    async def close(self) -> None:
        """Rejects new connections, finishes requests in flight and stops the processes."""
        await asyncio.gather(*(member.end() for member in self._members))
        for held in self._reserved:
            held.close()
        if self._trays is not None:
            asyncio.get_running_loop().remove_reader(self._trays.bells[ENGINE])
        if self._balancing is not None:
            self._balancing.close()


class _Member:
    """One front end: its process, its channel and its share of the connections.

    trays: arguments of `TrayWriter`, empty if trays are disabled.
    """

    def __init__(
        self,
        settings: Settings,
        handlers: FrontEndHandlers,
        balancing: BalancerState,
        number: int,
        trays: Sequence[int],
    ) -> None:
        self._settings, self.handlers = settings, handlers
        self._balancing, self._number, self._trays = balancing, number, trays
        self._ending = False
        self._process: asyncio.subprocess.Process | None = None
        self._supervision: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Starts the process and waits until it listens.  Errors: ParameterError if it exits before."""
        size = self._settings.memory
        ours, theirs = socket.socketpair()
        memory: list[int] = []
        try:
            memory += (shared_memory(f"mgx-serve-{name}", size) for name in ("requests", "answers"))
            given = (theirs.fileno(), *memory)
            part = self._balancing.part(self._number)
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *COMMAND,
                *map(str, (*given, size)),
                stdin=asyncio.subprocess.PIPE,
                pass_fds=(*given, part.counts, part.receives, *part.sends, *self._trays[:1], *self._trays[3:]),
            )
            requests, answers = memory
            channel = await Channel.opened(
                Ends(ours.detach(), answers, requests, size), self.handlers.received, self.handlers.ended
            )
        finally:
            theirs.close()
            ours.close()  # unless the channel owns it
            for number in memory:
                os.close(number)
        started = self.handlers.connected(channel)
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            text = json.dumps(arguments(self._settings, log.getEffectiveLevel(), part, self._trays))
            self._process.stdin.write(text.encode())
            await self._process.stdin.drain()
        self._process.stdin.close()
        await started

    def watch(self) -> None:
        self._supervision = asyncio.get_running_loop().create_task(self._supervise())

    async def _supervise(self) -> None:
        """Restarts the process whenever it exits."""
        pause = PAUSE
        while self._process is not None:
            status = await self._process.wait()
            self._balancing.exclude(self._number)
            if self._ending:
                return
            log.error("a front end ended with status %s; another one is started", status)
            await asyncio.sleep(pause)
            while not self.handlers.settled():  # a stopped process holds the lock
                await asyncio.sleep(PAUSE)
            try:
                await self.start()
            except Exception as error:  # any exception: this task must survive, or nothing restarts the process
                unforeseen = not isinstance(error, (ParameterError, OSError))
                log.error("no front end could be started: %s", error, exc_info=unforeseen)
                pause = min(2 * pause, LONGEST_PAUSE)
            else:
                pause = PAUSE

    async def end(self) -> None:
        self._ending = True
        await self._stop_process()
        if self._supervision is not None:
            self._supervision.cancel()
            await asyncio.gather(self._supervision, return_exceptions=True)

    async def _stop_process(self) -> None:
        if self._process is None or self._process.returncode is not None:
            return
        self.handlers.tell("end")
        try:
            await asyncio.wait_for(self._process.wait(), self._settings.drain + PATIENCE)
        except TimeoutError:
            log.error("a front end did not end in time and was killed")
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
