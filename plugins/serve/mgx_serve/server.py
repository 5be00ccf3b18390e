"""A server: HTTP and gRPC over one set of models, from start to drain."""

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
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mgx_core import ParameterError

from .access import Access
from .batching import OneProcess
from .budget import Budget
from .deployment import Backend
from .grpc_methods import Methods
from .grpc_service import handler
from .http_app import app
from .inference import Service
from .metrics import Metrics
from .repository import Repository
from .settings import Settings
from .shared_memory import Regions
from .tracing import opened

__all__ = ["Server"]

HEAD_SECONDS = 30.0
log = logging.getLogger("mgx_serve")


class Server:
    """Serves the models of a file or folder.

    Usable as ``asyncio.run(Server(path, settings).run())`` or, inside a loop, by `start` and `stop`; `http_port` and `grpc_port`
    then say where it listens.
    """

    def __init__(self, models: Path, settings: Settings) -> None:
        self.models, self.settings = models, settings
        self.http_port = self.grpc_port = -1
        self._services: list[asyncio.Task[None]] = []
        self._http: uvicorn.Server | None = None
        self._grpc: grpc.aio.Server | None = None
        self._service: Service | None = None

    async def start(self, load: bool = True) -> None:
        """Starts both services, then loads the models; until these are ready the server is live and not ready.

        Errors: ParameterError if there is no such file or folder; OSError if a port is taken.
        """
        given = self.settings
        traces = opened(given.traces)
        metrics = Metrics(traces)
        backend = await asyncio.to_thread(self._backend, metrics)
        repository = Repository(self.models, self.settings.model, metrics, backend)
        access, regions = Access(given.tokens), Regions(given.shared_memory)
        self._service = Service(repository, metrics, access, regions, Budget(given.memory), traces)
        if self.settings.http_port >= 0:
            await self._open_http(self._service)
        if self.settings.grpc_port >= 0:
            await self._open_grpc(self._service)
        if load:
            await repository.load_all()

    def _backend(self, metrics: Metrics) -> Backend:
        if self.settings.ray is None:
            return OneProcess(metrics)
        try:
            from .on_ray import OnRay
        except ImportError as error:
            raise ParameterError(f"Ray is required: pip install 'mgx-serve[ray]' ({error})") from error
        return OnRay(metrics, self.settings.ray)

    async def _open_http(self, service: Service) -> None:
        given = self.settings
        listening = socket.create_server((given.host, given.http_port), reuse_port=False, backlog=2048)
        # accepted sockets inherit it; asyncio sets it only on those made with the protocol's number, and without it a body
        # that follows its head waits 40 ms for the head's acknowledgement
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.http_port = listening.getsockname()[1]
        config = uvicorn.Config(
            app(service, given.max_bytes),
            http=_TimedProtocol,
            log_config=None,
            access_log=False,
            limit_concurrency=given.connections,
            lifespan="off",
            ws="none",
            timeout_keep_alive=75,
            timeout_graceful_shutdown=max(1, round(given.drain)),
            ssl_certfile=given.certificate,
            ssl_keyfile=None if given.key is None else str(given.key),
        )
        self._http = _Uvicorn(config)
        self._services.append(asyncio.create_task(self._http.serve([listening])))
        while not self._http.started:
            await asyncio.sleep(0.005)

    async def _open_grpc(self, service: Service) -> None:
        given = self.settings
        limits = [
            ("grpc.max_receive_message_length", given.max_bytes),
            ("grpc.max_send_message_length", -1),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # none: a small message must not become a large one
        ]
        self._grpc = server = grpc.aio.server(options=limits, maximum_concurrent_rpcs=given.connections)
        server.add_generic_rpc_handlers((handler(service, Methods(service).answered),))
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
        await asyncio.gather(*self._services, return_exceptions=True)
        if self._service is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._service.repository.close(), self.settings.drain)
            self._service.regions.close()
            await asyncio.to_thread(self._service.traces.close)

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        ended = asyncio.Event()
        _on_signals(ended)
        await self.start()
        _on_signals(ended)  # a backend may have set handlers of its own
        log.info("HTTP on port %s, gRPC on port %s", self.http_port, self.grpc_port)
        print(f"mgx-serve: HTTP port {self.http_port}, gRPC port {self.grpc_port}", flush=True)
        await ended.wait()
        await self.stop()


def _on_signals(ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)


class _TimedProtocol(HttpToolsProtocol):
    """Closes connections whose next request does not begin, or whose head does not end, in time."""

    _head: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._expect_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        self._head_came()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_came()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_came()
        self._head = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _head_came(self) -> None:
        if self._head is not None:
            self._head.cancel()


class _Uvicorn(uvicorn.Server):
    """Leaves signals to the server that it is a part of."""

    @contextlib.contextmanager
    def capture_signals(self) -> Any:
        yield
