"""The division of a block's rows into register tiles of one height, or of two with less waste at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from .code import Code, V

__all__ = ["tiles"]

ZERO = V("0", "i64", 0)


def tiles(c: Code, heights: Sequence[int], rows: V, body: Callable[[int, V, V], None]) -> None:
    """Runs `body` for each tile of some rows: its height, first row and number.  heights: the usual one, and a lower one."""
    tall, low = heights
    lows = ZERO if tall == low else _low_tiles(c, tall, low, rows)
    rest = c.intrinsic("smax", c.op("sub", rows, c.op("mul", lows, _number(low))), ZERO)
    talls = c.op("udiv", c.op("add", rest, _number(tall - 1)), _number(tall))

    def tall_tile(t: V, _: list[V]) -> list[V]:
        body(tall, c.op("mul", t, _number(tall)), t)
        return []

    def low_tile(t: V, _: list[V]) -> list[V]:
        body(low, c.op("add", c.op("mul", talls, _number(tall)), c.op("mul", t, _number(low))), c.op("add", talls, t))
        return []

    c.loop(ZERO, talls, 1, tall_tile)
    if tall != low:
        c.loop(ZERO, lows, 1, low_tile)


def _low_tiles(c: Code, tall: int, low: int, rows: V) -> V:
    """Returns the number of low tiles (2/3 of a tall one): as few as leave less than half a tall one's waste.

    0 if most of a tall one is left over, else 1 or 2.
    """
    one, over = V("1", "i64", 0), c.op("urem", rows, _number(tall))
    some = c.select(c.compare("ule", over, _number(low)), one, ZERO)
    lows = c.select(c.compare("ule", over, _number(2 * low - tall)), _number(2), some)
    short = c.compare("ult", rows, _number(low + 1))  # a single low tile
    return c.select(c.compare("eq", over, ZERO), ZERO, c.select(short, one, lows))


def _number(value: int) -> V:
    return V(str(value), "i64", 0)
