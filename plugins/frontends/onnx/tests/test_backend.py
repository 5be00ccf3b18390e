"""The adapters called by ONNX's test suites."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mgx_onnx import backend


def two_outputs() -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n"]) for n in "ab"]
    nodes = [helper.make_node("Sub", ["a", "b"], ["d"]), helper.make_node("Add", ["a", "b"], ["s"])]
    outputs = [helper.make_empty_tensor_value_info(n) for n in "sd"]
    graph = helper.make_graph(nodes, "g", infos, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


A, B = np.float32([3, 4]), np.float32([1, 2])


def test_prepared_models_accept_inputs_by_position_and_by_name():
    prepared = backend.RefBackend.prepare(two_outputs(), "CPU")
    for inputs in ([A, B], (A, B), {"b": B, "a": A}):
        s, d = prepared.run(inputs)
        np.testing.assert_array_equal(s, [4, 6])
        np.testing.assert_array_equal(d, [2, 2])


def test_models_and_nodes_at_once():
    s, _ = backend.RefBackend.run_model(two_outputs(), [A, B])
    np.testing.assert_array_equal(s, [4, 6])
    (product,) = backend.RefBackend.run_node(helper.make_node("Mul", ["x", "y"], ["z"]), [A, B])
    np.testing.assert_array_equal(product, [3, 8])


def test_devices():
    assert backend.RefBackend.supports_device("CPU")
    assert not backend.RefBackend.supports_device("CUDA")
    assert [c.target for c in (backend.RefBackend, backend.CpuBackend, backend.GpuBackend)] == ["ref", "cpu", "gpu"]


def test_files(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(two_outputs(), path)
    results = backend.run_ref(str(path), {"b": B, "a": A})
    assert isinstance(results, list)
    np.testing.assert_array_equal(results[0], [4, 6])


def test_unsupported_features_have_their_own_error_class():
    graph = helper.make_graph(
        [helper.make_node("Nope", ["a"], ["s"])], "g", two_outputs().graph.input, two_outputs().graph.output[:1]
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    with pytest.raises(Exception, match="Nope") as caught:
        backend.RefBackend.prepare(made)
    assert "Unsupported" in type(caught.value).__name__
