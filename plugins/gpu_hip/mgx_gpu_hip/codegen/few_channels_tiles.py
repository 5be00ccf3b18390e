"""Layout of the windows of few channels as rows of a GEMM, and tile sizes by estimated time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import gcd
from typing import Final

from mgx_core.types.traced_int import usual

from .geometry import ceil_div
from .source import DeviceTraits

__all__ = ["MAX_CHANNELS", "RUN", "Filters", "Tile", "runs_of", "tiles_by_time"]

MAX_CHANNELS: Final = 8
RUN: Final = 8  # contiguous elements of a window in shared memory
SEVERAL: Final = 110 << 10  # bytes of shared memory with which two blocks fit on a multiprocessor
PITCH: Final = 8  # padding elements per row of weights, so that eight rows fall into different banks


@dataclass(frozen=True)
class Filters:
    """Windows over an image with two axes, and the order of their elements in rows of weights.

    channels: of the image; taken: elements per pixel in shared memory, zero-padded.  Each row of a window is a number of runs:
    contiguous pixels, or one pixel per run if pixels are apart (dilation).
    """

    channels: int
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    begins: tuple[int, int]
    taken: int

    @property
    def apart(self) -> bool:
        return self.kernel[1] > 1 and self.dilation[1] > 1

    @property
    def per_row(self) -> int:
        return self.kernel[1] if self.apart else ceil_div(self.kernel[1] * self.taken, RUN)

    @property
    def depth(self) -> int:
        """Elements of a row of weights: all runs, and a zero run if their number is odd."""
        runs = self.kernel[0] * self.per_row
        return (runs + runs % 2) * RUN

    def length(self, run: int) -> int:
        """Returns the number of elements of a run that belong to the window."""
        return self.taken if self.apart else min(RUN, self.kernel[1] * self.taken - run * RUN)

    def begin(self, run: int) -> int:
        """Returns the offset in shared memory of a run from the first pixel of the window's row."""
        return run * self.dilation[1] * self.taken if self.apart else run * RUN

    @property
    def align(self) -> int:
        """Alignment in bytes of every run."""
        step = self.dilation[1] * self.taken if self.apart else RUN
        return gcd(16, 2 * gcd(self.stride[1] * self.taken, step))


def runs_of(
    channels: int, kernel: tuple[int, int], stride: tuple[int, int], dilation: tuple[int, int], begins: tuple[int, int]
) -> Filters:
    """Returns the order with the fewest runs, among these the one with the best alignment."""
    ways = [Filters(channels, kernel, stride, dilation, begins, n) for n in range(channels, MAX_CHANNELS + 1)]
    return min(ways, key=lambda f: (f.per_row, -f.align, f.taken))


