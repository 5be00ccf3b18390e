"""Elementary functions over float64 vectors as IR, within a few units in the last place."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Final

from .code import Code, V
from .float_steps import bits, clamp, floats, horner

__all__ = ["FAST64", "WIDE_ANGLES", "shifted_sine"]

_LN2_HI: Final = 0.6931471805599453
_LN2_LO: Final = 2.3190468138462996e-17
_EXP: Final = tuple(1 / math.factorial(k) for k in range(2, 14))  # (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2
# (sin(r) - r) / r^3 over r^2, |r| <= pi / 4
_SIN: Final = tuple((-1) ** k / math.factorial(2 * k + 1) for k in range(1, 9))
_COS: Final = tuple((-1) ** k / math.factorial(2 * k) for k in range(2, 9))  # (cos(r) - 1 + r^2 / 2) / r^4 over r^2
_PIO2: Final = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)  # pi / 2 in three parts
_MAGIC: Final = 6755399441055744.0  # 1.5 * 2^52: adding it leaves an integer in the low bits
_TANH_EDGE: Final = 22.0  # the function rounds to 1 in float64 from here on
WIDE_ANGLES: Final = {"sin": 0, "cos": 1}  # phase relative to the sine, in quadrants


def _whole(c: Code, x: V) -> V:
    """Converts integral floats below 2^51 to integers."""
    shifted = bits(c, c.op("fadd", x, c.const(_MAGIC, x)))
    return c.op("sub", shifted, bits(c, c.const(_MAGIC, x)))


def _power_of_two(c: Code, n: V) -> V:
    """Returns 2^n for an integer n in [-1022, 1023]."""
    return floats(c, c.op("shl", c.op("add", n, c.const(1023, n)), c.const(52, n)))


def _reduced(c: Code, x: V) -> tuple[V, V]:
    """Returns n and exp(r) - 1, where x = n ln 2 + r."""
    n = c.intrinsic("rint", c.op("fmul", x, c.const(math.log2(math.e), x)))
    r = c.fma(n, c.const(-_LN2_LO, x), c.fma(n, c.const(-_LN2_HI, x), x))
    return _whole(c, n), c.fma(c.op("fmul", r, r), horner(c, r, _EXP), r)


def exp(c: Code, x: V) -> V:
    n, p = _reduced(c, clamp(c, x, -746.0, 710.0))
    half = c.op("ashr", n, c.const(1, n))  # in two steps, for correct subnormals and overflow
    out = c.op("fadd", p, c.const(1.0, x))
    for part in (half, c.op("sub", n, half)):
        out = c.op("fmul", out, _power_of_two(c, part))
    return out


def tanh(c: Code, x: V) -> V:
    """Emits tanh as e / (e + 2), where e = exp(2 |x|) - 1, with the sign of x."""
    size = clamp(c, c.intrinsic("fabs", x), 0.0, _TANH_EDGE)
    n, p = _reduced(c, c.op("fadd", size, size))
    scale = _power_of_two(c, n)
    e = c.fma(scale, p, c.op("fsub", scale, c.const(1.0, x)))
    return c.intrinsic("copysign", c.op("fdiv", e, c.op("fadd", e, c.const(2.0, x))), x)


def sigmoid(c: Code, x: V) -> V:
    """Emits 1 / (1 + exp(-x))."""
    one = c.const(1.0, x)
    return c.op("fdiv", one, c.op("fadd", one, exp(c, c.fneg(x))))


def shifted_sine(c: Code, x: V, ahead: int) -> V:
    """Emits sin(x + ahead pi / 2) for angles below 1e9."""
    k = c.intrinsic("rint", c.op("fmul", x, c.const(2 / math.pi, x)))
    first, second, third = (c.const(part, x) for part in _PIO2)
    near = c.fma(c.fneg(k), first, x)  # exact
    q = c.op("fmul", k, second)
    r = c.op("fsub", near, q)
    back = c.op("fsub", near, r)
    rest = c.op("fsub", c.op("fsub", near, c.op("fadd", r, back)), c.op("fsub", q, back))  # rounding error of r
    rest = c.op("fsub", rest, c.fma(k, third, c.fma(k, second, c.fneg(q))))
    z = c.op("fmul", r, r)
    sine = c.op("fadd", r, c.fma(c.op("fmul", z, r), horner(c, z, _SIN), rest))
    half = c.op("fmul", z, c.const(0.5, z))
    top = c.op("fsub", c.const(1.0, z), half)
    low = c.op("fsub", c.op("fsub", c.const(1.0, z), top), half)
    low = c.fma(c.op("fmul", z, z), horner(c, z, _COS), c.fma(c.fneg(r), rest, low))
    cosine = c.op("fadd", top, low)
    quadrant = c.op("add", _whole(c, k), c.const(ahead, bits(c, x)))
    odd = c.compare("ne", c.op("and", quadrant, c.const(1, quadrant)), c.const(0, quadrant))
    sign = c.op("shl", c.op("and", quadrant, c.const(2, quadrant)), c.const(62, quadrant))
    out = floats(c, c.op("xor", bits(c, c.select(odd, cosine, sine)), sign))
    return out if ahead else c.select(c.compare("oeq", x, c.const(0.0, x)), x, out)  # keeps -0


FAST64: Final[dict[str, Callable[..., V]]] = {"exp": exp, "exp_negative": exp, "tanh": tanh, "sigmoid": sigmoid}
