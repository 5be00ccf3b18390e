"""Elementary functions of complex tensors."""

from __future__ import annotations

import math
from typing import Any

from mgx_core import Instruction

from ..converter import Converter, converts_complex
from ..node import Complex, Node
from .comparison import signbit
from .complex_numbers import div, mul, pair, polar, reciprocal, size
from .pointwise import atan2

__all__: list[str] = []


def zero(n: Node, x: Instruction) -> Instruction:
    return n.add("equal", x, n.full_like(x, 0))


def half(n: Node, x: Instruction) -> Instruction:
    return n.add("mul", x, n.full_like(x, 0.5))


def turned(n: Node, x: Complex) -> Complex:
    """Returns i * x."""
    return Complex(n.add("neg", x.imag), x.real)


def turned_back(n: Node, x: Complex) -> Complex:
    """Returns -i * x."""
    return Complex(x.imag, n.add("neg", x.real))


@converts_complex("exp")
def exp(n: Node, x: Complex) -> Complex:
    return polar(n, n.add("exp", x.real), x.imag)


@converts_complex("exp2")
def exp2(n: Node, x: Complex) -> Complex:
    return exp(n, Complex(*(n.add("mul", part, n.full_like(part, math.log(2))) for part in x)))


@converts_complex("expm1")
def expm1(n: Node, x: Complex) -> Complex:
    """Returns exp(x) - 1 without cancellation near 0."""
    sine = n.add("sin", half(n, x.imag))
    versed = n.add("mul", n.full_like(sine, 2), n.add("mul", sine, sine))
    real = n.add("sub", n.add("mul", n.add("expm1", x.real), n.add("cos", x.imag)), versed)
    return Complex(real, n.add("mul", n.add("exp", x.real), n.add("sin", x.imag)))


@converts_complex("log")
def log(n: Node, x: Complex) -> Complex:
    return Complex(n.add("log", size(n, x)), atan2(n, x.imag, x.real))


def logarithm(base: float) -> Converter:
    def convert(n: Node, x: Complex) -> Complex:
        return Complex(*(n.add("mul", part, n.full_like(part, 1 / math.log(base))) for part in log(n, x)))

    return convert


converts_complex("log2")(logarithm(2))
converts_complex("log10")(logarithm(10))


@converts_complex("log1p")
def log1p(n: Node, x: Complex) -> Complex:
    """Returns log(1 + x) without cancellation near 0 and -1."""
    moved = Complex(n.add("add", x.real, n.full_like(x.real, 1)), x.imag)
    far = log(n, moved)
    product = n.add("mul", x.real, n.add("add", x.real, n.full_like(x.real, 2)))
    near = half(n, n.add("log1p", n.add("add", product, n.add("mul", x.imag, x.imag))))
    around = n.add("less", size(n, x), n.full_like(x.real, 0.5))
    return Complex(n.add("where", around, near, far.real), far.imag)


@converts_complex("sqrt")
def sqrt(n: Node, x: Complex) -> Complex:
    """Returns the principal square root; its imaginary part has the sign of the operand's, also for -0."""
    root = n.add("sqrt", half(n, n.add("add", size(n, x), n.add("abs", x.real))))
    nothing = zero(n, root)
    other = n.add("div", half(n, x.imag), n.add("where", nothing, n.full_like(root, 1), root))
    right = n.add("not", n.add("less", x.real, n.full_like(x.real, 0)))
    signed = n.add("where", signbit(n, x.imag), n.add("neg", root), root)
    return Complex(n.add("where", right, root, n.add("abs", other)), n.add("where", right, other, signed))


@converts_complex("rsqrt")
def rsqrt(n: Node, x: Complex) -> Complex:
    root = sqrt(n, x)
    return div(n, Complex(n.full_like(root.real, 1), n.full_like(root.imag, 0)), root)


@converts_complex("sinh")
def sinh(n: Node, x: Complex) -> Complex:
    real = n.add("mul", n.add("sinh", x.real), n.add("cos", x.imag))
    return Complex(real, n.add("mul", n.add("cosh", x.real), n.add("sin", x.imag)))


@converts_complex("cosh")
def cosh(n: Node, x: Complex) -> Complex:
    real = n.add("mul", n.add("cosh", x.real), n.add("cos", x.imag))
    return Complex(real, n.add("mul", n.add("sinh", x.real), n.add("sin", x.imag)))


@converts_complex("tanh")
def tanh(n: Node, x: Complex) -> Complex:
    """Returns tanh by Kahan's formula, and its limit on overflow."""
    tangent, s = n.add("tan", x.imag), n.add("sinh", x.real)
    one = n.full_like(s, 1)
    beta = n.add("add", one, n.add("mul", tangent, tangent))
    square = n.add("mul", s, s)
    bottom = n.add("add", one, n.add("mul", beta, square))
    top = n.add("mul", n.add("mul", beta, s), n.add("sqrt", n.add("add", one, square)))
    far = n.add("isinf", bottom)
    real = n.add("where", far, n.add("tanh", x.real), n.add("div", top, bottom))
    return Complex(real, n.add("where", far, n.full_like(s, 0), n.add("div", tangent, bottom)))


@converts_complex("sin")
def sin(n: Node, x: Complex) -> Complex:
    return turned_back(n, sinh(n, turned(n, x)))


@converts_complex("cos")
def cos(n: Node, x: Complex) -> Complex:
    return cosh(n, turned(n, x))


@converts_complex("tan")
def tan(n: Node, x: Complex) -> Complex:
    return turned_back(n, tanh(n, turned(n, x)))


@converts_complex("sigmoid")
def sigmoid(n: Node, x: Complex) -> Complex:
    power = exp(n, Complex(*(n.add("neg", part) for part in x)))
    one = n.full_like(power.real, 1)
    return div(n, Complex(one, n.full_like(one, 0)), Complex(n.add("add", power.real, one), power.imag))


@converts_complex("square")
def square(n: Node, x: Complex) -> Complex:
    return mul(n, x, x)


@converts_complex("pow", "float_power")
def power(n: Node, x: Any, y: Any) -> Complex:
    """Returns x ** y; 0 ** 0 is 1, and 0 ** y is 0 if y has a positive real part."""
    a, b = pair(n, x), pair(n, y)
    match y:
        case 1:
            return a
        case 2:
            return mul(n, a, a)
        case 3:
            return mul(n, mul(n, a, a), a)
        case 0.5:
            return sqrt(n, a)
        case -1:
            return reciprocal(n, a)
    found = exp(n, mul(n, b, log(n, a)))
    nothing = n.add("logical_and", zero(n, a.real), zero(n, a.imag))
    unit = n.add("logical_and", zero(n, b.real), zero(n, b.imag))
    limited = n.add("logical_or", unit, n.add("less", n.full_like(b.real, 0), b.real))
    one = n.convert(unit, n.dtype)
    parts = []
    for limit, part in ((one, found.real), (n.full_like(one, 0), found.imag)):
        end = n.add("where", *n.broadcast(limited, limit, part))
        parts.append(n.add("where", *n.broadcast(nothing, end, part)))
    return Complex(parts[0], parts[1])
