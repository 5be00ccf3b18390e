"""Finds unmet requirements of a distribution, for the list of plugins."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import zip_longest
from typing import Final

__all__ = ["unmet"]

_REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)\s*(?:\[[^]]*\])?\s*\(?([^;()@]*)\)?\s*(?:@[^;]*)?(;.*)?$")
_CLAUSE = re.compile(r"(~=|===?|!=|<=|>=|<|>)\s*([^\s,]+)")
_RELEASE = re.compile(r"v?(?:\d+!)?(\d+(?:\.\d+)*)")

_COMPARE: Final[dict[str, Callable[[int], bool]]] = {
    "==": lambda order: order == 0, "!=": lambda order: order != 0, "<=": lambda order: order <= 0,
    ">=": lambda order: order >= 0, "<": lambda order: order < 0, ">": lambda order: order > 0,
}  # fmt: skip


def unmet(distribution: str) -> list[str]:
    """Returns a distribution's unmet requirements, e.g. ``mgx-core<0.1 is required, 0.1.0 is installed``.

    Compares release numbers only; ignores requirements with markers (extras, platforms).
    """
    from importlib.metadata import PackageNotFoundError, requires, version

    try:
        stated = requires(distribution) or ()
    except PackageNotFoundError:
        return []
    found = []
    for text in stated:
        parsed = _REQUIREMENT.match(text.strip())
        if parsed is None or parsed[3]:
            continue
        wanted = text.partition(";")[0].strip()
        try:
            there = version(parsed[1])
        except PackageNotFoundError:
            found.append(f"{wanted} is required, but not installed")
            continue
        if not all(_meets(there, *clause) for clause in _CLAUSE.findall(parsed[2])):
            found.append(f"{wanted} is required, {there} is installed")
    return found


def _meets(version: str, operator: str, limit: str) -> bool:
    """Returns True if a version satisfies a clause, or if either cannot be parsed."""
    numbers, bound = _release(version), _release(limit)
    if numbers is None or bound is None or operator == "===":
        return True
    if operator == "~=":
        return _order(numbers, bound) >= 0 and _starts(numbers, bound[:-1])
    if limit.endswith(".*"):
        return _starts(numbers, bound) == (operator == "==")
    return _COMPARE[operator](_order(numbers, bound))


def _release(version: str) -> tuple[int, ...] | None:
    found = _RELEASE.match(version)
    return None if found is None else tuple(map(int, found[1].split(".")))


def _order(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    """Compares two releases; returns -1, 0 or 1."""
    for a, b in zip_longest(one, other, fillvalue=0):
        if a != b:
            return 1 if a > b else -1
    return 0


def _starts(numbers: tuple[int, ...], prefix: tuple[int, ...]) -> bool:
    return _order((numbers + (0,) * len(prefix))[: len(prefix)], prefix) == 0
