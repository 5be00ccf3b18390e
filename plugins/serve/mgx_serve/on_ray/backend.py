"""The backend that deploys models on Ray Serve; this server's HTTP and gRPC services call the deployments."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

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
from ..tensors import Array, DeferredInput, arrays_of
from .links import Links
from .publishing import PublishedModel, publish, withdraw
from .replica import bound
from .replicas import Replicas
from .resources import missing

__all__ = ["OnRay", "require_reachable"]

CONNECT: Final = 10.0  # seconds
log = logging.getLogger("mgx_serve")


class OnRay(Backend):
    """Runs models in the processes of a Ray cluster.

    address: of a running cluster, "auto" for the one on this machine, "" to start one that ends with the server; afterwards the
    attribute `address` is the actual one.  Application names are unique to this server; in a cluster that it did not start, it
    removes only its own applications.
    Errors: ConnectionError or ParameterError if there is no cluster at the address.
    """

    one_version = True  # a later version replaces it under the same name, replica by replica

    def __init__(self, recorder: Recorder, address: str = "") -> None:
        self.recorder = recorder
        self._connected = not ray.is_initialized()
        self._own = self._connected and address in ("", "local")
        self._identity = uuid.uuid4().hex[:12]
        if self._connected:
            require_reachable(address)
            try:
                ray.init(address=address or "local", namespace="mgx", log_to_driver=False, include_dashboard=False)
            except (ValueError, RuntimeError, RayError) as error:
                raise ParameterError(f"no cluster of Ray at address {address!r}: {_first_line(error)}") from error
        self.address = ray.get_runtime_context().gcs_address
        serve.start(http_options={"location": "NoServer"})
        self._newest: dict[str, RayDeployment] = {}
        self._required: dict[str, tuple[float, float]] = {}  # CPUs and GPUs of all replicas by model

    async def deploy(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        former = self._required.get(name)
        self._required[name] = (settings.replicas * settings.cpus, settings.replicas * settings.gpus)
        try:
            self._require_resources(name)
            return await self._deployed(name, version, path, settings)
        except BaseException:
            self._required.pop(name, None)
            if former is not None:
                self._required[name] = former
            raise

    def _require_resources(self, name: str) -> None:
        """Errors: Unavailable if the replicas of all models can never start together; in a cluster that may grow, it warns."""
        cpus, gpus = (sum(n) for n in zip(*self._required.values(), strict=True))
        lack = missing(cpus, gpus)
        if lack and self._own:
            raise Unavailable(f"{lack}, for the replicas of {', '.join(self._required)}; lower cpus, gpus or replicas")
        if lack:
            log.warning("the replicas of model %r wait for machines that join the cluster: %s", name, lack)

    async def _deployed(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        holder = uuid.uuid4().hex
        published = await asyncio.to_thread(publish, name, version, path, settings, holder)
        former = self._newest.get(name)
        try:
            made = await self._rolled_out(published, holder)
        except (RuntimeError, RayError, RayServeException) as error:
            if former is None:
                await asyncio.to_thread(serve.delete, self.application(name))
            else:
                await self._rolled_out(former.published, former.holder)
            await asyncio.to_thread(withdraw, published, holder)
            raise Unavailable(f"no replica of model {name!r} could be started: {_first_line(error)}") from error
        self._newest[name] = made
        return made

    async def _rolled_out(self, published: PublishedModel, holder: str) -> RayDeployment:
        """Performs a rolling update of a model's replicas; the remaining replicas serve meanwhile."""
        application, name = bound(published, hasattr(os, "memfd_create")), self.application(published.name)
        handle = await asyncio.to_thread(
            serve.run, application, name=name, route_prefix=None, _local_testing_mode=False
        )
        signature = await handle.signature.remote()
        return RayDeployment(self, published, holder, handle, signature)

    async def withdraw(self, deployment: RayDeployment) -> None:
        """Stops the replicas of a model, unless a later version has replaced it."""
        name = deployment.signature.name
        if self._newest.get(name) is deployment:
            del self._newest[name]
            self._required.pop(name, None)
            await asyncio.to_thread(serve.delete, self.application(name))
        await asyncio.to_thread(withdraw, deployment.published, deployment.holder)

    async def close(self) -> None:
        if self._own:
            await asyncio.to_thread(serve.shutdown)
        if self._connected:
            await asyncio.to_thread(ray.shutdown)

    def application(self, name: str) -> str:
        """Returns the Ray Serve application name of a model."""
        return f"mgx-{self._identity}-{name}"


class RayDeployment(Deployment):
    """A model and its replicas.

    holder: name under which the cluster keeps its file.
    """

    def __init__(
        self, backend: OnRay, published: PublishedModel, holder: str, handle: Any, signature: Signature
    ) -> None:
        self.signature, self.published, self.holder = signature, published, holder
        self.shared_as = backend.application(published.name)
        self._links = Links(self.shared_as, backend.recorder)
        self._backend, self._replicas = backend, Replicas(handle, signature, backend.recorder, self._links)
        self._closing = False

    async def infer(
        self,
        feeds: Mapping[str, Array | DeferredInput],
        priority: int = 0,
        timeout: float = 0.0,
        wanted: Sequence[str] = (),
    ) -> tuple[Signature, list[Array]]:
        if self._closing:
            raise Unavailable(f"model {self.signature.name!r} is being unloaded")
        return await self._replicas.infer(arrays_of(feeds), priority, timeout, wanted)

    def hurry(self) -> None:
        """Does nothing: stopped replicas drain their queues immediately."""

    async def close(self) -> None:
        self._closing = True
        while self._replicas.inside:
            await asyncio.sleep(0.01)
        self._links.close()
        await self._backend.withdraw(self)


def require_reachable(address: str) -> None:
    """Errors: ParameterError if nothing listens at an address of the form HOST:PORT, which Ray would wait for without end."""
    host, _, port = address.rpartition(":")
    if host and port.isdecimal() and "/" not in host:
        try:
            socket.create_connection((host.strip("[]"), int(port)), CONNECT).close()
        except (OSError, OverflowError) as error:
            raise ParameterError(f"no cluster of Ray at address {address!r}: {error}") from error


def _first_line(error: BaseException) -> str:
    return next((line for line in str(error).splitlines() if line.strip()), type(error).__name__)[:300]
