"""Quantized products whose results are ties round like onnxruntime without optimization: to even, before the zero point is added.

They round to even, before the zero point is added.  Scales are powers of two, so that every step is exact and results must be
equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(5)


def model(op_type: str, kind: Any, weights: Any, dims: tuple[int, ...], zero: int) -> bytes:
    """x -> quantize and dequantize -> product with quantized weights -> quantized in steps of 2."""
    constants = {"one": np.float32(1), "two": np.float32(2), "zx": kind(3), "w": weights, "zw": weights.dtype.type(0),
                 "zy": kind(zero)}  # fmt: skip
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "one", "zx"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "one", "zx"], ["d"]),
        helper.make_node("DequantizeLinear", ["w", "one", "zw"], ["v"]),
        helper.make_node(op_type, ["d", "v"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "two", "zy"], ["y"]),
    ]
    out = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes,
        "ties",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_tensor_value_info("y", out, None)],
        [numpy_helper.from_array(np.asarray(v), n) for n, v in constants.items()],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.pairs
@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize("zero", [0, 1, 2, 7, 127])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize(
    ("op_type", "left", "right"),
    [("MatMul", (32, 16), (16, 24)), ("MatMul", (1, 1), (1, 1)), ("Conv", (1, 8, 9, 9), (16, 8, 1, 1)),
     ("Conv", (2, 16, 8, 8), (16, 16, 3, 3))],
)  # fmt: skip
def test_ties(op_type: str, left: tuple[int, ...], right: tuple[int, ...], kind: Any, zero: int, target: str) -> None:
    weights = RNG.integers(-1, 2, right).astype(np.int8) if len(right) > 2 or right[0] > 1 else np.ones(right, np.int8)
    written = model(op_type, kind, weights, left, zero)
    x = np.full(left, 39, np.float32) if left == (1, 1) else RNG.integers(-3, 20, left).astype(np.float32)
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    wanted = ort.InferenceSession(written, options, providers=["CPUExecutionProvider"]).run(None, {"x": x})[0]
    program = mgx.parse_onnx_buffer(written)
    program.compile(mgx.get_target(target))
    np.testing.assert_array_equal(np.asarray(program.run({"x": x})[0]), wanted)
