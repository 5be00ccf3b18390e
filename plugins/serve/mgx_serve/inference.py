"""The protocol-independent part of HTTP and gRPC: inference requests, server and model metadata."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mgx_core import __version__

from .auth import EVERYTHING, Access
from .budget import NUMBER_COST, TENSOR_COST, Budget, Share
from .classification import classified
from .errors import BadRequest, Unsupported
from .log_settings import LogSettings
from .metrics import Metrics
from .model import Signature
from .model_configuration import configuration
from .repository import Repository
from .shared_memory import Place, Regions
from .tensors import Array, DeferredInput, Layout, Tensor, to_bytes
from .tracing import NoTraces

__all__ = [
    "EXTENSIONS",
    "Answer",
    "Call",
    "Inference",
    "Service",
    "Stored",
    "answer_of",
    "held",
    "refuse_overrides",
    "refuse_sequences",
]

EXTENSIONS = (
    "binary_tensor_data",
    "model_repository",
    "model_configuration",
    "statistics",
    "classification",
    "system_shared_memory",
    "cuda_shared_memory",
)


@dataclass(frozen=True)
class Stored:
    """An input whose elements are in shared memory."""

    datatype: str
    shape: Sequence[int]
    place: Place


@dataclass
class Call:
    """One request for inference.

    stored: inputs in shared memory, not yet in `feeds`; outputs: requested names, all if empty; timeout: seconds, 0 for the
    model's default; places: shared-memory locations of outputs; headers: of the message, for authorization and traces;
    classes: number of classes by output, for the classification extension.
    """

    model: str
    version: str
    feeds: dict[str, Array]
    stored: Mapping[str, Stored] = field(default_factory=dict)
    outputs: Sequence[str] = ()
    id: str = ""
    priority: int = 0
    timeout: float = 0.0
    places: Mapping[str, Place] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Answer:
    """The outputs of a request with their metadata.

    model, version: that ran it; places: locations and sizes of outputs written to shared memory.
    """

    model: str
    version: str
    id: str
    outputs: list[tuple[Tensor, Array]] = field(default_factory=list)
    places: Mapping[str, Place] = field(default_factory=dict)


class Inference(ABC):
    """Handles inference requests, in this process or another one.

    access: authorization; budget: memory budget of requests; reads_headers: headers are needed, for authorization or traces;
    ending: set when the server drains: it finishes requests in flight and accepts no new ones.
    """

    access: Access
    budget: Budget
    reads_headers: bool
    ending: asyncio.Event

    @abstractmethod
    async def infer(self, call: Call, share: Share) -> Answer:
        """Runs a request.  share: memory reservation for the response.  Errors: any `ServeError`."""


class Service(Inference):
    """The models of one server, independent of the protocol."""

    def __init__(
        self,
        repository: Repository,
        metrics: Metrics,
        access: Access,
        regions: Regions,
        budget: Budget,
        traces: NoTraces,
    ) -> None:
        self.repository, self.metrics, self.access = repository, metrics, access
        self.regions, self.budget, self.traces = regions, budget, traces
        self.reads_headers = access.required or traces.kept
        self.log = LogSettings(logging.getLogger("mgx_serve"))
        self.ending = asyncio.Event()

    @property
    def name(self) -> str:
        return "mgx-serve"

    @property
    def version(self) -> str:
        return __version__

    def ready(self) -> bool:
        return not self.ending.is_set() and self.repository.ready()

    def model_ready(self, name: str, version: str) -> bool:
        self.repository.find(name, version)
        return True

    def model(self, name: str, version: str) -> Signature:
        return self.repository.find(name, version).signature

    def configuration(self, name: str, version: str) -> dict[str, Any]:
        """Returns a model's Triton configuration as JSON.  Errors: NotFound, Unavailable."""
        model = self.model(name, version)
        entry = self.repository.entries[name]
        return configuration(model, entry.settings, entry.files[model.version])

    def trace_settings(self, model: str = "") -> dict[str, list[str]]:
        """Returns the trace settings, which are the same for all models.  Errors: NotFound, Unavailable."""
        if model:
            self.repository.find(model)
        return self.traces.settings()

    def versions(self, name: str) -> list[str]:
        return sorted(self.repository.entries[name].loaded, key=int)

    async def infer(self, call: Call, share: Share) -> Answer:
        """Returns the answer to a call, traced if requests are.

        share: memory reservation, which also covers outputs and copies of inputs in shared memory.
        """
        if not self.traces.kept:
            return await self._answered(call, share)
        with self.traces.request(call.headers, call.model, call.id):
            return await self._answered(call, share)

    async def _answered(self, call: Call, share: Share) -> Answer:
        deployment = self.repository.find(call.model, call.version)
        deployment.signature.chosen(call.outputs)
        feeds: Mapping[str, Array | DeferredInput] = call.feeds
        if call.stored or call.places:
            self.access.check(call.headers.get("authorization"), EVERYTHING)
            feeds = {**feeds, **await self._stored(call, share, deployment.reads_deferred)}
        made = await deployment.infer(feeds, call.priority, call.timeout, call.outputs)
        answer = answer_of(call, *made, share)
        if call.places:
            answer.places = await self._placed(call, answer.outputs)
        return answer

    async def _stored(self, call: Call, share: Share, deferred: bool) -> dict[str, Array | DeferredInput]:
        """Returns the inputs in shared memory; reserves memory for a copy first.  Errors: BadRequest, TooLarge, Busy.

        deferred: numeric inputs are read when their batch is assembled, directly into its buffer by its thread.
        """
        made: dict[str, Array | DeferredInput] = {}
        for name, given in call.stored.items():
            share.take(given.place.size * TENSOR_COST)
            layout = Layout.of(name, given.datatype, given.shape)
            if deferred and not layout.dtype.hasobject:
                made[name] = self.regions.input(layout, given.place)
            else:
                made[name] = layout.read(await self.regions.read(given.place))
        return made

    async def _placed(self, call: Call, outputs: Sequence[tuple[Tensor, Array]]) -> Mapping[str, Place]:
        """Writes the outputs that the request locates in shared memory.  Errors: BadRequest."""
        made = {}
        for tensor, array in outputs:
            place = call.places.get(tensor.name)
            if place is not None:
                data = to_bytes(array)
                await self.regions.write(place, data)
                made[tensor.name] = Place(place.region, len(data), place.offset)
        return made

    def index(self, ready: bool = False) -> list[dict[str, str]]:
        rows = []
        for entry in self.repository.entries.values():
            if entry.loaded or not ready:
                versions = sorted(entry.loaded, key=int) or [max(entry.paths, key=int)]
                status = {"state": entry.state, "reason": entry.reason}
                rows += [{"name": entry.name, "version": version, **status} for version in versions]
        return rows

    def statistics(self, name: str = "", version: str = "") -> list[dict[str, Any]]:
        """Returns the statistics of a model, or of all loaded ones, as JSON.  Errors: NotFound, Unavailable."""
        if name:
            found = [self.repository.find(name, version).signature]
        else:
            found = [d.signature for e in self.repository.entries.values() for d in e.loaded.values()]
        records = self.metrics.records
        return [{"name": m.name, "version": m.version} | records[m.name, m.version].statistics() for m in found]


