"""Winograd convolution: tile selection, work partitioning, and transformed filters."""

from __future__ import annotations

from dataclasses import replace
from math import ceil
from typing import Final

import numpy as np

from mgx_core.records import dataclass
from mgx_core.types.argument import Array
from mgx_core.types.traced_int import usual

from .native_library import native

__all__ = ["Partition", "Problem", "Tile", "best_tile", "partition", "filters", "tiles_for"]


@dataclass(frozen=True)
class Tile:
    """Outputs and taps of a tile, vertically and horizontally.

    Each axis has outputs + taps - 1 points with one multiplication each.  With stride 2 and three taps, this holds for the even
    inputs and their taps; each output needs one more multiplication for the tap on the odd inputs.
    """

    down: int
    taps_down: int
    across: int
    taps_across: int
    stride: int = 1

    @property
    def points(self) -> int:
        return self._points(self.down, self.taps_down) * self._points(self.across, self.taps_across)

    def _points(self, outputs: int, taps: int) -> int:
        return 2 * outputs + 1 if self.stride == 2 and taps == 3 else outputs + taps - 1

    @property
    def numbers(self) -> tuple[int, int, int, int, int]:
        return self.down, self.taps_down, self.across, self.taps_across, self.stride


# Larger tiles save more products, but rounding errors grow with the points per axis: those of these tiles stay within a few
# units of a direct sum's.
TILES: Final = (
    Tile(4, 3, 4, 3),
    Tile(2, 3, 2, 3),
    Tile(3, 3, 3, 3, 2),
    Tile(2, 5, 2, 5),
    Tile(1, 1, 4, 3),
    Tile(4, 3, 1, 1),
    Tile(1, 1, 5, 3, 2),
    Tile(5, 3, 1, 1, 2),
    Tile(1, 1, 4, 5),
    Tile(4, 5, 1, 1),
    Tile(1, 1, 4, 7),
    Tile(4, 7, 1, 1),
)


