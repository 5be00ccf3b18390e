"""Encodes inference responses as gRPC messages."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Final

from .inference import Answer
from .messages import messages
from .shared_memory import Place
from .tensors import to_bytes

__all__ = ["answer_message", "stream_message"]

RAW_OUTPUT: Final = b"\x32"  # encoded tags of length-delimited fields: number << 3 | 2
IDENTITY: Final = b"\x1a"
STREAMED: Final = b"\x12"
MARK: Final = "triton_final_response"


def answer_message(answer: Answer) -> bytes:
    """Returns an encoded ModelInferResponse.

    Concatenated protobuf encodings are one message: the parts that most responses share are encoded once and cached; the id and
    the tensor data are appended.
    """
    described = tuple([(t.name, t.datatype, a.shape, answer.places.get(t.name)) for t, a in answer.outputs])
    parts: list[bytes | memoryview] = [_head(answer.model, answer.version, described)]
    if answer.id:
        parts += _field(IDENTITY, answer.id.encode())
    for tensor, array in answer.outputs:  # the protocol requires an empty item per output in shared memory
        parts += _field(RAW_OUTPUT, b"" if tensor.name in answer.places else to_bytes(array))
    return b"".join(parts)


def stream_message(answer: bytes, marked: bool) -> bytes:
    """Returns an encoded ModelStreamInferResponse that wraps a ModelInferResponse.

    marked: flags it as the final response of its request, for clients that request the flag.
    """
    return b"".join(_field(STREAMED, answer + _mark() if marked else answer))


@cache
def _mark() -> bytes:
    """Returns the encoded ModelInferResponse parameter that flags the final response."""
    made = messages()["ModelInferResponse"]()
    made.parameters[MARK].bool_param = True
    encoded: bytes = made.SerializeToString()
    return encoded


@lru_cache(1024)
def _head(name: str, version: str, outputs: tuple[tuple[str, str, tuple[int, ...], Place | None], ...]) -> bytes:
    """Returns an encoded ModelInferResponse without id and data.  outputs: names, element types, shapes, locations."""
    made = messages()["ModelInferResponse"](model_name=name, model_version=version)
    for tensor, datatype, shape, location in outputs:
        output = made.outputs.add(name=tensor, datatype=datatype, shape=shape)
        if location is not None:
            output.parameters["shared_memory_region"].string_param = location.region
            output.parameters["shared_memory_byte_size"].int64_param = location.size
            output.parameters["shared_memory_offset"].int64_param = location.offset
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
