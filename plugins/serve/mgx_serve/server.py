"""A server: both doors over one set of models, from start to drain."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from pathlib import Path
from typing import Any

import grpc
import uvicorn

from .access import Access
from .grpc_service import handler
from .http_app import app
from .inference import Service
from .metrics import Metrics
from .repository import Repository
from .settings import Settings

__all__ = ["Server"]

log = logging.getLogger("mgx_serve")


class Server:
    """Serves the models of a file or folder.

    Usable as ``asyncio.run(Server(path, settings).run())`` or, inside a loop, by `start` and `stop`; `http_port` and `grpc_port`
    then say where it listens.
    """

    def __init__(self, models: Path, settings: Settings) -> None:
        self.models, self.settings = models, settings
        self.http_port = self.grpc_port = -1
        self._doors: list[asyncio.Task[None]] = []
        self._http: uvicorn.Server | None = None
        self._grpc: grpc.aio.Server | None = None
        self._service: Service | None = None

    async def start(self, load: bool = True) -> None:
        """Opens the doors, then loads the models: until these are ready, the server is alive and says so.

        Errors: ParameterError if there is nothing to serve; OSError if a port is taken.
        """
        metrics = Metrics()
        repository = Repository(self.models, self.settings.model, metrics)
        self._service = Service(repository, metrics, Access(self.settings.tokens))
        if self.settings.http_port >= 0:
            await self._open_http(self._service)
        if self.settings.grpc_port >= 0:
            await self._open_grpc(self._service)
        if load:
            await repository.load_all()

    async def _open_http(self, service: Service) -> None:
        given = self.settings
        listening = socket.create_server((given.host, given.http_port), reuse_port=False, backlog=2048)
        self.http_port = listening.getsockname()[1]
        config = uvicorn.Config(
            app(service, given.max_bytes),
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(given.drain)),
            ssl_certfile=given.certificate,
            ssl_keyfile=None if given.key is None else str(given.key),
        )
        self._http = _Uvicorn(config)
        self._doors.append(asyncio.create_task(self._http.serve([listening])))
        while not self._http.started:
            await asyncio.sleep(0.005)

    async def _open_grpc(self, service: Service) -> None:
        given = self.settings
        limits = [("grpc.max_receive_message_length", given.max_bytes), ("grpc.max_send_message_length", -1)]
        self._grpc = server = grpc.aio.server(options=limits)
        server.add_generic_rpc_handlers((handler(service),))
        address = f"{given.host}:{given.grpc_port}"
        if given.certificate is None or given.key is None:
            self.grpc_port = server.add_insecure_port(address)
        else:
            pair = (given.key.read_bytes(), given.certificate.read_bytes())
            self.grpc_port = server.add_secure_port(address, grpc.ssl_server_credentials([pair]))
        await server.start()

    async def stop(self) -> None:
        """Refuses new work, answers what is queued, and ends."""
        if self._service is not None:
            self._service.draining = True
            self._service.repository.hurry()
        if self._http is not None:
            self._http.should_exit = True
        if self._grpc is not None:
            await self._grpc.stop(self.settings.drain)
        await asyncio.gather(*self._doors, return_exceptions=True)
        if self._service is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._service.repository.close(), self.settings.drain)

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        await self.start()
        log.info("HTTP on port %s, gRPC on port %s", self.http_port, self.grpc_port)
        print(f"mgx-serve: HTTP port {self.http_port}, gRPC port {self.grpc_port}", flush=True)
        await ended.wait()
        await self.stop()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the server that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
