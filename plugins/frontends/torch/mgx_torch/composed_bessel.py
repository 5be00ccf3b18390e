"""Decompositions of Bessel functions and Airy's function, all computed in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from .composed_functions import result_type

__all__ = [
    "airy_ai",
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "bessel_j0",
    "bessel_j1",
    "bessel_k0",
    "bessel_k0e",
    "bessel_k1",
    "bessel_k1e",
    "bessel_y0",
    "bessel_y1",
    "spherical_bessel_j0",
]

SERIES, ASYMPTOTIC = 60, 22  # terms of the expansions, each exact to float64 on its side of the border
BORDER = 20.0
NODES = 28  # of a quarter circle: the Bessel functions of order 2 * NODES and above are below 1e-18 up to the border
EULER = 0.57721566490153286


def _modified(x: Tensor, order: int) -> Tensor:
    """Returns exp(-|x|) I(order, |x|) in float64, for the orders 0 and 1."""
    size = x.double().abs()
    small, large = size.clamp(max=BORDER), size.clamp(min=BORDER)
    quarter = small * small / 4
    total = torch.ones_like(small)
    for k in range(SERIES, 0, -1):  # the sum of (x^2 / 4)^k / (k! (k + order)!)
        total = 1 + total * quarter / (k * (k + order))
    near = total * (small / 2 if order else 1) * (-small).exp()
    even, odd = _asymptotic(large, order)
    return torch.where(size < BORDER, near, (even - odd) / (2 * math.pi * large).sqrt())


def bessel_i0e(x: Tensor) -> Tensor:
    """Returns exp(-|x|) I0(x)."""
    return _modified(x, 0).to(result_type(x))


def bessel_i0(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the first kind of order 0."""
    return (_modified(x, 0) * x.double().abs().exp()).to(result_type(x))


def bessel_i1e(x: Tensor) -> Tensor:
    """Returns exp(-|x|) I1(x)."""
    return (_modified(x, 1) * x.double().sign()).to(result_type(x))


