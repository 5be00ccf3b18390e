"""Spatial operators on inputs with symbolic extents: parsed once, run at several sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from mgx_onnx.backend import RefBackend

RNG = np.random.default_rng(15)


def model(dims: Any, *nodes: Any, **constants: Any) -> Any:
    """A model of nodes from ``x`` with the given dims to ``y``."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def node(op_type: str, *inputs: str, **attributes: Any) -> Any:
    return helper.make_node(op_type, ["x", *inputs], ["y"], **attributes)


W = RNG.uniform(-1, 1, (4, 3, 3, 3)).astype(np.float32)
NODES = [
    (node("Conv", "w", strides=[2, 2], auto_pad="SAME_UPPER"), dict(w=W)),
    (node("Conv", "w", strides=[2, 1], pads=[1, 0, 1, 2]), dict(w=W)),
    (node("ConvTranspose", "w", strides=[2, 2], auto_pad="SAME_LOWER"), dict(w=W.transpose(1, 0, 2, 3))),
    (node("ConvTranspose", "w", strides=[2, 2], output_shape=[15, 14]), dict(w=W.transpose(1, 0, 2, 3))),
    (node("MaxPool", kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1), {}),
    (node("AveragePool", kernel_shape=[3, 3], strides=[2, 3], auto_pad="SAME_LOWER"), {}),
    (node("GlobalAveragePool"), {}),
    (node("Resize", "", "s", mode="linear"), dict(s=np.float32([1, 1, 2, 1.5]))),
    (node("Einsum", "x", equation="nchw,nchv->nwv"), {}),
    (node("MatMul", "w"), dict(w=RNG.uniform(-1, 1, (8, 5)).astype(np.float32))),
    (node("InstanceNormalization", "s", "s"), dict(s=np.float32([1, 2, 3]))),
    (node("MeanVarianceNormalization"), {}),
]


@pytest.mark.parametrize(("one", "constants"), NODES, ids=lambda v: getattr(v, "op_type", ""))
def test_symbols_give_what_fixed_extents_give(one: Any, constants: Any) -> None:
    open_ = RefBackend.prepare(model(["n", 3, "h", 8], one, **constants))
    for n, h in ((1, 7), (3, 8)):
        x = RNG.uniform(-1, 1, (n, 3, h, 8)).astype(np.float32)
        fixed = RefBackend.prepare(model([n, 3, h, 8], one, **constants)).run([x])[0]
        np.testing.assert_allclose(open_.run([x])[0], fixed, rtol=1e-5, atol=1e-6)


def test_ranks_known_only_while_running() -> None:
    open_ = RefBackend.prepare(model(None, node("Conv", "w", auto_pad="SAME_UPPER"), w=W))
    x = RNG.uniform(-1, 1, (2, 3, 5, 6)).astype(np.float32)
    fixed = RefBackend.prepare(model([2, 3, 5, 6], node("Conv", "w", auto_pad="SAME_UPPER"), w=W)).run([x])[0]
    np.testing.assert_array_equal(open_.run([x])[0], fixed)
