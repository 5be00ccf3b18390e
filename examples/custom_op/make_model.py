"""Writes a small ONNX model that uses both operators: relu-like, then smoothed, then doubled by a standard operator."""

from __future__ import annotations

import sys

import onnx
from onnx import TensorProto, helper


def model() -> onnx.ModelProto:
    """y = 2 * MovingAverage(Squareplus(x)), x float32[batch, 8] -> y float32[batch, 6]."""
    nodes = [
        helper.make_node("Squareplus", ["x"], ["a"], name="soften", domain="example", b=1.0),
        helper.make_node("MovingAverage", ["a"], ["m"], name="smooth", domain="example", window=3),
        helper.make_node("Add", ["m", "m"], ["y"], name="double"),
    ]
    graph = helper.make_graph(
        nodes,
        "smoothing",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 6])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("example", 1)])


if __name__ == "__main__":
    onnx.save(model(), sys.argv[1] if len(sys.argv) > 1 else "model.onnx")
