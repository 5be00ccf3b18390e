"""Answers to requests for inference in gRPC's messages."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from .inference import Answer
from .messages import messages
from .shared_memory import Place
from .tensors import to_bytes

__all__ = ["answer_message", "stream_message"]

RAW_OUTPUT: Final = b"\x32"  # tags of length-delimited fields, as they are encoded: number << 3 | 2
IDENTITY: Final = b"\x1a"
STREAMED: Final = b"\x12"
MARK: Final = "triton_final_response"


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