@dataclass(frozen=True)
class Problem:
    """A convolution problem: images [n, c, ..] -> [n, o, height, width]; channels of one group.

    gap_down, gap_across: the dilation.  The inputs and outputs of a tile are that many rows and columns apart.  narrow: inputs
    and results are bfloat16, of which direct convolutions multiply two per lane of float32.  fresh: weights are not constant,
    and are transformed in each run.
    """

    images: int
    channels: int
    out_channels: int
    height: int
    width: int
    taps_down: int
    taps_across: int
    stride: int = 1
    groups: int = 1
    gap_down: int = 1
    gap_across: int = 1
    narrow: bool = False
    fresh: bool = False

    def usual(self) -> Problem:
        """Returns the problem for usual extents, if they are traced."""
        return replace(self, images=usual(self.images), height=usual(self.height), width=usual(self.width))

    def tiles(self, tile: Tile) -> int:
        return self.images * self.tile_rows(tile) * self.tile_columns(tile)

    def tile_rows(self, tile: Tile) -> int:
        return self.gap_down * -(-self.height // self.gap_down // tile.down)

    def tile_columns(self, tile: Tile) -> int:
        return self.gap_across * -(-self.width // self.gap_across // tile.across)


def tiles_for(taps_down: int, taps_across: int, stride: int) -> list[Tile]:
    """Returns the candidate tiles for a filter."""
    return [t for t in TILES if (t.taps_down, t.taps_across, t.stride) == (taps_down, taps_across, stride)]


# Costs in the time of one multiply-add of vectors.  A transform loads and stores each value, and adds it about twice per axis.
# Weights are read from memory in each run, concurrently with the sums: the longer of the two counts, and a part of the shorter,
# since they do not overlap perfectly.
TRANSFORM: Final = 8.0
LINE_TRANSFORM: Final = 14.0  # of windows along one axis: fewer outputs share the overhead of a tile
PACKING: Final = 16.0  # of weights at a point, in float64
WEIGHT: Final = {8: 2.5, 16: 1.0}  # by lanes: processors with AVX-512 read memory faster
APART: Final = 0.4
MAX_DIRECT_RATIO: Final = 0.9  # fraction of the direct cost: margin for costs that are not modeled
MAX_COST_RATIO: Final = 0.75  # of a smaller tile's cost, whose weights take less than half the memory


def _cost(sums: float, weights: float, lanes: int) -> float:
    reading = WEIGHT[lanes] * weights
    return max(sums, reading) + APART * min(sums, reading)


def direct_cost(p: Problem, lanes: int) -> float:
    """Returns the cost of a direct convolution."""
    taps = p.taps_down * p.taps_across
    sums = p.images * p.height * p.width * taps * p.channels * ceil(p.out_channels / lanes)
    cost = _cost(sums, taps * p.channels * p.out_channels, lanes)
    return cost / 2 if p.narrow else cost


def tile_cost(p: Problem, tile: Tile, lanes: int) -> float:
    """Returns the cost of a tile: multiplications at the points, transforms, and reading the larger weights."""
    inputs, outputs = ceil(p.channels / lanes), ceil(p.out_channels / lanes)
    transform = TRANSFORM if tile.taps_down > 1 and tile.taps_across > 1 else LINE_TRANSFORM
    each = p.channels * outputs + transform * (inputs + outputs)
    packing = PACKING * tile.points * p.channels * outputs if p.fresh else 0.0
    return packing + _cost(tile.points * p.tiles(tile) * each, tile.points * p.channels * p.out_channels, lanes)


def best_tile(p: Problem, lanes: int) -> Tile | None:
    """Returns the cheapest tile, or a smaller one of nearly equal cost; None if direct convolution costs about the same."""
    best, least = None, MAX_DIRECT_RATIO * direct_cost(p, lanes)
    for tile in sorted(tiles_for(p.taps_down, p.taps_across, p.stride), key=lambda t: t.points):
        cost = tile_cost(p, tile, lanes)
        if cost < least:
            best, least = tile, cost if p.fresh else MAX_COST_RATIO * cost
    return best


@dataclass(frozen=True)
class Partition:
    """A partition of the work.

    block: tiles per block; span: output channels per span; separate: True if all transforms are done first and threads divide the
    spans, because there are few tiles.
    """

    block: int
    span: int
    separate: bool

    def values_bytes(self, p: Problem, lanes: int) -> int:
        """Bytes of a block's values at one point."""
        return _point_stride(self.block * _round_up(p.channels, lanes))

    def products_bytes(self) -> int:
        return _point_stride(self.block * self.span)


BLOCK: Final = 24  # tiles: enough that each weight is used often while it is near, few enough that a block stays near
LARGE_BLOCK: Final = 28  # with weights that no near cache keeps until the next block: two register tiles of rows
SPAN: Final = 128  # output channels, for the same reason


def partition(p: Problem, tile: Tile, lanes: int, threads: int) -> Partition:
    """Partitions the tiles into equal blocks, the same number per thread; into channel spans if there are few tiles."""
    tiles, panel = p.tiles(tile), 2 * lanes
    block = BLOCK if _fits_l2(4 * tile.points * p.channels * p.out_channels) else LARGE_BLOCK
    threads = ceil(threads / p.groups)  # per group
    if p.groups > 1 or tiles >= threads * lanes // 2:
        blocks = threads * ceil(tiles / (threads * block))
        return Partition(ceil(tiles / blocks), min(_round_up(p.out_channels, panel), SPAN), False)
    blocks = ceil(tiles / block)
    panels = ceil(p.out_channels / panel)
    spans = min(panels, ceil(threads * ceil(panels * panel / (threads * SPAN)) / blocks))
    return Partition(ceil(tiles / blocks), panel * ceil(panels / spans), True)


def _fits_l2(weights: int) -> bool:
    """Returns True if this many bytes fit into the L2 cache next to a block."""
    size: int = native().cache_sizes().get("l2", 0)
    return weights <= size // 2


def _round_up(n: int, to: int) -> int:
    return -(-n // to) * to


def _point_stride(floats: int) -> int:
    """Returns the byte stride between points, padded by a cache line as in the loops."""
    return 4 * (_round_up(floats, 16) + 16)


def filters(source: Array, tile: Tile, lanes: int, groups: int = 1) -> Array:
    """Transforms a convolution's filters, group by group.

    source: float32 [outputs, channels of a group, height, width], any strides.
    """
    outputs, channels = source.shape[0] // groups, source.shape[1]
    panel = 2 * lanes
    size = tile.points * _round_up(outputs, panel) * channels
    room = np.empty(groups * size + 16, np.float32)
    skipped = -room.ctypes.data % 64 // 4  # a line of the cache is one row of a panel, or half of one
    made = room[skipped : skipped + groups * size]
    strides = [s // 4 for s in source.strides]
    for group in range(groups):
        address = source[group * outputs :].__array_interface__["data"][0]
        target = made[group * size :].ctypes.data
        native().winograd_pack(tile.numbers, address, strides, outputs, channels, target)
    return made
