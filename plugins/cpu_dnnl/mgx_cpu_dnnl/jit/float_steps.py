"""Steps that elementary functions are made of: polynomials, bounds, and floats as bits."""

from __future__ import annotations

from collections.abc import Sequence

from .code import Code, V

__all__ = ["bits", "clamp", "divisor_scale", "floats", "horner"]


def horner(c: Code, x: V, coefficients: Sequence[float]) -> V:
    """Returns a polynomial at x, lowest power first."""
    at = c.const(coefficients[-1], x)
    for k in reversed(coefficients[:-1]):
        at = c.fma(at, x, c.const(k, x))
    return at


def clamp(c: Code, x: V, low: float, high: float) -> V:
    """x within bounds; NaN stays."""
    lo, hi = c.const(low, x), c.const(high, x)
    x = c.select(c.compare("ogt", lo, x), lo, x)
    return c.select(c.compare("olt", hi, x), hi, x)


def bits(c: Code, x: V) -> V:
    """Returns the bits of floats as integers."""
    return c.cast("bitcast", x, "i32" if x.elem == "float" else "i64")


def floats(c: Code, x: V) -> V:
    """Returns the floats of bits."""
    return c.cast("bitcast", x, "float" if x.elem == "i32" else "double")


def divisor_scale(c: Code, x: V) -> V:
    """Returns a power of two s so that 1 / (x s) and a s are normal numbers, where a / x is made of them."""
    size = c.intrinsic("fabs", x)
    one = c.const(1.0, x)
    s = c.select(c.compare("olt", size, c.const(2.0**-100, x)), c.const(2.0**64, x), one)
    return c.select(c.compare("ogt", size, c.const(2.0**100, x)), c.const(2.0**-64, x), s)
