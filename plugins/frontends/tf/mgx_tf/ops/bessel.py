"""Bessel functions and other special functions of a scalar, in double precision."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

__all__ = ["FUNCTIONS", "polygamma"]

EULER: Final = 0.57721566490153286
TINY: Final = 1e-300


def _asymptotic(order: int, x: float) -> tuple[float, float]:
    """Returns J and Y from the asymptotic expansion for large arguments."""
    p, q, term, mu = 1.0, 0.0, 1.0, 4 * order * order
    for k in range(1, 12):
        term *= (mu - (2 * k - 1) ** 2) / (k * 8 * x)
        if k % 2:
            q += term * (-1) ** (k // 2)
        else:
            p += term * (-1) ** (k // 2)
    turn, size = x - (2 * order + 1) * math.pi / 4, math.sqrt(2 / (math.pi * x))
    sine, cosine = math.sin(turn), math.cos(turn)
    return size * (p * cosine - q * sine), size * (p * sine + q * cosine)


def _bessel_j(order: int, x: float) -> float:
    """Returns J by the trapezoidal rule for the mean of cos(order t - x sin t) over a period, which converges exponentially."""
    if abs(x) > 25:
        return _asymptotic(order, abs(x))[0] * (-1 if order and x < 0 else 1)
    count = int(abs(x)) + 40
    return (
        sum(math.cos(order * t - x * math.sin(t)) for t in (math.pi * (k + 0.5) / count for k in range(count))) / count
    )


def _trapezoidal(inner: Callable[[float], float]) -> float:
    """Integrates a function that decays like exp(-exp t) over [0, inf) by the trapezoidal rule."""
    step, total, k = 1 / 8, 0.5 * inner(0.0), 1  # with this step the error is below exp(-60)
    while True:
        term = inner(k * step)
        total += term
        k += 1
        if abs(term) <= 1e-18 * abs(total) or k > 1000:
            return total * step


def _bessel_k(order: int, x: float, scaled: bool) -> float:
    if x <= 0:
        return math.inf if x == 0 else math.nan
    found = _trapezoidal(lambda t: math.exp(-x * (math.cosh(t) - 1)) * math.cosh(order * t))
    return found if scaled else found * math.exp(-x)


def _bessel_y(order: int, x: float) -> float:
    if x <= 0:
        return -math.inf if x == 0 else math.nan
    if x > 25:
        return _asymptotic(order, x)[1]
    quarter, log = x * x / 4, math.log(x / 2)
    if order == 0:
        total, term, harmonic = 0.0, 1.0, 0.0
        for k in range(1, 120):
            term *= -quarter / (k * k)
            harmonic += 1 / k
            total -= harmonic * term
        return 2 / math.pi * ((log + EULER) * _bessel_j(0, x) + total)
    total, term, first, second = 0.0, x / 2, 0.0, 1.0
    for k in range(120):
        total += term * (first + second - 2 * EULER)
        term *= -quarter / ((k + 1) * (k + 2))
        first, second = first + 1 / (k + 1), second + 1 / (k + 2)
    return 2 / math.pi * log * _bessel_j(1, x) - 2 / (math.pi * x) - total / math.pi


def _dawsn(x: float) -> float:
    """Returns Dawson's integral by Rybicki's series."""
    step = 0.2
    middle = 2 * round(x / (2 * step))
    apart = x - middle * step
    total = sum(math.exp(-((apart - n * step) ** 2)) / (middle + n) for n in range(-41, 42, 2) if (middle + n))
    return total / math.sqrt(math.pi)


def _expint(x: float) -> float:
    if x < 0:
        return math.nan
    if x == 0:
        return -math.inf
    if x > 40:
        total = term = 1.0
        for k in range(1, int(x)):
            term *= k / x
            total += term
        return math.exp(x) / x * total if x < 700 else math.inf
    total, term = EULER + math.log(x), 1.0
    for k in range(1, 200):
        term *= x / k
        total += term / k
    return total


def _fresnel(x: float) -> complex:
    """Returns C(x) + i S(x)."""
    z = abs(x)
    if z > 36974:
        return complex(math.copysign(0.5, x), math.copysign(0.5, x))
    if z < 1.6:
        square = math.pi * z * z / 2
        term, total = complex(z), 0j
        for k in range(60):
            total += term / (2 * k + 1)
            term *= 1j * square / (k + 1)
    else:  # continued fraction of the complementary error function
        w = complex(math.sqrt(math.pi) / 2 * z, -math.sqrt(math.pi) / 2 * z)
        fraction = w
        for k in range(200, 0, -1):
            fraction = w + (k / 2) / fraction
        square = math.pi * z * z / 2
        rest = complex(math.cos(square), math.sin(square)) / (math.sqrt(math.pi) * fraction)
        total = (1 + 1j) / 2 * (1 - rest)
    return total if x >= 0 else -total


def _spence(x: float) -> float:
    if x < 0:
        return math.nan
    if x == 0:
        return math.pi**2 / 6
    if x > 1.5:
        return -_spence(1 / x) - math.log(x) ** 2 / 2
    if x < 0.5:
        return math.pi**2 / 6 - math.log(x) * math.log1p(-x) - _spence(1 - x)
    total, power = 0.0, 1.0
    for k in range(1, 80):
        power *= 1 - x
        total += power / (k * k)
    return total


def _betainc(a: float, b: float, x: float) -> float:
    if not 0 <= x <= 1 or a <= 0 or b <= 0:
        return math.nan
    if x in (0, 1):
        return x
    if x > (a + 1) / (a + b + 2):
        return 1 - _betainc(b, a, 1 - x)
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)) / a
    c, d = 1.0, 1 / ((1 - (a + b) * x / (a + 1)) or TINY)
    found = d
    for m in range(1, 10_000):
        even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        before = found
        for factor in (even, odd):
            d = 1 / ((1 + factor * d) or TINY)
            c = (1 + factor / c) or TINY
            found *= c * d
        if abs(found - before) < 1e-16 * abs(found):
            break
    return front * found


def _zeta(s: float, q: float) -> float:
    """Returns Hurwitz's zeta function by Euler-Maclaurin summation."""
    if s == 1:
        return math.inf
    if s < 1 or (q <= 0 and s != math.floor(s)) or q < -1000:
        return math.nan
    if q <= 0 and q == math.floor(q):
        return math.inf
    total = 0.0
    for _ in range(12 if q > 0 else 12 - math.floor(q)):
        total += q**-s
        q += 1
    total += math.pow(q, 1 - s) / (s - 1) + 0.5 * math.pow(q, -s)
    factor = s * math.pow(q, -s - 1)
    for k, bernoulli in enumerate((1 / 12, -1 / 720, 1 / 30240, -1 / 1209600, 1 / 47900160), 1):
        total += bernoulli * factor
        factor *= (s + 2 * k - 1) * (s + 2 * k) / (q * q)
    return total


def polygamma(k: float, x: float) -> float:
    """Returns a derivative of the digamma function, of order 1 or higher."""
    if k != math.floor(k) or not 1 <= k <= 150:
        return math.nan
    return float((-1) ** int(k + 1)) * math.gamma(k + 1) * _zeta(k + 1, x)


FUNCTIONS: Final[dict[str, Callable[..., float]]] = {
    "besselj0": lambda x: _bessel_j(0, x),
    "besselj1": lambda x: _bessel_j(1, x),
    "besselk0": lambda x: _bessel_k(0, x, False),
    "besselk1": lambda x: _bessel_k(1, x, False),
    "besselk0e": lambda x: _bessel_k(0, x, True),
    "besselk1e": lambda x: _bessel_k(1, x, True),
    "bessely0": lambda x: _bessel_y(0, x),
    "bessely1": lambda x: _bessel_y(1, x),
    "dawsn": _dawsn,
    "expint": _expint,
    "fresnelcos": lambda x: _fresnel(x).real,
    "fresnelsin": lambda x: _fresnel(x).imag,
    "spence": _spence,
    "betainc": _betainc,
    "zeta": _zeta,
}
