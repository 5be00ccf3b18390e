"""Square register tiles: transposition, and reduction of each row into one lane."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .code import Code, V

__all__ = ["combined", "transposed"]


def transposed(c: Code, rows: list[V]) -> list[V]:
    """Transposes n vectors of n lanes by recursively exchanging off-diagonal blocks."""
    n = len(rows)
    rows = list(rows)
    step = n // 2
    while step:
        take_a = [lane if not lane & step else n + lane - step for lane in range(n)]
        take_b = [lane + step if not lane & step else n + lane for lane in range(n)]
        for r in range(n):
            if not r & step:
                a, b = rows[r], rows[r + step]
                rows[r], rows[r + step] = c.shuffle(a, b, take_a), c.shuffle(a, b, take_b)
        step //= 2
    return rows


def combined(c: Code, rows: Sequence[V], combine: Callable[[V, V], V]) -> V:
    """Returns a vector whose lane i is the reduction of vector i (8 vectors, or as many as lanes)."""
    level = list(rows)
    n = level[0].n
    step = len(level) // 2
    while step:
        take_a = [lane if not lane & step else n + lane - step for lane in range(n)]
        take_b = [lane + step if not lane & step else n + lane for lane in range(n)]
        level = [
            combine(c.shuffle(a, b, take_a), c.shuffle(a, b, take_b))
            for a, b in zip(level[:step], level[step:], strict=True)
        ]
        step //= 2
    total = level[0]
    width = len(rows)
    while width < n:
        total = combine(total, c.shuffle(total, total, [(lane + width) % n for lane in range(n)]))
        width *= 2
    return total
