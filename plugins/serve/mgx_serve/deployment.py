"""The interface of a loaded model, which runs in this process or in others."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from .errors import DeadlinePassed
from .model import Signature
from .settings import ModelSettings
from .tensors import Array, Lying

__all__ = ["Backend", "Deployment", "within"]

T = TypeVar("T")


class Deployment(ABC):
    """One loaded model.

    shared_as: the name under which other processes reach it by themselves, "" if only this one does; reads_lying: inputs may lie
    elsewhere, as `Lying` says.
    """

    signature: Signature
    shared_as = ""
    reads_lying = False

    @abstractmethod
    async def infer(
        self, feeds: Mapping[str, Array | Lying], priority: int = 0, timeout: float = 0.0, wanted: Sequence[str] = ()
    ) -> tuple[Signature, list[Array]]:
        """Returns the outputs for one request, and the signature of the version that made them.

        timeout: seconds, 0 for the model's own limit; wanted: names of the outputs to return, in this order, all if empty.
        Errors: BadRequest if it does not fit, Busy if the queue is full, DeadlinePassed, Unavailable when the model is unloaded.
        """

    @abstractmethod
    def hurry(self) -> None:
        """Lets no request wait for others any more."""

    @abstractmethod
    async def close(self) -> None:
        """Lets what is queued be run, then ends.  New requests are refused from now on."""


class Backend(ABC):
    """What runs models.

    address: where other processes reach those that are shared, None if none is; one_version: of a model at a time.
    """

    address: str | None = None
    one_version = False

    @abstractmethod
    async def deploy(self, name: str, version: str, path: Path, settings: ModelSettings) -> Deployment:
        """Returns a loaded and compiled model.  One that was deployed under the same name is served until then.

        Errors: MgxError, OSError or ServeError with the reason.
        """

    @abstractmethod
    async def close(self) -> None:
        """Releases what the backend holds."""


async def within(limit: float, model: str, awaited: Awaitable[T]) -> T:
    """Returns the result of an awaitable, a request's run.  limit: seconds.  Errors: DeadlinePassed after them."""
    try:
        async with asyncio.timeout(limit):
            return await awaited
    except TimeoutError:
        raise DeadlinePassed(f"model {model!r} did not answer within {limit:g} s") from None
