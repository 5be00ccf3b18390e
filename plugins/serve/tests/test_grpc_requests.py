"""gRPC requests: decoded fields equal those decoded by protobuf."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mgx_serve import grpc_requests
from mgx_serve.budget import Budget, Share
from mgx_serve.errors import BadRequest
from mgx_serve.grpc_requests import read_request
from mgx_serve.messages import messages

X = np.arange(4, dtype=np.float32)


def encoded(elements: tuple[bytes, ...] = (X.tobytes(),), **fields: Any) -> bytes:
    known = messages()
    inputs = [known["InferInputTensor"](name=f"x{n}", datatype="FP32", shape=[1, 4]) for n in range(len(elements))]
    stated = {"model_name": "model", "inputs": inputs, "raw_input_contents": elements} | fields
    made: bytes = known["ModelInferRequest"](**stated).SerializeToString()
    return made


def read(given: bytes) -> Any:
    return read_request(given, Share(Budget(1 << 30)))


def whole(given: bytes) -> Any:
    """Decodes a message with protobuf; returns None if it is invalid."""
    try:
        return messages()["ModelInferRequest"].FromString(given)
    except Exception:
        return None


def test_a_head_is_read_once_for_requests_that_differ_in_id_and_elements() -> None:
    first, second = read(encoded(id="a")), read(encoded(((2 * X).tobytes(),), id="b"))
    assert first.head is second.head
    assert (first.id, second.id) == ("a", "b")
    for request, values in ((first, X), (second, 2 * X)):
        call = request.call()
        assert call.model == "model" and call.id == request.id
        np.testing.assert_array_equal(call.feeds["x0"], values.reshape(1, 4))
    assert first.call().feeds is not first.call().feeds, "one request's inputs would become another's"


def test_elements_are_read_in_place_from_the_message() -> None:
    message = encoded(id="a")
    (elements,) = read(message).elements
    assert elements.obj is message
    x = read(message).call().feeds["x0"]
    assert np.shares_memory(x, np.frombuffer(message, np.uint8))


def test_heads_that_are_large_are_not_kept() -> None:
    large = encoded(model_version="1" * grpc_requests.LARGE_HEAD)
    assert read(large).head is not read(large).head
    assert read(large).call().version == "1" * grpc_requests.LARGE_HEAD


def test_a_head_that_was_refused_is_refused_again() -> None:
    tensor = messages()["InferInputTensor"](name="x", datatype="FP33", shape=[1, 4])
    for _ in range(2):
        with pytest.raises(BadRequest, match="FP33"):
            read(encoded(inputs=[tensor])).call()
        with pytest.raises(BadRequest, match="one item per input is required: 1, got 2"):
            read(encoded((b"", b""), inputs=[tensor.__class__(name="x", datatype="FP32", shape=[0])])).call()


def field(number: int, data: bytes, kind: int = 2) -> bytes:
    return bytes([number << 3 | kind, len(data)]) + data


pieces = st.one_of(
    st.sampled_from(
        [
            field(1, b"model"),
            field(3, b"id"),
            field(3, b"\xff"),
            field(5, field(1, b"x") + field(2, b"FP32") + field(3, b"\1\4")),
            field(7, X.tobytes()),
            field(7, b""),
            field(9, b"later"),
            field(0, b""),
            b"\x08\x01",
            b"\x0a\x85\x80\x00model",
            b"\x3a\xff\xff\xff\xff\x0f",
            b"\x3a\x80",
        ]
    ),
    st.binary(max_size=6),
)


@settings(max_examples=120, deadline=None, database=None)
@given(st.lists(pieces, max_size=8))
def test_any_bytes_decode_like_protobuf(parts: list[bytes]) -> None:
    given = b"".join(parts)
    message = whole(given)
    if message is None:
        with pytest.raises(BadRequest):
            read(given)
        return
    request = read(given)
    assert request.id == message.id and list(request.elements) == list(message.raw_input_contents)
    there = request.head.message
    assert (there.model_name, there.model_version) == (message.model_name, message.model_version)
    assert list(there.inputs) == list(message.inputs) and list(there.outputs) == list(message.outputs)
    assert dict(there.parameters) == dict(message.parameters)


@pytest.mark.parametrize("count", [grpc_requests.MOST_FIELDS, 100_000])
def test_requests_of_many_fields_are_left_to_protobuf(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[int] = []
    real: Callable[[bytes], Any] = grpc_requests._message
    monkeypatch.setattr(grpc_requests, "_message", lambda b: taken.append(len(b)) or real(b))
    given = field(1, b"model") + field(7, b"") * count
    assert len(read(given).elements) == count
    assert taken == [len(given)]
