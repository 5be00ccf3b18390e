"""Test cases of every op of the standard set, one file per family."""

from __future__ import annotations

from functools import cache

from . import (
    attention,
    classical,
    control,
    index,
    linear,
    movement,
    pointwise,
    quantization,
    recurrent,
    reduction,
    sequences,
    signal,
    vision,
)
from .case import Case, Family, table

__all__ = ["FAMILIES", "all_cases", "covered"]

FAMILIES: tuple[Family, ...] = tuple(
    m.family
    for m in (pointwise, reduction, movement, linear, index, quantization, attention, recurrent, vision, signal, sequences,
              classical, control)
)  # fmt: skip


@cache
def all_cases() -> tuple[Case, ...]:
    """Returns all cases, by family."""
    return tuple(table(FAMILIES))


def covered() -> dict[str, str]:
    """Returns for each op an empty string if it has cases, else the reason why not."""
    found: dict[str, str] = {}
    for family in FAMILIES:
        found |= family.reasons
        found |= dict.fromkeys(family.makers, "")
    return found
