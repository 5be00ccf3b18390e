"""The sender's side of inference requests to the process that runs the model, several per message."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np

from ..deadlines import Deadlines
from ..errors import Unavailable
from ..inference import Answer, Call
from ..shared_memory import AT_ONCE, Place
from ..tensors import DATATYPES, Tensor, datatype_of, elements, to_bytes
from ..tray_claims import Offer
from ..tray_writer import PendingRequest, TrayWriter
from .arena import Bytes
from .channel import Channel
from .wire import place_fields, read_error, read_tensor

__all__ = ["Lost", "RequestSender", "is_plain", "is_plain_in_shared_memory"]

HEADS: Final = 1024  # maximum number of cached heads
LARGEST_HEAD: Final = 4096  # larger heads, in bytes, are not cached
TEXT: Final = "BYTES"
Made = tuple[Sequence[Any], list[Bytes]]  # a response: model, version, outputs, tray plan, and the outputs' elements


class Lost(Unavailable):
    """The other process has exited."""


def is_plain(call: Call) -> bool:
    """Returns True for a request with numeric tensors in the message, and with whole outputs in the response."""
    return not (call.stored or call.places or call.classes or any(a.dtype.hasobject for a in call.feeds.values()))


def is_plain_in_shared_memory(call: Call) -> bool:
    """Returns True for a request that is plain except for tensors in shared memory."""
    if call.classes or any(s.datatype == TEXT for s in call.stored.values()):
        return False
    small = all(p.size <= AT_ONCE for p in call.places.values())
    return small and not any(a.dtype.hasobject for a in call.feeds.values())


@dataclass(frozen=True, slots=True)
class _TrayOffer:
    """The tray offered for requests with one head, and the part that all their responses share.  deadlines: the model's."""

    offer: Offer
    answer: Sequence[Any]
    deadlines: Deadlines


