"""Coefficients of an approximate GELU for 8-bit results: erf(x / sqrt(2)) = tanh(x (a + b x^2 + c x^4))."""

from __future__ import annotations

from typing import Final

__all__ = ["BYTE_ERF", "ERF", "LEAST", "SATURATED"]

ERF: Final = (0.79750789, 0.037005644, -0.00035151999)  # a, b, c; error of GELU 2.5e-5
BYTE_ERF: Final = (0.79854699, 0.035387243)  # a, b; error 0.036 of a step of 1 / 255 of the range of GELU's results
LEAST: Final = -0.17  # below GELU's results
SATURATED: Final = 36.0  # x^2 beyond which erf(x / sqrt(2)) rounds to 1 in single precision
