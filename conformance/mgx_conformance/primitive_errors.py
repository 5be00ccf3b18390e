"""Error bounds of scalar primitives in ulps, and error growth in sums."""

from __future__ import annotations

import math
from functools import cache
from typing import Any, Final

from mgx_core import Pointwise, scalar

__all__ = ["CONFIDENCE", "SAFETY", "cost", "growth", "ulps"]

FUNCTION_ULPS: Final = 4.0  # what math libraries commonly guarantee for transcendental functions
# rounding errors are treated as independent: growth with sqrt(n), at 6 standard deviations
CONFIDENCE: Final = 6.0
SAFETY: Final = 4.0  # factor by which a few uniform samples may underestimate the largest deviation
# correctly rounded, or one unit off on fast hardware
ROUNDED_PRIMITIVES: Final = frozenset(["add", "sub", "mul", "div", "sqrt"])


def growth(terms: int) -> float:
    """Returns the error of a sum of n rounded terms, in rounding units of the sum of magnitudes."""
    return 1.0 + min(float(terms), CONFIDENCE * math.sqrt(max(terms, 1)))


def ulps(cls: type[Pointwise]) -> float:
    """Returns the total error of an op's scalar primitives, in ulps."""
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
    """Returns the error of one primitive, in ulps."""
    if primitive in scalar.EXACT:
        return 0.0
    return 1.0 if primitive in ROUNDED_PRIMITIVES else FUNCTION_ULPS
