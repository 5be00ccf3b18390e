"""The server: HTTP and gRPC over one set of models, from start to drain."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import signal
from pathlib import Path
from typing import Final

from mgx_core import ParameterError

from .auth import Access
from .budget import Budget
from .deployment import Backend
from .frontends import FrontEnds
from .grpc_methods import Methods
from .grpc_service import handler
from .http_app import app
from .inference import Service
from .listening import Listening
from .metrics import Metrics
from .one_process import OneProcess
from .repository import Repository
from .settings import Settings
from .shared_memory import Regions
from .tracing import opened

__all__ = ["Server"]

log = logging.getLogger("mgx_serve")
MAX_LISTED: Final = 8  # maximum number of models in the start message


class Server:
    """Serves the models in a file or folder.

    Use ``asyncio.run(Server(path, settings).run())`` or, inside an event loop, `start` and `stop`; `http_port` and `grpc_port`
    are the actual ports.
    """

    def __init__(self, models: Path, settings: Settings) -> None:
        self.models, self.settings = models, settings
        self.http_port = self.grpc_port = -1
        self._service: Service | None = None
        self._doors: Listening | FrontEnds | None = None

    async def start(self, load: bool = True) -> None:
        """Starts both services, then loads the models; until these are ready, the server is live but not ready.

        Errors: ParameterError if the file or folder does not exist; OSError if a port is taken.
        """
        given = self.settings
        traces = opened(given.traces)
        metrics = Metrics(traces)
        backend = await asyncio.to_thread(self._backend, metrics)
        repository = Repository(self.models, self.settings.model, metrics, backend)
        access, regions = Access(given.tokens), Regions(given.shared_memory)
        self._service = Service(repository, metrics, access, regions, Budget(given.memory), traces)
        await self._open(self._service)
        if load:
            await repository.load_all()

    async def _open(self, service: Service) -> None:
        paths, methods = app(service, self.settings.max_bytes), Methods(service)
        if self.settings.frontends:
            shared = dataclasses.replace(self.settings, ray=service.repository.backend.address)
            self._doors = processes = FrontEnds(shared, service, paths, methods)
            await processes.open()
        else:
            self._doors = here = Listening(self.settings)
            await here.open(paths, handler(service, methods.answered))
        self.http_port, self.grpc_port = self._doors.http_port, self._doors.grpc_port

    def _backend(self, metrics: Metrics) -> Backend:
        if self.settings.ray is None:
            return OneProcess(metrics)
        try:
            from .on_ray import OnRay
        except ImportError as error:
            raise ParameterError(f"Ray is required: pip install 'mgx-serve[ray]' ({error})") from error
        return OnRay(metrics, self.settings.ray)

    async def stop(self) -> None:
        """Drains the server: rejects new requests, finishes queued ones, then closes."""
        if self._service is not None:
            self._service.ending.set()
            self._service.repository.hurry()
        if self._doors is not None:
            await self._doors.close()
        if self._service is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._service.repository.close(), self.settings.drain)
            self._service.regions.close()
            self._service.log.close()
            await asyncio.to_thread(self._service.traces.close)

    async def run(self) -> None:
        """Serves until SIGTERM or SIGINT."""
        ended = asyncio.Event()
        _on_signals(ended)
        await self.start()
        _on_signals(ended)  # a backend may have installed its own handlers
        log.info("HTTP on port %s, gRPC on port %s", self.http_port, self.grpc_port)
        print(f"mgx-serve: HTTP port {self.http_port}, gRPC port {self.grpc_port}; {self._models_text()}", flush=True)
        await ended.wait()
        await self.stop()

    def _models_text(self) -> str:
        """Returns a summary of the served models and their targets."""
        entries = [] if self._service is None else list(self._service.repository.entries.values())
        entries.sort(key=lambda entry: bool(entry.loaded))  # models that are not ready first
        listed = []
        for entry in entries[:MAX_LISTED]:
            targets = sorted({d.signature.target for d in entry.loaded.values()})
            listed.append(
                f"{entry.name} on {', '.join(targets)}"
                if targets
                else f"{entry.name} not ready ({_first_line(entry.reason)})"
            )
        more = [f"{len(entries) - MAX_LISTED} more"] if len(entries) > MAX_LISTED else []
        return "; ".join(listed + more) or "no model"


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")


def _on_signals(ended: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
