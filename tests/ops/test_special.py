"""Special functions, compared with closed forms and identities."""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from mgx_core.errors import ShapeError
from mgx_core.ops.special import Igamma
from mgx_core.types.shape import Shape


def igamma(a: Any, x: Any, upper: bool = False) -> Any:
    a, x = np.broadcast_arrays(np.float64(a), np.float64(x))
    return Igamma(upper=upper).evaluate([a, x])


X = np.concatenate([np.geomspace(1e-6, 1, 13), np.linspace(1.5, 60, 40)])


@pytest.mark.parametrize("order", [1, 2, 9, 10, 11, 14, 15, 16, 25])
def test_whole_orders(order: int) -> None:
    """Q is the probability of fewer events than the order, of X on average."""
    want = sum(np.exp(-X + k * np.log(X) - math.lgamma(k + 1)) for k in range(order))
    np.testing.assert_allclose(igamma(order, X, upper=True), want, rtol=1e-12)
    np.testing.assert_allclose(igamma(order, X), 1 - want, atol=1e-13)


def test_half_orders_are_error_functions() -> None:
    np.testing.assert_allclose(igamma(0.5, X), [math.erf(math.sqrt(x)) for x in X], rtol=1e-12)
    np.testing.assert_allclose(igamma(0.5, X, upper=True), [math.erfc(math.sqrt(x)) for x in X], rtol=1e-11)


@pytest.mark.parametrize("order", [99_999.0, 100_001.0, 1e8])
@pytest.mark.parametrize("away", [-6.0, -1.0, 0.0, 1.0, 6.0])
def test_orders_on_both_sides_of_the_border_obey_the_recurrence(order: float, away: float) -> None:
    """P(a, x) - P(a + 1, x) = x^a exp(-x) / gamma(a + 1)."""
    x = order + away * math.sqrt(order)
    difference = (x - order) / order
    power = math.exp(-order * (difference - math.log1p(difference)) - 1 / (12 * order)) / math.sqrt(2 * math.pi * order)
    for upper in (False, True):
        step = float(igamma(order, x, upper) - igamma(order + 1, x, upper))
        assert abs(step) == pytest.approx(power, rel=1e-6)
    assert float(igamma(order, x) + igamma(order, x, upper=True)) == pytest.approx(1, abs=1e-12)


def test_small_tails_of_large_orders_are_not_lost() -> None:
    assert 0 < float(igamma(2e5, 1.9e5)) < 1e-100
    assert 0 < float(igamma(2e5, 2.1e5, upper=True)) < 1e-100


@pytest.mark.parametrize("away", [-4.0, -0.5, 0.5, 4.0])
def test_very_large_orders_are_normal_distributions(away: float) -> None:
    """Differences of the next numbers to the order are a tenth of the standard deviation."""
    order = 1e30
    x = order + away * math.sqrt(order)
    real = (x - order) / math.sqrt(order)
    assert float(igamma(order, x)) == pytest.approx(math.erfc(-real / math.sqrt(2)) / 2, rel=1e-11)
    assert float(igamma(order, x, upper=True)) == pytest.approx(math.erfc(real / math.sqrt(2)) / 2, rel=1e-11)


@pytest.mark.parametrize(
    ("x", "integral"), [(0.01, 4.037929576538114), (0.5, 0.5597735947761608), (2, 0.04890051070806112)]
)
@pytest.mark.parametrize("order", [1e-310, 1e-40, 1e-12])
def test_small_orders_approach_the_exponential_integral(order: float, x: float, integral: float) -> None:
    """Q(a, x) / a approaches E1(x)."""
    assert float(igamma(order, x, upper=True)) == pytest.approx(order * integral, rel=1e-10)
    assert float(igamma(order, x)) == pytest.approx(1, rel=1e-10)


def test_both_functions_of_small_orders_agree() -> None:
    a, x = np.meshgrid([1e-4, 0.9e-3, 1.1e-3, 0.1, 0.499, 0.501], [1e-9, 1e-3, 0.3, 0.999, 1.001])
    np.testing.assert_allclose(igamma(a, x) + igamma(a, x, upper=True), 1, rtol=1e-13)


def test_ends_of_the_domain() -> None:
    inf, nan = math.inf, math.nan
    a = [0.0, 0.0, 2.0, inf, inf, 2.0, 0.0, -1.0, 2.0, nan]
    x = [0.0, 3.0, 0.0, 3.0, inf, inf, inf, 3.0, -1.0, 3.0]
    np.testing.assert_array_equal(igamma(a, x), [nan, 1, 0, 0, nan, 1, 1, nan, nan, nan])
    np.testing.assert_array_equal(igamma(a, x, upper=True), [nan, 0, 1, 1, nan, 0, 0, nan, nan, nan])


def test_types_and_operands() -> None:
    narrow = np.ones(3, ml_dtypes.bfloat16)
    assert Igamma().evaluate([narrow, narrow]).dtype == narrow.dtype
    assert Igamma().evaluate([np.ones((0, 2)), np.ones((0, 2))]).shape == (0, 2)
    for a, x in (
        (("int64", (3,)), ("int64", (3,))),
        (("float", (3,)), ("double", (3,))),
        (("float", (3,)), ("float", (4,))),
    ):
        with pytest.raises(ShapeError, match="a and x must"):
            Igamma().result([Shape(*a), Shape(*x)])