class RequestSender:
    """This process's pending requests to another process.

    All requests of one event-loop iteration are sent as one message.  A request consists of a number, a head and its tensors; the
    head (model, outputs, input shapes, shared-memory locations) is encoded once for all equal ones.  When a response offers a
    tray for its head, later requests are written to the tray instead of being sent, while there is room; their responses are
    read from the tray, and their timeouts are enforced here.
    """

    def __init__(self, channel: Callable[[], Channel | None]) -> None:
        self._writer: TrayWriter | None = None
        self._offers: dict[bytes, _TrayOffer] = {}
        self._deadlines: dict[str, Deadlines] = {}  # by model
        self._channel, self._loop = channel, asyncio.get_running_loop()
        self._waiting: dict[int, asyncio.Future[Made]] = {}
        self._numbers = itertools.count(1)
        self._heads: dict[Any, bytes] = {}
        self._records: list[Any] = []
        self._parts: list[Bytes] = []

    def use_trays(self, writer: TrayWriter) -> None:
        """Enables writing requests to trays that the other process offers."""
        self._writer = writer
        self._loop.add_reader(writer.bell, writer.on_bell, _complete)

    async def infer(self, call: Call) -> Answer:
        """Runs a request that `is_plain`, or `is_plain_in_shared_memory` if the other process has the regions.

        Errors: any `ServeError`; Lost if the other process exits.
        """
        head = self._head(call)
        offered = self._offers.get(head)
        made = None
        if offered is not None and self._writer is not None:
            made = await self._write_to_tray(head, offered, call, self._writer)
        if made is None:
            made = await self._send(head, call)
        (model, version, outputs, offer), parts = made
        if offer is not None and head not in self._offers:
            of_model = self._deadlines.setdefault(model, Deadlines(model))
            self._offers[head] = _TrayOffer(Offer.of(offer), [model, version, outputs, None], of_model)
        return _answer(call, model, version, outputs, parts)

    async def _send(self, head: bytes, call: Call) -> Made:
        """Sends a request; returns the response."""
        number, reply = next(self._numbers), self._loop.create_future()
        if not self._records:
            self._loop.call_soon(self.flush)
        self._records += (number, head, len(call.feeds))
        self._parts += map(to_bytes, call.feeds.values())
        self._waiting[number] = reply
        try:
            made: Made = await reply
            return made
        except asyncio.CancelledError:
            self.flush()
            self._send_message("cancelled", number)
            raise
        finally:
            del self._waiting[number]

    async def _write_to_tray(self, head: bytes, offered: _TrayOffer, call: Call, writer: TrayWriter) -> Made | None:
        """Writes a request to a tray; returns the response, None if there is no room or the tray ran without it."""
        number, reply = next(self._numbers), self._loop.create_future()
        arrays = list(call.feeds.values())
        request = PendingRequest(offered.offer, number, len(arrays[0]), reply)
        try:
            if not writer.write(request, [to_bytes(array) for array in arrays]):
                return None
        except LookupError:
            self._offers.pop(head, None)
            return None
        self._waiting[number] = reply  # if its run fails, it is answered by a message
        offered.deadlines.add(request)
        try:
            made: tuple[Any, list[Bytes]] | None = await reply
        except BaseException:
            writer.cancel(request)
            raise
        finally:
            offered.deadlines.discard(request)
            del self._waiting[number]
        if made is None or made[0] is not None:
            return made
        return offered.answer, made[1]

    def changed(self) -> None:
        """Invalidates cached heads: the served models or versions have changed."""
        self._offers.clear()

    def _head(self, call: Call) -> bytes:
        feeds = tuple([(name, array.dtype, array.shape) for name, array in call.feeds.items()])
        for name, location in call.stored.items():
            elements(name, location.shape)  # extents are used as dictionary keys below
        stored = tuple([(name, s.datatype, tuple(s.shape), s.place) for name, s in call.stored.items()])
        places = tuple(call.places.items())
        fields = (call.model, call.version, tuple(call.outputs), call.priority, call.timeout)
        key = (fields, feeds, stored, places)
        head = self._heads.get(key)
        if head is None:
            named = [(name, datatype_of(dtype), shape) for name, dtype, shape in feeds]
            located = [(name, datatype, shape, place_fields(place)) for name, datatype, shape, place in stored]
            placed = [(name, place_fields(place)) for name, place in places]
            head = msgpack.packb([*fields, named, located, placed], unicode_errors="surrogatepass")
            if len(head) <= LARGEST_HEAD:
                if len(self._heads) >= HEADS:
                    self._heads.clear()
                    self._offers.clear()
                self._heads[key] = head
        return head

    def flush(self) -> None:
        """Sends the requests queued since the last call."""
        records, parts, self._records, self._parts = self._records, self._parts, [], []
        if records:
            self._send_message("requests", records, parts)

    def _send_message(self, kind: str, content: Any, parts: Sequence[Bytes] = ()) -> None:
        channel = self._channel()
        if channel is None:
            self.lost()
        else:
            channel.send([kind, 0, content], parts)
            channel.flush()

    def receive_answers(self, content: Any, parts: list[Bytes]) -> None:
        """Handles a message of responses and errors."""
        common, records, refused = content
        at = 0
        for number, which, shapes in records:
            model, version, outputs, plan = common[which]
            end = at + len(outputs)
            reply = self._waiting.get(number)
            if reply is not None and not reply.done():  # or the client has left
                described = [(name, kind, shape) for (name, kind), shape in zip(outputs, shapes, strict=True)]
                reply.set_result(((model, version, described, plan), parts[at:end]))
            at = end
        for number, error in refused:
            reply = self._waiting.get(number)
            if reply is not None and not reply.done():
                reply.set_exception(read_error(error))

    def lost(self) -> None:
        """Fails all pending requests: the other process has exited."""
        for reply in self._waiting.values():
            if not reply.done():
                reply.set_exception(Lost("the engine's process has ended"))


def _complete(request: PendingRequest, outputs: Sequence[Bytes] | None) -> None:
    if not request.done.done():  # or the client has left
        request.done.set_result(None if outputs is None else (None, outputs))


def _answer(call: Call, model: str, version: str, outputs: Sequence[Any], parts: Sequence[Bytes]) -> Answer:
    made, places = [], {}
    for (name, kind, shape), part in zip(outputs, parts, strict=True):
        location = call.places.get(name)
        if location is None:
            array = read_tensor(name, kind, shape, part)
        else:  # the elements are in shared memory; only their size is sent
            places[name] = Place(location.region, int.from_bytes(part, "little"), location.offset)
            array = np.broadcast_to(np.zeros((), DATATYPES[kind]), shape)
        made.append((Tensor(name, kind, tuple(shape)), array))
    return Answer(model, version, call.id, made, places)
