"""The receiver's side of inference requests, in the process that runs the model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import msgpack
import numpy as np

from ..batch import RequestSpec
from ..batching import Batcher
from ..budget import TENSOR_COST, Budget, Share
from ..errors import ServeError
from ..inference import held
from ..shared_memory import Place, Regions
from ..tensors import DATATYPES, Array, DeferredInput, Layout, to_bytes
from ..trays import TrayMemory, Trays
from .arena import Bytes
from .wire import error_message

__all__ = ["RequestReceiver"]

HEADS: Final = 1024  # maximum number of cached heads
LARGEST_HEAD: Final = 4096  # larger heads, in bytes, are not cached
SIZE_BYTES: Final = 8  # encoded byte count
log = logging.getLogger("mgx_serve")


@dataclass(slots=True)
class RequestKind:
    """A validated head, shared by all requests that have it.

    layouts: name, element type and extents of each input in the message; stored: the inputs in shared memory; common: the encoded
    part that all responses share: model, version, names and types of the outputs, tray plan; places: shared-memory locations of
    outputs; fits_trays: inputs can be written to trays; trays: the trays offered.
    """

    queue: Batcher
    spec: RequestSpec
    layouts: Sequence[tuple[str, Any, Sequence[int]]]
    stored: Sequence[tuple[Layout, Place]]
    common: list[Any]
    places: Sequence[Place | None]
    fits_trays: bool
    trays: Trays | None = None


@dataclass(slots=True, eq=False)
class PendingCall:
    """A pending request; batches complete it like a future.

    share: memory reservation for inputs in shared memory; the front end accounts for the others.
    """

    owner: RequestReceiver
    number: int
    kind: RequestKind
    share: Share | None = None
    completed: bool = False

    def done(self) -> bool:
        return self.completed

    def set_result(self, result: list[Array]) -> None:
        self.completed = True
        self.owner.answer(self, result)

    def set_exception(self, error: BaseException) -> None:
        self.completed = True
        self.owner.refuse(self.number, error)


class RequestReceiver:
    """The requests of one other process.

    find: returns the queue of a model version; budget: memory budget of requests; send: sends a message and its byte strings;
    regions: shared-memory regions that requests may name, None if requests name none;
    trays: the tray memory, None if trays are disabled; process: index of the other process.
    A request needs no task and no future: its record is queued with the model, and all responses of one event-loop iteration are
    sent as one message.
    """

    def __init__(
        self,
        find: Callable[[str, str], Batcher],
        budget: Budget,
        send: Callable[[Any, Sequence[Bytes]], None],
        regions: Regions | None = None,
        trays: TrayMemory | None = None,
        process: int = 0,
    ) -> None:
        self._regions, self._trays, self._process = regions, trays, process
        self._find, self._budget, self._send, self._loop = find, budget, send, asyncio.get_running_loop()
        self._kinds: dict[bytes, RequestKind] = {}
        self._pending: dict[int, PendingCall] = {}
        self._answers: list[tuple[PendingCall, list[tuple[int, ...]], list[Bytes]]] = []
        self._refusals: list[tuple[int, Any]] = []

    def take(self, records: Sequence[Any], parts: list[Bytes]) -> None:
        """Queues the requests of a message."""
        at = 0
        numbers = iter(records)
        for number, head, count in zip(numbers, numbers, numbers, strict=True):
            given, at = parts[at : at + count], at + count
            try:
                self._put(number, self._kinds.get(head) or self._kind(head), given)
            except Exception as error:
                self.refuse(number, error)

    def _put(self, number: int, kind: RequestKind, parts: list[Bytes]) -> None:
        feeds: dict[str, Array | DeferredInput] = {
            name: np.frombuffer(part, dtype).reshape(shape)
            for (name, dtype, shape), part in zip(kind.layouts, parts, strict=True)
        }
        self._pending[number] = pending = PendingCall(self, number, kind)
        if kind.stored:
            self._add_stored(feeds, pending)
        kind.queue.put(feeds, kind.spec, pending)

    def _add_stored(self, feeds: dict[str, Array | DeferredInput], pending: PendingCall) -> None:
        """Adds the inputs in shared memory.  Errors: BadRequest, TooLarge, Busy."""
        assert self._regions is not None, "only an engine's process is asked for tensors in regions"
        pending.share = share = Share(self._budget)
        for layout, place in pending.kind.stored:
            share.take(place.size * TENSOR_COST)
            feeds[layout.name] = self._regions.input(layout, place)

    def _kind(self, head: bytes) -> RequestKind:
        """Errors: any `ServeError` for a request that does not fit."""
        given = msgpack.unpackb(head, unicode_errors="surrogatepass")
        model, version, outputs, priority, timeout, feeds, stored, places = given
        queue = self._find(model, version)
        layouts = [(name, DATATYPES[datatype], tuple(shape)) for name, datatype, shape in feeds]
        located = [(Layout.of(name, datatype, tuple(shape)), Place(*place)) for name, datatype, shape, place in stored]
        every = [*layouts, *((layout.name, layout.dtype, layout.shape) for layout, _ in located)]
        empty = {name: np.broadcast_to(np.zeros((), dtype), shape) for name, dtype, shape in every}
        spec, found = queue.spec(empty, priority, timeout, outputs), queue.signature
        described = [(found.outputs[n].name, found.outputs[n].datatype) for n in spec.wanted]
        placed = {name: Place(*place) for name, place in places}
        common = [found.name, found.version, described, None]
        cacheable = len(head) <= LARGEST_HEAD
        fits_trays = cacheable and not located and not placed and self._may_use_trays(queue, spec)
        made = RequestKind(
            queue, spec, layouts, located, common, [placed.get(name) for name, _ in described], fits_trays
        )
        if cacheable:
            if len(self._kinds) >= HEADS:
                self.changed()
            self._kinds[head] = made
            if fits_trays:
                common[-1] = self._offer(made, queue.of_one_shape)
        return made

    def _may_use_trays(self, queue: Batcher, spec: RequestSpec) -> bool:
        usual = spec.priority == queue.model.settings.priority
        rows = 0 < spec.rows <= queue.signature.max_batch
        return self._trays is not None and usual and rows and spec.size > 0 and spec.key is not None

    def _offer(self, kind: RequestKind, worthwhile: bool) -> Any:
        """Returns the tray offer for a kind of requests; None if they must be sent.

        worthwhile: trays with these extents justify their memory.
        """
        queue, spec = kind.queue, kind.spec
        kind.trays = trays = queue.trays.find(spec.key)
        if trays is None and worthwhile:
            self._add_trays(kind)
            kind.trays = trays = queue.trays.find(spec.key)
        offer = None if trays is None else trays.add(self, spec, partial(PendingCall, self, kind=kind))
        return None if offer is None else offer.fields()

    def _add_trays(self, kind: RequestKind) -> None:
        """Adds trays for the extents of a kind of requests, if there is room."""
        assert self._trays is not None
        queue, spec = kind.queue, kind.spec
        rows = {name: tuple(shape[1:]) for name, _, shape in kind.layouts}
        if spec.padding is not None:
            rows |= spec.padding.rows
        results = queue.model.rows_of_outputs(rows) if queue.fills_trays and queue.trays.room() else None
        if results is None:
            return
        input_layouts = [(name, dtype, rows[name]) for name, dtype, _ in kind.layouts]
        made = [(t.name, t.dtype, dims) for t, dims in zip(queue.signature.outputs, results, strict=True)]
        most, held = queue.model.settings.queue_size, queue.trays.held()
        offered = self._trays.offer(queue.signature.max_batch, input_layouts, made, spec.key, most, held)
        if offered is not None:
            queue.use(offered)

    def changed(self) -> None:
        """Invalidates validated heads: the served models or versions have changed."""
        self._kinds.clear()

    def cancel(self, number: int) -> None:
        """Cancels a request whose client has disconnected."""
        pending = self._remove(number)
        if pending is not None:
            pending.completed = True

    def _remove(self, number: int) -> PendingCall | None:
        """Removes a request and releases its memory."""
        pending = self._pending.pop(number, None)
        if pending is not None and pending.share is not None:
            pending.share.give_back()
        return pending

    def close(self) -> None:
        """Cancels all requests: their process has exited."""
        for number in list(self._pending):
            self.cancel(number)
        self.changed()
        if self._trays is not None:
            self._trays.process_exited(self._process, self)

    def answer(self, pending: PendingCall, result: list[Array]) -> None:
        kind = pending.kind
        if kind.fits_trays and (kind.trays is None or kind.trays.ended):
            kind.common[-1] = self._offer(kind, kind.queue.trays.is_frequent(kind.spec.key))
        try:
            with Share(self._budget) as share:
                share.take(sum([held(array) for array in result]) * TENSOR_COST)
            parts = [self._part(array, place) for array, place in zip(result, kind.places, strict=True)]
        except Exception as error:  # the other requests of its batch are still answered
            self.refuse(pending.number, error)
            return
        self._schedule_flush()
        self._remove(pending.number)
        self._answers.append((pending, [array.shape for array in result], parts))

    def _part(self, array: Array, place: Place | None) -> Bytes:
        """Returns an output's elements, or their size if they were written to shared memory.  Errors: BadRequest."""
        data = to_bytes(array)
        if place is None:
            return data
        assert self._regions is not None, "only an engine's process is asked for tensors in regions"
        self._regions.write_now(place, data)
        return len(data).to_bytes(SIZE_BYTES, "little")

    def refuse(self, number: int, error: BaseException) -> None:
        if not isinstance(error, ServeError):
            log.error("a request from another process", exc_info=error)
            error = ServeError("the server failed; the reason is in its log")
        self._schedule_flush()
        self._remove(number)
        self._refusals.append((number, error_message(error)))

    def _schedule_flush(self) -> None:
        if not self._answers and not self._refusals:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        answers, refusals, self._answers, self._refusals = self._answers, self._refusals, [], []
        common: list[Any] = []
        places: dict[int, int] = {}
        records: list[Any] = []
        parts: list[Bytes] = []
        for pending, shapes, made in answers:
            kind = pending.kind
            which = places.setdefault(id(kind), len(common))
            if which == len(common):
                common.append(kind.common)
            records.append((pending.number, which, shapes))
            parts += made
        self._send([common, records, refusals], parts)
