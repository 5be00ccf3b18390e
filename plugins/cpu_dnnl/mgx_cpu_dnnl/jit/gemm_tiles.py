"""Register tiles: the division of a block's rows into them, and the call of the native module's function for one."""

from __future__ import annotations

from typing import NamedTuple

from .code import Code, V, i64

__all__ = ["Rows", "Tile", "panel_sums", "tile_sums"]


class Rows:
    """Some rows as tiles of at most `most` rows that differ by at most one in height.

    So none is so low that additions wait for each other.
    """

    def __init__(self, c: Code, count: V, most: int) -> None:
        self.c, self.count = c, count
        self.tiles = c.op("udiv", c.op("add", count, i64(most - 1)), i64(most))
        self.low = c.op("udiv", count, self.tiles)
        self.over = c.op("urem", count, self.tiles)

    def tile(self, t: V) -> tuple[V, V]:
        """Returns the first row of a tile, and how many it has."""
        c = self.c
        first = c.op("add", c.op("mul", t, self.low), c.intrinsic("smin", t, self.over))
        higher = c.cast("zext", c.compare("ult", t, self.over), "i64")
        return first, c.op("add", self.low, higher)


class Tile(NamedTuple):
    """The arguments of the function for a tile, in its order; steps in elements.

    add: 1 if products are added to what the sums hold, else 0.
    """

    left: V
    left_step: V
    panel: V
    depth: V
    sums: V
    sums_step: V
    rows: V
    vectors: V
    add: V


def tile_sums(c: Code, elem: str, tile: Tile, prefetch: V, ahead: V) -> None:
    """Calls the function for a tile with weights of a type; prefetch: `ahead` cache lines from there for each trip."""
    c.run(f"mgx_product_tile_1_{'avx512' if c.wide else 'avx2'}_{elem}", *tile, prefetch, ahead)


def panel_sums(c: Code, elem: str, tile: Tile, size: V, panels: V) -> None:
    """Calls the function for a few rows times several panels with weights of a type, each `size` elements behind the last."""
    args = (tile.left, tile.left_step, tile.panel, size, tile.depth, tile.sums, tile.sums_step, tile.rows, panels)
    c.run(f"mgx_product_panels_1_{'avx512' if c.wide else 'avx2'}_{elem}", *args)
