"""Errors of scalar primitives in units of their results, and their growth in sums."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

from mgx_core import Pointwise, scalar

__all__ = ["CONFIDENCE", "SAFETY", "cost", "growth", "ulps"]

FUNCTION_ULPS: Final = 4.0  # what the libraries of the field promise for a transcendental function
# rounding errors are taken as independent: a sum's grows with sqrt(n), at 6 standard deviations
CONFIDENCE: Final = 6.0
SAFETY: Final = 4.0  # a few uniform samples understate the largest deviation; by less than this
# correctly rounded, or one unit off on fast hardware
ROUNDED_PRIMITIVES: Final = frozenset(["add", "sub", "mul", "div", "sqrt"])


def growth(terms: int) -> float:
    """By how much the error of a sum of so many rounded terms exceeds one rounding unit of the sum of magnitudes."""
    return 1.0 + min(float(terms), CONFIDENCE * math.sqrt(max(terms, 1)))


def ulps(cls: type[Pointwise]) -> float:
    """Returns the sum of the errors of an op's scalar primitives, in units of their results."""
    return _ulps(cls.scalar)


@cache
def _ulps(expression: scalar.Expr) -> float:
    total = 0.0

    def node(e: Any, args: list[Any]) -> None:
        nonlocal total
        total += cost(e.primitive)

    scalar.fold(expression, lambda e: None, node, lambda e, v: None)
    return total


def cost(primitive: str) -> float:
    """Returns the error of one primitive, in units of its result."""
    if primitive in scalar.EXACT:
        return 0.0
    return 1.0 if primitive in ROUNDED_PRIMITIVES else FUNCTION_ULPS
