"""Decompositions of orthogonal polynomials of a fixed degree, by their recurrences in float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .composed_functions import result_type

__all__ = ["polynomials"]

aten = torch.ops.aten
# returns the polynomial of degree k + 1 from k, x, and those of degrees k and k - 1
Step = Callable[[int, Tensor, Tensor, Tensor], Tensor]


def _chebyshev(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return 2 * x * p - before


def _hermite(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return 2 * (x * p - k * before)


def _hermite_of_probability(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return x * p - k * before


def _laguerre(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return ((2 * k + 1 - x) * p - k * before) / (k + 1)


def _legendre(k: int, x: Tensor, p: Tensor, before: Tensor) -> Tensor:
    return ((2 * k + 1) * x * p - k * before) / (k + 1)


def polynomials() -> dict[Any, Callable[..., Any]]:
    """Returns decompositions of polynomials whose degree is a number."""
    kinds = {"t": (1, 0), "u": (2, 0), "v": (2, -1), "w": (2, 1)}  # the factor and the term of the linear polynomial
    found = {
        f"{shift}chebyshev_polynomial_{k}": (*linear, _chebyshev)
        for k, linear in kinds.items()
        for shift in ("", "shifted_")
    }
    found |= {
        "hermite_polynomial_h": (2, 0, _hermite),
        "hermite_polynomial_he": (1, 0, _hermite_of_probability),
        "laguerre_polynomial_l": (-1, 1, _laguerre),
        "legendre_polynomial_p": (1, 0, _legendre),
    }
    return {
        getattr(aten, f"special_{name}").n_scalar: _polynomial(factor, term, step, name.startswith("shifted"))
        for name, (factor, term, step) in found.items()
    }


def _polynomial(factor: int, term: int, step: Step, shifted: bool) -> Callable[..., Any]:
    def polynomial(x: Tensor, n: float) -> Tensor:
        """Returns the polynomial of degree n, rounded toward zero; 0 if it is negative."""
        degree = int(n)
        wide = 2 * x.double() - 1 if shifted else x.double()
        before, found = torch.ones_like(wide), factor * wide + term
        if degree < 1:
            found = torch.zeros_like(wide) if degree < 0 else before
        for k in range(1, degree):
            before, found = found, step(k, wide, found, before)
        return found.to(result_type(x))

    return polynomial
