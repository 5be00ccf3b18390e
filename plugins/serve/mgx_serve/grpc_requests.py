"""Decodes inference requests from gRPC messages.

A client's requests usually differ only in id and tensor data; the rest (the head) is parsed once and cached by its bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Final

from google.protobuf.message import DecodeError

from .budget import JSON_COST, TENSOR_COST, Share
from .classification import classes_wanted
from .errors import BadRequest
from .inference import Call, Stored, place, priority, refuse_sequences, seconds
from .messages import messages
from .tensors import Layout, from_list, of_items

__all__ = ["Request", "read_request"]

# typed content fields, used if a tensor is not sent as raw bytes
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
WANTS_MARK: Final = "triton_enable_empty_final_response"
NAME: Final = "ModelInferRequest"
# encoded tags of its fields, all length-delimited: number << 3 | 2
IDENTITY, ELEMENTS, LAST = 0x1A, 0x3A, 0x3A
MOST_FIELDS: Final = 64  # largest request split here, in bytes
LARGE_HEAD: Final = 1024  # larger heads, in bytes, are not cached
KEPT_HEADS: Final = 256


class Head:
    """A request without its id and raw tensor data.  message: may contain further fields, which are ignored."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.model: str = message.model_name

    @cached_property
    def marked(self) -> bool:
        """True if the final response in a stream must be flagged."""
        given = self.message.parameters
        return WANTS_MARK in given and given[WANTS_MARK].bool_param is True

    @cached_property
    def inputs(self) -> tuple[Sequence[Layout], Mapping[str, Stored]]:
        """The inputs in the request and those in shared memory.  Errors: BadRequest."""
        sent: dict[str, Layout] = {}
        stored: dict[str, Stored] = {}
        for given in self.message.inputs:
            name, shape = given.name, tuple(given.shape)
            if name in sent or name in stored:
                raise BadRequest(f"input {name!r} is given twice")
            source = place(_plain(given.parameters), name)
            if source is None:
                sent[name] = Layout.of(name, given.datatype, shape)
            else:
                stored[name] = Stored(given.datatype, shape, source)
        return list(sent.values()), stored

    @cached_property
    def contents(self) -> Mapping[str, Any]:
        """The inputs with typed contents in the head.  Indexed by name; `inputs` rejects duplicate names."""
        return {given.name: given for given in self.message.inputs if given.HasField("contents")}

    @cached_property
    def parameters(self) -> tuple[int, float]:
        """Priority and timeout.  Errors: BadRequest; Unsupported for sequence requests."""
        given = _plain(self.message.parameters)
        refuse_sequences(given)
        return priority(given), seconds(given)

    @cached_property
    def outputs(self) -> tuple[Sequence[str], Mapping[str, Any], Mapping[str, int]]:
        """Names of the requested outputs, their shared-memory locations and classification counts.  Errors: BadRequest."""
        names, places, classes = [], {}, {}
        for output in self.message.outputs:
            names.append(output.name)
            stated = _plain(output.parameters)
            location = place(stated, output.name)
            if location is not None:
                places[output.name] = location
            if count := classes_wanted(stated, output.name):
                classes[output.name] = count
        return names, places, classes


@dataclass(frozen=True, slots=True)
class Request:
    """A ModelInferRequest.  elements: raw tensor data as views of the encoded message."""

    head: Head
    id: str
    elements: Sequence[bytes | memoryview]

    def call(self) -> Call:
        """Returns the request as a `Call`.  Errors: BadRequest."""
        head = self.head
        feeds, stored = self._inputs()
        most_urgent, limit = head.parameters
        names, places, classes = head.outputs
        version = head.message.model_version
        return Call(head.model, version, feeds, stored, names, self.id, most_urgent, limit, places, classes=classes)

    def _inputs(self) -> tuple[dict[str, Any], Mapping[str, Stored]]:
        """Returns the inputs in the message and those in shared memory.  Errors: BadRequest."""
        (sent, stored), raw, held = self.head.inputs, self.elements, self.head.contents
        if raw and len(raw) != len(sent):
            raise BadRequest(f"raw_input_contents: one item per input is required: {len(sent)}, got {len(raw)}")
        for name in held:
            if raw or name in stored:
                raise BadRequest(f"input {name!r}: its elements are given twice, one of them in contents")
        if raw:
            return {layout.name: layout.read(data) for layout, data in zip(sent, raw, strict=True)}, stored
        return {layout.name: _contents(layout, held.get(layout.name)) for layout in sent}, stored


def read_request(encoded: bytes, share: Share) -> Request:
    """Decodes a ModelInferRequest.

    Errors: BadRequest if the bytes are not such a message; TooLarge, Busy if the memory budget is exceeded.
    """
    share.take(len(encoded) * TENSOR_COST)
    parts = _parts(encoded)
    if parts is not None:
        head, identity, elements = parts
        return Request(_kept_head(head) if len(head) <= LARGE_HEAD else Head(_message(head)), identity, elements)
    message = _message(encoded)
    if not message.raw_input_contents:
        share.take(len(encoded) * JSON_COST)
    return Request(Head(message), message.id, list(message.raw_input_contents))


def _parts(encoded: bytes) -> tuple[bytes, str, list[memoryview]] | None:
    """Splits an encoded message into head, id and tensor data; returns None for a message without raw data or of unusual form.

    Protobuf fields may be in any order, so the remaining fields alone are a valid encoding of the head.
    """
    head: list[tuple[int, int]] = []
    identity, elements = b"", []
    at, end, whole = 0, len(encoded), memoryview(encoded)
    for _ in range(MOST_FIELDS):
        if at == end:
            break
        start, tag = at, encoded[at]
        size = shift = 0
        while True:
            at += 1
            if at >= end or shift > 28:
                return None
            size |= (encoded[at] & 127) << shift
            if encoded[at] < 128:
                break
            shift += 7
        at += 1
        if tag & 7 != 2 or tag > LAST or tag < 8 or at + size > end:
            return None
        if tag == ELEMENTS:
            elements.append(whole[at : at + size])
        elif tag == IDENTITY:
            identity = encoded[at : at + size]
        else:
            head.append((start, at + size))
        at += size
    if at != end or not elements:
        return None
    try:
        return b"".join([encoded[a:b] for a, b in head]), identity.decode(), elements
    except UnicodeDecodeError:
        return None


@lru_cache(KEPT_HEADS)
def _kept_head(encoded: bytes) -> Head:
    return Head(_message(encoded))


def _message(encoded: bytes) -> Any:
    try:
        return messages()[NAME].FromString(encoded)
    except DecodeError as error:
        raise BadRequest(f"the request is no {NAME}: {error}") from None


def _contents(layout: Layout, given: Any) -> Any:
    """Returns the typed contents of an input, None if it has none; given: the input's message."""
    name, datatype, shape = layout.name, layout.datatype, layout.shape
    field = CONTENTS.get(datatype)
    if field is None:
        raise BadRequest(f"input {name!r}: {datatype!r} is taken from raw_input_contents alone")
    items = [] if given is None else list(getattr(given.contents, field))
    if datatype == "BYTES":
        return of_items(name, shape, items)
    return from_list(name, datatype, shape, items)


def _plain(parameters: Mapping[str, Any]) -> dict[str, Any]:
    made = {}
    for name, value in parameters.items():
        kind = value.WhichOneof("parameter_choice")
        made[name] = None if kind is None else getattr(value, kind)
    return made
