from __future__ import annotations

import math
import pickle
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.ops.scalar import (
    NUMPY,
    PRIMITIVES,
    Cast,
    attr,
    call,
    convert,
    evaluate,
    text,
    widen,
    x0,
    x1,
)

INTEGERS = np.array([-7, -1, 0, 2, 5], np.int32)


def run(expression, *inputs, **attributes):
    return evaluate(expression, [np.asarray(x) for x in inputs], SimpleNamespace(**attributes))


def test_every_primitive_has_a_meaning():
    assert set(NUMPY) == set(PRIMITIVES)


@pytest.mark.parametrize("name", sorted(PRIMITIVES))
def test_primitives_keep_the_dtype_or_return_bool(name):
    arity, to_bool, _ = PRIMITIVES[name]
    bits = name.startswith(("bitwise", "shift"))
    for dtype in (np.uint8, np.int32) if bits else (np.float32, np.float64):
        x = np.array([1, 1], dtype)
        operands = [x] * arity
        if name == "where":
            operands[0] = x > 0
        if name.startswith("logical"):
            operands = [x > 0] * arity
        got = run(call(name, *(x0, x1, Cast(x1, dt.of(dtype)))[:arity]), *operands[:2])
        assert got.dtype == (np.bool_ if to_bool else dtype)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("neg", lambda v: -v),
        ("floor", math.floor),
        ("ceil", math.ceil),
        ("trunc", math.trunc),
        ("round", round),
        ("sign", lambda v: (v > 0) - (v < 0)),
        ("exp", math.exp),
        ("expm1", math.expm1),
        ("tanh", math.tanh),
        ("atan", math.atan),
        ("erf", math.erf),
        ("asinh", math.asinh),
        ("sin", math.sin),
    ],
)
def test_primitives_against_pythons_math(name, expected):
    values = [-2.5, -1.5, -0.25, 0.0, 0.5, 1.5, 2.75]
    np.testing.assert_allclose(run(call(name, x0), np.array(values)), [expected(v) for v in values], rtol=1e-14)


def test_integer_division_rounds_toward_zero():
    for divisor in (-3, -1, 2, 4):
        got = run(x0 / x1, INTEGERS, np.full(5, divisor, np.int32))
        assert got.tolist() == [math.trunc(v / divisor) for v in INTEGERS.tolist()]
        assert got.dtype == np.int32


def test_remainders():
    five = np.full(5, -5, np.int32)
    assert run(call("mod", x0, x1), INTEGERS, five).tolist() == [v % -5 for v in INTEGERS.tolist()]
    assert run(call("fmod", x0, x1), INTEGERS, five).tolist() == [math.fmod(v, -5) for v in INTEGERS.tolist()]


@pytest.mark.parametrize("name", ["div", "mod", "fmod"])
@pytest.mark.parametrize("dtype", [np.int32, np.uint8])
def test_integers_over_zero_give_zero(name, dtype):
    x = np.array([5, 0], dtype)
    got = run(call(name, x0, x1), x, np.zeros(2, dtype))
    assert got.tolist() == [0, 0]
    assert got.dtype == dtype


def test_shifts_by_the_width_give_zero():
    x = np.full(3, 129, np.uint8)
    by = np.array([1, 7, 8], np.uint8)
    assert run(call("shift_left", x0, x1), x, by).tolist() == [2, 128, 0]
    assert run(call("shift_right", x0, x1), x, by).tolist() == [64, 1, 0]


def test_integer_powers():
    got = run(call("pow", x0, x1), np.array([2, 1, -2, 3], np.int64), np.array([-1, -5, 3, 39], np.int64))
    assert got.tolist() == [0, 1, -8, 3**39]
    assert got.dtype == np.int64


def test_minimum_and_maximum_keep_nan():
    got = run(call("max", x0, x1), np.array([np.nan, 1.0]), np.array([1.0, np.nan]))
    assert np.isnan(got).all()


