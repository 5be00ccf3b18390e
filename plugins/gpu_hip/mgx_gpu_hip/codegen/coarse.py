"""Approximations where all results of a loop body have 8 bits, which hide small errors."""

from __future__ import annotations

from enum import Enum

from ..approximate_gelu import ERF, SATURATED
from .expressions import Lines

__all__ = ["Coarse", "gelu"]


class Coarse(Enum):
    """Precision of the results of a loop body: wide, or all of 8 bits, integers or floats (whose precision is relative)."""

    NO = 0
    BYTES = 1
    FLOATS = 2


def gelu(lines: Lines, x: str, results: Coarse) -> str:
    """Returns the expression of GELU of a float variable, with an error of 2.5e-5.

    For integers with the device's tanh, whose documented error is 5e-4: 0.03 units of an int8 whose range includes the operand.
    """
    a, b, c = (f"{value!r}f" for value in ERF)
    square = lines.let("float", f"m::min({x} * {x}, {SATURATED}f)")
    argument = lines.let("float", f"{x} * (({square} * {c} + {b}) * {square} + {a})")
    if results is Coarse.FLOATS:
        return f"{x} * fast::sigmoid(2.f * {argument})"
    half = lines.let("float", f"0.5f * {x}")
    return f"{half} * coarse::tanh({argument}) + {half}"
