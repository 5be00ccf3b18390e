"""Tile sizes of low-precision products on matrix units, ranked by a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .geometry import ceil_div
from .source import DeviceTraits

__all__ = ["TILES", "Tile", "microseconds", "tiles_by_time"]

ALIGNED: Final = 1024  # alignment in bytes of the stages of a warpgroup tile
OWN_SUMS: Final = (
    16  # of 64 columns, a thread of a warpgroup has sum q of a row at column q / 2 * 8 + thread % 4 * 2 + q % 2
)


@dataclass(frozen=True)
class Tile:
    """rows x columns of sums per block, `depth` bytes of k per step, `stages` steps in flight.

    down, across: waves along rows and columns; apart: waves that split k for the same sums.  joint: warpgroup tiles, in which
    four waves together multiply 64 rows by all columns (Hopper's wgmma); a step is then 128 bytes.  resident: blocks that share a
    multiprocessor, which bounds the registers of a thread; 0: as many as fit.
    """

    rows: int
    columns: int
    depth: int
    down: int
    across: int
    apart: int = 1
    stages: int = 4
    joint: bool = False
    resident: int = 0

    @property
    def waves(self) -> int:
        return self.down * self.across * self.apart

    @property
    def pitch(self) -> int:
        """Bytes between rows in shared memory; eight rows fall into different banks, in warpgroup tiles by swizzling."""
        return self.depth if self.joint else self.depth + 16

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * self.pitch

    @property
    def sum_pitch(self) -> int:
        """Sums between rows in shared memory, with four unused ones after each 32.

        This avoids bank conflicts of 8 threads that read 16 bytes each, 32 or 64 bytes apart, and of those that write pairs of
        sums to four rows.
        """
        wide = self.columns + ceil_div(self.columns, 32) * 4
        return wide + (8 - wide) % 32

    @property
    def shared(self) -> int:
        sums = self.apart * self.rows * self.sum_pitch * 4
        return max(self.stages * self.stage_bytes, sums) + ALIGNED * self.joint


TILES: Final = (
    Tile(128, 256, 64, 2, 4),
    Tile(256, 128, 64, 4, 2),
    Tile(128, 128, 64, 2, 4),
    Tile(128, 128, 128, 2, 4, 1, 3),
    Tile(128, 64, 64, 4, 2),
    Tile(128, 64, 128, 4, 2),
    Tile(64, 128, 128, 2, 4),
    Tile(64, 64, 128, 2, 2),
    Tile(64, 64, 128, 2, 2, 2),
    Tile(32, 64, 128, 1, 2, 4),
    Tile(32, 32, 128, 1, 1, 4),
    Tile(16, 64, 128, 1, 2, 4),
    Tile(16, 32, 256, 1, 1, 8),
    Tile(64, 64, 64, 2, 2, 1, 2),
    Tile(32, 32, 64, 1, 1, 2, 2),
    Tile(128, 256, 128, 8, 1, 1, 4, True),
    Tile(256, 128, 128, 16, 1, 1, 4, True),
    Tile(128, 192, 128, 8, 1, 1, 5, True),
    Tile(128, 128, 128, 8, 1, 1, 3, True),
    Tile(128, 64, 128, 8, 1, 1, 4, True),
    Tile(64, 128, 128, 4, 1, 1, 4, True),
    Tile(64, 128, 128, 4, 1, 1, 3, True, 3),
    Tile(64, 64, 128, 4, 1, 1, 4, True),
)
REGISTERS: Final = 65536  # of a multiprocessor with wgmma; a thread has at most 255
JOINT: Final = ("sm_90",)  # architectures with wgmma


def tiles_by_time(
    rows: int, columns: int, depth: int, count: int, traits: DeviceTraits, whole: bool = True, joint: bool = True
) -> list[Tile]:
    """Returns tile sizes for `count` products of [rows, depth] and [depth, columns], by estimated time.

    whole: integer types; joint: include warpgroup tiles, if the device supports them.
    """
    joint = joint and traits.arch in JOINT

    def fits(t: Tile) -> bool:
        if t.joint and (not joint or _registers(t, whole) > min(255, REGISTERS // (t.waves * 32))):
            return False
        return t.shared <= traits.shared_most and t.waves * traits.wave <= traits.max_threads

    fitting = filter(fits, TILES)
    return sorted(fitting, key=lambda t: microseconds(t, rows, columns, depth, count, traits, whole))


def _registers(t: Tile, whole: bool) -> int:
    """Returns registers of a thread of a warpgroup tile: its sums, for 8-bit floats those of a step too, and about 30 more."""
    return t.rows * t.columns // (t.waves * 32) * (1 if whole else 2) + 30


def microseconds(
    t: Tile, rows: int, columns: int, depth: int, count: int, traits: DeviceTraits, whole: bool = True
) -> float:
    """Returns estimated microseconds, fitted to measurements on an H200.

    Per cycle a multiprocessor multiplies 1,000 int8, or half as many 8-bit floats, which ``mma.sync`` widens there; it reads 36
    bytes from L2.
    """
    blocks = ceil_div(rows, t.rows) * ceil_div(columns, t.columns) * count
    room = max(traits.shared_most, 65536)
    resident = max(1, min(room // t.shared, 2048 // (t.waves * traits.wave), 4))
    if t.joint:
        resident = max(1, min(resident, REGISTERS // (_registers(t, whole) * t.waves * 32)))
    busy = min(resident, ceil_div(blocks, traits.sm_count))
    steps = ceil_div(depth, t.depth)
    if t.joint:
        return 1.5 + _joint_cycles(t, blocks, busy, steps, traits.sm_count, whole) / 1700
    units = busy * t.rows * t.columns * t.depth / (1000 if whole else 500)
    loads = busy * (t.rows + t.columns) * t.depth / 36
    alone = 120 + 45 * t.depth / 32 / t.apart  # cycles per step of a block that has the multiprocessor to itself
    end = 1500 + busy * t.rows * t.columns / 40 * (1 + t.apart / 4)
    cycles = ceil_div(blocks, traits.sm_count * busy) * (steps * max(units, loads, alone) + end)
    return 1.5 + cycles / 1700


def _joint_cycles(t: Tile, blocks: int, busy: int, steps: int, sm_count: int, whole: bool) -> float:
    """Returns estimated cycles of warpgroup tiles; the error of 37 measured products is 8 % (root mean square), 24 % at most.

    Per cycle a multiprocessor multiplies 4,400 bytes, reads 78, and finishes 7.3 sums; adding up 128 sums of 8-bit floats after
    each step takes 3 cycles.
    """
    sums = t.rows * t.columns
    units = busy * sums * t.depth / 4400
    loads = busy * (t.rows + t.columns) * t.depth / 78
    alone = 90 + sums * t.depth / 4000
    step = max(units, loads, alone) + (0 if whole else 3 * busy * sums / 128)
    end = 1400 + busy * sums / 7.3
    share = max(blocks / (sm_count * busy), 1.0)
    rounds = 0.8 * ceil_div(blocks, sm_count * busy) + 0.2 * share  # blocks do not start in step
    return rounds * (steps * step + end)
