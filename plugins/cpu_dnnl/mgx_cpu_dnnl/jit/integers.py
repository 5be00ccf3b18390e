"""IR for primitives of integers and bools."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.types.dtype import DType

from .code import BITS, Code, V, i64

__all__ = ["BITWISE", "integer"]

BITWISE: Final = {"and": "and", "or": "or", "xor": "xor"}


def integer(c: Code, name: str, dtype: DType, args: list[V]) -> V:
    """Emits a primitive of integers or bools."""
    a = args[0]
    signed = dtype.kind == "i"
    zero = c.const(0, a)
    if dtype is dt.bool_:
        name = {"add": "bitwise_or", "mul": "bitwise_and", "max": "bitwise_or", "min": "bitwise_and"}.get(name, name)
    if name in ("add", "sub", "mul"):
        return c.op(name, a, args[1])
    if name.startswith("bitwise"):
        return c.op("xor", a, c.const(-1, a)) if name == "bitwise_not" else c.op(BITWISE[name[8:]], a, args[1])
    if name in ("max", "min"):
        how = ("s" if signed else "u") + ("gt" if name == "max" else "lt")
        return c.select(c.compare(how, a, args[1]), a, args[1])
    if name in ("div", "mod", "fmod"):
        return _divided(c, name, signed, a, args[1])
    if name in ("shift_left", "shift_right"):
        return _shifted(c, name, signed, a, args[1])
    if name == "neg":
        return c.op("sub", zero, a)
    if name == "abs":
        return c.select(c.compare("slt", a, zero), c.op("sub", zero, a), a) if signed else a
    if name == "sign":
        up = c.cast("zext", c.compare("ne", a, zero), a.elem)
        return c.select(c.compare("slt", a, zero), c.const(-1, a), up) if signed else up
    if name in ("isnan", "isinf"):
        return c.make(f"and {V('', 'i1', a.n).type} zeroinitializer, zeroinitializer", "i1", a.n)
    if name == "pow":
        return _power(c, signed, a, args[1])
    raise NotImplementedError(f"{name} of {dtype}")


def _divided(c: Code, name: str, signed: bool, a: V, b: V) -> V:
    """Emits a quotient rounded toward zero, or a remainder; 0 for a divisor of 0; lowest / -1 does not trap."""
    zero, one = c.const(0, a), c.const(1, a)
    none = c.compare("eq", b, zero)
    special = none
    minus = None
    if signed:
        minus = c.compare("eq", b, c.const(-1, b))
        special = c.op("or", none, minus)
    safe = c.select(special, one, b)
    if BITS[a.elem] <= 32:
        quotient = _exact(c, signed, a, safe)
    else:
        quotient = c.op("sdiv" if signed else "udiv", a, safe)
    if name == "div":
        if minus is not None:
            quotient = c.select(minus, c.op("sub", zero, a), quotient)
        return c.select(none, zero, quotient)
    rest = c.op("sub", a, c.op("mul", quotient, safe))
    if name == "mod" and signed:
        apart = c.compare("slt", c.op("xor", rest, b), zero)
        moved = c.op("and", apart, c.compare("ne", rest, zero))
        rest = c.select(moved, c.op("add", rest, b), rest)
    return c.select(special, zero, rest)


def _exact(c: Code, signed: bool, a: V, b: V) -> V:
    """Emits a quotient of integers of up to 32 bits in float64, which is exact enough to truncate correctly."""
    to, back = ("sitofp", "fptosi") if signed else ("uitofp", "fptoui")
    q = c.op("fdiv", c.cast(to, a, "double"), c.cast(to, b, "double"))
    return c.cast(back, q, a.elem)


def _shifted(c: Code, name: str, signed: bool, a: V, b: V) -> V:
    width = c.const(BITS[a.elem], a)
    whole = c.compare("uge", b, width)
    steps = c.select(whole, c.const(0, b), b)
    out = c.op("shl" if name == "shift_left" else "ashr" if signed else "lshr", a, steps)
    rest = c.const(0, a)
    if signed and name == "shift_right":
        rest = c.op("ashr", a, c.const(BITS[a.elem] - 1, a))
    return c.select(whole, rest, out)


def _power(c: Code, signed: bool, a: V, b: V) -> V:
    """Emits a power by repeated squaring; negative exponents return the truncated reciprocal."""
    one, zero = c.const(1, a), c.const(0, a)
    exponent = b
    if signed:
        exponent = c.select(c.compare("slt", b, zero), zero, b)
    begin, end = i64(0), i64(BITS[a.elem])

    def step(_: V, carried: list[V]) -> list[V]:
        out, base, rest = carried
        odd = c.compare("ne", c.op("and", rest, one), zero)
        return [
            c.select(odd, c.op("mul", out, base), out),
            c.op("mul", base, base),
            c.op("lshr", rest, one),
        ]

    out = c.loop(begin, end, 1, step, [one, a, exponent])[1]
    if not signed:
        return out
    minus = c.const(-1, a)
    sign = c.select(c.compare("ne", c.op("and", b, one), zero), a, one)
    inverse = c.select(c.compare("eq", a, one), one, c.select(c.compare("eq", a, minus), sign, zero))
    # as numpy, which converts 1 / 0 = inf to the lowest number
    inverse = c.select(c.compare("eq", a, zero), c.const(1 << (BITS[a.elem] - 1), a), inverse)
    return c.select(c.compare("slt", b, zero), inverse, out)
