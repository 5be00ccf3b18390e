"""Models as deployments of Ray Serve, which this server's HTTP and gRPC services ask."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import ActorUnavailableError, RayActorError, RayError
from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError, RayServeException

from mgx_core import ParameterError

from ..deployment import Backend, Deployment, within
from ..errors import Busy, DeadlinePassed, Internal, Unavailable
from ..metrics import Recorder
from ..model import Signature
from ..settings import ModelSettings
from ..tensors import Array
from .handover import Handed, hand_over, withdraw
from .replica import Reply, bound

__all__ = ["OnRay"]

TRIES = 3  # replicas that one request may be given to, should they die under it
log = logging.getLogger("mgx_serve")


class OnRay(Backend):
    """Models in processes of a Ray cluster.

    address: of a cluster that runs, "auto" for the one of this machine, "" to start one here that ends with the server.
    The applications have names of this server alone; in a cluster that it did not start, it ends these and no others.
    Errors: ConnectionError or ParameterError if there is no cluster at the address.
    """

    def __init__(self, recorder: Recorder, address: str = "") -> None:
        self.recorder = recorder
        self._connected = not ray.is_initialized()
        self._own = self._connected and address in ("", "local")
        self._identity = uuid.uuid4().hex[:12]
        if self._connected:
            try:
                ray.init(address=address or "local", namespace="mgx", log_to_driver=False, include_dashboard=False)
            except (ValueError, RuntimeError, RayError) as error:
                raise ParameterError(f"no cluster of Ray at address {address!r}: {_first_line(error)}") from error
        serve.start(http_options={"location": "NoServer"})
        self._newest: dict[str, RayDeployment] = {}

    async def deploy(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        holder = uuid.uuid4().hex
        handed = await asyncio.to_thread(hand_over, name, version, path, settings, holder)
        former = self._newest.get(name)
        try:
            made = await self._rolled_out(handed, holder)
        except (RuntimeError, RayError, RayServeException) as error:
            if former is None:
                await asyncio.to_thread(serve.delete, self._application(name))
            else:
                await self._rolled_out(former.handed, former.holder)
            await asyncio.to_thread(withdraw, handed, holder)
            raise Unavailable(f"no replica of model {name!r} could be started: {_first_line(error)}") from error
        self._newest[name] = made
        return made

    async def _rolled_out(self, handed: Handed, holder: str) -> RayDeployment:
        """Replaces the replicas of a model, a few at a time; those that are left answer meanwhile."""
        handle = await asyncio.to_thread(
            serve.run, bound(handed), name=self._application(handed.name), route_prefix=None, _local_testing_mode=False
        )
        signature = await handle.signature.remote()
        return RayDeployment(self, handed, holder, handle, signature)

    async def withdraw(self, deployment: RayDeployment) -> None:
        """Ends the replicas of a model, unless a later version has taken them over."""
        name = deployment.signature.name
        if self._newest.get(name) is deployment:
            del self._newest[name]
            await asyncio.to_thread(serve.delete, self._application(name))
        await asyncio.to_thread(withdraw, deployment.handed, deployment.holder)

    async def close(self) -> None:
        if self._own:
            await asyncio.to_thread(serve.shutdown)
        if self._connected:
            await asyncio.to_thread(ray.shutdown)

    def _application(self, name: str) -> str:
        return f"mgx-{self._identity}-{name}"


class RayDeployment(Deployment):
    """A model with its replicas.

    holder: in whose name its file lies in the cluster.
    """

    def __init__(self, backend: OnRay, handed: Handed, holder: str, handle: Any, signature: Signature) -> None:
        self.signature, self.handed, self.holder = signature, handed, holder
        self._backend, self._handle, self._recorder = backend, handle, backend.recorder
        self._inside = 0
        self._closing = False

    async def infer(
        self, feeds: Mapping[str, Array], priority: int = 0, timeout: float = 0.0
    ) -> tuple[Signature, list[Array]]:
        if self._closing:
            raise Unavailable(f"model {self.signature.name!r} is being unloaded")
        self.signature.check(feeds)
        limit = timeout or self.signature.timeout
        deadline = time.monotonic() + limit
        self._inside += 1
        self._recorder.waiting(self.signature, self._inside)
        try:
            reply = await within(limit, self.signature.name, self._reply(feeds, priority, deadline))
        finally:
            self._inside -= 1
            self._recorder.waiting(self.signature, self._inside)
        for run in reply.runs:
            self._recorder.ran(self.signature, run.queued, run.seconds, run.rows)
        if reply.error is not None:
            if isinstance(reply.error, Busy):
                self._recorder.refused(self.signature)
            elif isinstance(reply.error, Internal):
                self._recorder.failed(self.signature)
            raise reply.error
        return reply.signature or self.signature, reply.outputs

    async def _reply(self, feeds: Mapping[str, Array], priority: int, deadline: float) -> Reply:
        """Asks a replica, and another one if it dies: a run changes nothing, so that it may be run again."""
        name = self.signature.name
        for attempt in range(1, TRIES + 1):
            left = deadline - time.monotonic()
            if left <= 0:
                raise DeadlinePassed(f"no replica of model {name!r} answered in time")
            try:
                reply: Reply = await self._handle.reply.remote(dict(feeds), priority, left, self.signature)
                return reply
            except BackPressureError:
                self._recorder.refused(self.signature)
                raise Busy(f"too many requests wait for model {name!r}; try again later", 1.0) from None
            except (RayActorError, ActorUnavailableError, DeploymentUnavailableError) as error:
                log.warning(
                    "a replica of model %s ended under a request (try %s): %s", name, attempt, type(error).__name__
                )
                await asyncio.sleep(0.05 * attempt)
            except (RayError, RayServeException) as error:
                log.error("model %s failed: %s", name, error)
                raise Internal(f"model {name!r} failed; the reason is in the server's log") from error
        self._recorder.failed(self.signature)
        raise Unavailable(f"{TRIES} replicas of model {name!r} ended under this request")

    def hurry(self) -> None:
        """Replicas that are ended run what is queued at once."""

    async def close(self) -> None:
        self._closing = True
        while self._inside:
            await asyncio.sleep(0.01)
        await self._backend.withdraw(self)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
