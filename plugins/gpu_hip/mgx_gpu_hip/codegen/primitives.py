"""HIP C++ for the primitives of scalar expressions, by name, and literals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import numpy as np

__all__ = ["FAST", "FLOATS", "HIP", "UNSIGNED", "constant", "quotient"]

FLOATS: Final = frozenset({"float", "double"})
UNSIGNED: Final = {"i8": "u8", "i16": "u16", "i32": "u32", "i64": "u64"}

Printer = Callable[[str, Sequence[str]], str]  # (C type of the operands, their code) -> code
FAST: Final = frozenset({"exp", "log", "tanh", "erf", "rsqrt", "div"})  # primitives with a fast variant in the prelude


def _binary(sign: str, logical: str) -> Printer:
    def out(t: str, a: Sequence[str]) -> str:
        if t in FLOATS:
            return f"{a[0]} {sign} {a[1]}"
        if t == "bool":
            return f"{a[0]} {logical} {a[1]}"
        wide = UNSIGNED.get(t, t)  # signed overflow is undefined in C++; wrapping is required
        return f"({t})(({wide}){a[0]} {sign} ({wide}){a[1]})"

    return out


def _by_kind(floats: str, integers: str, booleans: str = "") -> Printer:
    def out(t: str, a: Sequence[str]) -> str:
        form = floats if t in FLOATS else booleans if t == "bool" and booleans else integers
        return form.format(*a, t=t, u=UNSIGNED.get(t, t))

    return out


def _function(name: str) -> Printer:
    return lambda t, a: f"m::{name}({', '.join(a)})"


def _typed(name: str) -> Printer:
    """Returns a printer for an integer template with explicit type, since C++ would promote the operands."""
    return lambda t, a: f"m::{name}({', '.join(a)})" if t in FLOATS else f"m::{name}<{t}>({', '.join(a)})"


def _compare(sign: str) -> Printer:
    return lambda t, a: f"{a[0]} {sign} {a[1]}"


def _logical(sign: str) -> Printer:
    return lambda t, a: f"({a[0]} != 0) {sign} ({a[1]} != 0)" if t != "bool" else f"{a[0]} {sign} {a[1]}"


HIP: Final[Mapping[str, Printer]] = {
    "add": _binary("+", "||"),
    "sub": _binary("-", "!="),
    "mul": _binary("*", "&&"),
    "div": _by_kind("{0} / {1}", "m::div<{t}>({0}, {1})"),
    "neg": _by_kind("-{0}", "({t})(0 - ({u}){0})"),
    "abs": _by_kind("m::abs({0})", "({0} < 0 ? ({t})(0 - ({u}){0}) : {0})"),
    "sign": _typed("sign"),
    "min": _by_kind("m::min({0}, {1})", "m::min<{t}>({0}, {1})", "{0} && {1}"),
    "max": _by_kind("m::max({0}, {1})", "m::max<{t}>({0}, {1})", "{0} || {1}"),
    "pow": _typed("pow"),
    "mod": _typed("mod"),
    "fmod": _typed("fmod"),
    "floor": _typed("floor"),
    "ceil": _typed("ceil"),
    "round": _typed("round"),
    "trunc": _typed("trunc"),
    **{
        name: _function(name)
        for name in (
            "sqrt", "rsqrt", "exp", "log", "log2", "expm1", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
            "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "isnan", "isinf",
        )
    },
    "lt": _compare("<"),
    "le": _compare("<="),
    "gt": _compare(">"),
    "ge": _compare(">="),
    "eq": _compare("=="),
    "ne": _compare("!="),
    "logical_and": _logical("&&"),
    "logical_or": _logical("||"),
    "logical_xor": _logical("!="),
    "logical_not": lambda t, a: f"!{a[0]}" if t == "bool" else f"{a[0]} == 0",
    "bitwise_and": lambda t, a: f"({t})({a[0]} & {a[1]})",
    "bitwise_or": lambda t, a: f"({t})({a[0]} | {a[1]})",
    "bitwise_xor": lambda t, a: f"({t})({a[0]} ^ {a[1]})",
    "bitwise_not": lambda t, a: f"!{a[0]}" if t == "bool" else f"({t})~{a[0]}",
    "shift_left": lambda t, a: f"m::shift_left<{t}, {t}>({a[0]}, {a[1]})",
    "shift_right": lambda t, a: f"m::shift_right<{t}, {t}>({a[0]}, {a[1]})",
    "where": lambda t, a: f"({a[0]} ? {a[1]} : {a[2]})",
}  # fmt: skip


def constant(value: float | int | bool, ctype: str) -> str:
    """Returns a number as a literal of a C type."""
    if ctype == "bool":
        return "true" if value else "false"
    if ctype in FLOATS:
        x = float(np.float32(value)) if ctype == "float" else float(value)
        if math.isnan(x):
            return f"({ctype})m::nan()"
        if math.isinf(x):
            return f"(({ctype}){'-' if x < 0 else ''}m::inf())"
        word = repr(x)
        word += "" if "." in word or "e" in word else ".0"
        word += "f" if ctype == "float" else ""
        return f"({word})" if x < 0 or word.startswith("-") else word
    bits = int(ctype[1:])
    n = int(value) & ((1 << bits) - 1)
    if ctype[0] == "u":
        return f"({ctype}){n}ull" if bits == 64 else f"({ctype}){n}u"
    n -= (1 << bits) if n >> (bits - 1) else 0
    if bits == 64:
        return f"((i64){n}ll)" if n != -(1 << 63) else "((i64)(-9223372036854775807ll - 1))"
    return f"(({ctype}){n})" if n > -(1 << 31) else "((i32)(-2147483647 - 1))"


def quotient(x: str, number: float) -> str:
    """Returns a quotient by a constant as a multiplication; None if its reciprocal is out of range."""
    divisor = np.float32(number)
    if not 1e-30 < abs(divisor) < 1e30:
        return ""
    reciprocal = np.float32(1) / divisor
    if np.frexp(divisor)[0] in (0.5, -0.5):
        return f"{x} * {constant(float(reciprocal), 'float')}"
    return f"m::div_by({x}, {constant(float(divisor), 'float')}, {constant(float(reciprocal), 'float')})"


def nearest_quotient(x: str, number: float, held: Sequence[str]) -> str:
    """Returns the integer nearest to a rounded quotient; None for negative divisors or those near the limits of the range.

    held: its bounds, and the value for NaN if that is not 0.
    """
    divisor = np.float32(number)
    if not 1e-30 < divisor < 1e30:
        return ""
    parts = [constant(float(n), "float") for n in (divisor, np.float32(1) / divisor)]
    return f"m::nearest_quotient({', '.join([x, *parts, *held])})"


def nearest_product(x: str, number: float, bounds: Sequence[float], none: int | None) -> str:
    """Returns the integer nearest to x / number within bounds, by the divisor's reciprocal; None as for `nearest_quotient`.

    none: the value for NaN; None if x is a number.
    """
    divisor = np.float32(number)
    if not 1e-30 < divisor < 1e30:
        return ""
    parts = [constant(float(n), "float") for n in (np.float32(1) / divisor, *(divisor * np.float32(b) for b in bounds))]
    made = f"m::nearest_product({', '.join([x, *parts])})"
    return made if none is None else f"({x} == {x} ? {made} : {none})"
