"""Quantize, dequantize and products of quantized tensors."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops.quantized import Capture, Dequantizelinear, Quantizelinear
from mgx_core.ops.quantized_product import QuantConvolution, QuantDot
from mgx_core.rules.engine import Builder
from mgx_core.types.argument import shape_of
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(7)
F = np.float32


def run(op: Any, *xs: Any) -> Any:
    shapes = [None if x is None else shape_of(x) for x in xs]
    wanted = op.result(shapes)
    out = op.evaluate(list(xs))
    assert (dt.of(out.dtype), out.shape) == (wanted.dtype, wanted.dims)
    return out


def same_as_parts(op: Any, *xs: Any) -> None:
    module = Module()
    inputs = [
        module.add_absent() if x is None else module.add_parameter(f"p{i}", shape_of(x)) for i, x in enumerate(xs)
    ]
    whole = module.add(op, *inputs)
    parts = op.decompose(Builder(module, whole), *(None if i.is_absent else i for i in inputs))
    module.add_return([whole, parts])
    one, other = Interpreter().run(module, [x for x in xs if x is not None])
    assert one.dtype == other.dtype
    np.testing.assert_allclose(other.astype(np.float64), one.astype(np.float64), rtol=1e-6)


def test_quantize_rounds_to_even_and_saturates() -> None:
    x = np.array([0, 1, 3, 5, 1000, -1000, np.inf, -np.inf], F)
    assert run(Quantizelinear(), x, F(2)[()].reshape(()), np.array(10, np.uint8)).tolist() == [
        10,
        10,
        12,
        12,
        255,
        0,
        255,
        0,
    ]
    assert run(Quantizelinear(out_type=dt.int8), x, np.array(2, F)).tolist() == [0, 0, 2, 2, 127, -128, 127, -128]


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16])
def test_quantize_returns_zero_for_nan(kind: type) -> None:
    x = np.array([np.nan, np.inf, 4], F)
    assert run(Quantizelinear(), x, np.array(2, F), np.array(5, kind)).tolist() == [0, np.iinfo(kind).max, 7]
    same_as_parts(Quantizelinear(), x, np.array(2, F), np.array(5, kind))


def test_quantize_along_an_axis_and_in_blocks() -> None:
    x = np.array([[1, 2, 3, 4, 5], [10, 20, 30, 40, 50]], F)
    assert run(Quantizelinear(axis=0), x, np.array([1, 10], F)).tolist() == [[1, 2, 3, 4, 5]] * 2
    scale = np.array([[1, 2, 5], [1, 2, 5]], F)
    blocked = run(Quantizelinear(axis=1, block_size=2), x, scale)
    assert blocked.tolist() == [[1, 2, 2, 2, 1], [10, 20, 15, 20, 10]]


def test_quantize_to_narrow_floats() -> None:
    x = np.array([0.3, 500, -1e9, np.nan], F)
    one = np.array(1, F)
    saturated = run(Quantizelinear(out_type=dt.float8_e4m3fn), x, one).astype(F)
    np.testing.assert_array_equal(saturated, np.array([0.3125, 448, -448, np.nan], F))
    open_ended = run(Quantizelinear(out_type=dt.float8_e5m2, saturate=False), x, one).astype(F)
    np.testing.assert_array_equal(open_ended, np.array([0.3125, 512, -np.inf, np.nan], F))
    assert run(Quantizelinear(out_type=dt.float4_e2m1fn), np.array([0.3, 2.4, -9], F), one).astype(F).tolist() == [
        0.5,
        2,
        -6,
    ]


def test_parts_of_quantization_overflow_if_it_does_not_saturate() -> None:
    x = np.array([0.3, 500, -1e9, np.nan], F)
    for kind in (dt.float8_e4m3fn, dt.float8_e5m2):
        same_as_parts(Quantizelinear(out_type=kind, saturate=False), x, np.array(1, F))


def test_quantize_sub_byte_integers() -> None:
    x = np.array([-100, -8, -1, 0, 1, 7, 100], F)
    one = np.array(1, F)
    for kind, low, high in ((dt.int4, -8, 7), (dt.uint4, 0, 15), (dt.int2, -2, 1), (dt.uint2, 0, 3)):
        out = run(Quantizelinear(out_type=kind), x, one)
        assert out.astype(np.int8).tolist() == np.clip(x, low, high).astype(int).tolist()


def test_precision_of_the_quotient() -> None:
    x, scale = np.array([1001], F), np.array([0.3], F)
    exact = run(Quantizelinear(out_type=dt.int16), x, scale)
    coarse = run(Quantizelinear(out_type=dt.int16, precision=dt.float16), x, scale)
    assert exact.tolist() == [3337]
    assert coarse.tolist() == [int(np.rint(F(np.float16(F(1001) / F(0.3)))))] == [3336]


def test_dequantize() -> None:
    x = np.array([[0, 128, 255]], np.uint8)
    assert run(Dequantizelinear(), x, np.array(0.5, F), np.array(128, np.uint8)).tolist() == [[-64, 0, 63.5]]
    assert run(Dequantizelinear(), x, np.array([1, 2, 4], F)).tolist() == [[0, 256, 1020]]
    big = np.array([2**31 - 1], np.int32)
    assert run(Dequantizelinear(), big, np.array(1, F)).tolist() == [2.0**31]
    power = np.array(4, ml_dtypes.float8_e8m0fnu)
    assert run(Dequantizelinear(), np.array([3], np.int8), power).dtype == np.float32


def test_dequantize_to_another_type() -> None:
    out = run(Dequantizelinear(out_type=dt.float16), np.array([7], np.int8), np.array(0.1, F))
    assert out.dtype == np.float16
    assert out.tolist() == [float(np.float16(F(7) * F(0.1)))]


@pytest.mark.parametrize("kind", ["int8", "uint8", "int4", "uint16", "float8_e4m3fn"])
def test_parts_mean_the_same(kind: str) -> None:
    to = dt.of(kind)
    x = RNG.normal(size=(3, 7)).astype(F) * 30
    for scale, block in ((np.array(0.5, F), 0), (np.full(7, 0.3, F), 0), (np.full((3, 3), 0.7, F), 3)):
        zero = np.ones(scale.shape).astype(to.numpy)
        op = Quantizelinear(out_type=to, block_size=block)
        same_as_parts(op, x, scale, zero)
        same_as_parts(Dequantizelinear(block_size=block), op.evaluate([x, scale, zero]), scale, zero)


def test_large_zero_points_keep_their_last_digit() -> None:
    point = np.array(2**24 + 1, np.int32)
    assert run(Quantizelinear(), F([0, 4]), F(1), point).tolist() == [2**24 + 1, 2**24 + 5]


@pytest.mark.parametrize("kind", [np.int32, np.uint32])
def test_parts_of_wide_integers_are_subtracted_before_they_are_rounded(kind: Any) -> None:
    x = np.array([[2**30 + 1, 5], [7, 2**31 - 1]], kind)
    same_as_parts(Dequantizelinear(), x, np.array(0.25, F), np.array(2**30, kind))
    same_as_parts(Dequantizelinear(), x, np.array([0.25, 3], F), np.array([2**30, 2**31 - 3], kind))


def test_scales_that_do_not_fit() -> None:
    x = Shape(dt.float32, [3, 5])
    with pytest.raises(ShapeError, match="does not fit axis 1"):
        Quantizelinear().result([x, Shape(dt.float32, [4])])
    with pytest.raises(ShapeError, match="required is 5 in blocks of 2"):
        Quantizelinear(block_size=2).result([x, Shape(dt.float32, [3, 2])])
    with pytest.raises(ShapeError, match="zero_point must have scale's dims"):
        Quantizelinear().result([x, Shape(dt.float32, [5]), Shape(dt.uint8, [3])])
    open_extent = Shape.of(dt.float32, (3, symbol("n", 1, 9)))
    assert Quantizelinear().result([open_extent, Shape(dt.float32, [5])]).dims == open_extent.dims


def test_integer_product() -> None:
    a, b = RNG.integers(0, 256, (2, 3, 4)).astype(np.uint8), RNG.integers(-128, 128, (4, 5)).astype(np.int8)
    za, zb = np.array(7, np.uint8), RNG.integers(-9, 9, 5).astype(np.int8)
    wanted = (a.astype(int) - 7) @ (b.astype(int) - zb)
    np.testing.assert_array_equal(run(QuantDot(), a, b, za, zb), wanted.astype(np.int32))
    same_as_parts(QuantDot(), a, b, za, zb)
    with pytest.raises(ShapeError, match="inner extents"):
        QuantDot().result([Shape(dt.int8, [2, 3]), Shape(dt.int8, [4, 5])])
    with pytest.raises(ShapeError, match="of its operand"):
        QuantDot().result([shape_of(a), shape_of(b), Shape(dt.int8, [])])


def test_integer_convolution_pads_with_the_zero_point() -> None:
    x, w = np.full((1, 1, 2, 2), 5, np.uint8), np.ones((1, 1, 3, 3), np.int8)
    out = run(QuantConvolution(padding=(1, 1)), x, w, np.array(3, np.uint8))
    assert out.reshape(-1).tolist() == [8, 8, 8, 8]
    per_kernel = run(
        QuantConvolution(),
        np.full((1, 1, 1, 1), 10, np.int8),
        np.ones((2, 1, 1, 1), np.int8),
        None,
        np.array([1, 3], np.int8),
    )
    assert per_kernel.reshape(-1).tolist() == [0, -20]


def test_capture_is_transparent() -> None:
    x = np.arange(3, dtype=F)
    assert run(Capture(ins_index=2), x) is x


def test_zero_points_that_turn_out_not_to_fit_are_refused() -> None:
    """With symbolic extents, shape inference cannot reject them."""
    x, w = np.ones((1, 1, 2, 2), np.uint8), np.ones((2, 1, 1, 1), np.int8)
    with pytest.raises(ShapeError, match="one per filter"):
        QuantConvolution().compute(x, w, None, np.ones(3, np.int8))
    for a, b in ((np.ones((2, 3), np.int8), None), (None, np.ones((2, 1, 1), np.int8))):
        with pytest.raises(ShapeError, match="does not broadcast"):
            QuantDot().compute(np.ones((1, 3), np.int8), np.ones((3, 1), np.int8), a, b)
