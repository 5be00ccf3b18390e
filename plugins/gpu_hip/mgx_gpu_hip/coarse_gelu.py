"""Numbers of a GELU for results of 8 bits, off by 2.5e-5: erf(x / sqrt(2)) = tanh(x (a + b x^2 + c x^4))."""

from __future__ import annotations

from typing import Final

__all__ = ["ERF", "SATURATED"]

ERF: Final = (0.79750789, 0.037005644, -0.00035151999)  # a, b, c
SATURATED: Final = 36.0  # the square of a number whose erf is 1 in single precision
