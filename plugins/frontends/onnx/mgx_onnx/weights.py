"""Extracts weights from a model file before protobuf parses it, so that they are borrowed from the file, not copied.

The serialized model is scanned once as protobuf wire format, a list of (tag, value) fields. The raw data of the main graph's
large initializers is recorded and removed from the bytes that protobuf parses. Unexpected data is kept, so that protobuf
reports the error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from mgx_core.types.argument import Array

__all__ = ["split_weights"]

GRAPH: Final = 7  # ModelProto.graph
INITIALIZER: Final = 5  # GraphProto.initializer
RAW_DATA: Final = 9  # TensorProto.raw_data
LARGE: Final = 1 << 12  # bytes; smaller ones are cheap to copy


class _Malformed(Exception):
    """The bytes do not follow the wire format."""


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data) or shift > 63:
            raise _Malformed
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if not byte & 0x80:
            return value, at
        shift += 7


def _fields(data: memoryview, at: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yields (field number, start, value start, end); the number is -1 for values that are not length-delimited."""
    while at < end:
        start = at
        tag, at = _varint(data, at)
        kind = tag & 7
        value = at
        if kind == 0:
            _, at = _varint(data, at)
        elif kind == 1:
            at += 8
        elif kind == 5:
            at += 4
        elif kind == 2:
            length, value = _varint(data, at)
            at = value + length
        else:
            raise _Malformed
        if at > end:
            raise _Malformed
        yield (tag >> 3 if kind == 2 else -1), start, value, at


def _encoded(number: int, payload: int) -> bytes:
    """Returns the tag and length of a length-delimited field."""
    out = bytearray([number << 3 | 2])
    while payload >= 0x80:
        out.append(payload & 0x7F | 0x80)
        payload >>= 7
    out.append(payload)
    return bytes(out)


def split_weights(data: Array) -> tuple[bytes, dict[int, Array]]:
    """Returns the model without large initializers' raw data, and that data by position in the main graph."""
    view = memoryview(data)
    try:
        return _split(view, data)
    except _Malformed:
        return bytes(view), {}


def _split(view: memoryview, data: Array) -> tuple[bytes, dict[int, Array]]:
    model: list[bytes | memoryview] = []
    weights: dict[int, Array] = {}
    graphs = 0
    for number, start, value, end in _fields(view, 0, len(view)):
        if number != GRAPH:
            model.append(view[start:end])
            continue
        graphs += 1
        if graphs > 1:
            raise _Malformed
        graph: list[bytes | memoryview] = []
        position = 0
        for inner, inner_start, inner_value, inner_end in _fields(view, value, end):
            if inner == INITIALIZER:
                if inner_end - inner_value >= LARGE:
                    tensor, raw = _without_raw(view, data, inner_value, inner_end)
                    if raw is not None:
                        weights[position] = raw
                        graph += [_encoded(INITIALIZER, len(tensor)), tensor]
                        position += 1
                        continue
                position += 1
            graph.append(view[inner_start:inner_end])
        body = b"".join(graph)
        model += [_encoded(GRAPH, len(body)), body]
    return b"".join(model), weights


def _without_raw(view: memoryview, data: Array, at: int, end: int) -> tuple[bytes, Array | None]:
    kept: list[memoryview] = []
    raw = None
    for number, start, value, stop in _fields(view, at, end):
        if number == RAW_DATA and raw is None:
            raw = data[value:stop]
        else:
            kept.append(view[start:stop])
    return b"".join(kept), raw
