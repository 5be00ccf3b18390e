"""Decompositions of special functions: modified Bessel functions, polygamma and Hurwitz's zeta function."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .composed_functions import digamma, result_type

__all__ = [
    "bessel_i0",
    "bessel_i0e",
    "bessel_i1",
    "bessel_i1e",
    "polygamma",
    "zeta",
    "zeta_of_number",
    "zeta_at_number",
]

SERIES, ASYMPTOTIC = 60, 22  # terms of both expansions, each exact to float64 on its side of the border
BORDER = 20.0


def _bessel(x: Tensor, order: int) -> Tensor:
    """Returns exp(-|x|) I(order, |x|) in float64, for the orders 0 and 1."""
    size = x.double().abs()
    small, large = size.clamp(max=BORDER), size.clamp(min=BORDER)
    quarter = small * small / 4
    total = torch.ones_like(small)
    for k in range(SERIES, 0, -1):  # the sum of (x^2 / 4)^k / (k! (k + order)!)
        total = 1 + total * quarter / (k * (k + order))
    near = total * (small / 2 if order else 1) * (-small).exp()
    tail = torch.ones_like(large)
    for k in range(ASYMPTOTIC, 0, -1):
        tail = 1 - tail * ((4 * order * order - (2 * k - 1) ** 2) / (8 * k)) / large
    far = tail / (2 * math.pi * large).sqrt()
    return torch.where(size < BORDER, near, far)


def bessel_i0e(x: Tensor) -> Tensor:
    """Returns exp(-|x|) I0(x), computed in float64."""
    return _bessel(x, 0).to(result_type(x))


def bessel_i0(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 0, computed in float64."""
    return (_bessel(x, 0) * x.double().abs().exp()).to(result_type(x))


def bessel_i1e(x: Tensor) -> Tensor:
    """Returns exp(-|x|) I1(x), computed in float64."""
    return (_bessel(x, 1) * x.double().sign()).to(result_type(x))


def bessel_i1(x: Tensor) -> Tensor:
    """Returns the modified Bessel function of order 1, computed in float64."""
    return (_bessel(x, 1) * x.double().sign() * x.double().abs().exp()).to(result_type(x))


SHIFT = 10  # smallest argument of the asymptotic expansion
# B(2k), for k = 1, 2, ...
BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


def polygamma(n: int, x: Tensor) -> Any:
    """Returns the derivative of order n of digamma, computed in float64."""
    if x.is_complex():
        return NotImplemented
    if n == 0:
        return digamma(x)
    if n != 1:
        wide = x.double()
        size = _zeta(torch.full_like(wide, n + 1), wide) * math.factorial(n)
        return (size if n % 2 else -size).to(result_type(x))
    wide = x.double()
    y = torch.where(wide < 0.5, 1 - wide, wide)
    small = y < SHIFT
    steps = torch.zeros_like(y)
    for k in range(SHIFT):
        steps = steps + 1 / ((y + k) * (y + k))
    inverse = 1 / torch.where(small, y + SHIFT, y)
    square = inverse * inverse
    total = torch.full_like(inverse, BERNOULLI[-1])
    for b in reversed(BERNOULLI[:-1]):
        total = total * square + b
    found = inverse + square / 2 + total * square * inverse + torch.where(small, steps, 0.0)
    sine = ((wide - wide.round()) * math.pi).sin()
    return torch.where(wide < 0.5, math.pi**2 / (sine * sine) - found, found).to(result_type(x))


def zeta(s: Tensor, q: Tensor) -> Tensor:
    """Returns the sum of (q + k)^-s over k = 0, 1, ..., computed in float64."""
    kind = torch.result_type(s, q)
    return _zeta(s.double(), q.double()).to(kind if kind.is_floating_point else torch.get_default_dtype())


def zeta_of_number(s: float, q: Tensor) -> Tensor:
    return zeta(q.new_full((), s, dtype=result_type(q)), q)


def zeta_at_number(s: Tensor, q: float) -> Tensor:
    return zeta(s, s.new_full((), q, dtype=result_type(s)))


def _zeta(s: Tensor, q: Tensor) -> Tensor:
    """Returns Hurwitz's zeta function; negative terms, of whole s, are the difference of two series of positive ones."""
    fraction = q - q.floor()
    positive = q > 0
    rest = 1 - fraction
    sign = 1 - 4 * (s / 2 - (s / 2).floor())  # of negative numbers to the power s
    negative = _positive_zeta(s, rest) - _positive_zeta(s, 1 - q)
    found = _positive_zeta(s, torch.where(positive, q, fraction)) + torch.where(positive, 0.0, sign * negative)
    found = torch.where(positive | (s == s.floor()), found, math.nan)
    found = torch.where(~positive & (q == q.floor()), math.inf, found)  # one term is infinite, or q is
    return torch.where(s == 1, math.inf, torch.where(s < 1, math.nan, found))


def _positive_zeta(s: Tensor, q: Tensor) -> Tensor:
    """Returns Hurwitz's zeta function for positive q: the first terms, and the rest by Euler and Maclaurin's formula."""
    total = q.pow(-s)
    for k in range(1, SHIFT):
        total = total + (q + k).pow(-s)
    q = q + SHIFT
    term = q.pow(-s)
    total = total + q * term / (s - 1) + term / 2
    factor = s * term / q
    for k, b in enumerate(BERNOULLI, 1):
        total = total + factor * (b / math.factorial(2 * k))
        factor = factor * (s + 2 * k - 1) * (s + 2 * k) / (q * q)
    return total
