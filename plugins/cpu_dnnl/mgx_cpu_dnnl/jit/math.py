"""Elementary functions over float32 vectors as IR: range reduction and a polynomial each, within a few ulp.

The polynomials are fits of our own (weighted least squares made near-minimax), lowest power first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Final

import numpy as np

from .code import Code, V, constant
from .float_steps import bits, clamp, floats, horner
from .inverse_angles import acos, asin, atan
from .math_in_float64 import pow_

__all__ = ["FAST", "erf", "exp", "exp_negative", "expm1", "log", "log1p", "log2", "reciprocal", "sigmoid", "tanh"]

LN2_HI: Final = 0.693145751953125  # 17 bits: its products with an exponent are exact
LN2_LO: Final = 1.428606765330187e-06
_EXP: Final = (0.5, 0.166665181517601, 0.04166620597243309, 0.008368889801204205, 0.0013950489228591323)
_LOG: Final = (
    0.3333331048488617, -0.24999986588954926, 0.20002226531505585, -0.16669249534606934, 0.14218655228614807,
    -0.12384369969367981, 0.11873016506433487, -0.11789695918560028, 0.06915146857500076,
)  # fmt: skip
_ERF_EDGE: Final = 3.92  # the function rounds to 1 in float32 from here on
_ERF: Final = (  # erf(x) / x over s = 2 (x / edge)^2 - 1
    0.3607368197787215, -0.180108570866646, 0.1340834186390268, -0.10918151176711907, 0.09062184819518049,
    -0.07399374645345484, 0.058189759484831856, -0.043566781704858684, 0.03053318899803828, -0.01966494123310705,
    0.012378600988159391, -0.008107235491398666, 0.00413619081194032, -0.0010880189559484682, 0.0007060194089632164,
    -0.0009277572991042013, 0.00035475200732121417,
)  # fmt: skip
# spacing of the expansion points of erf(x) / x; at the last point erf(x) rounds to 1 in float32, as only few spacings ensure
_ERF_STEP: Final = 135 / 512
_ERF_POINTS: Final = 16  # lanes of an AVX-512 vector, so that a permute looks up coefficients
_ERF_DEGREE: Final = 5
_TANH_EDGE: Final = 9.02  # the function rounds to 1 in float32 from here on
_TANH_P: Final = (  # tanh(x) / x = P(x^2) / Q(x^2)
    0.9999999790674546, 0.1337973420754583, 0.00349405272239015, 2.0583734269973375e-05, 1.3319340405354287e-08,
)  # fmt: skip
_TANH_Q: Final = (
    1.0, 0.4671304948070169, 0.025871145317599247, 0.0003283120539740825, 7.762146451871905e-07,
)  # fmt: skip
_MAGIC: Final = 12582912.0  # 1.5 * 2^23: adding it leaves an integer in the low bits


def power_of_two(c: Code, shifted: V) -> V:
    """Returns 2^n for an integer n in [-126, 127], given n + _MAGIC."""
    whole = bits(c, shifted)
    return floats(c, c.op("add", c.op("shl", whole, c.const(23, whole)), c.const(0x3F800000, whole)))


def scaled(c: Code, p: V, shifted: V, n: V) -> V:
    """Returns p * 2^n for integral floats n (and n + _MAGIC), correct for subnormals and overflow."""
    if c.wide and n.n and n.n % 16 == 0:
        parts = [_scalef(c, piece(c, p, i), piece(c, n, i)) for i in range(0, n.n, 16)]
        return joined(c, parts)
    whole = c.op("sub", bits(c, shifted), c.const(0x4B400000, bits(c, shifted)))
    half = c.op("ashr", whole, c.const(1, whole))
    for part in (half, c.op("sub", whole, half)):
        exponent = c.op("shl", c.op("add", part, c.const(127, whole)), c.const(23, whole))
        p = c.op("fmul", p, floats(c, exponent))
    return p


def piece(c: Code, x: V, at: int) -> V:
    return x if x.n == 16 else c.shuffle(x, x, range(at, at + 16))


def joined(c: Code, parts: list[V]) -> V:
    while len(parts) > 1:
        parts = [c.shuffle(a, b, range(a.n + b.n)) for a, b in zip(parts[::2], parts[1::2], strict=True)]
    return parts[0]


def _scalef(c: Code, p: V, n: V) -> V:
    name = "llvm.x86.avx512.mask.scalef.ps.512"
    kind = p.type
    c.declared[name] = f"declare {kind} @{name}({kind}, {kind}, {kind}, i16, i32 immarg)"
    return c.make(
        f"call {kind} @{name}({kind} {p.ref}, {kind} {n.ref}, {kind} zeroinitializer, i16 -1, i32 4)", "float", 16
    )


def split(c: Code, x: V) -> tuple[V, V, V]:
    """Returns n + _MAGIC, n and r, where x = n ln 2 + r."""
    shifted = c.fma(x, c.const(math.log2(math.e), x), c.const(_MAGIC, x))
    n = c.op("fsub", shifted, c.const(_MAGIC, x))
    r = c.fma(n, c.const(-LN2_HI, x), x)
    return shifted, n, c.fma(n, c.const(-LN2_LO, x), r)


def exp(c: Code, x: V) -> V:
    return _exp(c, clamp(c, x, -104.5, 89.0))


def exp_negative(c: Code, x: V) -> V:
    """Emits exp(x) for x <= 0; flushes subnormal results, which take up to 100 times longer to compute, to 0."""
    low = c.const(-87.33, x)
    none = c.compare("olt", x, low)
    shifted, _, r = split(c, c.select(c.compare("ogt", low, x), low, x))
    value = c.op("fmul", horner(c, r, (1.0, 1.0, *_EXP)), power_of_two(c, shifted))
    return c.select(none, c.const(0.0, x), value)


def _exp(c: Code, x: V) -> V:
    shifted, n, r = split(c, x)
    return scaled(c, horner(c, r, (1.0, 1.0, *_EXP)), shifted, n)


def expm1(c: Code, x: V) -> V:
    y = clamp(c, x, -20.0, 89.0)
    shifted, _, r = split(c, y)
    p = c.fma(c.op("fmul", r, r), horner(c, r, _EXP), r)
    half = power_of_two(c, c.op("fsub", shifted, c.const(1.0, x)))  # 2^n overflows before the result does
    out = c.fma(half, p, c.op("fsub", half, c.const(0.5, half)))
    small = c.compare("olt", c.intrinsic("fabs", x), c.const(1e-4, x))  # keeps -0 and subnormals
    return c.select(small, c.fma(c.op("fmul", x, c.const(0.5, x)), x, x), c.op("fadd", out, out))


def log_parts(c: Code, x: V) -> tuple[V, V, V]:
    """Returns e, f and log(1 + f) - f for positive finite x = 2^e (1 + f), with f around 0."""
    tiny = c.compare("olt", x, c.const(1.1754943508222875e-38, x))
    x = c.select(tiny, c.op("fmul", x, c.const(8388608.0, x)), x)
    whole = bits(c, x)
    shifted = c.op("sub", whole, c.const(0x3F3504F3, whole))  # the bits of sqrt(1/2)
    exponent = c.op("ashr", shifted, c.const(23, whole))
    mantissa = c.op("add", c.op("and", shifted, c.const(0x007FFFFF, whole)), c.const(0x3F3504F3, whole))
    e = c.cast("sitofp", exponent, "float")
    e = c.select(tiny, c.op("fsub", e, c.const(23.0, e)), e)
    f = c.op("fsub", floats(c, mantissa), c.const(1.0, x))
    square = c.op("fmul", f, f)
    tail = c.op("fmul", c.op("fmul", square, f), horner(c, f, _LOG))
    return e, f, c.fma(square, c.const(-0.5, x), tail)


def _log_edges(c: Code, x: V, out: V) -> V:
    infinity = c.const(math.inf, x)
    zero = c.const(0.0, x)
    out = c.select(c.compare("olt", x, infinity), out, x)  # inf, NaN
    out = c.select(c.compare("oeq", x, zero), c.const(-math.inf, x), out)
    return c.select(c.compare("olt", x, zero), c.const(math.nan, x), out)


def log(c: Code, x: V) -> V:
    e, f, rest = log_parts(c, x)
    rest = c.fma(e, c.const(LN2_LO, x), rest)
    return _log_edges(c, x, c.fma(e, c.const(LN2_HI, x), c.op("fadd", f, rest)))


def log2(c: Code, x: V) -> V:
    e, f, rest = log_parts(c, x)
    factor = c.const(1.442695040888963, x)  # in two parts, since its rounding would cost half an ulp of the result
    low = c.fma(f, c.const(1.9259629911266175e-08, x), c.op("fmul", rest, factor))
    return _log_edges(c, x, c.op("fadd", e, c.fma(f, factor, low)))


def log1p(c: Code, x: V) -> V:
    one = c.const(1.0, x)
    u = c.op("fadd", x, one)
    lost = c.op("fdiv", c.op("fsub", x, c.op("fsub", u, one)), u)
    base = log(c, u)
    plain = c.compare("oeq", u, one)
    odd = c.select(c.compare("ogt", u, c.const(0.0, x)), c.op("fadd", base, lost), base)
    odd = c.select(c.compare("olt", x, c.const(math.inf, x)), odd, c.op("fadd", x, x))
    return c.select(plain, x, odd)


def erf(c: Code, x: V) -> V:
    if c.wide and x.n and x.n % _ERF_POINTS == 0:
        return _erf_by_table(c, x)
    x = clamp(c, x, -_ERF_EDGE, _ERF_EDGE)
    s = c.fma(c.op("fmul", x, x), c.const(2 / _ERF_EDGE**2, x), c.const(-1.0, x))
    return c.op("fmul", x, horner(c, s, _ERF))


def _erf_by_table(c: Code, x: V) -> V:
    """Emits erf as x times a short polynomial around the expansion point nearest to |x|, looked up by permutes."""
    edge = (_ERF_POINTS - 1) * _ERF_STEP
    x = clamp(c, x, -edge, edge)
    size = c.intrinsic("fabs", x)
    shifted = c.fma(size, c.const(1 / _ERF_STEP, x), c.const(_MAGIC, x))
    near = c.fma(c.op("fsub", shifted, c.const(_MAGIC, x)), c.const(-_ERF_STEP, x), size)
    *lower, at = (_lookup(c, column, bits(c, shifted)) for column in _erf_columns())
    for coefficient in reversed(lower):
        at = c.fma(at, near, coefficient)
    return c.op("fmul", x, at)


@cache
def _erf_columns() -> list[list[float]]:
    """Returns the coefficients of erf(x) / x at each expansion point, lowest power first, fitted at Chebyshev nodes."""
    count = _ERF_DEGREE + 1
    points = np.cos((np.arange(count) + 0.5) * np.pi / count) * (_ERF_STEP / 2)
    powers = np.vander(points, count, increasing=True)
    values = [[math.erf(x) / x for x in n * _ERF_STEP + points] for n in range(_ERF_POINTS)]
    columns: list[list[float]] = np.linalg.solve(powers, np.transpose(values)).tolist()
    return columns


def _lookup(c: Code, numbers: list[float], places: V) -> V:
    """Looks up one of 16 values per lane by the low four bits of an index."""
    name = "llvm.x86.avx512.permvar.sf.512"
    c.declared[name] = f"declare <16 x float> @{name}(<16 x float>, <16 x i32>)"
    table = ", ".join(f"float {constant(n, 'float', 0).ref}" for n in numbers)
    parts = []
    for at in range(0, places.n, 16):
        which = piece(c, places, at)
        text = f"call <16 x float> @{name}(<16 x float> <{table}>, {which.type} {which.ref})"
        parts.append(c.make(text, "float", 16))
    return joined(c, parts)


def reciprocal(c: Code, x: V) -> V:
    """Emits 1 / x for x in [1, 2^126]: an estimate and a Newton step if the CPU has estimates and slow divisions."""
    if c.divides or not (c.wide and x.n and x.n % 16 == 0):
        return c.op("fdiv", c.const(1.0, x), x)
    name = "llvm.x86.avx512.rcp14.ps.512"
    c.declared[name] = f"declare <16 x float> @{name}(<16 x float>, <16 x float>, i16)"
    parts = []
    for at in range(0, x.n, 16):
        y = piece(c, x, at)
        r = c.make(f"call <16 x float> @{name}({y.type} {y.ref}, {y.type} zeroinitializer, i16 -1)", "float", 16)
        slip = c.fma(c.fneg(y), r, c.const(1.0, y))
        parts.append(c.fma(r, slip, r))
    return joined(c, parts)


def sigmoid(c: Code, x: V) -> V:
    """Emits 1 / (1 + exp(-x))."""
    y = c.fneg(x)
    low = c.const(-87.0, x)  # exp(-x) overflows for lower x; such lanes are replaced below
    shifted, n, r = split(c, c.select(c.compare("ogt", low, y), low, y) if c.wide else clamp(c, y, -87.0, 87.0))
    e = horner(c, r, (1.0, 1.0, *_EXP))
    e = scaled(c, e, shifted, n) if c.wide else c.op("fmul", e, power_of_two(c, shifted))  # all exponents are in range
    out = reciprocal(c, c.op("fadd", e, c.const(1.0, x)))
    below = c.compare("olt", x, c.const(-87.0, x))  # subnormal results, then 0
    return c.select(below, c.const(0.0, x), out)


def tanh(c: Code, x: V) -> V:
    x = clamp(c, x, -_TANH_EDGE, _TANH_EDGE)
    s = c.op("fmul", x, x)
    p = c.op("fmul", x, horner(c, s, _TANH_P))
    return clamp(c, c.op("fmul", p, reciprocal(c, horner(c, s, _TANH_Q))), -1.0, 1.0)


FAST: Final[dict[str, Callable[..., V]]] = {
    "exp": exp,
    "expm1": expm1,
    "log": log,
    "log1p": log1p,
    "log2": log2,
    "erf": erf,
    "tanh": tanh,
    "sigmoid": sigmoid,
    "exp_negative": exp_negative,
    "pow": pow_,
    "asin": asin,
    "acos": acos,
    "atan": atan,
}
