"""Elementwise operators of all opsets."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import MgxError, ParseError

RNG = np.random.default_rng(3)
A = RNG.uniform(-2, 2, (2, 3, 4, 5)).astype(np.float32)


@pytest.mark.parametrize(
    ("op", "function"),
    [
        ("Abs", np.abs),
        ("Sin", np.sin),
        ("Asinh", np.arcsinh),
        ("Round", np.rint),
        ("Sign", np.sign),
        ("Reciprocal", np.reciprocal),
    ],
)
@pytest.mark.parametrize("opset", [1, 13, 22])
def test_unary(run: Any, op: str, function: Any, opset: int) -> None:
    np.testing.assert_allclose(run(op, A, opset=opset)[0], function(A), rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "function"), [("Add", np.add), ("Pow", np.power), ("Greater", np.greater), ("Div", np.divide)]
)
def test_binary_broadcasts_by_numpys_rule_or_by_attributes(run: Any, op: str, function: Any) -> None:
    a = np.abs(A) + 1
    b = a[0, :, :, 0]
    np.testing.assert_allclose(run(op, a, b[:, :, None])[0], function(a, b[:, :, None]), rtol=1e-6)
    for axis in (1, -3):
        old = run(op, a, b, opset=6, broadcast=1, axis=axis)[0]
        np.testing.assert_allclose(old, function(a, b[:, :, None]), rtol=1e-6)
    np.testing.assert_allclose(run(op, a, a[0, 0], opset=6, broadcast=1)[0], function(a, a[0, 0]), rtol=1e-6)
    with pytest.raises(ParseError, match="axis 3"):
        run(op, a, b, opset=6, broadcast=1, axis=3)
    with pytest.raises(MgxError, match="do not broadcast"):
        run(op, a, b[:, :3])


def test_power_of_mixed_types(run: Any) -> None:
    i, f = np.int32([2, -3]), np.float32([0.5, 3])
    assert run("Pow", i, f)[0].tolist() == [1, -27]
    np.testing.assert_allclose(run("Pow", f, i)[0], [0.25, 1 / 27], rtol=1e-6)
    assert run("Pow", i, np.uint8([5, 2]))[0].tolist() == [32, 9]
    half = run("Pow", np.float16([2, 4]), f)[0]
    assert half.dtype == np.float16
    np.testing.assert_allclose(half, [2**0.5, 64], rtol=1e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_clip_accepts_attributes_or_inputs(run: Any, dtype: Any) -> None:
    x = np.array([-3, 0.5, 9], dtype)
    low, high = np.array(-1, dtype), np.array(2, dtype)
    assert run("Clip", x, opset=6, min=-1.0, max=2.0)[0].tolist() == [-1, 0.5, 2]
    assert run("Clip", x, opset=6, max=2.0)[0].tolist() == [-3, 0.5, 2]
    assert run("Clip", x, low, high)[0].tolist() == [-1, 0.5, 2]
    assert run("Clip", x, None, high)[0].tolist() == [-3, 0.5, 2]
    assert run("Clip", x, low)[0].tolist() == [-1, 0.5, 9]
    assert run("Clip", x)[0].tolist() == x.tolist()


def test_any_number_of_operands(run: Any) -> None:
    a, b, c = np.float32([1, 5, 3]), np.float32([4, 2, 6]), np.float32([[1], [9]])
    np.testing.assert_array_equal(run("Max", a, b, c)[0], np.maximum(np.maximum(a, b), c))
    np.testing.assert_array_equal(run("Min", a, b, opset=6)[0], np.minimum(a, b))
    np.testing.assert_array_equal(run("Sum", a, b, c)[0], a + b + c)
    np.testing.assert_allclose(run("Mean", a, b, c)[0], (a + b + c) / 3, rtol=1e-6)
    np.testing.assert_array_equal(run("Sum", a, opset=1)[0], a)


def test_logic_and_bits(run: Any) -> None:
    words = np.array(["a", "b"], object), np.array(["a", "c"], object)
    assert run("Equal", *words)[0].tolist() == [True, False]
    assert run("Xor", np.array([True, False]), np.array([True, True]))[0].tolist() == [False, True]
    x = np.uint8([1, 200])
    assert run("BitShift", x, np.uint8([3, 1]), direction="RIGHT")[0].tolist() == [0, 100]
    assert run("BitwiseNot", x)[0].tolist() == [254, 55]
    assert run("IsInf", np.float32([np.inf, -np.inf]), detect_negative=0)[0].tolist() == [True, False]
    with pytest.raises(ParseError, match="LEFT or RIGHT"):
        run("BitShift", x, x, direction="UP")


def test_remainders(run: Any) -> None:
    a, b = np.int32([-7, 7]), np.int32([3, -3])
    assert run("Mod", a, b)[0].tolist() == [2, -2]
    assert run("Mod", a, b, fmod=1)[0].tolist() == [-1, 1]
    assert run("Mod", a.astype(np.float32), b, fmod=1)[0].tolist() == [-1, 1]
    with pytest.raises(ParseError, match="fmod must be 0 or 1"):
        run("Mod", a, b, fmod=2)


def test_bias_add(run: Any) -> None:
    x, bias, skip = A[0], A[0, 0, 0], A[1]
    out = run("BiasAdd", x, bias, skip, domain="com.microsoft")[0]
    np.testing.assert_allclose(out, x + bias + skip, rtol=1e-6, atol=1e-6)
