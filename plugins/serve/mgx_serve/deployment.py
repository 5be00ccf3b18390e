"""The interface of a loaded model, independent of the process that runs it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from .errors import DeadlinePassed
from .model import Signature
from .settings import ModelSettings
from .tensors import Array, DeferredInput

__all__ = ["Backend", "Deployment", "within"]

T = TypeVar("T")


class Deployment(ABC):
    """One loaded model.

    shared_as: name by which other processes reach it directly, "" if only this process can; reads_deferred: inputs may be
    `DeferredInput`, read from shared memory at run time.
    """

    signature: Signature
    shared_as = ""
    reads_deferred = False

    @abstractmethod
    async def infer(
        self,
        feeds: Mapping[str, Array | DeferredInput],
        priority: int = 0,
        timeout: float = 0.0,
        wanted: Sequence[str] = (),
    ) -> tuple[Signature, list[Array]]:
        """Runs one request; returns its outputs and the signature of the version that computed them.

        timeout: seconds, 0 for the model's own timeout; wanted: names of the outputs to return, in this order; all if empty.
        Errors: BadRequest if inputs do not fit, Busy if the queue is full, DeadlinePassed, Unavailable if the model is unloaded.
        """

    @abstractmethod
    def hurry(self) -> None:
        """Stops waiting for further requests to batch (for a drain)."""

    @abstractmethod
    async def close(self) -> None:
        """Rejects new requests, runs all queued ones, then closes."""


class Backend(ABC):
    """Loads and runs models.

    address: where other processes reach shared models, None if none are shared; one_version: only one version of a model is kept.
    """

    address: str | None = None
    one_version = False

    @abstractmethod
    async def deploy(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        """Loads and compiles a model; the model deployed under the same name serves requests until then.

        Errors: MgxError, OSError or ServeError.
        """

    @abstractmethod
    async def close(self) -> None:
        """Releases all resources."""


async def within(limit: float, model: str, awaited: Awaitable[T]) -> T:
    """Awaits a request's run with a timeout.  limit: seconds.  Errors: DeadlinePassed on timeout."""
    try:
        async with asyncio.timeout(limit):
            return await awaited
    except TimeoutError:
        raise DeadlinePassed(f"model {model!r} did not answer within {limit:g} s") from None
