"""Operators of com.microsoft on quantized tensors whose rank or extents are known only at run time."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx

F = np.float32


def test_operands_whose_rank_a_run_finds_out() -> None:
    """Squeeze without axes leaves the rank unknown, and operators of com.microsoft have no schema in the package onnx."""
    zero, scales = numpy_helper.from_array(np.array(3, np.int8), "z"), numpy_helper.from_array(np.array(0.02, F), "s")
    graph = helper.make_graph(
        [
            helper.make_node("Squeeze", ["x"], ["y"]),
            helper.make_node("QLinearSigmoid", ["y", "s", "z", "s", "z"], ["w"], domain="com.microsoft"),
            helper.make_node("QLinearAdd", ["w", "s", "z", "y", "s", "z", "s", "z"], ["v"], domain="com.microsoft"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT8, ["n", 1])],
        [helper.make_tensor_value_info("v", TensorProto.INT8, None)],
        [zero, scales],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    program = mgx.parse_onnx_buffer(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    program.compile(mgx.get_target("ref"))
    for n, dims in ((5, (5,)), (1, ())):
        x = np.random.default_rng(n).integers(-128, 128, (n, 1)).astype(np.int8)
        (got,) = (np.asarray(v) for v in program.run({"x": x}))
        real = (x.reshape(dims).astype(F) - 3) * F(0.02)
        wide = (np.clip(np.rint(1 / (1 + np.exp(-real)) / F(0.02)) + 3, -128, 127) - 3) * F(0.02)
        assert got.dtype == np.int8 and got.shape == dims
        np.testing.assert_allclose(got, np.clip(np.rint((wide + real) / F(0.02)) + 3, -128, 127), atol=1)


@pytest.mark.parametrize("bits", [4, 8])
def test_matmul_nbits_of_rows_of_open_length(bits: int) -> None:
    weights = numpy_helper.from_array(np.full((2, 1, 2 * bits), 17, np.uint8), "w")
    given = {"N": 2, "K": 16, "bits": bits, "block_size": 16}
    graph = helper.make_graph(
        [helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **given, domain="com.microsoft")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", "k"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [weights, numpy_helper.from_array(np.ones((2, 1), F), "s")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    program = mgx.parse_onnx_buffer(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())
    program.compile(mgx.get_target("ref"))
    wanted = 16 * (1 - 8 if bits == 4 else 17 - 128)
    np.testing.assert_array_equal(program.run({"x": np.ones((3, 16), F)})[0], np.full((3, 2), wanted))
    with pytest.raises(mgx.MgxError, match="cannot be reshaped"):
        program.run({"x": np.ones((3, 15), F)})


def test_a_cache_is_as_long_as_its_inputs_say() -> None:
    """total_sequence_length is an extent of the mask, as model builders write it, so that no extent depends on data."""
    d, groups = 8, 2
    nodes = [
        helper.make_node("ReduceSum", ["mask", "one"], ["tokens"]),
        helper.make_node("Sub", ["tokens", "one"], ["last64"]),
        helper.make_node("Cast", ["last64"], ["last"], to=TensorProto.INT32),
        helper.make_node("Shape", ["mask"], ["dims"]),
        helper.make_node("Gather", ["dims", "first"], ["total64"]),
        helper.make_node("Cast", ["total64"], ["total"], to=TensorProto.INT32),
        helper.make_node(
            "GroupQueryAttention",
            ["qkv", "", "", "past_k", "past_v", "last", "total"],
            ["y", "k", "v"],
            domain="com.microsoft",
            num_heads=4,
            kv_num_heads=groups,
        ),
    ]
    f, i = TensorProto.FLOAT, TensorProto.INT64
    given = [("qkv", f, ["b", "s", 8 * d]), ("mask", i, ["b", "t"])]
    given += [(f"past_{x}", f, ["b", groups, "p", d]) for x in "kv"]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*g) for g in given],
        [helper.make_tensor_value_info(name, f, None) for name in ("y", "k", "v")],
        [numpy_helper.from_array(np.array([1]), "one"), numpy_helper.from_array(np.array(1), "first")],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    program = mgx.parse_onnx_buffer(model)
    assert str(program.get_output_shapes()[1]) == f"float32[b, {groups}, max(p, t), {d}]"
    program.compile(mgx.get_target("ref"))
    peer = pytest.importorskip("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for b, s, p, t in ((1, 1, 6, 7), (2, 3, 0, 3), (1, 1, 7, 8), (2, 1, 9, 5)):
        feeds = {"qkv": rng.normal(size=(b, s, 8 * d)).astype(F), "mask": np.ones((b, t), np.int64)}
        feeds |= {f"past_{x}": rng.normal(size=(b, groups, p, d)).astype(F) for x in "kv"}
        for ours, wanted in zip(map(np.asarray, program.run(feeds)), peer.run(None, feeds), strict=True):
            assert ours.shape == wanted.shape
            # rows of a cache behind its tokens may differ
            end = (slice(None),) * 2 + (slice(t),) if ours.ndim == 4 else ...
            np.testing.assert_allclose(ours[end], wanted[end], rtol=1e-4, atol=1e-5)


def decoder(groups: int, d: int, **attributes: int) -> bytes:
    """Returns two layers of GroupQueryAttention with rotary embedding whose total length is an input."""
    nodes, given, results = [], [("x", TensorProto.FLOAT, ["b", "s", 8 * d])], []
    rng = np.random.default_rng(1)
    weights = {
        "cos": rng.normal(size=(40, d // 2)),
        "sin": rng.normal(size=(40, d // 2)),
        "w": rng.normal(size=(4 * d, 8 * d)),
    }
    given += [("last", TensorProto.INT32, ["b"]), ("total", TensorProto.INT32, [1])]
    for i in range(2):
        given += [(f"past_{x}{i}", TensorProto.FLOAT, ["b", groups, "p", d]) for x in "kv"]
        inputs = [f"x{i}" if i else "x", "", "", f"past_k{i}", f"past_v{i}", "last", "total", "cos", "sin"]
        outputs = [f"y{i}", f"k{i}", f"v{i}"]
        given_attributes = {"num_heads": 4, "kv_num_heads": groups, "do_rotary": 1, **attributes}
        nodes.append(
            helper.make_node("GroupQueryAttention", inputs, outputs, domain="com.microsoft", **given_attributes)
        )
        nodes.append(helper.make_node("MatMul", [f"y{i}", "w"], [f"x{i + 1}"]))
        results += outputs
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*g) for g in given],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in results],
        [numpy_helper.from_array(value.astype(F), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize(
    "attributes", [{}, {"rotary_interleaved": 1}, {"local_window_size": 4}, {"smooth_softmax": 1}, {"softcap": 2.0}]
)
def test_the_length_of_caches_is_an_input(target: str, attributes: dict[str, int]) -> None:
    """Caches that grow, and caches with room for more tokens; samples of different lengths are padded on the right."""
    d, groups = 16, 2  # onnxruntime rotates multiples of 16 elements
    model = decoder(groups, d, **attributes)
    program = mgx.parse_onnx_buffer(model)
    shapes = program.get_output_shapes()
    assert shapes[1].dims == shapes[2].dims == shapes[4].dims == shapes[5].dims  # one extent for all layers
    program.compile(mgx.get_target(target))
    peer = pytest.importorskip("onnxruntime").InferenceSession(model, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(0)
    for last, s, p in (
        ([2], 3, 0),
        ([3], 1, 3),
        ([4], 1, 4),
        ([2], 3, 9),
        ([3], 1, 9),
        ([7, 4, 0], 1, 9),
        ([7, 4, 6], 1, 7),
    ):
        b = len(last)
        feeds = {"x": rng.normal(size=(b, s, 8 * d)).astype(F), "last": np.array(last, np.int32)}
        feeds["total"] = np.array([max(last) + 1], np.int32)
        feeds |= {f"past_{x}{i}": rng.normal(size=(b, groups, p, d)).astype(F) for x in "kv" for i in range(2)}
        for ours, wanted in zip(map(np.asarray, program.run(feeds)), peer.run(None, feeds), strict=True):
            assert ours.shape == wanted.shape
            for n, end in enumerate(last):
                # rows of a cache behind its tokens may differ
                rows = (n, slice(None), slice(end + 1)) if ours.ndim == 4 else n
                np.testing.assert_allclose(ours[rows], wanted[rows], rtol=1e-4, atol=1e-4)
