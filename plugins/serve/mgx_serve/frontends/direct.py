"""Direct access of a front end to model replicas on Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Final

from ..budget import Share
from ..channels.wire import read_signature
from ..inference import Answer, Call, answer_of
from ..metrics import Recorder
from ..model import Signature
from ..on_ray.connection import Connection
from ..on_ray.links import Links
from ..on_ray.replicas import Replicas
from ..settings import Settings
from .remote import Engine

__all__ = ["Direct"]

FRESH: Final = 0.1  # maximum age, in seconds, of the reported queue length


class Direct(Engine):
    """Gets the locations of models from the engine process and sends requests to replicas, except those with shared memory."""

    def __init__(self, settings: Settings, on_message: Callable[[str, Any], None], connection: Connection) -> None:
        super().__init__(settings, on_message)
        self._connection = connection
        self._known: dict[tuple[str, str], Replicas] = {}
        self._links: dict[str, Links] = {}
        self._reports = _Reports(self)

    def changed(self) -> None:
        """Invalidates cached locations: the served versions have changed."""
        super().changed()
        self._known = {}

    async def infer(self, call: Call, share: Share) -> Answer:
        if call.stored or call.places:
            return await super().infer(call, share)
        replicas = self._known.get((call.model, call.version)) or await self._find(call.model, call.version)
        replicas.signature.chosen(call.outputs)
        made = await replicas.infer(call.feeds, call.priority, call.timeout, call.outputs)
        return answer_of(call, *made, share)

    async def _find(self, model: str, version: str) -> Replicas:
        known = self._known
        (application, described), _ = await self.request("find", [model, version])
        handle = await asyncio.to_thread(self._connection.handle, application)
        if application not in self._links:  # it persists across versions
            self._links[application] = Links(application, self._reports)
        made = Replicas(handle, read_signature(described), self._reports, self._links[application])
        if known is self._known:
            known[model, version] = made
        return made


class _Reports(Recorder):
    """Forwards metrics to the engine process, which aggregates them."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._waiting: dict[Signature, int] = {}

    def _tell(self, kind: str, model: Signature, *figures: Any) -> None:
        self._engine.tell(kind, content=[model.name, model.version, *figures])

    def waiting(self, model: Signature, count: int) -> None:
        if not self._waiting:
            asyncio.get_running_loop().call_later(FRESH, self._tell_waiting)
        self._waiting[model] = count

    def _tell_waiting(self) -> None:
        counts, self._waiting = self._waiting, {}
        for model, count in counts.items():
            self._tell("waiting", model, count)

    def refused(self, model: Signature) -> None:
        self._tell("refused", model)

    def failed(self, model: Signature) -> None:
        self._tell("failed", model)

    def ran(self, model: Signature, queued: Sequence[float], seconds: float, rows: int) -> None:
        self._tell("ran", model, list(queued), seconds, rows)
