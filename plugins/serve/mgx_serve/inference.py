"""What both doors do with a request: find the model, run it, pick the outputs; and what they say of the server and its models."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgx_core import __version__

from .access import Access
from .errors import BadRequest, DeadlinePassed
from .metrics import Metrics, Record
from .model import Model, Tensor
from .repository import Repository
from .tensors import Array

__all__ = ["EXTENSIONS", "Answer", "Call", "Service"]

EXTENSIONS = ("binary_tensor_data", "model_repository", "statistics")


@dataclass
class Call:
    """One request for inference.

    outputs: names that are wanted, all if empty; timeout: seconds, 0 for the model's own limit.
    """

    model: str
    version: str
    feeds: Mapping[str, Array]
    outputs: Sequence[str] = ()
    id: str = ""
    priority: int = 0
    timeout: float = 0.0


@dataclass
class Answer:
    """The outputs of a request with their descriptions."""

    model: Model
    id: str
    outputs: list[tuple[Tensor, Array]] = field(default_factory=list)


class Service:
    """One server's models, as every protocol offers them."""

    def __init__(self, repository: Repository, metrics: Metrics, access: Access) -> None:
        self.repository, self.metrics, self.access = repository, metrics, access
        self.draining = False

    @property
    def name(self) -> str:
        return "mgx-serve"

    @property
    def version(self) -> str:
        return __version__

    def ready(self) -> bool:
        return not self.draining and self.repository.ready()

    def model_ready(self, name: str, version: str) -> bool:
        self.repository.find(name, version)
        return True

    def model(self, name: str, version: str) -> Model:
        return self.repository.find(name, version).model

    def versions(self, name: str) -> list[str]:
        return sorted(self.repository.entries[name].loaded, key=int)

    async def infer(self, call: Call) -> Answer:
        """Errors: any `ServeError`."""
        batcher = self.repository.find(call.model, call.version)
        model = batcher.model
        known = {t.name: i for i, t in enumerate(model.outputs)}
        for name in call.outputs:
            if name not in known:
                raise BadRequest(f"model {model.name!r} has no output {name!r}; it has {', '.join(known)}")
        limit = call.timeout or model.settings.timeout
        try:
            results = await asyncio.wait_for(batcher.infer(call.feeds, call.priority, call.timeout), limit)
        except TimeoutError:
            raise DeadlinePassed(f"model {model.name!r} did not answer within {limit:g} s") from None
        chosen = [known[n] for n in call.outputs] or range(len(results))
        return Answer(model, call.id, [(model.outputs[i], results[i]) for i in chosen])

    def index(self, ready: bool = False) -> list[dict[str, str]]:
        rows = []
        for entry in self.repository.entries.values():
            if entry.loaded or not ready:
                version = max(entry.loaded or entry.paths, key=int)
                rows.append({"name": entry.name, "version": version, "state": entry.state, "reason": entry.reason})
        return rows

    def statistics(self, name: str = "", version: str = "") -> list[tuple[Model, Record]]:
        """Returns the figures of a model, or of all that are loaded."""
        if name:
            found = [self.repository.find(name, version).model]
        else:
            found = [b.model for e in self.repository.entries.values() for b in e.loaded.values()]
        return [(m, self.metrics.records[m.name, m.version]) for m in found]


def seconds(parameters: Mapping[str, Any]) -> float:
    """Returns the time limit that a request states: ``timeout`` in microseconds.  Errors: BadRequest."""
    given = parameters.get("timeout", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 62:
        raise BadRequest("parameter timeout: a number of microseconds from 0 on is required")
    return given / 1e6


def priority(parameters: Mapping[str, Any]) -> int:
    """Errors: BadRequest."""
    given = parameters.get("priority", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 31:
        raise BadRequest("parameter priority: a number from 0 on is required")
    return given
