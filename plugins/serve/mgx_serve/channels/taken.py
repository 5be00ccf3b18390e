"""Requests for inference where the model is, as they come from another process, many a message."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgpack
import numpy as np

from ..batch import Form
from ..batching import Batcher
from ..budget import TENSOR_COST, Budget, Share
from ..errors import ServeError
from ..inference import held
from ..tensors import DATATYPES, Array, to_bytes
from .arena import Bytes
from .wire import error_message

__all__ = ["Taken"]

HEADS: Final = 1024  # that are kept
LARGEST_HEAD: Final = 4096  # bytes of one that is kept
log = logging.getLogger("mgx_serve")


@dataclass(slots=True)
class Kind:
    """Requests of one head, which was checked once for all of them.

    layouts: name, element type and extents of each input; alike: model, version, and names and types of the outputs, as messages
    have them.
    """

    queue: Batcher
    form: Form
    layouts: Sequence[tuple[str, Any, Sequence[int]]]
    alike: Sequence[Any]


@dataclass(slots=True, eq=False)
class Waiting:
    """A request that is not answered yet; a batch calls it as it does a future."""

    owner: Taken
    number: int
    kind: Kind
    ended: bool = False

    def done(self) -> bool:
        return self.ended

    def set_result(self, result: list[Array]) -> None:
        self.ended = True
        self.owner.answer(self, result)

    def set_exception(self, error: BaseException) -> None:
        self.ended = True
        self.owner.refuse(self.number, error)


class Taken:
    """Requests of one process.

    find: returns the queue of a model's version; budget: of the memory for requests; send: sends a message and its byte strings.
    A request costs no task and no future here: its record waits in the queue of its model, and the answers that are there at the
    end of a turn of the event loop leave as one message.
    """

    def __init__(
        self, find: Callable[[str, str], Batcher], budget: Budget, send: Callable[[Any, Sequence[Bytes]], None]
    ) -> None:
        self._find, self._budget, self._send, self._loop = find, budget, send, asyncio.get_running_loop()
        self._kinds: dict[bytes, Kind] = {}
        self._waiting: dict[int, Waiting] = {}
        self._answers: list[tuple[Waiting, list[Array]]] = []
        self._refusals: list[tuple[int, Any]] = []

    def take(self, records: Sequence[Any], parts: list[Bytes]) -> None:
        """Puts the requests of a message into their queues."""
        at = 0
        numbers = iter(records)
        for number, head, count in zip(numbers, numbers, numbers, strict=True):
            end = at + count
            try:
                kind = self._kinds.get(head) or self._kind(head)
                feeds = {
                    name: np.frombuffer(part, dtype).reshape(shape)
                    for (name, dtype, shape), part in zip(kind.layouts, parts[at:end], strict=True)
                }
                self._waiting[number] = waiting = Waiting(self, number, kind)
                kind.queue.put(feeds, kind.form, waiting)
            except Exception as error:
                self.refuse(number, error)
            at = end

    def _kind(self, head: bytes) -> Kind:
        """Errors: any `ServeError` for a request that does not fit."""
        model, version, outputs, priority, timeout, feeds = msgpack.unpackb(head, unicode_errors="surrogatepass")
        queue = self._find(model, version)
        layouts = [(name, DATATYPES[datatype], tuple(shape)) for name, datatype, shape in feeds]
        empty = {name: np.broadcast_to(np.zeros((), dtype), shape) for name, dtype, shape in layouts}
        form, found = queue.form(empty, priority, timeout, outputs), queue.signature
        told = [(found.outputs[n].name, found.outputs[n].datatype) for n in form.wanted]
        made = Kind(queue, form, layouts, [found.name, found.version, told])
        if len(head) <= LARGEST_HEAD:
            if len(self._kinds) >= HEADS:
                self._kinds.clear()
            self._kinds[head] = made
        return made

    def changed(self) -> None:
        """Notes that other models or versions answer now."""
        self._kinds.clear()

    def cancel(self, number: int) -> None:
        """Gives up a request whose client has left."""
        waiting = self._waiting.pop(number, None)
        if waiting is not None:
            waiting.ended = True

    def close(self) -> None:
        """Gives up all of them."""
        for number in list(self._waiting):
            self.cancel(number)

    def answer(self, waiting: Waiting, result: list[Array]) -> None:
        try:
            with Share(self._budget) as share:
                share.take(sum([held(array) for array in result]) * TENSOR_COST)
        except ServeError as error:
            self.refuse(waiting.number, error)
            return
        self._expect()
        self._waiting.pop(waiting.number, None)
        self._answers.append((waiting, result))

    def refuse(self, number: int, error: BaseException) -> None:
        if not isinstance(error, ServeError):
            log.error("a request from another process", exc_info=error)
            error = ServeError("the server failed; the reason is in its log")
        self._expect()
        self._waiting.pop(number, None)
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
        for waiting, result in answers:
            kind = waiting.kind
            which = places.setdefault(id(kind), len(alike))
            if which == len(alike):
                alike.append(kind.alike)
            records.append((waiting.number, which, [array.shape for array in result]))
            parts += map(to_bytes, result)
        self._send([alike, records, refusals], parts)
