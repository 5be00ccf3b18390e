"""`onnx_migraphx.backend`: models in the forms that ONNX's suite passes."""

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
    read, compiled = MIGraphXBackend.get_program().split("Compiled program =")
    assert "@param" in read or "convolution" in read
    assert compiled.strip() and compiled.strip() != read.strip()


def test_what_it_refuses(small_network) -> None:
    with pytest.raises(ValueError, match="CPU, GPU"):
        MIGraphXBackend.set_device("TPU")
    with pytest.raises(NotImplementedError, match="run_model"):
        MIGraphXBackend.run_node(None, [])
    with pytest.raises(ValueError, match=r"takes 1 input \(input\), got 2"):
        MIGraphXBackend.prepare(small_network([2, 3, 8, 8], 2)).run([1, 2])
    with pytest.raises(onnx.checker.ValidationError):
        MIGraphXBackend.prepare(onnx.ModelProto())
    assert MIGraphXBackend.supports_device("GPU") and not MIGraphXBackend.supports_device("TPU")


def test_results_have_the_extents_that_the_standard_says() -> None:
    node = onnx.helper.make_node("NonZero", ["x"], ["y"])
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph([node], "n", [info("x", 1, ["n"])], [info("y", 7, [1, "m"])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    (found,) = MIGraphXBackend.run_model(model, [np.array([0, 1, 0, 2], np.float32)])
    assert found.tolist() == [[1, 3]]


def test_sequences_are_lists() -> None:
    made = onnx.helper.make_tensor_sequence_value_info
    node = onnx.helper.make_node("SequenceInsert", ["s", "x"], ["t"])
    inputs = [made("s", 1, [2]), onnx.helper.make_tensor_value_info("x", 1, [2])]
    graph = onnx.helper.make_graph([node], "s", inputs, [made("t", 1, [2])])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 13)], ir_version=8)
    one, two = np.ones(2, np.float32), np.full(2, 2, np.float32)
    (found,) = MIGraphXBackend.run_model(model, [[one], two])
    assert [f.tolist() for f in found] == [[1, 1], [2, 2]]