def test_numbers_adopt_the_dtype_of_the_other_operand():
    assert run(x0 * 2.5 + 1, np.float32([1, 2])).dtype == np.float32
    assert run(2 - x0, np.int8([1, 2])).dtype == np.int8
    assert run(x0 + attr("alpha"), np.float64([1]), alpha=0.1).tolist() == [1.1]


def test_numbers_that_meet_only_numbers_keep_their_precision():
    x = np.array([1.0, -1.0])
    assert run(x0 * -attr("alpha"), x, alpha=0.1).tolist() == [-0.1, 0.1]
    chosen = call("where", x0 > 0, 2.5, -0.1)
    assert run(chosen, x).tolist() == [2.5, -0.1]
    assert run(chosen, x.astype(np.float32)).dtype == np.float32
    assert run(call("where", x0 > 0, 3, 4), np.array([1, -1], np.int16)).dtype == np.int16


@pytest.mark.parametrize("t", [t for t in dt.ALL if t.is_float and t.bits < 32], ids=str)
def test_narrow_floats_compute_in_float32(t):
    x = np.array([1, 2], np.float32).astype(t.numpy)
    assert widen(x).dtype == np.float32
    got = run(x0 * 3 + 0.001, x)
    assert got.dtype == np.float32
    np.testing.assert_array_equal(got, np.array([1, 2], np.float32) * 3 + np.float32(0.001))


def test_sub_byte_integers_compute_in_bytes():
    assert run(x0 + x0, np.array([7, -8], np.int8).astype(ml_dtypes.int4)).tolist() == [14, -16]
    assert widen(np.zeros(1, ml_dtypes.uint2)).dtype == np.uint8


@pytest.mark.parametrize("t", [t for t in dt.ALL if t.numpy.isbuiltin == 1 and t is not dt.float16], ids=str)
def test_unpickled_and_byte_swapped_types_are_numpys_own(t):
    x = np.array([100, 1]).astype(t.numpy)
    assert widen(pickle.loads(pickle.dumps(x))).dtype == x.dtype
    assert widen(x.astype(x.dtype.newbyteorder("="))).dtype == x.dtype


@pytest.mark.parametrize("t", [dt.int8, dt.uint8, dt.int32, dt.uint32, dt.int64, dt.uint64], ids=str)
def test_floats_to_integers_truncate_and_saturate(t):
    got = convert(np.array([1.9, -1.9, 1e30, -1e30, np.nan, np.inf]), t)
    low = -1 if t.is_signed else 0
    assert got.tolist() == [1, low, t.highest, t.lowest, 0, t.highest]
    assert got.dtype == t.numpy


def test_other_conversions():
    assert convert(np.array([0.0, 0.5, np.nan]), dt.bool_).tolist() == [False, True, True]
    assert convert(np.array([True, False]), dt.float16).tolist() == [1, 0]
    assert convert(np.array([300, -1]), dt.uint8).tolist() == [44, 255]
    assert convert(np.array([1 + 2j]), dt.float32).tolist() == [1]
    assert convert(np.array([17, 3]), dt.float8_e4m3fn).astype(float).tolist() == [16, 3]
    x = np.zeros(2, np.float32)
    assert convert(x, dt.float32) is x


def test_casts_inside_expressions():
    assert run(Cast(x0 * 2, "to"), np.float32([1.4]), to=dt.int8).tolist() == [2]
    assert run(Cast(x0, dt.float64), np.float32([1.5])).dtype == np.float64


def test_text():
    assert text(1 / (1 + call("exp", -x0))) == "div(1, add(1, exp(neg(x0))))"
    assert text(Cast(x0 - attr("alpha"), dt.int8)) == "convert(sub(x0, alpha), int8)"


def test_primitives_check_their_arity():
    with pytest.raises(TypeError, match="exp takes 1 operand, got 2"):
        call("exp", x0, x1)
