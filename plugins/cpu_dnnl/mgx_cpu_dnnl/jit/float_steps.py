"""Building blocks of elementary functions: polynomials, clamping, and bit casts of floats."""

from __future__ import annotations

from collections.abc import Sequence

from .code import Code, V

__all__ = ["bits", "clamp", "divisor_scale", "floats", "horner"]


def horner(c: Code, x: V, coefficients: Sequence[float]) -> V:
    """Evaluates a polynomial at x, coefficients of the lowest power first."""
    at = c.const(coefficients[-1], x)
    for k in reversed(coefficients[:-1]):
        at = c.fma(at, x, c.const(k, x))
    return at


def clamp(c: Code, x: V, low: float, high: float) -> V:
    """Clamps x; NaN stays NaN."""
    lo, hi = c.const(low, x), c.const(high, x)
    x = c.select(c.compare("ogt", lo, x), lo, x)
    return c.select(c.compare("olt", hi, x), hi, x)


def bits(c: Code, x: V) -> V:
    """Bit-casts floats to integers."""
    return c.cast("bitcast", x, "i32" if x.elem == "float" else "i64")


def floats(c: Code, x: V) -> V:
    """Bit-casts integers to floats."""
    return c.cast("bitcast", x, "float" if x.elem == "i32" else "double")


def divisor_scale(c: Code, x: V) -> V:
    """Returns s, a power of two, such that 1 / (x s) and a s are normal numbers, for a / x = (a s) / (x s)."""
    size = c.intrinsic("fabs", x)
    one = c.const(1.0, x)
    s = c.select(c.compare("olt", size, c.const(2.0**-100, x)), c.const(2.0**64, x), one)
    return c.select(c.compare("ogt", size, c.const(2.0**100, x)), c.const(2.0**-64, x), s)
