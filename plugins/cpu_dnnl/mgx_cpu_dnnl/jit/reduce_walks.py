"""Loops over the reduced axes of one item with loop-carried accumulators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from .accumulators import combine, identity, reduce_lanes
from .code import Code, V, i64
from .graph import Node
from .reduce_plan import SUM_BLOCK
from .space import loop_width

__all__ = ["Visit", "walk_columns", "walk_row"]

# work on one vector: index along the axes, number of its first element in the row, lanes, mask, accumulators;
# returns the accumulators
Visit: TypeAlias = Callable[[list[V], V, int, "V | None", list[V]], list[V]]


def walk_columns(
    c: Code,
    extents: Sequence[V],
    first: tuple[V, V],
    width: int,
    mask: V | None,
    visit: Visit,
    reduces: Sequence[Node],
    parted: Sequence[bool],
) -> list[V]:
    """Emits a loop nest over the axes, `width` lanes across rows; first: the range of the first axis.

    parted: by axis, True if blocks of `SUM_BLOCK` indices are reduced separately.
    """
    zero, lanes = i64(0), i64(width)
    start = [identity(r, width) for r in reduces]

    def nest(axis: int, index: list[V], line: V, carried: list[V]) -> list[V]:
        def step(i: V, inside: list[V]) -> list[V]:
            number = c.op("add", c.op("mul", line, extents[axis]), i)
            if axis + 1 < len(extents):
                return nest(axis + 1, [*index, i], number, inside)
            return visit([*index, i], c.op("mul", number, lanes), width, mask, inside)

        def block(i: V, totals: list[V]) -> list[V]:
            stop = c.intrinsic("smin", c.op("add", i, i64(SUM_BLOCK)), end)
            parts = c.loop(i, stop, 1, step, start)[1:]
            return [combine(c, r, total, part) for r, total, part in zip(reduces, totals, parts, strict=True)]

        begin, end = first if axis == 0 else (zero, extents[axis])
        if reduces and parted[axis]:
            return c.loop(begin, end, SUM_BLOCK, block, carried)[1:]
        return c.loop(begin, end, 1, step, carried)[1:]

    return nest(0, [], zero, start)


def walk_row(
    c: Code, extents: Sequence[V], first: tuple[V, V], mode: int, visit: Visit, reduces: Sequence[Node], cost: int
) -> list[V]:
    """Emits a vector loop along the row, unrolled if the body is cheap; lanes are reduced at the end.

    first: the range of the first axis; mode: see `loop_mode`; cost: per element.
    """
    zero = i64(0)
    n = c.lanes
    times = loop_width(cost)
    whole_lanes = mode % n == 0
    both = times > 1 or (not whole_lanes and (mode < 0 or not c.wide))
    rest = not (both and mode % (n * times) == 0)  # else the unrolled loop has no remainder
    inner = extents[-1]

    def along(index: list[V], line: V, wide: list[V], narrow: list[V]) -> tuple[list[V], list[V]]:
        start = c.op("mul", line, inner) if index else None

        def at(i: V) -> V:
            return i if start is None else c.op("add", start, i)

        begin, end = (zero, inner) if index else first
        if both:

            def whole(i: V, carried: list[V]) -> list[V]:
                return visit([*index, i], at(i), n * times, None, carried)

            done = c.loop(begin, end, n * times, whole, wide, ahead=n * times - 1)
            begin, wide = done[0], done[1:]

        def masked(i: V, carried: list[V]) -> list[V]:
            mask = None if whole_lanes else c.first(c.op("sub", end, i), n)
            return visit([*index, i], at(i), n, mask, carried)

        if rest:
            narrow = c.loop(begin, end, n, masked, narrow)[1:]
        return wide, narrow

    def nest(axis: int, index: list[V], line: V, wide: list[V], narrow: list[V]) -> tuple[list[V], list[V]]:
        if axis + 1 == len(extents):
            return along(index, line, wide, narrow)
        split = len(wide)

        def step(i: V, carried: list[V]) -> list[V]:
            number = c.op("add", c.op("mul", line, extents[axis]), i)
            a, b = nest(axis + 1, [*index, i], number, carried[:split], carried[split:])
            return [*a, *b]

        begin, end = first if axis == 0 else (zero, extents[axis])
        done = c.loop(begin, end, 1, step, [*wide, *narrow])[1:]
        return done[:split], done[split:]

    wide = [identity(r, n * times) for r in reduces] if both else []
    narrow = [identity(r, n) for r in reduces] if rest else []
    wide, narrow = nest(0, [], zero, wide, narrow)
    out = []
    for i, r in enumerate(reduces):
        parts = _vectors(c, wide[i], n) if both else []
        while len(parts) > 1:
            parts = [combine(c, r, a, b) for a, b in zip(parts[::2], parts[1::2], strict=True)]
        total = parts[0] if not rest else combine(c, r, narrow[i], parts[0]) if both else narrow[i]
        out.append(reduce_lanes(c, r, total))
    return out


def _vectors(c: Code, x: V, n: int) -> list[V]:
    """Splits a wide vector into vectors of n lanes."""
    return [x] if x.n == n else [c.shuffle(x, x, range(at, at + n)) for at in range(0, x.n, n)]
