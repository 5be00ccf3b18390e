"""Decompositions of special functions: modified Bessel functions and trigamma."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .composed_functions import digamma, result_type

__all__ = ["bessel_i0", "bessel_i0e", "bessel_i1", "bessel_i1e", "polygamma"]

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
    """Returns the derivative of order n of digamma, computed in float64, for n = 0 and n = 1; others are left to torch."""
    if n == 0:
        return digamma(x)
    if n != 1 or x.is_complex():
        return NotImplemented
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
