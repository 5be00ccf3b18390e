"""Requests and answers in HTTP: JSON, with tensors in it or as bytes behind it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .budget import NUMBER_COST, Share
from .classes import classes_wanted
from .errors import BadRequest
from .inference import Answer, Call, Stored, place, priority, refuse_sequences, seconds
from .tensors import from_bytes, from_list, to_bytes, to_list

__all__ = ["HEADER_LENGTH", "answer_body", "json_length", "read_call"]

HEADER_LENGTH = "Inference-Header-Content-Length"


def read_call(model: str, version: str, body: bytes | memoryview, header_length: str | None) -> tuple[Call, set[str]]:
    """Returns the request and the names of outputs that are wanted as bytes ("*" for all).

    header_length: bytes of JSON before the binary tensors; None if all is JSON.
    Errors: BadRequest.
    """
    size = json_length(body, header_length)
    head = _object(bytes(body[:size]))
    rest = memoryview(body)[size:]
    feeds: dict[str, Any] = {}
    stored: dict[str, Stored] = {}
    at = 0
    for given in _list(head, "inputs"):
        name, datatype, shape = _text(given, "name"), _text(given, "datatype"), given.get("shape")
        if not isinstance(shape, list):
            raise BadRequest(f"input {name!r}: shape must be a list, got {shape!r}")
        if name in feeds or name in stored:
            raise BadRequest(f"input {name!r} is given twice")
        parameters = _parameters(given)
        source = place(parameters, name)
        if source is not None:
            stored[name] = Stored(datatype, shape, source)
            continue
        length = parameters.get("binary_data_size")
        if length is None:
            feeds[name] = from_list(name, datatype, shape, given.get("data"))
            continue
        if not isinstance(length, int) or isinstance(length, bool) or length < 0 or at + length > len(rest):
            raise BadRequest(f"input {name!r}: binary_data_size {length!r} does not fit in {len(rest) - at} bytes")
        feeds[name] = from_bytes(name, datatype, shape, rest[at : at + length])
        at += length
    if at != len(rest):
        raise BadRequest(f"{len(rest) - at} bytes follow that no input claims")
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
    names = [n for n, _ in wanted]
    first, limit = priority(parameters), seconds(parameters)
    return Call(model, version, feeds, stored, names, identity, first, limit, places, classes=classes), binary


def json_length(body: bytes | memoryview, header_length: str | None) -> int:
    """Returns the bytes of JSON that a body begins with.  Errors: BadRequest."""
    if header_length is None:
        return len(body)
    number = header_length.isascii() and header_length.isdecimal() and len(header_length) < 20
    if not number or int(header_length) > len(body):
        raise BadRequest(f"{HEADER_LENGTH}: at most {len(body)} bytes are required, got {header_length[:40]!r}")
    return int(header_length)


def answer_body(answer: Answer, binary: set[str], share: Share) -> tuple[list[bytes | memoryview], int | None]:
    """Returns the parts of the body and the length of its JSON; None if all of it is JSON.

    Errors: TooLarge, Busy for more JSON than the server has memory for.
    """
    outputs = []
    tail: list[bytes | memoryview] = []
    for tensor, array in answer.outputs:
        output: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": list(array.shape)}
        lies = answer.places.get(tensor.name)
        if lies is not None:
            output["parameters"] = {
                "shared_memory_region": lies.region,
                "shared_memory_byte_size": lies.size,
                "shared_memory_offset": lies.offset,
            }
        elif "*" in binary or tensor.name in binary:
            raw = to_bytes(array)
            output["parameters"] = {"binary_data_size": len(raw)}
            tail.append(raw)
        else:
            share.take(array.size * NUMBER_COST)
            output["data"] = to_list(array)
        outputs.append(output)
    head: dict[str, Any] = {"model_name": answer.model, "model_version": answer.version, "outputs": outputs}
    if answer.id:
        head["id"] = answer.id
    written = json.dumps(head, separators=(",", ":")).encode()
    return [written, *tail], len(written) if tail else None


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        made = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the request is no JSON: {error}") from None
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
