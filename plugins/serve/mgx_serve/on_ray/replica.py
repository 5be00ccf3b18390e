"""A process that runs a model: what Ray Serve starts, watches and asks."""

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
from ..freed_memory import keep_freed_memory
from ..metrics import Recorder
from ..model import Signature
from ..settings import ModelSettings
from ..tensors import Array
from .door import Door
from .exchange import exchange
from .handover import Handed, hand_over

__all__ = ["Replica", "Reply", "Run", "application", "bound"]


@dataclass(frozen=True)
class Run:
    """One run of a replica: seconds in the queue of each request, seconds of the run, rows in all."""

    queued: Sequence[float]
    seconds: float
    rows: int


@dataclass(frozen=True)
class Reply:
    """The outputs of one request, or its refusal.

    signature: of the version that answered, None where it is the one that the caller knows; runs: those that ended since the
    last reply.
    """

    outputs: list[Array]
    signature: Signature | None
    runs: list[Run]
    error: ServeError | None = None


class _Runs(Recorder):
    """Keeps runs until a reply takes them along; of the rest, the caller learns by the replies themselves."""

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
    """One model in one process, with a queue of its own.

    has_door: processes of the same machine may ask it past Ray.
    """

    def __init__(self, handed: Handed, has_door: bool) -> None:
        keep_freed_memory()
        self._model = handed.open()
        self._recorder = _Runs()
        self._batcher: Batcher | None = None
        self._has_door = has_door
        self._door: Door | None = None

    def _queue(self) -> Batcher:
        if self._batcher is None:  # made where the event loop runs
            self._batcher = Batcher(self._model, self._recorder)
        return self._batcher

    async def check_health(self) -> None:
        """Announces this process each time that Ray asks for its health, for as long as it is one of the model's."""
        if self._has_door:
            if self._door is None:
                self._door = Door(self._queue(), self._runs)
            exchange().announce.remote(*self._place(), self._door.name)

    def __del__(self) -> Any:
        """Returns what Ray waits for before it ends this process: that no process asks it any more."""
        return None if self._door is None else self._close(self._door)

    async def _close(self, door: Door) -> None:
        self._has_door, self._door = False, None
        exchange().leave.remote(*self._place(), door.name)
        await door.close()

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
        """known: the signature that the caller has; wanted: see `Deployment.infer`."""
        try:
            signature, outputs = await self._queue().infer(feeds, priority, timeout, wanted)
        except ServeError as error:
            return Reply([], None, self._recorder.taken(), error)
        return Reply(outputs, None if signature == known else signature, self._recorder.taken())

    async def infer(self, feeds: Mapping[str, Array]) -> dict[str, Array]:
        """Returns the outputs by name; for graphs of deployments.  Errors: any `ServeError`."""
        signature, outputs = await self._queue().infer(feeds)
        return {t.name: o for t, o in zip(signature.outputs, outputs, strict=True)}

    async def process(self) -> int:
        """Returns the number of the process."""
        return os.getpid()


def application(path: Path | str, settings: ModelSettings | None = None, name: str = "") -> Any:
    """Returns a model as an application of Ray Serve: to be run, or bound to a deployment that asks its `infer`.

    name: of the deployment, by default the file's.
    Errors: MgxError if the file cannot be read.
    """
    where = Path(path)
    given = ModelSettings() if settings is None else settings
    return bound(hand_over(name or where.stem, "1", where, given))


def bound(handed: Handed, has_door: bool = False) -> Any:
    """Returns the application that runs a model that was handed over.

    has_door: see `Replica`; Ray counts requests that come this way as no load, so that only fixed numbers of replicas have one.
    """
    given = handed.settings
    load = given.load or max(2.0, float(given.max_batch))
    options: dict[str, Any] = {
        "name": handed.name,
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
    return serve.deployment(**options)(Replica).bind(handed, has_door and "num_replicas" in options)
