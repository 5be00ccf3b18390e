"""Models as deployments of Ray Serve, which this server's HTTP and gRPC services ask."""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import ray
from ray import serve
from ray.exceptions import RayError
from ray.serve.exceptions import RayServeException

from mgx_core import ParameterError

from ..deployment import Backend, Deployment
from ..errors import Unavailable
from ..metrics import Recorder
from ..model import Signature
from ..settings import ModelSettings
from ..tensors import Array, Lying, arrays_of
from .handover import Handed, hand_over, withdraw
from .links import Links
from .replica import bound
from .replicas import Replicas

__all__ = ["OnRay"]


class OnRay(Backend):
    """Models in processes of a Ray cluster.

    address: of a cluster that runs, "auto" for the one of this machine, "" to start one here that ends with the server.
    `address` is then where other processes find it.  The applications have names of this server alone; in a cluster that it did
    not start, it ends these and no others.
    Errors: ConnectionError or ParameterError if there is no cluster at the address.
    """

    one_version = True  # which a later one replaces under the same name, replica by replica

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
        self.address = ray.get_runtime_context().gcs_address
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
                await asyncio.to_thread(serve.delete, self.application(name))
            else:
                await self._rolled_out(former.handed, former.holder)
            await asyncio.to_thread(withdraw, handed, holder)
            raise Unavailable(f"no replica of model {name!r} could be started: {_first_line(error)}") from error
        self._newest[name] = made
        return made

    async def _rolled_out(self, handed: Handed, holder: str) -> RayDeployment:
        """Replaces the replicas of a model, a few at a time; those that are left answer meanwhile."""
        application, name = bound(handed, hasattr(os, "memfd_create")), self.application(handed.name)
        handle = await asyncio.to_thread(
            serve.run, application, name=name, route_prefix=None, _local_testing_mode=False
        )
        signature = await handle.signature.remote()
        return RayDeployment(self, handed, holder, handle, signature)

    async def withdraw(self, deployment: RayDeployment) -> None:
        """Ends the replicas of a model, unless a later version has taken them over."""
        name = deployment.signature.name
        if self._newest.get(name) is deployment:
            del self._newest[name]
            await asyncio.to_thread(serve.delete, self.application(name))
        await asyncio.to_thread(withdraw, deployment.handed, deployment.holder)

    async def close(self) -> None:
        if self._own:
            await asyncio.to_thread(serve.shutdown)
        if self._connected:
            await asyncio.to_thread(ray.shutdown)

    def application(self, name: str) -> str:
        """Returns the name that a model has among the cluster's applications."""
        return f"mgx-{self._identity}-{name}"


class RayDeployment(Deployment):
    """A model with its replicas.

    holder: in whose name its file lies in the cluster.
    """

    def __init__(self, backend: OnRay, handed: Handed, holder: str, handle: Any, signature: Signature) -> None:
        self.signature, self.handed, self.holder = signature, handed, holder
        self.shared_as = backend.application(handed.name)
        self._links = Links(self.shared_as, backend.recorder)
        self._backend, self._replicas = backend, Replicas(handle, signature, backend.recorder, self._links)
        self._closing = False

    async def infer(
        self, feeds: Mapping[str, Array | Lying], priority: int = 0, timeout: float = 0.0, wanted: Sequence[str] = ()
    ) -> tuple[Signature, list[Array]]:
        if self._closing:
            raise Unavailable(f"model {self.signature.name!r} is being unloaded")
        return await self._replicas.infer(arrays_of(feeds), priority, timeout, wanted)

    def hurry(self) -> None:
        """Replicas that are ended run what is queued at once."""

    async def close(self) -> None:
        self._closing = True
        while self._replicas.inside:
            await asyncio.sleep(0.01)
        self._links.close()
        await self._backend.withdraw(self)


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
