"""Quantization in graphs, and batch statistics, compared with TensorFlow 2.21."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx

F = np.dtype(np.float32)
X = np.array([-2, -0.74, 0.1, 0.5, 3], np.float32)


def run(graph: Any, outputs: list[str], **given: Any) -> list[np.ndarray]:
    program = mgx.parse_buffer(graph.data, "tf", output_names=outputs)
    program.compile(mgx.get_target("ref"))
    return [np.asarray(r) for r in program.run(given)]


@pytest.mark.parametrize(
    ("low", "high", "attributes", "wanted"),
    [
        (-1, 2, {"range_given": True}, [-2, -0.857143, 0, 0.571429, 2]),
        (0, 0, {"round_mode": "HALF_UP", "narrow_range": True}, [-2.142857, -0.857143, 0, 0.428571, 3]),
        (0, 2, {"range_given": True, "signed_input": False}, [0, 0, 0.133333, 0.533333, 2]),
    ],
)
def test_values_in_steps(low: float, high: float, attributes: dict[str, Any], wanted: list[float], new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [5])
    g.const("low", np.float32(low))
    g.const("high", np.float32(high))
    g.node("QuantizeAndDequantizeV2", "y", "x", "low", "high", num_bits=4, **attributes)
    np.testing.assert_allclose(run(g, ["y"], x=X)[0], wanted, atol=1e-6)


def test_bytes_and_back(new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [5])
    g.const("low", np.float32(-1))
    g.const("high", np.float32(2))
    g.node("QuantizeV2", "q", "x", "low", "high", T=np.int8)
    g.node("Dequantize", "y", "q", "q:1", "q:2", T=np.int8)
    steps, back = run(g, ["q", "y"], x=X)
    assert steps.dtype == np.int8 and steps.tolist() == [-128, -106, -35, -1, 127]
    np.testing.assert_allclose(back, [-1, -0.741176, 0.094118, 0.494118, 2], atol=1e-6)


@pytest.mark.parametrize("batch", [1, -1])
def test_variance_of_a_batch_is_reported_as_an_estimate(batch: int, new_graph: Any):
    g = new_graph()
    g.placeholder("x", F, [batch, 3, 2, 1])
    for name, value in (("scale", 2), ("offset", 1), ("none", 0)):
        g.const(name, np.array([value], np.float32))
    g.node("FusedBatchNormV3", "y", "x", "scale", "offset", "none", "none", epsilon=1e-3, is_training=True)
    x = np.array([0, 1, 4, 5, 8, 9], np.float32).reshape(1, 3, 2, 1)
    y, mean, variance = run(g, ["y", "y:1", "y:2"], x=x)
    np.testing.assert_allclose(y.reshape(-1), [-1.723815, -1.118522, 0.697354, 1.302646, 3.118522, 3.723815], atol=1e-5)
    np.testing.assert_allclose([mean[0], variance[0]], [4.5, 13.1], rtol=1e-6)