def bessel_i1(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the first kind of order 1."""
    return (_modified(x, 1) * x.double().sign() * x.double().abs().exp()).to(result_type(x))


def _expansion(ratio: Callable[[int], float], x: Tensor, sign: int) -> tuple[Tensor, Tensor]:
    """Returns the even and the odd terms of an expansion in 1 / x; their signs alternate if sign is -1.

    ratio: of the coefficients of the powers k and k - 1; the first is 1.
    """
    terms = [1.0]
    for k in range(1, ASYMPTOTIC + 2):
        terms.append(terms[-1] * ratio(k))
    square = sign / (x * x)
    even, odd = torch.zeros_like(x), torch.zeros_like(x)
    for k in range(ASYMPTOTIC, -1, -2):
        even, odd = even * square + terms[k], odd * square + terms[k + 1]
    return even, odd / x


def _asymptotic(x: Tensor, order: int, sign: int = 1) -> tuple[Tensor, Tensor]:
    """Returns the even and the odd terms of Hankel's expansion."""
    return _expansion(lambda k: (4 * order * order - (2 * k - 1) ** 2) / (8 * k), x, sign)


def _angles(count: int) -> list[float]:
    return [math.pi * (2 * j + 1) / (4 * count) for j in range(count)]


def _integral(x: Tensor, weights: Sequence[float], function: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns the mean of function(x sin(angle)) with weights over a quarter circle, by the midpoint rule.

    The functions are periodic, so the rule converges faster than any power of the number of nodes.
    """
    total = torch.zeros_like(x)
    for angle, weight in zip(_angles(len(weights)), weights, strict=True):
        total = total + function(x * math.sin(angle)) * (weight / len(weights))
    return total


def _first_kind(x: Tensor, order: int) -> Tensor:
    """Returns J0 or J1 of positive numbers up to the border."""
    angles = _angles(NODES // 2)  # enough without the factors of the second kind
    return _integral(x, [math.sin(a) if order else 1.0 for a in angles], torch.sin if order else torch.cos)


def _second_kind(x: Tensor, order: int) -> Tensor:
    """Returns Y0 or Y1 of positive numbers up to the border.

    Neumann's expansions are sums of 2 J(2k) / k and of J(2k + 1) (2k + 1) / (k (k + 1)) with alternating signs, and each of these
    is an integral of the same functions over the circle.
    """
    weights = []
    for angle in _angles(NODES):
        total = 0.0
        for k in range(1, NODES):
            if order:
                term = math.sin((2 * k + 1) * angle) * (2 * k + 1) / (k * (k + 1))
            else:
                term = math.cos(2 * k * angle) * 2 / k
            total += term if k % 2 else -term
        weights.append(2 / math.pi * total)
    found = _integral(x, weights, torch.sin if order else torch.cos)
    logarithm = ((x / 2).log() + (EULER - order)) * (2 / math.pi)
    found = found + logarithm * _first_kind(x, order)
    return found - _first_kind(x, 0) * 2 / (math.pi * x) if order else found


def _oscillating(x: Tensor, order: int, second: bool) -> Tensor:
    """Returns J or Y of nonnegative numbers, for the orders 0 and 1."""
    large = x.clamp(min=BORDER)
    even, odd = _asymptotic(large, order, -1)
    sine, cosine = large.sin(), large.cos()
    # sqrt(2) times the cosine and the sine of x - pi / 4, or of x - 3 pi / 4
    shifted = (sine - cosine, -(sine + cosine)) if order else (cosine + sine, sine - cosine)
    far = shifted[1] * even + shifted[0] * odd if second else shifted[0] * even - shifted[1] * odd
    near = _second_kind(x.clamp(max=BORDER), order) if second else _first_kind(x.clamp(max=BORDER), order)
    return torch.where(x <= BORDER, near, far / (math.pi * large).sqrt())


def bessel_j0(x: Tensor) -> Tensor:
    """Returns the Bessel function of the first kind of order 0."""
    return _oscillating(x.double().abs(), 0, False).to(result_type(x))


def bessel_j1(x: Tensor) -> Tensor:
    """Returns the Bessel function of the first kind of order 1."""
    wide = x.double()
    return (_oscillating(wide.abs(), 1, False) * wide.sign()).to(result_type(x))


def _positive(x: Tensor, at_zero: float, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Returns a function of positive numbers: its limit at zero, NaN below."""
    wide = x.double()
    found = function(torch.where(wide > 0, wide, 1.0))
    found = torch.where(wide > 0, found, torch.where(wide == 0, at_zero, math.nan))
    return found.to(result_type(x))


def bessel_y0(x: Tensor) -> Tensor:
    """Returns the Bessel function of the second kind of order 0."""
    return _positive(x, -math.inf, lambda y: _oscillating(y, 0, True))


def bessel_y1(x: Tensor) -> Tensor:
    """Returns the Bessel function of the second kind of order 1."""
    return _positive(x, -math.inf, lambda y: _oscillating(y, 1, True))


K_STEP, K_NODES = 0.15, 32  # of the trapezoidal rule; further terms are below 1e-17 for arguments of 2 and above


def _scaled_k(x: Tensor, order: int) -> Tensor:
    """Returns exp(x) K(order, x) of positive numbers: by a series, an integral or Hankel's expansion."""
    small, middle, large = x.clamp(max=2), x.clamp(2, BORDER), x.clamp(min=BORDER)
    quarter = small * small / 4
    plain, harmonic = torch.zeros_like(small), torch.zeros_like(small)  # series of I, and with harmonic numbers
    for k in range(SERIES // 4, -1, -1):
        number = sum(1 / j for j in range(1, k + 1)) - EULER
        if order:
            number += 1 / (2 * (k + 1))
        scale = 1 / (math.factorial(k) * math.factorial(k + order))
        plain, harmonic = plain * quarter + scale, harmonic * quarter + scale * number
    near = harmonic - (small / 2).log() * plain
    near = (1 / small - near * small / 2 if order else near) * small.exp()
    total = torch.full_like(middle, 0.5)
    for k in range(1, K_NODES):  # the integral of exp(x - x cosh(t)) cosh(order t) over positive t
        total = total + (middle * (1 - math.cosh(k * K_STEP))).exp() * (math.cosh(k * K_STEP) if order else 1)
    even, odd = _asymptotic(large, order)
    far = (even + odd) * (math.pi / (2 * large)).sqrt()
    return torch.where(x < 2, near, torch.where(x < BORDER, total * K_STEP, far))


def bessel_k0e(x: Tensor) -> Tensor:
    """Returns exp(x) K0(x)."""
    return _positive(x, math.inf, lambda y: _scaled_k(y, 0))


def bessel_k0(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 0."""
    return _positive(x, math.inf, lambda y: _scaled_k(y, 0) * (-y).exp())


def bessel_k1e(x: Tensor) -> Tensor:
    """Returns exp(x) K1(x)."""
    return _positive(x, math.inf, lambda y: _scaled_k(y, 1))


def bessel_k1(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of the second kind of order 1."""
    return _positive(x, math.inf, lambda y: _scaled_k(y, 1) * (-y).exp())


def spherical_bessel_j0(x: Tensor) -> Tensor:
    """Returns sin(x) / x."""
    wide = x.double()
    found = torch.where(wide == 0, 1.0, wide.sin() / wide)
    return torch.where(wide.isinf(), 0.0, found).to(result_type(x))


AIRY_STEP, AIRY_NODES = 0.125, 52  # of the trapezoidal rule; further terms are below 1e-18
AIRY_BORDER = -8.0  # below it, the asymptotic expansion is exact to 1e-13


def airy_ai(x: Tensor) -> Tensor:
    """Returns Airy's function Ai.

    The integral of exp(i (t^3 / 3 + x t)) is taken along a line parallel to the real axis, through the saddle point if x is above
    1, where the integrand falls as fast as exp(-t^2).
    """
    wide = x.double()
    near = wide.clamp(min=AIRY_BORDER)
    height = near.clamp(min=1).sqrt()
    total = torch.full_like(near, 0.5)
    for k in range(1, AIRY_NODES):
        t = k * AIRY_STEP
        total = total + (height * -(t * t)).exp() * (t**3 / 3 + (near - height * height) * t).cos()
    near = total * (height * (height * height / 3 - near)).exp() * (AIRY_STEP / math.pi)
    size = wide.clamp(max=AIRY_BORDER).neg()
    angle = size * size.sqrt() * (2 / 3)
    even, odd = _expansion(lambda k: (6 * k - 5) * (6 * k - 1) / (72 * k), angle, -1)
    shifted = angle - math.pi / 4
    far = (shifted.cos() * even + shifted.sin() * odd) / (math.pi * size.sqrt()).sqrt()
    return torch.where(wide < AIRY_BORDER, far, near).to(result_type(x))
