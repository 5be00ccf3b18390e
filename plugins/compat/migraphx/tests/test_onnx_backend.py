"""`onnx_migraphx.backend`: models as ONNX's suite hands them over."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from onnx_migraphx.backend import MIGraphXBackend


@pytest.fixture(autouse=True)
def cpu():
    MIGraphXBackend.set_device("CPU")
    yield
    MIGraphXBackend.set_device("GPU")


def test_models_run_by_position_and_by_name(small_network) -> None:
    model = small_network([2, 3, 8, 8], 2)
    x = np.random.default_rng(0).random((2, 3, 8, 8)).astype(np.float32)
    (expected,) = ReferenceEvaluator(model).run(None, {"input": x})
    prepared = MIGraphXBackend.prepare(model, "CPU")
    for given in ([x], x, {"input": x}):
        (found,) = prepared.run(given)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    (found,) = MIGraphXBackend.run_model(model.SerializeToString(), [x])
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-5)
    assert "add_instruction" in MIGraphXBackend.get_program(prepared).to_py()


def test_what_it_refuses(small_network) -> None:
    with pytest.raises(ValueError, match="CPU, GPU"):
        MIGraphXBackend.set_device("TPU")
    with pytest.raises(NotImplementedError, match="run_model"):
        MIGraphXBackend.run_node(None, [])
    with pytest.raises(ValueError, match=r"takes 1 inputs \(input\), got 2"):
        MIGraphXBackend.prepare(small_network([2, 3, 8, 8], 2)).run([1, 2])
    with pytest.raises(onnx.checker.ValidationError):
        MIGraphXBackend.prepare(onnx.ModelProto())
    assert MIGraphXBackend.supports_device("GPU") and not MIGraphXBackend.supports_device("TPU")
