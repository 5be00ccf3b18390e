"""Operators of com.microsoft on quantized tensors against onnxruntime."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_core import MgxError

RNG = np.random.default_rng(31)
START = RNG.bit_generator.state
F = np.float32
MS: dict[str, Any] = {"domain": "com.microsoft"}
EXACT: dict[str, Any] = {**MS, "atol": 0}
NEAR: dict[str, Any] = {**MS, "atol": 1}  # another order of summation may round a tie differently


@pytest.fixture(autouse=True)
def same_numbers() -> None:
    """Restarts the generator, so that a test draws the same numbers whichever tests ran before it in its process."""
    RNG.bit_generator.state = START


def narrow(kind: Any, *dims: int) -> Any:
    limits = np.iinfo(kind)
    return RNG.integers(limits.min, limits.max + 1, dims).astype(kind)


def scale(value: float) -> Any:
    return np.array(value, F)


KINDS = pytest.mark.parametrize("kind", [np.uint8, np.int8])


@KINDS
def test_pointwise(agree: Any, kind: Any) -> None:
    x, y = narrow(kind, 3, 40), narrow(kind, 40)
    p, q = np.array(3, kind), np.array(100, kind)
    for name in ("QLinearAdd", "QLinearMul"):
        agree(name, x, scale(0.02), p, y, scale(0.03), q, scale(0.05), np.array(7, kind), **EXACT)
    agree("QLinearSigmoid", x, scale(0.02), p, scale(0.004), q, **EXACT)
    agree("QLinearLeakyRelu", x, scale(0.02), p, scale(0.01), q, alpha=0.2, **EXACT)
    where = RNG.random((3, 40)) > 0.5
    agree("QLinearWhere", where, x, scale(0.02), p, x, scale(0.07), q, scale(0.05), p, **EXACT)


@KINDS
def test_pools_and_concat(agree: Any, kind: Any) -> None:
    x = narrow(kind, 1, 3, 8, 8)
    parameters = scale(0.02), np.array(3, kind), scale(0.01), np.array(7, kind)
    agree("QLinearAveragePool", x, *parameters, kernel_shape=[3, 3], pads=[1, 1, 1, 1], strides=[2, 2], **NEAR)
    last = np.ascontiguousarray(x.transpose(0, 2, 3, 1))
    pool = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1, "channels_last": 1}
    agree("QLinearAveragePool", last, *parameters, **pool, **NEAR)
    agree("QLinearGlobalAveragePool", x, *parameters, **EXACT)
    agree("QLinearGlobalAveragePool", last, *parameters, channels_last=1, **EXACT)
    two = narrow(kind, 2, 3), scale(0.02), np.array(3, kind), narrow(kind, 2, 5), scale(0.07), np.array(30, kind)
    agree("QLinearConcat", scale(0.05), np.array(9, kind), *two, axis=1, **EXACT)


@KINDS
def test_products(agree: Any, kind: Any) -> None:
    b, scales, points = narrow(kind, 8, 6), RNG.random(6).astype(F), RNG.integers(0, 100, 6).astype(kind)
    bias = RNG.random(6).astype(F)
    a = narrow(np.uint8, 4, 8)
    agree("MatMulIntegerToFloat", a, b, scale(0.02), scales, np.array(3, np.uint8), points, bias, rtol=1e-3, **MS)
    agree("DynamicQuantizeMatMul", RNG.normal(size=(2, 4, 8)).astype(F), b, scales, points, bias, rtol=1e-3, **MS)
    c = RNG.integers(-50, 50, 6).astype(np.int32)
    left, right = narrow(kind, 8, 4), narrow(kind, 6, 8)
    zero = np.array(3, kind)
    flags = {"transA": 1, "transB": 1, "alpha": 0.5}
    agree("QGemm", left, scale(0.02), zero, right, scales, points, c, scale(2.5), zero, **flags, **EXACT)
    agree("QGemm", left, scale(0.02), zero, right, scale(0.1), zero, **flags, rtol=1e-3, **MS)


def test_product_scaled_by_inner_index(run: Any) -> None:
    a, b = narrow(np.int8, 4, 3), narrow(np.int8, 3, 2)
    inner, columns = RNG.random(3).astype(F), RNG.random(2).astype(F)
    (y,) = run("MatMulIntegerToFloat", a, b, inner, columns, **MS)
    np.testing.assert_allclose(y, (a * inner) @ (b * columns), rtol=1e-4)
    with pytest.raises(MgxError, match="b_scale must have 2 values"):
        run("MatMulIntegerToFloat", a, b, inner, inner, **MS)


@pytest.mark.parametrize("bits", [2, 4, 8])
@pytest.mark.parametrize("size", [16, 32])
def test_matmul_nbits(agree: Any, bits: int, size: int) -> None:
    n, k = 12, 70
    blocks = -(-k // size)
    weights, scales = narrow(np.uint8, n, blocks, size * bits // 8), RNG.normal(size=(n, blocks)).astype(F)
    points = narrow(np.uint8, n, -(-blocks * bits // 8))
    given = {"N": n, "K": k, "bits": bits, "block_size": size, "fixed": (1, 2, 3), "rtol": 1e-3, "atol": 1e-2, **MS}
    x = RNG.normal(size=(2, 3, k)).astype(F)
    agree("MatMulNBits", x, weights, scales, **given)
    agree("MatMulNBits", x, weights, scales, points, None, RNG.random(n).astype(F), **given)


def test_matmul_nbits_checks(run: Any) -> None:
    x, scales = np.zeros((1, 16), F), np.zeros((2, 1), F)
    with pytest.raises(MgxError, match="power of 2"):
        run("MatMulNBits", x, narrow(np.uint8, 2, 1, 6), scales, N=2, K=16, bits=4, block_size=12, **MS)
    with pytest.raises(MgxError, match="must have 16 elements"):
        run("MatMulNBits", x, narrow(np.uint8, 2, 2, 8), scales, N=2, K=16, bits=4, block_size=16, **MS)


def test_matmul_nbits_may_name_the_accuracy_of_its_sums(run: Any, caplog: pytest.LogCaptureFixture) -> None:
    x, weights, scales = RNG.random((1, 16)).astype(F), narrow(np.uint8, 2, 1, 8), np.ones((2, 1), F)
    given = {"N": 2, "K": 16, "bits": 4, "block_size": 16, **MS}
    (exact,) = run("MatMulNBits", x, weights, scales, **given)
    (allowed,) = run("MatMulNBits", x, weights, scales, accuracy_level=4, **given)
    np.testing.assert_array_equal(allowed, exact)  # the reference stays in floats
    assert not caplog.records
    with pytest.raises(MgxError, match="accuracy_level must be from 0 to 4, got 5"):
        run("MatMulNBits", x, weights, scales, accuracy_level=5, **given)


@pytest.mark.parametrize(("level", "bits"), [(0, 0), (1, 0), (2, 0), (3, 0), (4, 8)])
def test_matmul_nbits_of_level_4_lets_targets_round_its_rows(level: int, bits: int) -> None:
    given = {"N": 2, "K": 16, "bits": 4, "block_size": 16, "accuracy_level": level, **MS}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], **given)
    constants = {"w": narrow(np.uint8, 2, 1, 8), "s": np.ones((2, 1), F)}
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", 1, (1, 16))],
        [helper.make_tensor_value_info("y", 1, (1, 2))],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid(MS["domain"], 1)]
    program = mgx.parse_onnx_buffer(helper.make_model(graph, opset_imports=imports).SerializeToString())
    (product,) = [i for i in program.get_main_module() if i.op.name == "dequant_dot"]
    assert product.op.activation_bits == bits


@pytest.mark.parametrize("given", [False, True], ids=["", "zero points"])
def test_matmul_nbits_of_2_bits_and_level_4(run: Any, given: bool) -> None:
    """The codes are expanded to bytes, which represent the same numbers."""
    weights, scales = narrow(np.uint8, 12, 3, 8), RNG.normal(size=(12, 3)).astype(F)
    operands = [weights, scales] + ([narrow(np.uint8, 12, 1)] if given else [])
    x = RNG.normal(size=(2, 3, 70)).astype(F)
    form = {"N": 12, "K": 70, "bits": 2, "block_size": 32, "fixed": (1, 2, 3), **MS}
    results = [run("MatMulNBits", x, *operands, accuracy_level=level, **form)[0] for level in (0, 4)]
    np.testing.assert_allclose(results[1], results[0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [0, 4])
def test_matmul_nbits_of_2_bits_is_a_product_with_4_bits(level: int) -> None:
    """Large constants were unpacked on the host in each run; these are too large to be folded after parsing."""
    n, k = 1536, 1024
    weights, scales = narrow(np.uint8, n, k // 32, 8), RNG.normal(size=(n, k // 32)).astype(F)
    node = helper.make_node(
        "MatMulNBits", ["x", "w", "s"], ["y"], N=n, K=k, bits=2, block_size=32, accuracy_level=level, **MS
    )
    graph = helper.make_graph(
        [node],
        "product",
        [helper.make_tensor_value_info("x", 1, ("m", k))],
        [helper.make_tensor_value_info("y", 1, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(scales, "s")],
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    program = mgx.parse_onnx(helper.make_model(graph, opset_imports=imports, ir_version=8).SerializeToString())
    program.compile(mgx.get_target("ref"))
    assert program.executable is not None
    names = [i.name for i in program.executable.module]
    assert "dequant_dot" in names and "unpack_bits" not in names
    x = RNG.normal(size=(2, k)).astype(F)
    codes = (weights[..., None] >> np.arange(0, 8, 2, dtype=np.uint8)) & 3
    wide = ((codes.reshape(n, k // 32, 32) - F(2)) * scales[..., None]).reshape(n, k)
    np.testing.assert_allclose(np.asarray(program.run({"x": x})[0]), x @ wide.T, rtol=1e-3, atol=2e-2)


@pytest.mark.parametrize("kind", [0, 1])
def test_matmul_bnb4(agree: Any, kind: int) -> None:
    n, k = 12, 70
    x, packed, top = (
        RNG.normal(size=(2, 3, k)).astype(F),
        narrow(np.uint8, n * k // 2),
        RNG.random(-(-n * k // 16)).astype(F),
    )
    agree("MatMulBnb4", x, packed, top, N=n, K=k, quant_type=kind, block_size=16, fixed=(1, 2), rtol=1e-3, **MS)


def test_gather_block_quantized(agree: Any) -> None:
    rows = np.array([[1, 3], [2, 9]])
    agree(
        "GatherBlockQuantized",
        narrow(np.uint8, 10, 32),
        rows,
        RNG.random((10, 4)).astype(F),
        bits=4,
        block_size=16,
        fixed=(0, 2),
        **MS,
    )
    agree(
        "GatherBlockQuantized",
        narrow(np.uint8, 10, 32),
        rows,
        RNG.random((10, 4)).astype(F),
        narrow(np.uint8, 10, 2),
        bits=4,
        block_size=16,
        fixed=(0, 2, 3),
        **MS,
    )
    data = RNG.integers(0, 7, (10, 6, 33)).astype(ml_dtypes.int4)
    points = RNG.integers(0, 7, (10, 6, 3)).astype(ml_dtypes.int4)
    axes = {"gather_axis": 1, "quantize_axis": 2}
    agree(
        "GatherBlockQuantized",
        data,
        np.array([1, 3, 2]),
        RNG.random((10, 6, 3)).astype(F),
        points,
        block_size=16,
        fixed=(0, 2, 3),
        opset=21,
        **axes,
        **MS,
    )


@pytest.mark.parametrize("kind", [np.uint8, ml_dtypes.uint4, ml_dtypes.int4])
@pytest.mark.parametrize("shifted", [False, True])
def test_embeddings_are_unpacked_after_rows_are_picked(agree: Any, kind: Any, shifted: bool) -> None:
    """All of a table of 32000 rows was unpacked in each run."""
    packed = kind is np.uint8
    table = narrow(np.uint8, 50, 16) if packed else RNG.integers(0, 7, (50, 32)).astype(kind)
    points = (narrow(np.uint8, 50, 1) if packed else RNG.integers(0, 7, (50, 2)).astype(kind)) if shifted else None
    inputs = [table, np.array([[1, 3, 49]]), RNG.random((50, 2)).astype(F), points]
    given: dict[str, Any] = {"block_size": 16, "fixed": (0, 2, 3), "opset": 21, **({"bits": 4} if packed else {})}
    agree("GatherBlockQuantized", *inputs, **given, **MS)
    values = [helper.make_tensor_value_info("i1", TensorProto.INT64, [1, 3])]
    names = ["i0", "i1", "i2", *(["i3"] if shifted else [])]
    weights = [
        numpy_helper.from_array(v, k)
        for k, v in zip(("i0", "i2", "i3"), (inputs[0], *inputs[2:]), strict=True)
        if v is not None
    ]
    node = helper.make_node(
        "GatherBlockQuantized", names, ["y"], domain="com.microsoft", block_size=16, **({"bits": 4} if packed else {})
    )
    graph = helper.make_graph([node], "g", values, [helper.make_empty_tensor_value_info("y")], weights)
    imports = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    program = mgx.parse_onnx(helper.make_model(graph, opset_imports=imports).SerializeToString())
    program.compile(mgx.get_target("ref"))
    assert program.executable is not None
    names = [i.name for i in program.executable.module]
    assert names.index("gather") < names.index("unpack_int4")
    assert all(i.shape.dims[0] == 1 for i in program.executable.module if i.name == "unpack_int4")


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_dynamic_quantize_lstm(agree: Any, direction: str) -> None:
    d, h, i = 2 if direction == "bidirectional" else 1, 6, 5
    # seven bits: on processors without products of bytes, onnxruntime's sums of two saturate at 16 bits
    weights = (
        narrow(np.int8, d, i, 4 * h) // 2,
        narrow(np.int8, d, h, 4 * h) // 2,
        RNG.normal(size=(d, 8 * h)).astype(F),
    )
    scales = np.full(d, 0.01, F), np.zeros(d, np.int8), np.full(d, 0.01, F), np.zeros(d, np.int8)
    x = RNG.normal(size=(4, 2, i)).astype(F)
    given = {"hidden_size": h, "direction": direction, "outputs": 3, "fixed": (1, 2, 8, 9, 10, 11), **MS}
    agree("DynamicQuantizeLSTM", x, *weights, None, None, None, None, *scales, rtol=0.1, atol=0.05, **given)


@pytest.mark.parametrize("channels", [False, True])
def test_dynamic_quantize_lstm_is_the_layer_of_its_dequantized_weights(run: Any, channels: bool) -> None:
    d, h, i = 2, 6, 5
    w, r = narrow(np.int8, d, i, 4 * h), narrow(np.int8, d, h, 4 * h)
    bias, x = RNG.normal(size=(d, 8 * h)).astype(F), RNG.normal(size=(7, 3, i)).astype(F)
    dims = (d, 4 * h) if channels else (d,)
    sizes = [(0.002 + 0.002 * RNG.random(dims)).astype(F) for _ in "wr"]
    points = [narrow(np.int8, *dims) // 8 for _ in "wr"]
    layer = {"hidden_size": h, "direction": "bidirectional", "outputs": 3}
    scales = (sizes[0], points[0], sizes[1], points[1])
    constant = (1, 2, 8, 9, 10, 11)
    found = run("DynamicQuantizeLSTM", x, w, r, bias, None, None, None, None, *scales, fixed=constant, **layer, **MS)

    def whole(q: Any, size: Any, point: Any) -> Any:
        size, point = (v.reshape(d, 1, -1) for v in (size, point))
        return ((q.astype(F) - point) * size).transpose(0, 2, 1)

    floats = [whole(*v) for v in zip((w, r), sizes, points, strict=True)]
    for ours, wanted in zip(found, run("LSTM", x, *floats, bias, **layer), strict=True):
        np.testing.assert_allclose(ours, wanted, rtol=1e-5, atol=1e-6)


def mx(x: Any) -> Any:
    """Returns blocks of 32 along the last axis rounded to fp4 with a power-of-two scale."""
    out = np.zeros_like(x)
    for start in range(0, x.shape[-1], 32):
        part = x[..., start : start + 32]
        top = np.abs(part).max(-1, keepdims=True)
        factor = np.exp2(np.floor(np.log2(np.where(top == 0, 1, top)))) / 4
        rounded = np.clip(part / factor, -6, 6).astype(ml_dtypes.float4_e2m1fn).astype(F)
        out[..., start : start + 32] = rounded * factor
    return out


def test_block_floats(run: Any) -> None:
    x = RNG.normal(size=(3, 40)).astype(F)
    x[0, 32:] = 0
    for name in ("MXQuantizeDequantize", "MXFixNeuron"):
        (y,) = run(name, x, axis=1, block_size=32, element_dtype="fp4_e2m1", rounding_mode=2, **MS)
        np.testing.assert_array_equal(y, mx(x))
    (scales,) = run(
        "DynamicScale", x[1:], group_dim=1, group_size=32, output_dtype=23, scale_selection_method="floor", **MS
    )
    wanted = [[np.exp2(np.floor(np.log2(np.abs(r[i : i + 32]).max()))) / 4 for i in (0, 32)] for r in x[1:]]
    np.testing.assert_array_equal(scales, np.array(wanted, F))
    with pytest.raises(MgxError, match="must be fp4_e2m1"):
        run("MXFixNeuron", x, axis=1, block_size=32, element_dtype="int8", rounding_mode=2, **MS)


@pytest.mark.parametrize("act", ["relu", "gelu", "silu", "identity", "swiglu"])
@pytest.mark.parametrize("normalize", [0, 1])
def test_mixture_of_experts(agree: Any, act: str, normalize: int) -> None:
    tokens, hidden, count, inner = 6, 32, 4, 16
    rows = 2 * inner if act == "swiglu" else inner
    gated = {"swiglu_fusion": 1, "activation_alpha": 1.7, "activation_beta": 1.0, "swiglu_limit": 0.5}
    x, router = RNG.normal(size=(2, 3, hidden)).astype(F), RNG.normal(size=(tokens, count)).astype(F)
    first = (RNG.normal(size=(count, rows, hidden)) * 0.1).astype(F), RNG.normal(size=(count, rows)).astype(F)
    second = (RNG.normal(size=(count, hidden, inner)) * 0.1).astype(F), RNG.normal(size=(count, hidden)).astype(F)
    extra = gated if act == "swiglu" else {}
    given = {"k": 2, "activation_type": act, "normalize_routing_weights": normalize, **extra, **MS}
    agree("MoE", x, router, *first, *second, rtol=1e-3, atol=1e-4, **given)


def test_activated_gates_that_are_limited(run: Any) -> None:
    x, first, second = (RNG.normal(size=d).astype(F) for d in ((3, 8), (1, 12, 8), (1, 8, 6)))
    extra = {"swiglu_fusion": 2, "activation_beta": 1.0, "swiglu_limit": 0.5, "swiglu_limit_after_activation": 1}
    (found,) = run("MoE", x, np.ones((3, 1), F), first, None, second, k=1, activation_type="swiglu", **extra, **MS)
    gate, up = np.split(x @ first[0].T, 2, 1)
    hidden = np.minimum(gate / (1 + np.exp(-gate)), 0.5) * (np.clip(up, -0.5, 0.5) + 1)
    np.testing.assert_allclose(found, hidden @ second[0].T, rtol=1e-4, atol=1e-5)


def test_experts_packed_for_a_device(run: Any) -> None:
    w, s = narrow(np.uint8, 1, 4, 4), np.ones((1, 4), F)
    with pytest.raises(MgxError, match="weights_prepacked"):
        run("QMoE", np.ones((2, 8), F), np.ones((2, 1), F), w, s, None, w, s, weights_prepacked=1, **MS)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("size", [0, 16])
def test_mixture_of_quantized_experts(agree: Any, bits: int, size: int) -> None:
    hidden, count, inner = 32, 4, 16

    def weights(rows: int, columns: int) -> Any:
        scales = (count, rows, columns // size) if size else (count, rows)
        return narrow(np.uint8, count, rows, columns * bits // 8), RNG.random(scales).astype(F) * F(0.01)

    x, router = RNG.normal(size=(6, hidden)).astype(F), RNG.normal(size=(6, count)).astype(F)
    given = {
        "k": 2,
        "expert_weight_bits": bits,
        "normalize_routing_weights": 1,
        **({"block_size": size} if size else {}),
        **MS,
    }
    operands = *weights(inner, hidden), None, *weights(hidden, inner), None
    agree("QMoE", x, router, *operands, fixed=(2, 3, 5, 6), rtol=0.05, atol=0.05, **given)


@KINDS
@pytest.mark.parametrize("window", [{"pads": [1, 1, 0, 0], "strides": [2, 1]}, {"dilations": [2, 1], "ceil_mode": 1}])
def test_max_pool_with_channels_last(agree: Any, kind: Any, window: Any) -> None:
    agree("NhwcMaxPool", narrow(kind, 2, 9, 8, 5), kernel_shape=[3, 2], **window, **EXACT)


def test_fused_convolution_with_channels_last(run: Any) -> None:
    """Only float16 on ARM processors has it in onnxruntime: compared with FusedConv."""
    x, w, bias = (RNG.normal(size=d).astype(F) for d in ((1, 4, 6, 5), (8, 4, 3, 3), (8,)))
    z = RNG.normal(size=(1, 8, 6, 5)).astype(F)
    given: Any = {"pads": [1, 1, 1, 1], "activation": "Relu", **MS}
    (wanted,) = run("FusedConv", x, w, bias, z, **given)
    (found,) = run("NhwcFusedConv", x.transpose(0, 2, 3, 1), w, bias, z.transpose(0, 2, 3, 1), **given)
    np.testing.assert_array_equal(found, wanted.transpose(0, 2, 3, 1))


@pytest.mark.parametrize("segmented", [True, False])
def test_quantized_embeddings(agree: Any, segmented: bool) -> None:
    ids, kinds = RNG.integers(0, 30, (2, 5)).astype(np.int32), RNG.integers(0, 2, (2, 5)).astype(np.int32)
    tables = [narrow(np.uint8, *dims) for dims in ((30, 12), (9, 12), (2, 12), (12,), (12,))]
    scales = [scale(v) for v in (0.01, 0.02, 0.03, 0.015, 0.005)]
    points = [np.array(v, np.uint8) for v in (128, 120, 7, 100, 130)]
    if not segmented:
        kinds, tables[2], scales[2], points[2] = (None,) * 4
    mask = np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]], np.int32)
    agree("QEmbedLayerNormalization", ids, kinds, *tables, mask, *scales, *points, outputs=2, **MS, atol=1e-5)
