"""Elementary functions over float32 vectors, computed in float64: sine, cosine, tangent, fmod and powers."""

from __future__ import annotations

import math
from typing import Final

from .code import Code, V
from .float_steps import bits, clamp, floats, horner

__all__ = ["HUGE_ANGLE", "cos_small", "fmod_small", "pow_", "sin_small", "tan_small"]

_PIO2_HI: Final = 1.5707963267948966
_PIO2_LO: Final = 6.123233995736766e-17
_SIN: Final = (-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800)  # enough terms for |r| <= pi / 4 in float32
_COS: Final = (-0.5, 1 / 24, -1 / 720, 1 / 40320, -1 / 3628800, 1 / 479001600)
HUGE_ANGLE: Final = 1e9
HUGE_QUOTIENT: Final = 2.0**29  # below it, the product of an integral quotient and a float32 is exact
_LOG64: Final = tuple(2.0 / (2 * k + 1) for k in range(9))  # 2 atanh(t) / t over t^2, |t| <= 0.1716
_EXP64: Final = tuple(1.0 / math.factorial(k) for k in range(10))


def circle(c: Code, x: V) -> tuple[V, V, V]:
    """Returns sin r, cos r (float64) and the quadrant (i64) of float32 angles below HUGE_ANGLE."""
    wide = c.cast("fpext", x, "double")
    k = c.intrinsic("rint", c.op("fmul", wide, c.const(2 / math.pi, wide)))
    r = c.fma(k, c.const(-_PIO2_HI, wide), wide)
    r = c.fma(k, c.const(-_PIO2_LO, wide), r)
    z = c.op("fmul", r, r)
    s = c.fma(c.op("fmul", z, r), horner(c, z, _SIN), r)
    q = c.fma(z, horner(c, z, _COS), c.const(1.0, z))
    # adding 1.5 * 2^52 leaves the integer in the low bits
    quadrant = bits(c, c.op("fadd", k, c.const(6755399441055744.0, k)))
    return s, q, quadrant


def _turned(c: Code, s: V, q: V, quadrant: V) -> V:
    one = c.const(1, quadrant)
    odd = c.compare("ne", c.op("and", quadrant, one), c.const(0, quadrant))
    value = c.select(odd, q, s)
    sign = c.op("shl", c.op("and", quadrant, c.const(2, quadrant)), c.const(62, quadrant))
    return floats(c, c.op("xor", bits(c, value), sign))


def sin_small(c: Code, x: V) -> V:
    s, q, quadrant = circle(c, x)
    out = c.cast("fptrunc", _turned(c, s, q, quadrant), "float")
    return c.select(c.compare("oeq", x, c.const(0.0, x)), x, out)  # keeps -0


def cos_small(c: Code, x: V) -> V:
    s, q, quadrant = circle(c, x)
    return c.cast("fptrunc", _turned(c, s, q, c.op("add", quadrant, c.const(1, quadrant))), "float")


def tan_small(c: Code, x: V) -> V:
    s, q, quadrant = circle(c, x)
    odd = c.compare("ne", c.op("and", quadrant, c.const(1, quadrant)), c.const(0, quadrant))
    out = c.op("fdiv", c.select(odd, c.fneg(q), s), c.select(odd, s, q))
    return c.select(c.compare("oeq", x, c.const(0.0, x)), x, c.cast("fptrunc", out, "float"))


def fmod_small(c: Code, a: V, b: V) -> tuple[V, V]:
    """Returns C's fmod, exact, and the mask of lanes where it is invalid: huge or NaN quotients, infinite divisors."""
    x, y = (c.cast("fpext", c.intrinsic("fabs", v), "double") for v in (a, b))
    small = c.compare("olt", x, c.op("fmul", y, c.const(HUGE_QUOTIENT, y)))
    small = c.op("and", small, c.compare("olt", y, c.const(math.inf, y)))
    # the quotient may be rounded up to the next integer
    rest = c.fma(c.fneg(c.intrinsic("trunc", c.op("fdiv", x, y))), y, x)
    rest = c.select(c.compare("olt", rest, c.const(0.0, y)), c.op("fadd", rest, y), rest)
    rest = c.select(c.compare("oge", rest, y), c.op("fsub", rest, y), rest)
    return c.intrinsic("copysign", c.cast("fptrunc", rest, "float"), a), c.op("xor", small, c.const(True, small))


