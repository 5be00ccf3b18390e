"""Requests and answers in gRPC's messages."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any, Final

from .classes import classes_wanted
from .errors import BadRequest
from .inference import Answer, Call, Stored, place, priority, refuse_sequences, seconds
from .messages import messages
from .shared_memory import Place
from .tensors import from_bytes, from_list, of_items, to_bytes

__all__ = ["answer_message", "read_call", "stream_message", "wants_mark"]

# where the elements of a tensor are that does not come as bytes
CONTENTS: Final = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
RAW_OUTPUT: Final = b"\x32"  # tags of length-delimited fields, as they are encoded: number << 3 | 2
IDENTITY: Final = b"\x1a"
STREAMED: Final = b"\x12"
WANTS_MARK: Final = "triton_enable_empty_final_response"
MARK: Final = "triton_final_response"


def read_call(request: Any) -> Call:
    """Returns what a ModelInferRequest asks for.  Errors: BadRequest."""
    feeds, stored = _inputs(request)
    parameters = _plain(request.parameters)
    refuse_sequences(parameters)
    names, places, classes = [], {}, {}
    for output in request.outputs:
        names.append(output.name)
        stated = _plain(output.parameters)
        lies = place(stated, output.name)
        if lies is not None:
            places[output.name] = lies
        if count := classes_wanted(stated, output.name):
            classes[output.name] = count
    return Call(
        request.model_name,
        request.model_version,
        feeds,
        stored,
        names,
        request.id,
        priority(parameters),
        seconds(parameters),
        places,
        classes=classes,
    )


def _inputs(request: Any) -> tuple[dict[str, Any], dict[str, Stored]]:
    """Returns the inputs that the message holds, and those that lie in shared memory.  Errors: BadRequest."""
    raw = list(request.raw_input_contents)
    sources = [place(_plain(given.parameters), given.name) for given in request.inputs]
    sent = sources.count(None)
    if raw and len(raw) != sent:
        raise BadRequest(f"raw_input_contents: one item for each of {sent} inputs is required, got {len(raw)}")
    feeds: dict[str, Any] = {}
    stored: dict[str, Stored] = {}
    left = iter(raw)
    for given, source in zip(request.inputs, sources, strict=True):
        name, shape = given.name, list(given.shape)
        if name in feeds or name in stored:
            raise BadRequest(f"input {name!r} is given twice")
        if (raw or source is not None) and given.HasField("contents"):
            raise BadRequest(f"input {name!r}: its elements are given twice, one of them in contents")
        if source is not None:
            stored[name] = Stored(given.datatype, shape, source)
        elif raw:
            feeds[name] = from_bytes(name, given.datatype, shape, next(left))
        else:
            feeds[name] = _contents(given, shape)
    return feeds, stored


def answer_message(answer: Answer) -> bytes:
    """Returns an encoded ModelInferResponse.

    Encoded messages that follow each other are one message: what is the same in most answers is encoded once, and the id and the
    elements are put behind it.
    """
    described = tuple([(t.name, t.datatype, a.shape, answer.places.get(t.name)) for t, a in answer.outputs])
    parts: list[bytes | memoryview] = [_head(answer.model, answer.version, described)]
    if answer.id:
        parts += _field(IDENTITY, answer.id.encode())
    for tensor, array in answer.outputs:  # the protocol has an empty item for each output in shared memory
        parts += _field(RAW_OUTPUT, b"" if tensor.name in answer.places else to_bytes(array))
    return b"".join(parts)


def stream_message(answer: bytes, marked: bool) -> bytes:
    """Returns an encoded ModelStreamInferResponse around a ModelInferResponse.

    marked: it says that it is its request's last one, for clients that wait for that.
    """
    return b"".join(_field(STREAMED, answer + _mark() if marked else answer))


def wants_mark(request: Any) -> bool:
    """Returns True for a ModelInferRequest whose last answer in a stream is to say so."""
    return WANTS_MARK in request.parameters and request.parameters[WANTS_MARK].bool_param is True


@cache
def _mark() -> bytes:
    """Returns the encoded part of a ModelInferResponse that marks the last one."""
    made = messages()["ModelInferResponse"]()
    made.parameters[MARK].bool_param = True
    encoded: bytes = made.SerializeToString()
    return encoded


@lru_cache(1024)
def _head(name: str, version: str, outputs: tuple[tuple[str, str, tuple[int, ...], Place | None], ...]) -> bytes:
    """Returns an encoded ModelInferResponse without id and elements.  outputs: names, element types, shapes, places."""
    made = messages()["ModelInferResponse"](model_name=name, model_version=version)
    for tensor, datatype, shape, lies in outputs:
        output = made.outputs.add(name=tensor, datatype=datatype, shape=shape)
        if lies is not None:
            output.parameters["shared_memory_region"].string_param = lies.region
            output.parameters["shared_memory_byte_size"].int64_param = lies.size
            output.parameters["shared_memory_offset"].int64_param = lies.offset
    encoded: bytes = made.SerializeToString()
    return encoded


def _field(tag: bytes, data: bytes | memoryview) -> tuple[bytes, bytes, bytes | memoryview]:
    """Returns the parts of an encoded length-delimited field."""
    length, left = bytearray(), len(data)
    while left > 127:
        length.append(left & 127 | 128)
        left >>= 7
    length.append(left)
    return tag, bytes(length), data


def _contents(given: Any, shape: list[int]) -> Any:
    field = CONTENTS.get(given.datatype)
    if field is None:
        raise BadRequest(f"input {given.name!r}: {given.datatype!r} is taken from raw_input_contents alone")
    items = list(getattr(given.contents, field))
    if given.datatype == "BYTES":
        return of_items(given.name, shape, items)
    return from_list(given.name, given.datatype, shape, items)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        made[name] = None if kind is None else getattr(value, kind)
    return made
