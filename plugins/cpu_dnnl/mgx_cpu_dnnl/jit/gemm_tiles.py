"""Register tiles: splits a block's rows into tiles, and calls the native module's microkernel for one."""

from __future__ import annotations

from mgx_core.named_tuples import NamedTuple

from .code import Code, V, i64

__all__ = ["Rows", "Tile", "panel_sums", "tile_sums"]


class Rows:
    """Splits rows into tiles of at most `most` rows whose heights differ by at most one.

    No tile is so low that the latency of additions is exposed.
    """

    def __init__(self, c: Code, count: V, most: int) -> None:
        self.c, self.count = c, count
        self.tiles = c.op("udiv", c.op("add", count, i64(most - 1)), i64(most))
        self.low = c.op("udiv", count, self.tiles)
        self.over = c.op("urem", count, self.tiles)

    def tile(self, t: V) -> tuple[V, V]:
        """Returns the first row and the height of a tile."""
        c = self.c
        first = c.op("add", c.op("mul", t, self.low), c.intrinsic("smin", t, self.over))
        higher = c.cast("zext", c.compare("ult", t, self.over), "i64")
        return first, c.op("add", self.low, higher)


class Tile(NamedTuple):
    """The microkernel's arguments, in order; strides in elements.

    add: 1 to accumulate into the sums, 0 to overwrite them.
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
    """Calls the microkernel for a type of weights, or "pairs" of bfloat16.

    prefetch: where it prefetches `ahead` cache lines per iteration.
    """
    c.run(f"mgx_product_tile_1_{'avx512' if c.wide else 'avx2'}_{elem}", *tile, prefetch, ahead)


def panel_sums(c: Code, elem: str, tile: Tile, size: V, panels: V) -> None:
    """Calls the microkernel for few rows times several panels of a type, `size` elements apart."""
    args = (tile.left, tile.left_step, tile.panel, size, tile.depth, tile.sums, tile.sums_step, tile.rows, panels)
    c.run(f"mgx_product_panels_1_{'avx512' if c.wide else 'avx2'}_{elem}", *args)
