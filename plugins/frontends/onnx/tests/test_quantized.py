"""Quantize, dequantize and the operators of the standard on quantized tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mgx_core as mgx
from mgx_core import MgxError

RNG = np.random.default_rng(17)
F = np.float32


def u8(*dims: int) -> Any:
    return RNG.integers(0, 256, dims).astype(np.uint8)


def i8(*dims: int) -> Any:
    return RNG.integers(-128, 128, dims).astype(np.int8)


def scalar(value: Any, dtype: Any = F) -> Any:
    return np.array(value, dtype)


@pytest.mark.parametrize("opset", [10, 13, 19, 21, 23])
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
def test_per_tensor(agree: Any, opset: int, kind: Any) -> None:
    x = RNG.normal(size=(3, 5)).astype(F) * 40
    (q,) = agree("QuantizeLinear", x, scalar(0.5), scalar(3, kind), opset=opset)
    agree("DequantizeLinear", q, scalar(0.5), scalar(3, kind), opset=opset)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_per_axis(agree: Any, axis: int) -> None:
    x = RNG.normal(size=(4, 4, 4)).astype(F) * 40
    scale, point = np.array([0.1, 0.5, 1, 2], F), np.array([0, 1, 2, 3], np.uint8)
    (q,) = agree("QuantizeLinear", x, scale, point, opset=13, axis=axis)
    agree("DequantizeLinear", q, scale, point, opset=13, axis=axis)


@pytest.mark.parametrize("kind", [np.int16, np.uint16, np.int8, ml_dtypes.int4, ml_dtypes.uint4])
def test_blocks(run: Any, kind: Any) -> None:
    x = RNG.normal(size=(2, 5)).astype(F) * 4
    scale = np.abs(RNG.normal(size=(2, 3))).astype(F) + 0.1
    (q,) = run("QuantizeLinear", x, scale, np.zeros((2, 3), kind), opset=21, block_size=2)
    assert q.dtype == kind
    wide = np.repeat(scale, 2, 1)[:, :5]
    limits = ml_dtypes.iinfo(kind)
    np.testing.assert_array_equal(q.astype(int), np.clip(np.rint(x / wide), limits.min, limits.max).astype(int))
    (y,) = run("DequantizeLinear", q, scale, opset=21, block_size=2)
    np.testing.assert_allclose(y, q.astype(F) * wide, rtol=1e-6)


def test_output_types(run: Any) -> None:
    x = np.array([0.4, 500], F)
    (q,) = run("QuantizeLinear", x, scalar(1), opset=21, output_dtype=17)
    assert q.dtype == ml_dtypes.float8_e4m3fn
    assert q.astype(F).tolist() == [0.40625, 448]
    (y,) = run("DequantizeLinear", q, scalar(1), opset=23, output_dtype=10)
    assert y.dtype == np.float16
    with pytest.raises(MgxError, match="differs from the zero point's type"):
        run("QuantizeLinear", x, scalar(1), scalar(0, np.uint8), opset=21, output_dtype=3)


@pytest.mark.parametrize("x", [[0.0, 2, -3, 1.5], [1.0, 2, 3], [-4.0, -1], [0.0, 0], []])
def test_dynamic_quantize(agree: Any, run: Any, x: Any) -> None:
    if x:
        agree("DynamicQuantizeLinear", np.array(x, F), opset=11, outputs=3)
    else:
        assert run("DynamicQuantizeLinear", np.array(x, F), opset=11, outputs=3)[0].size == 0


def test_matmul_integer(agree: Any) -> None:
    # seven bits: on processors without products of bytes, onnxruntime's sums of two saturate at 16 bits
    for b in (u8(4, 3), i8(4, 3) // 2):
        agree("MatMulInteger", u8(2, 5, 4), b, scalar(9, np.uint8), RNG.integers(0, 9, 3).astype(b.dtype), opset=10)
        agree("MatMulInteger", u8(5, 4), b, opset=10)


def test_matmul_integer_by_row(run: Any) -> None:
    a, b, point = u8(2, 4), u8(4, 3), np.array([3, 200], np.uint8)
    (y,) = run("MatMulInteger", a, b, point, opset=10)
    np.testing.assert_array_equal(y, (a.astype(int) - point[:, None]) @ b.astype(int))


def test_conv_integer(agree: Any) -> None:
    agree(
        "ConvInteger",
        u8(1, 4, 6, 6),
        u8(6, 2, 3, 3),
        scalar(100, np.uint8),
        scalar(7, np.uint8),
        opset=10,
        group=2,
        pads=[1, 0, 1, 0],
    )
    agree("ConvInteger", u8(1, 2, 6, 6), u8(6, 2, 3, 3), opset=10, strides=[2, 1], auto_pad="SAME_UPPER")


@pytest.mark.parametrize("kind", [u8, i8])
def test_qlinear_conv(agree: Any, kind: Any) -> None:
    x, w = kind(1, 3, 8, 8), kind(5, 3, 3, 3)
    zero = x.dtype
    scales = RNG.random(5).astype(F) * F(0.01) + F(0.001)
    bias = RNG.integers(-500, 500, 5).astype(np.int32)
    operands = [x, scalar(0.02), scalar(3, zero), w, scales, np.zeros(5, zero), scalar(0.4), scalar(100, zero), bias]
    agree("QLinearConv", *operands, opset=10, pads=[1, 1, 1, 1], strides=[2, 1], fixed=(3, 4, 5), atol=0)


@pytest.mark.parametrize("kind", [u8, i8])
def test_qlinear_matmul(agree: Any, kind: Any) -> None:
    a, b = kind(2, 3, 8), kind(8, 5)
    zero = a.dtype
    points = scalar(3, zero), RNG.integers(0, 9, 5).astype(zero), scalar(100, zero)
    scales = scalar(0.02), RNG.random(5).astype(F), scalar(4.0)
    agree(
        "QLinearMatMul",
        a,
        scales[0],
        points[0],
        b,
        scales[1],
        points[1],
        scales[2],
        points[2],
        opset=10,
        atol=0,
        fixed=(3, 4, 5),
    )


def test_qlinear_matmul_by_row(run: Any) -> None:
    a, b = u8(2, 4), u8(4, 3)
    scale, point = np.array([0.1, 0.02], F), np.array([3, 200], np.uint8)
    (y,) = run(
        "QLinearMatMul",
        a,
        scale,
        point,
        b,
        scalar(0.5),
        scalar(7, np.uint8),
        scalar(50),
        scalar(128, np.uint8),
        opset=10,
    )
    sums = ((a.astype(int) - point[:, None].astype(int)) @ (b.astype(int) - 7)).astype(F)
    wanted = np.clip(np.rint(sums * scale[:, None] * F(0.5) / F(50)) + 128, 0, 255)
    np.testing.assert_array_equal(y, wanted.astype(np.uint8))


@pytest.mark.parametrize("raw", [False, True], ids=["fields", "raw"])
@pytest.mark.parametrize("kind", [ml_dtypes.float6_e2m3fn, ml_dtypes.float6_e3m2fn])
def test_floats_of_six_bits(kind: Any, raw: bool) -> None:
    """Four take three bytes of raw data; in fields, each has its own number."""
    given = np.array([0.5, 1, -2, 7.5, -3, 100, 0.0625]).astype(kind)
    code = 27 if kind is ml_dtypes.float6_e2m3fn else 28
    w = numpy_helper.from_array(given, "w") if raw else helper.make_tensor("w", code, [7], given.astype(F))
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "scale"], ["y"]),
        helper.make_node("QuantizeLinear", ["x", "scale"], ["q"], output_dtype=code),
        helper.make_node("Cast", ["q"], ["z"], to=TensorProto.FLOAT),
    ]
    x, y, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [7]) for name in "xyz")
    graph = helper.make_graph(nodes, "six", [x], [y, z], [w, numpy_helper.from_array(scalar(2), "scale")])
    program = mgx.parse_onnx_buffer(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 28)]).SerializeToString()
    )
    program.compile(mgx.get_target("ref"))
    numbers = np.array([0.3, -1000, 5, 9.1, 60, 0, -0.2], F)
    y, z = (np.asarray(found) for found in program.run({"x": numbers}))
    np.testing.assert_array_equal(y, given.astype(F) * 2)
    top = float(ml_dtypes.finfo(kind).max)
    np.testing.assert_array_equal(z, np.clip(numbers / 2, -top, top).astype(kind).astype(F))