@dataclass(frozen=True)
class Tile:
    """Output positions, high x wide, that a block computes at once, in pieces of 16: `down` for each of its `waves`.

    across: pieces of 16 filters; taps: rows of the window in shared memory at once.  If these are not all, image rows are stored
    separately for each row of positions.
    """

    filters: Filters
    waves: int
    down: int
    across: int
    high: int
    wide: int
    taps: int

    @property
    def whole(self) -> bool:
        return self.taps == self.filters.kernel[0]

    @property
    def places(self) -> int:
        return self.waves * self.down * 16

    @property
    def columns(self) -> int:
        return self.across * 16

    @property
    def depth(self) -> int:
        """Elements of a row of weights in shared memory."""
        return self.filters.depth if self.whole else self.taps * self.filters.per_row * RUN

    @property
    def weight_pitch(self) -> int:
        return self.depth + PITCH

    @property
    def row_step(self) -> int:
        """Rows of shared memory between adjacent rows of positions."""
        return self.filters.stride[0] if self.whole else self.taps

    @property
    def tap_step(self) -> int:
        return self.filters.dilation[0] if self.whole else 1

    @property
    def rows(self) -> int:
        return (self.high - 1) * self.row_step + (self.taps - 1) * self.tap_step + 1

    @property
    def pixels(self) -> int:
        """Pixels of a row in shared memory."""
        f = self.filters
        return (self.wide - 1) * f.stride[1] + (f.kernel[1] - 1) * f.dilation[1] + 1

    @property
    def pitch(self) -> int:
        """Elements of a row in shared memory, including padding read by the last run of its last window."""
        f = self.filters
        last = (self.wide - 1) * f.stride[1] * f.taken + f.begin(f.per_row - 1) + RUN
        return ceil_div(max(last, self.pixels * f.taken), RUN) * RUN

    def resident(self, traits: DeviceTraits) -> int:
        """Returns blocks resident on a multiprocessor, limited by shared memory and 65,536 registers."""
        registers = 72 + self.down * self.across * 256 // traits.wave
        threads = self.waves * traits.wave
        return max(
            1, min(max(traits.shared_most, 65536) // self.shared, 65536 // (registers * threads), 2048 // threads)
        )

    @property
    def sum_pitch(self) -> int:
        return self.columns + (8 - self.columns) % 32

    @property
    def weight_bytes(self) -> int:
        return 2 * self.columns * self.weight_pitch

    @property
    def image_bytes(self) -> int:
        return 2 * self.rows * self.pitch

    @property
    def shared(self) -> int:
        """Bytes: weights and image double-buffered, but weights once if they stay, and 16 rows of sums per wave."""
        return (1 if self.whole else 2) * self.weight_bytes + 2 * self.image_bytes + self.waves * 64 * self.sum_pitch


def tiles_by_time(f: Filters, filters: int, image: tuple[int, int], count: int, traits: DeviceTraits) -> list[Tile]:
    """Returns tile sizes for `count` images with these numbers of rows and columns, by estimated time."""
    image, count = (int(image[0]), int(image[1])), int(usual(count))
    pieces = ceil_div(filters, 16)
    across = ceil_div(pieces, ceil_div(pieces, 8))
    found: dict[Tile, float] = {}
    for columns in dict.fromkeys((across, ceil_div(across, 2))):
        for waves, down in ((4, 4), (4, 2), (4, 1), (2, 1)):
            if down * columns > (8 if down == 4 else 16) or waves * traits.wave > traits.max_threads:
                continue
            high, wide = _places(f, waves * down * 16, image)
            for taps in _taps(f):
                tile = Tile(f, waves, down, columns, high, wide, taps)
                if tile.shared <= traits.shared_most:
                    found[tile] = microseconds(tile, filters, image, count, traits)
                    if tile.shared <= SEVERAL:
                        break
    return sorted(found, key=lambda t: found[t])


def _taps(f: Filters) -> Iterator[int]:
    """Yields rows of the window to load at once, most first; parts are whole steps of matrix units."""
    high = f.kernel[0]
    yield high
    for taps in range(high - 1, 0, -1):
        if high % taps == 0 and taps * f.per_row % 2 == 0:
            yield taps


def _places(f: Filters, most: int, image: tuple[int, int]) -> tuple[int, int]:
    """Returns the rectangle of at most `most` positions that minimizes the pixels read over an image."""

    def cost(wide: int) -> tuple[float, int]:
        high = min(max(most // wide, 1), image[0])
        tiles = ceil_div(image[0], high) * ceil_div(image[1], wide)
        pixels = [(n - 1) * s + (k - 1) * d + 1
                  for n, s, k, d in zip((high, wide), f.stride, f.kernel, f.dilation, strict=True)]  # fmt: skip
        return tiles * (2 * most + pixels[0] * pixels[1]), -wide

    wide = min(range(1, min(most, image[1]) + 1), key=cost)
    return min(max(most // wide, 1), image[0]), wide


def microseconds(t: Tile, filters: int, image: tuple[int, int], count: int, traits: DeviceTraits) -> float:
    """Returns estimated microseconds on an H100, fitted to 250 measurements: two thirds are within a fifth.

    Each block of a multiprocessor computes `rounds` tiles, and for each reads pixels, writes results and waits.
    """
    tiles = count * ceil_div(image[0], t.high) * ceil_div(image[1], t.wide) * ceil_div(filters, t.columns)
    blocks = min(tiles, traits.sm_count * t.resident(traits))
    rounds, busy = ceil_div(tiles, blocks), ceil_div(blocks, traits.sm_count)
    steps = t.filters.kernel[0] // t.taps
    width = gcd(filters, 8)
    read = t.rows * t.pixels * steps * t.filters.channels / 5100
    write = t.places * t.columns * (1.23 + (1.74 / width if width < 8 else 0.0)) / 1e4
    weights = t.weight_bytes * (rounds * steps if steps > 1 else 1) / 16000
    alone = rounds * steps * (t.down * t.depth / 16 + 8) / 32
    return 1.4 + busy * (rounds * (read + write) + weights) + alone
