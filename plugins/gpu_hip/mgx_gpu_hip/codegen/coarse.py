"""Approximations where all results of a loop body have 8 bits, which hide small errors."""

from __future__ import annotations

from enum import Enum
from math import log

from ..approximate_gelu import BYTE_ERF, ERF, LEAST, SATURATED
from .expressions import Lines
from .primitives import constant

__all__ = ["Coarse", "gelu", "gelu_byte"]


class Coarse(Enum):
    """Precision of the results of a loop body: wide, or all of 8 bits, integers or floats (whose precision is relative)."""

    NO = 0
    BYTES = 1
    FLOATS = 2


def gelu(lines: Lines, x: str, results: Coarse) -> str:
    """Returns the expression of GELU of a float variable, with an error of 2.5e-5.

    For integers with the device's tanh, whose documented error is 5e-4: 0.03 units of an int8 whose range includes the operand.
    """
    # tanh(y) = 2 sigmoid(2 y) - 1; the base of the sigmoid's power becomes 2
    factor = -2 / log(2) if results is Coarse.FLOATS else 1.0
    a, b, c = (constant(factor * value, "float") for value in ERF)
    square = lines.let("float", f"m::min({x} * {x}, {SATURATED}f)")
    argument = lines.let("float", f"{x} * (({square} * {c} + {b}) * {square} + {a})")
    if results is Coarse.FLOATS:
        return f"{x} * fast::rcp(1.f + fast::exp2({argument}))"
    half = lines.let("float", f"0.5f * {x}")
    return f"{half} * coarse::tanh({argument}) + {half}"


def gelu_byte(lines: Lines, x: str, step: float, bounds: list[float], zero: int, factor: str = "") -> str:
    """Returns the expression of an integer with the low byte of clip(round(GELU(x) factor / step), *bounds) + zero.

    x: a float variable; values below -12 and NaN count as -12, whose GELU is 0; bounds, zero: integers; zero is even, since it
    is added before the sum is rounded to even; factor: an expression of finite values, or none.
    """
    a, b = (f"{value!r}f" for value in BYTE_ERF)
    held = lines.let("float", f"m::at_least({x}, -12.f)")
    argument = lines.let("float", f"{held} * ({held} * {held} * {b} + {a})")
    each = constant(0.5 / step, "float")
    half = lines.let("float", f"{held} * {lines.let('float', f'{factor} * {each}') if factor else each}")
    value = lines.let("float", f"{half} * coarse::tanh({argument}) + {half}")
    low, high = (constant(bound, "float") for bound in bounds)
    clipped = factor or bounds[0] > LEAST / step
    bounded = f"m::within({value}, {low}, {high})" if clipped else f"m::at_most({value}, {high})"
    return f"bits_as<i32>({bounded} + (m::low_bits + {constant(zero, 'float')}))"
