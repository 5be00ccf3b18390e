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

from ..batch import Form
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
class Kind:
    """A validated head, shared by all requests that have it.

    layouts: name, element type and extents of each input in the message; stored: the inputs in shared memory; alike: the encoded
    part that all responses share: model, version, names and types of the outputs, tray plan; places: shared-memory locations of
    outputs; fits: inputs can be written to trays; trays: the trays offered.
    """

    queue: Batcher
    form: Form
    layouts: Sequence[tuple[str, Any, Sequence[int]]]
    stored: Sequence[tuple[Layout, Place]]
    alike: list[Any]
    places: Sequence[Place | None]
    fits: bool
    trays: Trays | None = None


@dataclass(slots=True, eq=False)
class PendingCall:
    """A pending request; batches complete it like a future.

    share: memory reservation for inputs in shared memory; the front end accounts for the others.
    """

    owner: RequestReceiver
    number: int
    kind: Kind
    share: Share | None = None
    ended: bool = False

    def done(self) -> bool:
        return self.ended

    def set_result(self, result: list[Array]) -> None:
        self.ended = True
        self.owner.answer(self, result)

    def set_exception(self, error: BaseException) -> None:
        self.ended = True
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
        self._kinds: dict[bytes, Kind] = {}
        self._waiting: dict[int, PendingCall] = {}
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

    def _put(self, number: int, kind: Kind, parts: list[Bytes]) -> None:
        feeds: dict[str, Array | DeferredInput] = {
            name: np.frombuffer(part, dtype).reshape(shape)
            for (name, dtype, shape), part in zip(kind.layouts, parts, strict=True)
        }
        self._waiting[number] = waiting = PendingCall(self, number, kind)
        if kind.stored:
            self._add_stored(feeds, waiting)
        kind.queue.put(feeds, kind.form, waiting)

    def _add_stored(self, feeds: dict[str, Array | DeferredInput], waiting: PendingCall) -> None:
        """Adds the inputs in shared memory.  Errors: BadRequest, TooLarge, Busy."""
        assert self._regions is not None, "only an engine's process is asked for tensors in regions"
        waiting.share = share = Share(self._budget)
        for layout, place in waiting.kind.stored:
            share.take(place.size * TENSOR_COST)
            feeds[layout.name] = self._regions.input(layout, place)

    def _kind(self, head: bytes) -> Kind:
        """Errors: any `ServeError` for a request that does not fit."""
        given = msgpack.unpackb(head, unicode_errors="surrogatepass")
        model, version, outputs, priority, timeout, feeds, stored, places = given
        queue = self._find(model, version)
        layouts = [(name, DATATYPES[datatype], tuple(shape)) for name, datatype, shape in feeds]
        lying = [(Layout.of(name, datatype, tuple(shape)), Place(*place)) for name, datatype, shape, place in stored]
        every = [*layouts, *((layout.name, layout.dtype, layout.shape) for layout, _ in lying)]
        empty = {name: np.broadcast_to(np.zeros((), dtype), shape) for name, dtype, shape in every}
        form, found = queue.form(empty, priority, timeout, outputs), queue.signature
        told = [(found.outputs[n].name, found.outputs[n].datatype) for n in form.wanted]
        placed = {name: Place(*place) for name, place in places}
        alike = [found.name, found.version, told, None]
        kept = len(head) <= LARGEST_HEAD
        fits = kept and not lying and not placed and self._may_fill(queue, form)
        made = Kind(queue, form, layouts, lying, alike, [placed.get(name) for name, _ in told], fits)
        if kept:
            if len(self._kinds) >= HEADS:
                self.changed()
            self._kinds[head] = made
            if fits:
                alike[-1] = self._offered(made, queue.of_one_shape)
        return made

    def _may_fill(self, queue: Batcher, form: Form) -> bool:
        usual = form.priority == queue.model.settings.priority
        rows = 0 < form.rows <= queue.signature.max_batch
        return self._trays is not None and usual and rows and form.size > 0 and form.key is not None

    def _offered(self, kind: Kind, worth: bool) -> Any:
        """Returns the tray offer for a kind of requests; None if they must be sent.

        worth: trays with these extents justify their memory.
        """
        queue, form = kind.queue, kind.form
        kind.trays = trays = queue.trays.find(form.key)
        if trays is None and worth:
            self._add_trays(kind)
            kind.trays = trays = queue.trays.find(form.key)
        offer = None if trays is None else trays.add(self, form, partial(PendingCall, self, kind=kind))
        return None if offer is None else offer.fields()

    def _add_trays(self, kind: Kind) -> None:
        """Adds trays for the extents of a kind of requests, if there is room."""
        assert self._trays is not None
        queue, form = kind.queue, kind.form
        rows = {name: tuple(shape[1:]) for name, _, shape in kind.layouts}
        if form.padding is not None:
            rows |= form.padding.rows
        results = queue.model.rows_of_outputs(rows) if queue.fills_trays and queue.trays.room() else None
        if results is None:
            return
        laid = [(name, dtype, rows[name]) for name, dtype, _ in kind.layouts]
        made = [(t.name, t.dtype, dims) for t, dims in zip(queue.signature.outputs, results, strict=True)]
        most, held = queue.model.settings.queue_size, queue.trays.held()
        offered = self._trays.offer(queue.signature.max_batch, laid, made, form.key, most, held)
        if offered is not None:
            queue.use(offered)

    def changed(self) -> None:
        """Invalidates validated heads: the served models or versions have changed."""
        self._kinds.clear()

    def cancel(self, number: int) -> None:
        """Cancels a request whose client has disconnected."""
        waiting = self._ended(number)
        if waiting is not None:
            waiting.ended = True

    def _ended(self, number: int) -> PendingCall | None:
        """Removes a request and releases its memory."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None and waiting.share is not None:
            waiting.share.give_back()
        return waiting

    def close(self) -> None:
        """Cancels all requests: their process has exited."""
        for number in list(self._waiting):
            self.cancel(number)
        self.changed()
        if self._trays is not None:
            self._trays.left(self._process, self)

    def answer(self, waiting: PendingCall, result: list[Array]) -> None:
        kind = waiting.kind
        if kind.fits and (kind.trays is None or kind.trays.ended):
            kind.alike[-1] = self._offered(kind, kind.queue.trays.counted(kind.form.key))
        try:
            with Share(self._budget) as share:
                share.take(sum([held(array) for array in result]) * TENSOR_COST)
            parts = [self._part(array, place) for array, place in zip(result, kind.places, strict=True)]
        except Exception as error:  # the other requests of its batch are still answered
            self.refuse(waiting.number, error)
            return
        self._expect()
        self._ended(waiting.number)
        self._answers.append((waiting, [array.shape for array in result], parts))

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
        self._expect()
        self._ended(number)
        self._refusals.append((number, error_message(error)))

    def _expect(self) -> None:
        if not self._answers and not self._refusals:
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        answers, refusals, self._answers, self._refusals = self._answers, self._refusals, [], []
        alike: list[Any] = []
        places: dict[int, int] = {}
        records: list[Any] = []
        parts: list[Bytes] = []
        for waiting, shapes, made in answers:
            kind = waiting.kind
            which = places.setdefault(id(kind), len(alike))
            if which == len(alike):
                alike.append(kind.alike)
            records.append((waiting.number, which, shapes))
            parts += made
        self._send([alike, records, refusals], parts)
