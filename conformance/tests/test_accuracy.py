"""Tolerances: tight enough to detect a fault, wide enough for any order of rounding."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_conformance.accuracy import tolerance
from mgx_conformance.compare import differs
from mgx_conformance.guard import Guarded
from mgx_conformance.known import OPS
from mgx_conformance.noise import expected
from mgx_conformance.primitive_errors import growth, ulps
from mgx_core import Pointwise, Program, Shape

RNG = np.random.default_rng(0)
make = OPS.make


def allowed(op, *xs):
    out = op.evaluate(xs)
    return out, tolerance(op, xs, [out], np.random.default_rng(1))[0]


def test_growth():
    assert growth(1) == 2
    assert growth(16) == 17  # a short sum: all roundings may have the same sign
    assert growth(10_000) == 601  # a long one: they cancel, at six standard deviations


def test_exact_ops_must_agree_bit_for_bit():
    for name in ("relu", "max", "abs", "transpose", "topk", "where", "equal"):
        assert make(name).exact
    assert allowed(make("relu"), RNG.normal(size=9).astype(np.float32))[1] is None


def test_sum_in_any_order():
    x = RNG.normal(size=(4, 5000)).astype(np.float32)
    out, limit = allowed(make("reduce_sum", axes=(1,)), x)
    forward = np.zeros((4, 1), np.float32)
    for column in x.T:
        forward[:, 0] += column
    assert not differs(forward, out, limit)
    assert differs(out + 0.1, out, limit)
    assert not differs(
        np.sort(x, axis=1)[:, ::2].sum(axis=1, keepdims=True) + np.sort(x, axis=1)[:, 1::2].sum(axis=1, keepdims=True),
        out,
        limit,
    )


def test_product_in_half_precision_is_seen():
    a, b = RNG.normal(size=(8, 64)).astype(np.float32), RNG.normal(size=(64, 8)).astype(np.float32)
    out, limit = allowed(make("dot"), a, b)
    assert not differs((a.astype(np.float64) @ b).astype(np.float32), out, limit)
    half = a.astype(np.float16).astype(np.float32) @ b.astype(np.float16).astype(np.float32)
    assert differs(half, out, limit)


def test_condition_enters():
    """sin near a multiple of pi: errors of the argument matter, errors of the result do not."""
    x = np.array([0.5, np.pi, 1000 * np.pi], np.float32)
    _, limit = allowed(make("sin"), x)
    assert np.all(limit < 4 * 8 * 2**-23)


def test_narrow_results_may_differ_by_a_step():
    x = RNG.uniform(0.5, 2, 100).astype(np.float16)
    out, limit = allowed(make("exp"), x)
    assert not differs(np.nextafter(out, np.float16(9)), out, limit)
    assert differs(
        np.nextafter(np.nextafter(np.nextafter(out, np.float16(9)), np.float16(9)), np.float16(9)), out, limit
    )


@pytest.mark.parametrize("name", sorted(op.name for op in OPS if issubclass(op, Pointwise) and ulps(op)))
def test_pointwise_tolerance_sees_a_thousandth(name):
    op = OPS.get(name)
    if name == "convert":
        pytest.skip("rounds once")
    xs = [
        RNG.uniform(1.1, 2, 50).astype(np.float32) * (0.4 if name in ("asin", "acos", "atanh") else 1)
        for _ in range(op.arity)
    ]
    out, limit = allowed(op(), *xs)
    big = np.abs(out) > 0.01
    assert big.any()
    assert differs(np.where(big, out * np.float32(1.001), out), out, limit)


# programs ------------------------------------------------------------------------------------------------------------------


def test_noise_follows_a_decision():
    """Any result is accepted if rounding decides a floor, otherwise none."""
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", (3,)))
    third = main.add_literal(np.full(3, 1 / 3, np.float32))
    main.add_return([main.add(make("floor"), main.add(make("mul"), x, third))])
    wanted = expected(main, [np.array([3, 4, 5], np.float32)])
    assert wanted.tolerances[0][0] >= 1
    assert np.all(wanted.tolerances[0][1:] < 1e-5)


@pytest.mark.parametrize("scaled", ["the result", "the operand", "neither"])
def test_weights_may_be_rounded_again_with_a_factor(scaled):
    """Terms that cancel show the rounding of weights times a factor; without a factor there is none."""
    rng = np.random.default_rng(0)
    x, w = (rng.uniform(1, 2, dims).astype(np.float16) for dims in ((40, 16), (8, 1)))
    x[:, 8:] = -x[:, :8]
    weights = np.concatenate([w, w])
    factor = np.float16(1.795)
    program = Program()
    main = program.get_main_module()
    value = main.add_parameter("x", Shape("float16", x.shape))
    if scaled == "the operand":
        value = main.add(make("mul"), value, main.add_literal(np.full(x.shape, factor)))
    value = main.add(make("dot"), value, main.add_literal(weights))
    if scaled == "the result":
        value = main.add(make("mul"), value, main.add_literal(np.full((40, 1), factor)))
    main.add_return([value])
    (limit,) = expected(main, [x]).tolerances
    terms = np.abs(x.astype(np.float64)) @ np.abs(weights.astype(np.float64))
    assert np.all(limit < terms * 2**-6)
    assert np.all((limit > terms * 2**-11) == (scaled != "neither"))


def test_exact_programs_have_no_noise():
    program = Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("int32", (3,)))
    main.add_return([main.add(make("mul"), x, x)])
    assert expected(main, [np.array([1, 2, 3], np.int32)]).tolerances == [None]


# guards --------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "view", [lambda x: x, lambda x: x.T, lambda x: x[::-1, ::2], lambda x: np.broadcast_to(x[:1], x.shape)]
)
def test_guard_keeps_layout(view):
    array = view(np.arange(24, dtype=np.float32).reshape(4, 6))
    guard = Guarded(array)
    np.testing.assert_array_equal(guard.array, array)
    assert guard.array.strides == array.strides
    assert not guard.broken()


def test_guard_sees_one_byte_outside():
    guard = Guarded(np.zeros((2, 3), np.float32))
    flat = np.lib.stride_tricks.as_strided(guard.array.reshape(-1), (7,), (4,))
    flat[6] = 1
    assert "24 bytes from its first element" in guard.broken()


# comparing -----------------------------------------------------------------------------------------------------------------


def test_differs():
    x = np.array([1.0, np.nan, np.inf, 0.0], np.float32)
    assert not differs(np.array([1.0, np.nan, np.inf, -0.0], np.float32), x)
    assert "(3) required" in differs(np.array([4]), np.array([3]))
    assert "float32[4] required, got float64[4]" in differs(x.astype(np.float64), x)
    assert differs(np.array([1.0, np.nan, -np.inf, 0.0], np.float32), x, np.ones(4))
    assert not differs([x, {"a": 1}], [x, {"a": 1}])
    assert "2 items" in differs([x], [x, x])
    assert differs(None, x)