def pow_(c: Code, a: V, b: V) -> V:
    """Emits a^b as exp2(b log2 |a|) in float64, then the special cases of C's pow."""
    size = c.intrinsic("fabs", a)
    wide = c.cast("fpext", size, "double")  # float32 subnormals are normal in float64
    power = c.cast("fpext", b, "double")
    whole = bits(c, wide)
    shifted = c.op("sub", whole, c.const(0x3FE6A09E667F3BCD, whole))  # the bits of sqrt(1/2)
    exponent = c.op("ashr", shifted, c.const(52, whole))
    mantissa = c.op("sub", whole, c.op("shl", exponent, c.const(52, whole)))
    e = c.cast("sitofp", exponent, "double")
    m = floats(c, mantissa)
    one = c.const(1.0, m)
    t = c.op("fdiv", c.op("fsub", m, one), c.op("fadd", m, one))
    lg = c.op("fmul", t, horner(c, c.op("fmul", t, t), _LOG64))
    lg = c.fma(lg, c.const(math.log2(math.e), lg), e)
    y = c.op("fmul", lg, power)
    y = clamp(c, y, -200.0, 200.0)
    n = c.intrinsic("rint", y)
    r = c.op("fmul", c.op("fsub", y, n), c.const(math.log(2), y))
    p = horner(c, r, _EXP64)
    scale = bits(c, c.op("fadd", n, c.const(6755399441055744.0, n)))
    scale = floats(c, c.op("shl", c.op("add", scale, c.const(1023, scale)), c.const(52, scale)))
    out = c.cast("fptrunc", c.op("fmul", p, scale), "float")
    return _pow_edges(c, a, b, size, out)


def _pow_edges(c: Code, a: V, b: V, size: V, out: V) -> V:
    zero, one, infinity = c.const(0.0, a), c.const(1.0, a), c.const(math.inf, a)
    rising = c.compare("ogt", b, zero)
    # |a| is 0 or infinite: 0 or infinity by the sign of b
    large = c.compare("oeq", size, infinity)
    either = c.op("or", large, c.compare("oeq", size, zero))
    same = c.op("xor", c.op("xor", large, rising), c.const(True, large))
    out = c.select(either, c.select(same, infinity, zero), out)
    # b infinite: 1 for |a| = 1, else 0 or infinity
    endless = c.compare("oeq", c.intrinsic("fabs", b), infinity)
    above = c.compare("ogt", size, one)
    grows = c.op("xor", c.op("xor", above, rising), c.const(True, above))
    out = c.select(endless, c.select(c.compare("oeq", size, one), one, c.select(grows, infinity, zero)), out)
    # negative a: the result is negative for odd integral b, NaN for fractional b
    integral = c.compare("oeq", c.intrinsic("trunc", b), b)
    half = c.op("fmul", b, c.const(0.5, b))
    odd = c.op("and", integral, c.compare("one", c.intrinsic("trunc", half), half))
    below = c.compare("slt", bits(c, a), c.const(0, bits(c, a)))
    out = c.select(c.op("and", below, odd), c.fneg(out), out)
    undefined = c.op("and", c.compare("olt", a, zero), c.op("xor", integral, c.const(True, integral)))
    finite = c.compare("olt", size, infinity)
    out = c.select(c.op("and", undefined, finite), c.const(math.nan, out), out)
    out = c.select(c.compare("uno", a, b), c.op("fadd", a, b), out)
    trivial = c.op("or", c.compare("oeq", b, zero), c.compare("oeq", a, one))
    return c.select(trivial, one, out)
