"""Square tiles of elements turned in registers."""

from __future__ import annotations

from .code import Code, V

__all__ = ["transposed"]


def transposed(c: Code, rows: list[V]) -> list[V]:
    """The columns of n vectors of n lanes: off-diagonal blocks of half the size change places, again and again."""
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
