"""Inference requests over HTTP, whose common parts are parsed once."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from mgx_serve.budget import Budget, Share
from mgx_serve.errors import BadRequest
from mgx_serve.http_messages import answer_body, read_call
from mgx_serve.inference import Answer
from mgx_serve.tensors import Tensor

X = np.arange(8, dtype=np.float32).reshape(2, 4)


def body(x: Any, **rest: Any) -> tuple[bytes, str]:
    """Returns a request with one input, and the length of its JSON."""
    told = {"name": "x", "datatype": "FP32", "shape": list(x.shape), "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [told]} | rest).encode()
    return head + x.tobytes(), str(len(head))


def test_requests_with_the_same_json_have_elements_of_their_own() -> None:
    first, second = (read_call("m", "", *body(x))[0] for x in (X, 2 * X))
    np.testing.assert_array_equal(first.feeds["x"], X)
    np.testing.assert_array_equal(second.feeds["x"], 2 * X)
    assert read_call("other", "7", *body(X))[0].model == "other"


def test_requests_that_only_differ_in_what_the_json_says_are_told_apart() -> None:
    for identity, names in (("a", []), ("b", []), ("b", ["y"])):
        call, _ = read_call("m", "", *body(X, id=identity, outputs=[{"name": n} for n in names]))
        assert (call.id, list(call.outputs)) == (identity, names)


def test_a_byte_count_that_contradicts_the_json_is_always_rejected() -> None:
    given, length = body(X)
    for _ in range(2):
        read_call("m", "", given, length)
        with pytest.raises(BadRequest, match="does not fit"):
            read_call("m", "", given[:-4], length)
        with pytest.raises(BadRequest, match="4 bytes follow"):
            read_call("m", "", given + b"abcd", length)


def test_answers_with_equal_headers_have_their_own_elements() -> None:
    share = Share(Budget(1 << 20))
    for x in (X, 2 * X):
        for binary in ({"*"}, {"x"}, set()):
            answer = Answer("m", "1", "", [(Tensor("x", "FP32", (2, 4)), x)])
            parts, length = answer_body(answer, binary, share)
            told = json.loads(bytes(parts[0]))["outputs"][0]
            assert told["shape"] == [2, 4] and (length is None) == (not binary)
            if binary:
                assert bytes(parts[1]) == x.tobytes() and told["parameters"] == {"binary_data_size": 32}
            else:
                assert told["data"] == x.ravel().tolist()
