"""Encodes calls, responses and errors as messages between processes."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from .. import errors
from ..errors import ServeError
from ..inference import Answer, Call, Stored
from ..model import Signature
from ..shared_memory import Place
from ..tensors import DATATYPES, Array, Tensor, datatype_of, elements, from_bytes, to_bytes
from .arena import Bytes

__all__ = [
    "answer_message",
    "call_message",
    "error_message",
    "place_fields",
    "read_answer",
    "read_call",
    "read_error",
    "read_signature",
    "read_tensor",
    "signature_message",
]

HEADERS: Final = ("authorization", "traceparent", "tracestate", "baggage")
ERRORS: Final = {name: getattr(errors, name) for name in errors.__all__}


def call_message(call: Call, reads_headers: bool) -> tuple[list[Any], list[Bytes]]:
    """Encodes a call; returns the message and its tensors.  Errors: BadRequest for invalid shapes."""
    for name, location in call.stored.items():
        elements(name, location.shape)
    feeds = [(name, datatype_of(array.dtype), array.shape) for name, array in call.feeds.items()]
    stored = [(n, s.datatype, s.shape, place_fields(s.place)) for n, s in call.stored.items()]
    headers = {k: call.headers[k] for k in HEADERS if k in call.headers} if reads_headers else {}
    fields = [call.model, call.version, call.outputs, call.id, call.priority, call.timeout]
    head = [*fields, feeds, stored, _places(call.places), headers, dict(call.classes)]
    return head, [to_bytes(array) for array in call.feeds.values()]


def read_call(head: Sequence[Any], parts: Sequence[Bytes]) -> Call:
    model, version, outputs, identity, priority, timeout, feeds, stored, places, headers, classes = head
    arrays = {n: read_tensor(n, datatype, shape, part) for (n, datatype, shape), part in zip(feeds, parts, strict=True)}
    kept = {name: Stored(datatype, shape, Place(*place)) for name, datatype, shape, place in stored}
    return Call(model, version, arrays, kept, outputs, identity, priority, timeout, _placed(places), headers, classes)


def answer_message(answer: Answer) -> tuple[list[Any], list[Bytes]]:
    """Encodes a response; returns the message and its tensors, except those in a client's shared memory."""
    outputs = [(t.name, t.datatype, a.shape) for t, a in answer.outputs]
    parts = [b"" if t.name in answer.places else to_bytes(a) for t, a in answer.outputs]
    return [answer.model, answer.version, answer.id, outputs, _places(answer.places)], parts


def read_answer(head: Sequence[Any], parts: Sequence[Bytes]) -> Answer:
    model, version, identity, outputs, places = head
    placed = _placed(places)
    made = []
    for (name, datatype, shape), part in zip(outputs, parts, strict=True):
        tensor = Tensor(name, datatype, tuple(shape))
        if name in placed:  # its elements are in shared memory; only the extents matter here
            array = np.broadcast_to(np.zeros((), DATATYPES[datatype]), shape)
        else:
            array = read_tensor(name, datatype, shape, part)
        made.append((tensor, array))
    return Answer(model, version, identity, made, placed)


def signature_message(signature: Signature) -> list[Any]:
    return list(dataclasses.astuple(signature))


def read_signature(message: Sequence[Any]) -> Signature:
    name, version, target, timeout, inputs, outputs, most = message
    taken, made = (
        tuple(Tensor(n, kind, tuple(shape), None if inner is None else tuple(inner)) for n, kind, shape, inner in t)
        for t in (inputs, outputs)
    )
    return Signature(name, version, target, timeout, taken, made, most)


def error_message(error: ServeError) -> list[Any]:
    return [type(error).__name__, str(error), error.retry_after]


def read_error(message: Sequence[Any]) -> ServeError:
    kind, text, retry_after = message
    made: ServeError = ERRORS[kind](text)
    made.retry_after = retry_after
    return made


def read_tensor(name: str, datatype: str, shape: Sequence[int], part: Bytes) -> Array:
    """Decodes a tensor that another of our processes encoded: its extents need no validation."""
    dtype = DATATYPES[datatype]
    if dtype.hasobject:
        return from_bytes(name, datatype, shape, part)
    return np.frombuffer(part, dtype).reshape(shape)


def place_fields(place: Place) -> tuple[str, int, int]:
    """Returns the fields of a location; `dataclasses.astuple` would take three quarters of a message's time."""
    return place.region, place.size, place.offset


def _places(places: Mapping[str, Place]) -> list[Any]:
    return [(name, *place_fields(place)) for name, place in places.items()]


def _placed(places: Sequence[Any]) -> dict[str, Place]:
    return {name: Place(*rest) for name, *rest in places}
