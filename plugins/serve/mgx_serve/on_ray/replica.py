"""A model replica: the process that Ray Serve starts, monitors and calls."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray import serve

from ..batching import Batcher
from ..errors import ServeError
from ..malloc_tuning import keep_freed_memory
from ..metrics import Recorder
from ..model import Signature
from ..settings import ModelSettings
from ..tensors import Array
from .exchange import exchange
from .local_endpoint import LocalEndpoint
from .publishing import PublishedModel, publish

__all__ = ["Replica", "Reply", "Run", "application", "bound"]


@dataclass(frozen=True)
class Run:
    """Metrics of one run: seconds each request was queued, seconds of the run, total rows."""

    queued: Sequence[float]
    seconds: float
    rows: int


@dataclass(frozen=True)
class Reply:
    """The outputs of one request, or its error.

    signature: of the version that ran it, None if the caller has it already; runs: metrics of runs since the last reply.
    """

    outputs: list[Array]
    signature: Signature | None
    runs: list[Run]
    error: ServeError | None = None


class _Runs(Recorder):
    """Buffers run metrics until a reply carries them; other events are implied by the replies."""

    def __init__(self) -> None:
        self.kept: list[Run] = []

    def waiting(self, model: Signature, count: int) -> None: ...

    def refused(self, model: Signature) -> None: ...

    def failed(self, model: Signature) -> None: ...

    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        self.kept.append(Run(queued, seconds, rows))

    def taken(self) -> list[Run]:
        taken, self.kept = self.kept, []
        return taken


class Replica:
    """One model in one process, with its own queue.

    has_endpoint: opens a local endpoint, see `LocalEndpoint`.
    """

    def __init__(self, published: PublishedModel, has_endpoint: bool) -> None:
        keep_freed_memory()
        self._model = published.open()
        self._recorder = _Runs()
        self._batcher: Batcher | None = None
        self._has_endpoint = has_endpoint
        self._endpoint: LocalEndpoint | None = None

    def _queue(self) -> Batcher:
        if self._batcher is None:  # created inside the event loop
            self._batcher = Batcher(self._model, self._recorder)
        return self._batcher

    async def check_health(self) -> None:
        """Renews this process's registration on each of Ray's health checks, unless it is being replaced."""
        if self._has_endpoint:
            if self._endpoint is None:
                self._endpoint = LocalEndpoint(self._queue(), self._runs)
            exchange().announce.remote(*self._place(), self._endpoint.name)

    def __del__(self) -> Any:
        """Returns the awaitable that Ray waits for before it stops this process: all clients have disconnected."""
        return None if self._endpoint is None else self._close(self._endpoint)

    async def _close(self, endpoint: LocalEndpoint) -> None:
        self._has_endpoint, self._endpoint = False, None
        exchange().leave.remote(*self._place(), endpoint.name)
        await endpoint.close()

    def _place(self) -> tuple[str, str]:
        """Returns the names of the application and of the node."""
        return serve.get_replica_context().app_name, ray.get_runtime_context().get_node_id()

    def _runs(self) -> list[Any]:
        return [(list(run.queued), run.seconds, run.rows) for run in self._recorder.taken()]

    async def signature(self) -> Signature:
        return self._model.signature

    async def reply(
        self,
        feeds: Mapping[str, Array],
        priority: int,
        timeout: float,
        known: Signature | None,
        wanted: Sequence[str] = (),
    ) -> Reply:
        """Returns the outputs of one request; known: the caller's signature; wanted: see `Deployment.infer`."""
        try:
            signature, outputs = await self._queue().infer(feeds, priority, timeout, wanted)
        except ServeError as error:
            return Reply([], None, self._recorder.taken(), error)
        return Reply(outputs, None if signature == known else signature, self._recorder.taken())

    async def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Runs a request; returns the outputs by name.  For graphs of deployments.  Errors: any `ServeError`."""
        signature, outputs = await self._queue().infer(feeds)
        return {t.name: o for t, o in zip(signature.outputs, outputs, strict=True)}

    async def process(self) -> int:
        """Returns the process id."""
        return os.getpid()


def application(path: Path | str, settings: ModelSettings | None = None, name: str = "") -> Any:
    """Returns a model as a Ray Serve application, to run by itself or to bind to a deployment that calls its `infer`.

    name: of the deployment, by default the file name.
    Errors: MgxError if the file cannot be read.
    """
    where = Path(path)
    given = ModelSettings() if settings is None else settings
    return bound(publish(name or where.stem, "1", where, given))


def bound(published: PublishedModel, has_endpoint: bool = False) -> Any:
    """Returns the application that runs a model of the exchange.

    has_endpoint: see `Replica`; Ray does not see such requests as load, so it is used only with a fixed number of replicas.
    """
    given = published.settings
    load = given.load or max(2.0, float(given.max_batch))
    options: dict[str, Any] = {
        "name": published.name,
        "max_ongoing_requests": max(given.queue_size, 1),
        "max_queued_requests": given.queue_size,
        "health_check_period_s": 2,
        "health_check_timeout_s": 10,
        "graceful_shutdown_timeout_s": 30,
        "ray_actor_options": {
            "num_cpus": given.cpus,
            "num_gpus": given.gpus,
            "runtime_env": {"env_vars": {"MGX_THREADS": str(max(1, round(given.cpus)))}},
        },
    }
    if given.max_replicas > given.replicas:
        options["autoscaling_config"] = {
            "min_replicas": given.replicas,
            "max_replicas": given.max_replicas,
            "target_ongoing_requests": load,
            "upscale_delay_s": 3,
            "downscale_delay_s": 60,
        }
    else:
        options["num_replicas"] = given.replicas
    return serve.deployment(**options)(Replica).bind(published, has_endpoint and "num_replicas" in options)