def refuse_overrides(parameters: object) -> None:
    """Errors: Unsupported if a load request overrides the configuration or files."""
    if parameters:
        raise Unsupported(
            "models are loaded from disk as they are; a configuration or files in the request are not accepted"
        )


def answer_of(call: Call, model: Signature, results: Sequence[Array], share: Share) -> Answer:
    """Returns the response.  results: the requested outputs; share: memory reservation for them."""
    outputs = [(model.outputs[i], made) for i, made in zip(model.chosen(call.outputs), results, strict=True)]
    if call.classes:
        wanted, rows = call.classes, model.max_batch > 0
        share.take(sum([a.size * NUMBER_COST for t, a in outputs if t.name in wanted]))
        outputs = [(t, a) if t.name not in wanted else classified(t, a, wanted[t.name], rows) for t, a in outputs]
    share.take(sum([held(array) for _, array in outputs]) * TENSOR_COST)
    return Answer(model.name, model.version, call.id, outputs)


def place(parameters: Mapping[str, Any], name: str) -> Place | None:
    """Returns the shared-memory location in a tensor's parameters, None if there is none.  Errors: BadRequest."""
    region = parameters.get("shared_memory_region")
    if region is None:
        return None
    size, offset = parameters.get("shared_memory_byte_size"), parameters.get("shared_memory_offset", 0)
    numbers = all(isinstance(n, int) and not isinstance(n, bool) and 0 <= n < 1 << 62 for n in (size, offset))
    if not isinstance(region, str) or not numbers:
        raise BadRequest(
            f"tensor {name!r}: shared_memory_region requires a name, and a size and offset in bytes from 0 on"
        )
    return Place(region, int(size or 0), int(offset))


def seconds(parameters: Mapping[str, Any]) -> float:
    """Returns a request's timeout in seconds, from ``timeout`` in microseconds.  Errors: BadRequest."""
    given = parameters.get("timeout", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 62:
        raise BadRequest("parameter timeout: a number of microseconds from 0 on is required")
    return given / 1e6


def refuse_sequences(parameters: Mapping[str, Any]) -> None:
    """Errors: Unsupported for a sequence request: no state is kept between requests."""
    if parameters.get("sequence_id") not in (None, 0, ""):
        raise Unsupported(
            "parameter sequence_id: sequences are not offered; each request starts from the model's initial state"
        )


def priority(parameters: Mapping[str, Any]) -> int:
    """Errors: BadRequest."""
    given = parameters.get("priority", 0)
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1 << 31:
        raise BadRequest("parameter priority: a number from 0 on is required")
    return given


def held(array: Array) -> int:
    """Returns the size of a tensor in bytes."""
    if not array.dtype.hasobject:
        return array.nbytes
    return array.size * NUMBER_COST + sum(map(len, array.ravel().tolist()))
