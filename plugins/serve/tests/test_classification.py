"""The classification extension, used by a third-party client, and the encoding of one output."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from mgx_serve.budget import Budget, Share
from mgx_serve.classification import classified
from mgx_serve.errors import BadRequest, TooLarge
from mgx_serve.inference import Call, answer_of
from mgx_serve.model import Signature
from mgx_serve.tensors import Tensor

CLIENTS = [tritonclient.http, tritonclient.grpc]
X = np.array([[1, 4, 2, 3], [9, 9, 0.5, -1]], np.float32)


@pytest.fixture(scope="module", params=[0, 1], ids=["one process", "a front end"])
def asked(request: pytest.FixtureRequest, serve: Any, models: Any) -> Any:
    return serve(models, "--frontends", request.param)


def texts(result: Any) -> list[Any]:
    """Returns classes as text: the client returns bytes or text, depending on the encoding."""
    made: list[Any] = result.as_numpy("y").astype("S").astype("U").tolist()
    return made


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize("module", CLIENTS)
def test_classes(module: Any, binary: bool, asked: Any) -> None:
    options = {"binary_data": binary} if module is tritonclient.http else {}
    with module.InferenceServerClient(asked.http if module is tritonclient.http else asked.grpc) as c:

        def ask(model: str, x: np.ndarray, count: int) -> Any:
            given = module.InferInput("x", list(x.shape), "FP32")
            given.set_data_from_numpy(x)
            wanted = [module.InferRequestedOutput("y", class_count=count, **options)]
            wanted.append(module.InferRequestedOutput("z", **options))
            return c.infer(model, [given], outputs=wanted)

        result = ask("double", X, 2)  # whose requests are batched: rows have their own classes
        assert texts(result) == [["8.000000:1", "6.000000:3"], ["18.000000:0", "18.000000:1"]]
        np.testing.assert_array_equal(result.as_numpy("z"), X.sum(1, keepdims=True))
        alone = ask("fixed", np.concatenate([X, X[:1]]), 3)
        assert texts(alone) == ["18.000000:4", "18.000000:5", "8.000000:1"]
        with pytest.raises(InferenceServerException, match="classification must be a number of classes"):
            ask("double", X, -1)


@pytest.mark.parametrize(
    ("values", "rows", "wanted"),
    [
        (np.array([[3, 7, 7]], np.int64), True, [["7:1", "7:2"]]),
        (np.array([True, False]), False, ["1:0", "0:1"]),
        (np.array([0, 2**63 + 1, 2**63], np.uint64), False, ["9223372036854775809:1", "9223372036854775808:2"]),
        (np.array([np.nan, -np.inf, 1.5], np.float16), False, ["1.500000:2", "nan:0"]),
        (
            np.array([[1, 2], [4, 3]], ml_dtypes.bfloat16),
            True,
            [["2.000000:1", "1.000000:0"], ["4.000000:0", "3.000000:1"]],
        ),
        (np.float32(0.1), True, ["0.100000:0"]),
        (np.zeros((0, 3), np.float32), True, []),
        (np.zeros((2, 0), np.float32), True, [[], []]),
    ],
)
def test_the_largest_elements(values: Any, rows: bool, wanted: list[Any]) -> None:
    tensor, found = classified(Tensor("y", "", ()), np.asarray(values), 2, rows)
    assert found.tolist() == wanted and tensor.datatype == "BYTES" and found.dtype == object


def test_the_memory_of_classes_is_bounded() -> None:
    model = Signature("m", "1", "ref", 60.0, (), (Tensor("y", "FP32", (-1,)),))
    call = Call("m", "1", {}, classes={"y": 1 << 30})
    with Share(Budget(30_000)) as share:
        assert len(answer_of(call, model, [np.ones(100, np.float32)], share).outputs[0][1]) == 100
    with Share(Budget(30_000)) as share, pytest.raises(TooLarge, match="memory"):
        answer_of(call, model, [np.ones(1000, np.float32)], share)


def test_strings_have_no_order() -> None:
    with pytest.raises(BadRequest, match="'y': numbers are required"):
        classified(Tensor("y", "BYTES", (1,)), np.array(["a"], object), 1, False)
