"""Decompositions of special functions: polygamma, Hurwitz's zeta function, normal quantiles and others."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .composed_functions import digamma, erfinv, result_type

__all__ = [
    "erfcx",
    "ndtri",
    "polygamma",
    "zeta",
    "zeta_of_number",
    "zeta_at_number",
]

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


ERFCX_STEP, ERFCX_NODES = 0.5, 13  # of the midpoint rule, whose error is exp(-(pi / step)^2)
NEWTON = 5  # steps to the quantile


def _scaled_erfc(x: Tensor) -> Tensor:
    """Returns exp(x^2) erfc(x) of nonnegative numbers.

    It is the integral of x exp(-t^2) / (pi (x^2 + t^2)), whose pole adds a term to the sum over the nodes.
    """
    total = torch.zeros_like(x)
    for k in range(ERFCX_NODES):
        t = (k + 0.5) * ERFCX_STEP
        total = total + math.exp(-t * t) / (x + t * t / x)
    end = math.pi / ERFCX_STEP
    near = x.clamp(max=end)
    pole = torch.where(x < end, 2 * (near * near).exp() / (1 + (2 * end * near).exp()), 0.0)
    return total * (2 * ERFCX_STEP / math.pi) + pole


def erfcx(x: Tensor) -> Tensor:
    """Returns exp(x^2) erfc(x), computed in float64."""
    wide = x.double()
    found = _scaled_erfc(wide.abs())
    return torch.where(wide < 0, 2 * (wide * wide).exp() - found, found).to(result_type(x))


def ndtri(x: Tensor) -> Tensor:
    """Returns the quantile of the normal distribution, computed in float64.

    In the tails, Newton's method finds the logarithm of the smaller one, which is concave, from a bound of the quantile.
    """
    wide = x.double()
    tail = torch.where(wide < 0.5, wide, 1 - wide)
    inside = tail > 0
    wanted = torch.where(inside, tail, 0.5).log()
    size = (-2 * (wanted + math.log(2))).clamp(min=0).sqrt()  # the tail is at most exp(-size^2 / 2) / 2
    for _ in range(NEWTON):
        scaled = _scaled_erfc(size / math.sqrt(2))
        logarithm = (scaled / 2).log() - size * size / 2
        size = size - (wanted - logarithm) * scaled * math.sqrt(math.pi / 2)
    size = torch.where(inside, size, torch.where(tail == 0, math.inf, math.nan))
    middle = erfinv(2 * wide - 1) * math.sqrt(2)
    found = torch.where(tail > 0.1, middle, torch.where(wide < 0.5, -size, size))
    return found.to(result_type(x))
