"""Decodes and encodes HTTP messages: JSON, with tensors inline or as binary data after it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from .budget import NUMBER_COST, Share
from .classification import classes_wanted
from .errors import BadRequest
from .inference import Answer, Call, Stored, place, priority, refuse_sequences, seconds
from .shared_memory import Place
from .tensors import Array, Layout, from_list, to_bytes, to_list

__all__ = ["HEADER_LENGTH", "answer_body", "json_length", "read_call"]

HEADER_LENGTH = "Inference-Header-Content-Length"
LARGE_HEAD: Final = 1024  # larger JSON, in bytes, is not cached
KEPT_HEADS: Final = 256
# of an output: name, type, extents, shared-memory location, binary size
Described = tuple[str, str, tuple[int, ...], Place | None, int]


@dataclass(frozen=True, slots=True)
class Head:
    """The JSON part of a request.

    behind: inputs in the binary part, with their sizes in bytes; in_it: inputs inline in the JSON; binary: outputs requested as
    binary data.
    """

    behind: Sequence[tuple[Layout, int]]
    in_it: Mapping[str, Array]
    stored: Mapping[str, Stored]
    outputs: Sequence[str]
    id: str
    priority: int
    timeout: float
    places: Mapping[str, Place]
    classes: Mapping[str, int]
    binary: set[str]


def read_call(model: str, version: str, body: bytes | memoryview, header_length: str | None) -> tuple[Call, set[str]]:
    """Decodes a request; returns it and the names of outputs requested as binary data ("*" for all).

    header_length: bytes of JSON before the binary tensors; None if everything is JSON.
    JSON without inline tensors is usually the same for all of a client's requests: it is parsed once and cached by its bytes.
    Errors: BadRequest.
    """
    size = json_length(body, header_length)
    text = bytes(body[:size])
    head = _kept_head(text) if size <= LARGE_HEAD and size < len(body) else _head(text)
    rest = memoryview(body)[size:]
    feeds: dict[str, Any] = dict(head.in_it)
    at = 0
    for layout, length in head.behind:
        if at + length > len(rest):
            raise BadRequest(f"input {layout.name!r}: binary_data_size {length} does not fit in {len(rest) - at} bytes")
        feeds[layout.name] = layout.read(rest[at : at + length])
        at += length
    if at != len(rest):
        raise BadRequest(f"{len(rest) - at} bytes follow that no input claims")
    fields = (head.outputs, head.id, head.priority, head.timeout, head.places)
    return Call(model, version, feeds, head.stored, *fields, classes=head.classes), head.binary


@lru_cache(KEPT_HEADS)
def _kept_head(text: bytes) -> Head:
    return _head(text)


def _head(text: bytes) -> Head:
    """Errors: BadRequest."""
    head = _object(text)
    behind: list[tuple[Layout, int]] = []
    in_it: dict[str, Array] = {}
    stored: dict[str, Stored] = {}
    names: set[str] = set()
    for given in _list(head, "inputs"):
        name, datatype, shape = _text(given, "name"), _text(given, "datatype"), given.get("shape")
        if not isinstance(shape, list):
            raise BadRequest(f"input {name!r}: shape must be a list, got {shape!r}")
        if name in names:
            raise BadRequest(f"input {name!r} is given twice")
        names.add(name)
        parameters = _parameters(given)
        source, length = place(parameters, name), parameters.get("binary_data_size")
        if source is not None:
            stored[name] = Stored(datatype, shape, source)
        elif length is None:
            in_it[name] = from_list(name, datatype, shape, given.get("data"))
        elif isinstance(length, int) and not isinstance(length, bool) and length >= 0:
            behind.append((Layout.of(name, datatype, shape), length))
        else:
            raise BadRequest(f"input {name!r}: binary_data_size must be a number of bytes, got {length!r}")
    wanted = [(_text(o, "name"), _parameters(o)) for o in _list(head, "outputs", required=False)]
    parameters = _parameters(head)
    refuse_sequences(parameters)
    binary = {n for n, p in wanted if p.get("binary_data") is True}
    if parameters.get("binary_data_output") is True:
        binary |= {n for n, p in wanted if p.get("binary_data") is not False} if wanted else {"*"}
    identity = head.get("id", "")
    if not isinstance(identity, str):
        raise BadRequest(f"id must be a string, got {identity!r}")
    stated = {n: place(p, n) for n, p in wanted}
    places = {n: p for n, p in stated.items() if p is not None}
    classes = {n: count for n, p in wanted if (count := classes_wanted(p, n))}
    fields = ([n for n, _ in wanted], identity, priority(parameters), seconds(parameters))
    return Head(behind, in_it, stored, *fields, places, classes, binary)


def json_length(body: bytes | memoryview, header_length: str | None) -> int:
    """Parses the header with the length of the JSON part.  Errors: BadRequest."""
    if header_length is None:
        return len(body)
    number = header_length.isascii() and header_length.isdecimal() and len(header_length) < 20
    if not number or int(header_length) > len(body):
        raise BadRequest(f"{HEADER_LENGTH}: at most {len(body)} bytes are required, got {header_length[:40]!r}")
    return int(header_length)


def answer_body(answer: Answer, binary: set[str], share: Share) -> tuple[list[bytes | memoryview], int | None]:
    """Returns the parts of a response body and the length of its JSON, None if all of it is JSON.

    Errors: TooLarge, Busy if the JSON exceeds the memory budget.
    """
    every = "*" in binary
    described, tail = [], []
    data: dict[str, Any] = {}
    for tensor, array in answer.outputs:
        size, location = -1, answer.places.get(tensor.name)
        if location is None and (every or tensor.name in binary):
            raw = to_bytes(array)
            tail.append(raw)
            size = len(raw)
        elif location is None:
            share.take(array.size * NUMBER_COST)
            data[tensor.name] = to_list(array)
        described.append((tensor.name, tensor.datatype, array.shape, location, size))
    given = (answer.model, answer.version, answer.id, tuple(described))
    written = _written(*given, data) if data or answer.id else _kept_answer(*given)
    return [written, *tail], len(written) if tail else None


@lru_cache(KEPT_HEADS)
def _kept_answer(model: str, version: str, identity: str, outputs: Sequence[Described]) -> bytes:
    return _written(model, version, identity, outputs, {})


def _written(
    model: str, version: str, identity: str, outputs: Sequence[Described], data: Mapping[str, Sequence[Any]]
) -> bytes:
    """Returns the JSON of a response.  outputs: with a binary size, -1 if not binary; data: inline elements."""
    described = []
    for name, datatype, shape, location, size in outputs:
        output: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
        if location is not None:
            output["parameters"] = {
                "shared_memory_region": location.region,
                "shared_memory_byte_size": location.size,
                "shared_memory_offset": location.offset,
            }
        elif size >= 0:
            output["parameters"] = {"binary_data_size": size}
        else:
            output["data"] = data[name]
        described.append(output)
    head: dict[str, Any] = {"model_name": model, "model_version": version, "outputs": described}
    if identity:
        head["id"] = identity
    return json.dumps(head, separators=(",", ":")).encode()


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        made = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is not JSON: {error}") from None
    if not isinstance(made, dict):
        raise BadRequest(f"the request must be an object, got {type(made).__name__}")
    return made


def _list(head: Mapping[str, Any], name: str, required: bool = True) -> list[Mapping[str, Any]]:
    made = head.get(name, None if required else [])
    if not isinstance(made, list) or any(not isinstance(i, dict) for i in made):
        raise BadRequest(f"{name} must be a list of objects")
    return made


def _text(given: Mapping[str, Any], name: str) -> str:
    made = given.get(name)
    if not isinstance(made, str) or not made:
        raise BadRequest(f"{name} of a tensor must be a string, got {made!r}")
    return made


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    made = given.get("parameters", {})
    if not isinstance(made, dict):
        raise BadRequest(f"parameters must be an object, got {made!r}")
    return made
