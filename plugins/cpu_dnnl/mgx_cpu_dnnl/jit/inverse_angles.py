"""Inverse sine, cosine and tangent over float32 vectors, in float64: argument reduction and a polynomial each."""

from __future__ import annotations

import math
from typing import Final

from .code import Code, V
from .float_steps import horner

__all__ = ["acos", "asin", "atan"]

# f(x) = x + x^3 p(x^2), fits of our own over |x| <= tan(pi / 8) and |x| <= 1/2, lowest power first
_ATAN: Final = (
    -0.3333333134651184, 0.19999545812606812, -0.14264121651649475, 0.10745266079902649, -0.06456374377012253,
)  # fmt: skip
_ASIN: Final = (
    0.16666665673255920, 0.07500099390745163, 0.04459811002016068, 0.03111528046429157, 0.01708181016147137,
    0.03379948064684868,
)  # fmt: skip


def _odd(c: Code, x: V, square: V, coefficients: tuple[float, ...]) -> V:
    return c.fma(c.op("fmul", x, square), horner(c, square, coefficients), x)


def _narrow(c: Code, x: V) -> V:
    return c.cast("fptrunc", x, "float")


def atan(c: Code, x: V) -> V:
    """Emits atan; reduces the argument to -1 / x above tan(3 pi / 8), and to (x - 1) / (x + 1) above tan(pi / 8)."""
    x = c.cast("fpext", x, "double")
    size = c.intrinsic("fabs", x)
    one, zero = c.const(1.0, x), c.const(0.0, x)
    large = c.compare("ogt", size, c.const(math.tan(3 * math.pi / 8), x))
    middle = c.compare("ogt", size, c.const(math.tan(math.pi / 8), x))
    above = c.select(large, c.const(-1.0, x), c.select(middle, c.op("fsub", size, one), size))
    below = c.select(large, size, c.select(middle, c.op("fadd", size, one), one))
    begin = c.select(large, c.const(math.pi / 2, x), c.select(middle, c.const(math.pi / 4, x), zero))
    r = c.op("fdiv", above, below)
    return _narrow(c, c.intrinsic("copysign", c.op("fadd", begin, _odd(c, r, c.op("fmul", r, r), _ATAN)), x))


def _asin_of_small(c: Code, size: V, half: V) -> tuple[V, V]:
    """Returns size > 1/2, and asin of size or of r = sqrt((1 - size) / 2): asin(size) = pi / 2 - 2 asin(r)."""
    large = c.compare("ogt", size, half)
    rest = c.fma(size, c.const(-0.5, size), half)  # negative for sizes above 1: the root is NaN
    square = c.select(large, rest, c.op("fmul", size, size))
    r = c.select(large, c.intrinsic("sqrt", rest), size)
    return large, _odd(c, r, square, _ASIN)


def asin(c: Code, x: V) -> V:
    x = c.cast("fpext", x, "double")
    size = c.intrinsic("fabs", x)
    large, r = _asin_of_small(c, size, c.const(0.5, x))
    return _narrow(
        c, c.intrinsic("copysign", c.select(large, c.fma(r, c.const(-2.0, x), c.const(math.pi / 2, x)), r), x)
    )


def acos(c: Code, x: V) -> V:
    x = c.cast("fpext", x, "double")
    large, r = _asin_of_small(c, c.intrinsic("fabs", x), c.const(0.5, x))
    below = c.compare("olt", x, c.const(0.0, x))
    twice = c.op("fadd", r, r)
    outer = c.select(below, c.op("fsub", c.const(math.pi, x), twice), twice)
    inner = c.op("fsub", c.const(math.pi / 2, x), c.select(below, c.fneg(r), r))
    return _narrow(c, c.select(large, outer, inner))
