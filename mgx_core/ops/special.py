"""Special functions that need iteration, computed in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import may_equal
from ..types.dtype import of
from ..types.shape import Shape
from .declaration import op
from .operation import Operation
from .scalar import convert, widen

__all__ = ["Igamma"]

MANY: Final = 1e5  # order above which both expansions need thousands of terms and Temme's needs few
STIRLING: Final = 15  # order above which Stirling's series is exact to float64
SMALL: Final = 0.5  # order below which Q may be close to 0 also for x < 1
ZETA_3: Final = 1.2020569031595942
TINY: Final = 1e-300


@op("igamma")
class Igamma(Operation):
    """The regularized lower incomplete gamma function P(a, x) of each pair; if `upper`, Q(a, x) = 1 - P(a, x).

    a, x: float, of one type and equal extents -> the same shape; NaN for negative numbers and if both are 0 or infinite.
    Errors: ShapeError for other types or extents.  Source: torch.special.gammainc, gammaincc.
    """

    upper: bool = False

    def infer(self, a: Shape, x: Shape) -> Shape:
        if not a.dtype.is_float or a.dtype is not x.dtype:
            raise ShapeError(f"a and x must be of one float type, got {a} and {x}")
        if a.rank != x.rank or not all(map(may_equal, a.dims, x.dims)):
            raise ShapeError(f"a and x must have equal extents, got {a} and {x}")
        return a.as_standard()

    def compute(self, a: Array, x: Array) -> Array:
        order, limit = (np.asarray(widen(v).astype(np.float64)) for v in (a, x))
        found = np.full(order.shape, np.nan)
        positive = (order >= 0) & (limit >= 0)
        none = positive & ((limit == 0) | np.isinf(order)) & (order > 0) & np.isfinite(limit)
        found[none] = 1.0 if self.upper else 0.0
        found[positive & ((order == 0) | np.isinf(limit)) & (limit > 0) & np.isfinite(order)] = (
            0.0 if self.upper else 1.0
        )
        inner = (order > 0) & (limit > 0) & np.isfinite(order) & np.isfinite(limit)
        found[inner] = _incomplete(order[inner], limit[inner], self.upper)
        return convert(found, of(a.dtype))


def _incomplete(a: Array, x: Array, upper: bool) -> Array:
    """Returns P or Q for positive numbers, from whichever of the two is not close to 1."""
    found = np.empty(a.shape)
    with np.errstate(all="ignore"):
        many, below = a > MANY, x < a + 1
        few = (a < SMALL) & (x < 1) & upper  # P and Q may both be small there, so each has its own series
        for chosen, function, gives_upper in (
            (many & (x < a), _by_normal_distribution, False),
            (many & (x >= a), _by_normal_distribution, True),
            (~many & below & ~few, _by_series, False),
            (few, _by_series_of_small_order, True),
            (~many & ~below, _by_fraction, True),
        ):
            if chosen.any():
                part = function(a[chosen], x[chosen])
                found[chosen] = part if gives_upper is upper else 1 - part
    return found


def _front(a: Array, x: Array) -> Array:
    """Returns x^a exp(-x) / gamma(a)."""
    large = np.maximum(a, STIRLING)
    series = (
        1 / (12 * large) - 1 / (360 * large**3) + 1 / (1260 * large**5) - 1 / (1680 * large**7) + 1 / (1188 * large**9)
    )
    far = np.sqrt(large / (2 * math.pi)) * np.exp(-large * _deviation(large, x) - series)
    small = np.minimum(a, STIRLING)
    near = np.exp(small * np.log(x) - x - _each(math.lgamma, small))
    return np.where(a > STIRLING, far, near)


def _each(function: Callable[[float], float], x: Array) -> Array:
    return np.array([function(v) for v in x.tolist()], np.float64)


def _deviation(a: Array, x: Array) -> Array:
    """Returns x / a - 1 - log(x / a), which is nonnegative."""
    away = (x - a) / a
    # near 0, the difference loses digits, and large orders multiply the error
    near = away * away * (1 / 2 - away * (1 / 3 - away * (1 / 4 - away * (1 / 5 - away / 6))))
    return np.asarray(np.where(np.abs(away) < 1e-3, near, np.maximum(away - np.log1p(away), 0)))


def _by_series(a: Array, x: Array) -> Array:
    """Returns P from the power series."""
    term = np.ones_like(a)
    total, k = term.copy(), 0
    while (term > total * 1e-17).any():
        k += 1
        term = term * (x / (a + k))
        total += term
    # gamma(a) of small orders may be infinite
    front = np.where(a < SMALL, np.exp(a * np.log(x) - x - _log_gamma_of_successor(a)), _front(a, x) / a)
    return front * total


def _by_series_of_small_order(a: Array, x: Array) -> Array:
    """Returns Q for a < SMALL and x < 1, from the power series of the difference from 1."""
    power = a * np.log(x) - _log_gamma_of_successor(a)
    term, total = np.ones_like(x), np.zeros_like(x)
    for k in range(1, 20):
        term = term * (-x / k)
        total += term / (a + k)
    return np.asarray(-np.expm1(power) - a * np.exp(power) * total)


def _log_gamma_of_successor(a: Array) -> Array:
    """Returns log(gamma(1 + a)), with full relative precision also for small a."""
    near = -a * (np.euler_gamma - a * (math.pi**2 / 12 - a * (ZETA_3 / 3 - a * math.pi**4 / 360)))
    return np.asarray(np.where(a < 1e-3, near, _each(math.lgamma, 1 + a)))


def _by_fraction(a: Array, x: Array) -> Array:
    """Returns Q from its continued fraction, by Lentz's algorithm."""
    b, c = x + 1 - a, np.full(a.shape, 1 / TINY)
    d = 1 / b
    found, change, k = d, np.full(a.shape, 2.0), 0
    while (np.abs(change - 1) > 1e-15).any() and k < MANY:
        k += 1
        factor = -k * (k - a)
        b = b + 2
        d, c = factor * d + b, b + factor / c
        d, c = 1 / np.where(d == 0, TINY, d), np.where(c == 0, TINY, c)
        change = c * d
        found = found * change
    return _front(a, x) * found


def _by_normal_distribution(a: Array, x: Array) -> Array:
    """Returns P if x < a, else Q, for large orders from Temme's uniform expansion, to about a^-2."""
    side = np.where(x < a, -1, 1)
    size = np.sqrt(2 * _deviation(a, x))
    small = side * np.minimum(size, 0.1)  # beyond, the correction vanishes
    first = -1 / 3 + small * (1 / 12 + small * (-2 / 135 + small / 864))
    second = -1 / 540 - small / 288
    tail = _each(math.erfc, size * np.sqrt(a / 2)) / 2
    return np.asarray(tail + side * np.exp(-a * size * size / 2) / np.sqrt(2 * math.pi * a) * (first + second / a))
