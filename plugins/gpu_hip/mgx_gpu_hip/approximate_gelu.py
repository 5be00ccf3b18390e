"""Coefficients of an approximate GELU for 8-bit results: erf(x / sqrt(2)) = tanh(x (a + b x^2 + c x^4)), error 2.5e-5."""

from __future__ import annotations

from typing import Final

__all__ = ["ERF", "SATURATED"]

ERF: Final = (0.79750789, 0.037005644, -0.00035151999)  # a, b, c
SATURATED: Final = 36.0  # x^2 beyond which erf(x / sqrt(2)) rounds to 1 in single precision
