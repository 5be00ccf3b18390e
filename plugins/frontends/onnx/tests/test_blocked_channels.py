"""Files that onnxruntime saved after all its optimizations: blocked channels and filters (com.microsoft.nchwc)."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_core.types.argument import Array

RNG = np.random.default_rng(5)
DOMAIN = "com.microsoft.nchwc"


def blocked(w: Array, block: int) -> Array:
    """A filter [o, i, kh, kw] as onnxruntime stores it: whole blocks of inputs and outputs, or of outputs alone."""
    o, i, kh, kw = w.shape
    if i % block:
        return np.ascontiguousarray(w.reshape(o // block, block, i, kh, kw).transpose(0, 2, 3, 4, 1)).reshape(w.shape)
    parts = w.reshape(o // block, block, i // block, block, kh, kw).transpose(0, 2, 4, 5, 3, 1)
    return np.ascontiguousarray(parts).reshape(w.shape)


def model_of(nodes: list[onnx.NodeProto], dims: list[int], weights: dict[str, Array]) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(w, name) for name, w in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, 1)])


def results(model: onnx.ModelProto, x: Array, **options: Any) -> Array:
    program = mgx.parse_onnx(model.SerializeToString(), **options)
    program.compile(mgx.get_target("ref"))
    return np.asarray(program.run({"x": x})[0])


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "within an If"])
@pytest.mark.parametrize(
    ("dims", "outputs", "group"),
    [((2, 3, 7, 6), 24, 1), ((1, 16, 5, 5), 40, 1), ((1, 24, 5, 5), 24, 24), ((1, 32, 4, 4), 24, 1)],
)
def test_filters_in_blocks_of_eight(dims: tuple[int, ...], outputs: int, group: int, wrapped: bool) -> None:
    """24 and 40 channels are no multiple of 16."""
    x = RNG.standard_normal(dims, np.float32)
    w = RNG.standard_normal((outputs, dims[1] // group, 3, 3), np.float32)
    bias = RNG.standard_normal(outputs, np.float32)
    given: dict[str, Any] = {"group": group, "pads": [1, 1, 1, 1], "strides": [2, 1], "kernel_shape": [3, 3]}
    source = ["x"]
    nodes = []
    if dims[1] >= 8:
        nodes.append(helper.make_node("ReorderInput", ["x"], ["c"], domain=DOMAIN))
        source = ["c"]
    nodes.append(helper.make_node("Conv", [*source, "w", "b"], ["d"], domain=DOMAIN, activation="Relu", **given))
    nodes.append(helper.make_node("ReorderOutput", ["d"], ["y"], domain=DOMAIN, channels=outputs - 3, channels_last=1))
    weights = {"w": blocked(w, 8), "b": bias}
    if wrapped:
        inner = helper.make_graph(nodes, "then", [], [helper.make_empty_tensor_value_info("y")])
        inner.initializer.extend(numpy_helper.from_array(v, k) for k, v in weights.items())
        branch = helper.make_node("If", ["yes"], ["y"], then_branch=inner, else_branch=inner)
        model = model_of([branch], list(dims), {"yes": np.array(True)})
    else:
        model = model_of(nodes, list(dims), weights)
    plain = [helper.make_node("Conv", ["x", "w", "b"], ["d"], **given), helper.make_node("Relu", ["d"], ["y"])]
    wanted = results(model_of(plain, list(dims), {"w": w, "b": bias}), x)[:, : outputs - 3].transpose(0, 2, 3, 1)
    np.testing.assert_allclose(results(model, x), wanted, rtol=1e-5, atol=1e-5)


def test_the_option_decides_where_the_file_does_not(caplog: pytest.LogCaptureFixture) -> None:
    x, w = RNG.standard_normal((1, 3, 4, 4), np.float32), RNG.standard_normal((32, 3, 1, 1), np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["d"], domain=DOMAIN, kernel_shape=[1, 1]),
        helper.make_node("ReorderOutput", ["d"], ["y"], domain=DOMAIN, channels=32),
    ]
    wanted = np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0])
    for block in (8, 16):
        model = model_of(nodes, [1, 3, 4, 4], {"w": blocked(w, block)})
        np.testing.assert_allclose(results(model, x, channel_block=block), wanted, rtol=1e-5, atol=1e-5)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "mgx"):
        mgx.parse_onnx(model.SerializeToString())
    assert "option channel_block" in caplog.text
    with pytest.raises(mgx.ParameterError, match="channel_block must be 0, 8 or 16, got 4"):
        mgx.parse_onnx(model.SerializeToString(), channel_block=4)


def test_more_channels_asked_for_than_there_are() -> None:
    nodes = [helper.make_node("ReorderOutput", ["x"], ["y"], domain=DOMAIN, channels=17)]
    with pytest.raises(
        mgx.MgxError, match=r"channels must be in 1..16, the channels of X float32\[1, 16, 2, 2\], got 17"
    ):
        mgx.parse_onnx(model_of(nodes, [1, 16, 2, 2], {}).SerializeToString())


def test_files_saved_by_onnxruntime_here(tmp_path: Path) -> None:
    """Convolutions of each kind, pools, a sum, upsampling; saved with blocks of this machine and read back."""
    peer = pytest.importorskip("onnxruntime")
    weights = {
        "w0": RNG.standard_normal((32, 3, 3, 3), np.float32) * 0.2,
        "b0": RNG.standard_normal(32, np.float32),
        "w1": RNG.standard_normal((32, 1, 3, 3), np.float32),
        "w2": RNG.standard_normal((20, 32, 1, 1), np.float32) * 0.2,
        "w3": RNG.standard_normal((32, 20, 3, 3), np.float32) * 0.1,
        "scales": np.array([1, 1, 2, 2], np.float32),
    }
    doubled = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    node = helper.make_node
    nodes = [
        node("Conv", ["x", "w0", "b0"], ["a0"], pads=[1, 1, 1, 1]),
        node("Relu", ["a0"], ["a"]),
        node("MaxPool", ["a"], ["b"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        node("Conv", ["b", "w1"], ["c"], group=32, pads=[1, 1, 1, 1]),
        node("Conv", ["c", "w2"], ["d"]),
        node("Conv", ["d", "w3"], ["e"], pads=[1, 1, 1, 1]),
        node("Add", ["e", "b"], ["f0"]),
        node("AveragePool", ["f0"], ["f"], kernel_shape=[2, 2], count_include_pad=1, pads=[1, 0, 0, 0]),
        node("Resize", ["f", "", "scales"], ["g"], mode="nearest", **doubled),
        node("Resize", ["d", "", "scales"], ["z"], mode="linear", **doubled),
        node("GlobalAveragePool", ["g"], ["h"]),
        node("Mul", ["g", "h"], ["y"]),
    ]
    model = model_of(nodes, [2, 3, 12, 10], weights)
    model.graph.output.append(helper.make_empty_tensor_value_info("z"))
    model.ir_version = 8
    options = peer.SessionOptions()
    options.optimized_model_filepath, options.log_severity_level = str(tmp_path / "saved.onnx"), 3
    session = peer.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    saved = {n.op_type for n in onnx.load(tmp_path / "saved.onnx").graph.node if n.domain == DOMAIN}
    if not saved:
        pytest.skip("onnxruntime blocks no channels on this processor")
    assert {"Conv", "MaxPool", "ReorderOutput"} <= saved
    x = RNG.standard_normal((2, 3, 12, 10), np.float32)
    program = mgx.parse_onnx(tmp_path / "saved.onnx")
    program.compile(mgx.get_target("ref"))
    for ours, wanted in zip(program.run({"x": x}), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(np.asarray(ours), wanted, rtol=1e-4, atol=1e-4)
