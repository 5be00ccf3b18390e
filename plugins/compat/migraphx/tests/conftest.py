"""Fixtures of the tests of MIGraphX's module: an emulated GPU and small models."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper


@pytest.fixture
def emulated(monkeypatch):
    """Selects a target gpu with an emulated device of 32 lanes."""
    pytest.importorskip("mgx_gpu_hip")
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")
    monkeypatch.setattr("mgx_core.plugins.manager._manager", [])  # a context for this test only


@pytest.fixture
def small_network():
    """Returns a function that creates the model of `network`."""
    return network


def network(lens, pool: int, name: str = "input") -> onnx.ModelProto:
    """Returns pooling, a convolution with bias and relu, and a matrix product: [n, 3, h, w] -> [n, 10]."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((4, 3, 1, 1)).astype(np.float32),
        "b": rng.standard_normal(4).astype(np.float32),
        "v": rng.standard_normal((4, 10)).astype(np.float32),
    }
    nodes = [
        helper.make_node("AveragePool", [name], ["p"], kernel_shape=[pool, pool], strides=[pool, pool]),
        helper.make_node("Conv", ["p", "w", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("MatMul", ["f", "v"], ["output"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, lens)],
        [helper.make_tensor_value_info("output", TensorProto.FLOAT, [lens[0], 10])],
        [numpy_helper.from_array(a, n) for n, a in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
