"""Elementwise ops, compared with numpy for every accepted kind of type."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops import activation, bitwise, compare, pointwise
from mgx_core.ops.activation import (
    Celu,
    Elu,
    GeluErf,
    GeluTanh,
    HardSigmoid,
    HardSwish,
    LeakyRelu,
    LogSigmoid,
    Mish,
    Prelu,
    QuickGelu,
    Relu,
    Selu,
    Shrink,
    Sigmoid,
    Softplus,
    Softsign,
    Swish,
    ThresholdedRelu,
)
from mgx_core.ops.bitwise import BitCast, BitShiftLeft, BitShiftRight, BitwiseNot
from mgx_core.ops.compare import Equal, GreaterOrEqual, Isinf, Isnan, LogicalXor, Not
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.erf import erf
from mgx_core.ops.pointwise import Add, Clip, Div, Erf, Fmod, Identity, Mod, Nearbyint, Neg, Pow, Recip, Rsqrt, Where
from mgx_core.types.shape import SequenceShape, Shape


def run(op: Any, *xs: Any) -> Any:
    arrays = [np.asarray(x) for x in xs]
    shape = op.result([Shape(dt.of(a.dtype), a.shape) for a in arrays])
    out = op.evaluate(arrays)
    assert dt.of(out.dtype) is shape.dtype
    assert list(out.shape) == shape.lens()
    return out


def ops_of(*modules: Any) -> list[Any]:
    found = (v for m in modules for v in vars(m).values() if isinstance(v, type) and issubclass(v, Pointwise))
    return [v for v in dict.fromkeys(found) if v.name]


@pytest.mark.parametrize("cls", ops_of(pointwise, activation, bitwise, compare), ids=lambda c: c.name)
@pytest.mark.parametrize("dtype", [t for t in dt.ALL if t.kind != "s"], ids=str)
def test_result_has_the_promised_type_and_dims(cls: Any, dtype: dt.DType) -> None:
    if dtype.kind not in cls.accepts:
        with pytest.raises(ShapeError, match="must not be of type"):
            cls().result([Shape(dtype, [2])] * cls.arity)
        return
    xs = [np.array([[1, 0], [1, 1]]).astype(dtype.numpy) for _ in range(cls.arity)]
    if cls is Where:
        xs[0] = xs[0].astype(np.bool_)
    if dtype.kind == "c" and cls in (Erf,):
        return
    assert run(cls(), *xs).shape == (2, 2)
    empty = [x[:0] for x in xs]
    assert run(cls(), *empty).shape == (0, 2)


def test_narrow_floats_round_once() -> None:
    x = np.array([0.1, 1.5, -2.0], ml_dtypes.bfloat16)
    wide = [float(v) for v in x]
    expected = np.array([0.5 * v * (1 + math.erf(v / math.sqrt(2))) for v in wide]).astype(x.dtype)
    np.testing.assert_array_equal(run(GeluErf(), x), expected)


def test_integer_division_rounds_toward_zero_and_survives_zero() -> None:
    a = np.array([7, -7, 7, -7, 5, -(2**31)], np.int32)
    b = np.array([2, 2, -2, -2, 0, -1], np.int32)
    np.testing.assert_array_equal(run(Div(), a, b), [3, -3, -3, 3, 0, -(2**31)])


def test_remainders() -> None:
    a, b = np.array([-4, 7, 5, 4, -7, 8]), np.array([2, -3, 8, -2, 3, 0])
    np.testing.assert_array_equal(run(Mod(), a, b), [0, -2, 5, 0, 2, 0])
    np.testing.assert_array_equal(run(Fmod(), a, b), [0, 1, 5, 0, -1, 0])
    x, y = np.float32([-1, 1, np.inf, 3]), np.float32([np.inf, -np.inf, 2, 0])
    np.testing.assert_array_equal(run(Mod(), x, y), np.float32([np.inf, -np.inf, np.nan, np.nan]))
    np.testing.assert_array_equal(run(Fmod(), x, y), np.float32([-1, 1, np.nan, np.nan]))


def test_powers_of_integers_are_exact() -> None:
    a, b = np.array([3, 2, -2, 10, 1]), np.array([39, -1, 3, 18, -5])
    np.testing.assert_array_equal(run(Pow(), a, b), [3**39, 0, -8, 10**18, 1])
    odd = -(2**60) - 1  # float64 cannot represent an odd number that large
    np.testing.assert_array_equal(run(Pow(), np.array([-1, -1, 1]), np.array([odd, odd - 1, odd])), [-1, 1, 1])


@pytest.mark.parametrize("dtype", [np.int8, np.int16, np.int32, np.int64])
def test_zero_to_a_negative_power_is_the_least_integer(dtype: Any) -> None:
    a, b = np.array([0, 0, -1, 2], dtype), np.array([-1, -2, -3, -1], dtype)
    np.testing.assert_array_equal(run(Pow(), a, b), [np.iinfo(dtype).min] * 2 + [-1, 0])


def test_clip_prefers_the_upper_bound() -> None:
    x = np.float32([-2, 0, 2, np.nan])
    np.testing.assert_array_equal(run(Clip(), x, np.float32([-1] * 4), np.float32([1] * 4)), [-1, 0, 1, np.nan])
    np.testing.assert_array_equal(run(Clip(), x[:2], np.float32([5] * 2), np.float32([1] * 2)), [1, 1])


def test_where_picks_and_checks() -> None:
    texts = np.array(["a", "b"], object), np.array(["c", "d"], object)
    assert run(Where(), np.array([True, False]), *texts).tolist() == ["a", "d"]
    with pytest.raises(ShapeError, match="must be bool"):
        Where().result([Shape("int32", [2])] * 3)
    with pytest.raises(ShapeError, match="share one type"):
        Where().result([Shape("bool", [2]), Shape("int32", [2]), Shape("int64", [2])])


def test_operands_must_agree() -> None:
    with pytest.raises(ShapeError, match="equal dims"):
        Add().result([Shape("float32", [2]), Shape("float32", [3])])
    with pytest.raises(ShapeError, match="share one type"):
        Add().result([Shape("float32", [2]), Shape("float16", [2])])


def test_small_ones() -> None:
    np.testing.assert_array_equal(run(Nearbyint(), np.float32([0.5, 1.5, -2.5])), [0, 2, -2])
    np.testing.assert_array_equal(run(Neg(), np.int8([1, -128])), [-1, -128])
    np.testing.assert_array_equal(run(Recip(), np.float32([4, 0])), [0.25, np.inf])
    np.testing.assert_array_equal(run(Rsqrt(), np.float64([4])), [0.5])
    sequence = SequenceShape(Shape("float32", [2]))
    assert Identity().result([sequence]) == sequence
    assert Identity().evaluate([[1]]) == [1]


# comparisons and bits ------------------------------------------------------------------------------------------------


def test_comparisons() -> None:
    assert run(Equal(), np.array(["a", "b"], object), np.array(["a", "c"], object)).tolist() == [True, False]
    assert run(GreaterOrEqual(), np.float32([1, np.nan]), np.float32([1, 1])).tolist() == [True, False]
    assert run(LogicalXor(), np.array([True, True]), np.array([True, False])).tolist() == [False, True]
    assert run(Not(), np.array([True])).tolist() == [False]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64, ml_dtypes.float8_e5m2])
def test_isinf_tests_the_requested_sign(dtype: Any) -> None:
    x = np.float32([np.inf, -np.inf, np.nan, 1]).astype(dtype)
    assert run(Isinf(), x).tolist() == [True, True, False, False]
    assert run(Isinf(detect_negative=False), x).tolist() == [True, False, False, False]
    assert run(Isinf(detect_positive=False), x).tolist() == [False, True, False, False]
    assert run(Isnan(), x).tolist() == [False, False, True, False]


def test_shifts_outside_the_width_leave_the_sign() -> None:
    x = np.int8([-5, 5, -128, 1])
    np.testing.assert_array_equal(run(BitShiftRight(), x, np.int8([1, 9, -1, 0])), [-3, 0, -1, 1])
    np.testing.assert_array_equal(run(BitShiftLeft(), x, np.int8([1, 8, 1, 7])), [-10, 0, 0, -128])
    np.testing.assert_array_equal(run(BitShiftLeft(), np.uint8([16, 4]), np.uint8([2, 200])), [64, 0])
    np.testing.assert_array_equal(run(BitwiseNot(), np.uint8([1])), [254])


def test_bit_cast_keeps_bits() -> None:
    x = np.float32([[1.5, -0.0]])
    np.testing.assert_array_equal(run(BitCast(target_type="int32"), x), x.view(np.int32))
    np.testing.assert_array_equal(run(BitCast(target_type="uint4"), np.array([-1, 7], ml_dtypes.int4)), [15, 7])
    np.testing.assert_array_equal(run(BitCast(target_type="int4"), np.array([15, 7], ml_dtypes.uint4)), [-1, 7])
    assert run(BitCast(target_type="uint16"), np.float16(1)).item() == 0x3C00
    with pytest.raises(ShapeError, match="cannot be read"):
        BitCast(target_type="int8").result([Shape("float32", [1])])


# activations ---------------------------------------------------------------------------------------------------------


def sigmoid(v: float) -> float:
    return 1 / (1 + math.exp(-v))


FORMULAS: list[tuple[Any, Any]] = [
    (Relu(), lambda v: max(v, 0)),
    (LeakyRelu(alpha=0.1), lambda v: v if v >= 0 else 0.1 * v),
    (ThresholdedRelu(alpha=0.7), lambda v: v if v > 0.7 else 0),
    (Elu(alpha=2.0), lambda v: v if v >= 0 else 2 * (math.exp(v) - 1)),
    (Selu(alpha=2.0, gamma=3.0), lambda v: 3 * v if v >= 0 else 6 * (math.exp(v) - 1)),
    (Celu(alpha=2.0), lambda v: max(0, v) + min(0, 2 * (math.exp(v / 2) - 1))),
    (Sigmoid(), sigmoid),
    (LogSigmoid(), lambda v: math.log(sigmoid(v))),
    (HardSigmoid(alpha=0.3, beta=0.4), lambda v: max(0, min(1, 0.3 * v + 0.4))),
    (HardSwish(), lambda v: v * max(0, min(1, v / 6 + 0.5))),
    (Softplus(), lambda v: math.log(1 + math.exp(v))),
    (Softsign(), lambda v: v / (1 + abs(v))),
    (Mish(), lambda v: v * math.tanh(math.log(1 + math.exp(v)))),
    (Swish(alpha=1.5), lambda v: v * sigmoid(1.5 * v)),
    (QuickGelu(), lambda v: v * sigmoid(1.702 * v)),
    (GeluErf(), lambda v: 0.5 * v * (1 + math.erf(v / math.sqrt(2)))),
    (GeluTanh(), lambda v: 0.5 * v * (1 + math.tanh(math.sqrt(2 / math.pi) * (v + 0.044715 * v**3)))),
    (Shrink(lambd=1.0, bias=0.25), lambda v: v + 0.25 if v < -1 else v - 0.25 if v > 1 else 0),
]


@pytest.mark.parametrize(("op", "formula"), FORMULAS, ids=lambda v: getattr(v, "name", ""))
def test_activation_follows_its_formula(op: Any, formula: Any) -> None:
    x = np.linspace(-6, 6, 49)
    expected = np.array([formula(v) for v in x])
    np.testing.assert_allclose(run(op, x), expected, rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(run(op, x.astype(np.float32)), expected, rtol=2e-5, atol=1e-6)


def test_activations_do_not_overflow() -> None:
    x = np.float32([-1000, 1000])
    np.testing.assert_array_equal(run(Softplus(), x), [0, 1000])
    np.testing.assert_array_equal(run(Mish(), x), [0, 1000])
    np.testing.assert_array_equal(run(Sigmoid(), x), [0, 1])
    np.testing.assert_array_equal(run(LogSigmoid(), x), [-1000, 0])
    np.testing.assert_array_equal(run(Prelu(), np.int32([-2, 3]), np.int32([5, 5])), [-10, 3])


def test_erf_is_accurate() -> None:
    x = np.concatenate([np.linspace(-7, 7, 20001), np.logspace(-300, 0, 500)])
    exact = np.array([math.erf(v) for v in x])
    np.testing.assert_allclose(erf(x), exact, rtol=1e-15, atol=0)
    single = x.astype(np.float32)
    exact = np.array([math.erf(float(v)) for v in single])
    np.testing.assert_allclose(erf(single), exact, rtol=1.2e-7, atol=1e-44)
    special = np.array([np.nan, np.inf, -np.inf, -0.0])
    np.testing.assert_array_equal(erf(special), [np.nan, 1, -1, -0.0])
    assert erf(np.float32(0.5)).dtype == np.float32
