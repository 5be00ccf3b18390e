"""Tile sizes of products of bytes and 8-bit and 16-bit floats on matrix units, ranked by a cost model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from .geometry import ceil_div
from .source import DeviceTraits

__all__ = ["CLUSTERED", "HALF_TILES", "JOINT", "TILES", "Tile", "half_microseconds", "microseconds", "tiles_by_time"]

ALIGNED: Final = 1024  # alignment in bytes of the stages of a warpgroup tile
GROUP_WAVES: Final = 4  # waves of a warpgroup


@dataclass(frozen=True)
class Tile:
    """rows x columns of sums per block, `depth` bytes of k per step, `stages` steps in flight.

    down, across: waves along rows and columns; apart: waves that split k for the same sums.  joint: warpgroup tiles, in which
    four waves together multiply 64 rows by all columns (Hopper's wgmma); a step is then 128 bytes.  resident: blocks that share a
    multiprocessor, which bounds the registers of a thread; 0: as many as fit.

    turns: if not 0, a warpgroup loads tiles for others, which multiply: 2: two take tiles by turns, so that one multiplies
    while the other finishes its sums (ping-pong); 1: each takes an equal part of the rows of the same tiles (cooperative).

    split: blocks of a cluster that split k for the same sums; the first one adds them up (warpgroup tiles).
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
    turns: int = 0
    split: int = 1

    @property
    def waves(self) -> int:
        return self.down * self.across * self.apart

    @property
    def alternates(self) -> bool:
        """True if two warpgroups take tiles by turns."""
        return self.turns == 2

    @property
    def consumers(self) -> int:
        """Warpgroups that multiply, if another one loads."""
        return self.waves // GROUP_WAVES - 1

    @property
    def sharing(self) -> int:
        """Warpgroups among which the rows of a tile are divided, if another one loads."""
        return 1 if self.alternates else self.consumers

    @property
    def own_sums(self) -> int:
        """Sums of a row that a thread of a warpgroup has, of each 64 columns, or of all.

        Sum q is that of column q / 2 * 8 + thread % 4 * 2 + q % 2.
        """
        return min(self.columns, 64) // 4

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
    def shared_of_rings(self) -> int:
        """Offset of the stages' counters, if a warpgroup loads for others."""
        return self.stages * self.stage_bytes

    @property
    def shared(self) -> int:
        if self.turns:
            return self.shared_of_rings + 8 * (2 * self.stages + self.consumers) + ALIGNED
        if self.split > 1:
            return self.stages * self.stage_bytes + (self.split - 1) * self.rows * self.columns * 4 + ALIGNED
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
    Tile(128, 192, 128, 12, 1, 1, 5, True, 1, 1),
    Tile(128, 256, 128, 12, 1, 1, 4, True, 1, 1),
    Tile(256, 128, 128, 12, 1, 1, 4, True, 1, 1),
    Tile(192, 192, 128, 16, 1, 1, 4, True, 1, 1),
    Tile(192, 128, 128, 16, 1, 1, 5, True, 1, 1),
    Tile(128, 128, 128, 12, 1, 1, 6, True, 1, 2),
    Tile(64, 128, 128, 8, 1, 1, 4, True, 2, 1),
)
# tiles for 16-bit floats as well
HALF_TILES: Final = (
    Tile(128, 32, 128, 8, 1, 1, 5, True),
    Tile(64, 32, 128, 4, 1, 1, 8, True),
    Tile(64, 32, 128, 4, 1, 1, 8, True, split=2),
    Tile(64, 32, 128, 4, 1, 1, 7, True, split=4),
    Tile(64, 32, 128, 4, 1, 1, 4, True, split=8),
    Tile(64, 64, 128, 4, 1, 1, 8, True),
    Tile(64, 64, 128, 4, 1, 1, 8, True, split=2),
    Tile(64, 64, 128, 4, 1, 1, 8, True, split=4),
    Tile(64, 64, 128, 4, 1, 1, 6, True, split=8),
    Tile(128, 64, 128, 8, 1, 1, 6, True, split=2),
    Tile(128, 64, 128, 8, 1, 1, 5, True, split=4),
    Tile(128, 128, 128, 8, 1, 1, 4, True, split=2),
)
# by the warpgroups that multiply, registers of a thread that loads for them, and of one that multiplies; if one multiplies, two
# blocks share a multiprocessor
ROLE_REGISTERS: Final = {1: (72, 184), 2: (72, 216), 3: (80, 144)}
REGISTERS: Final = 65536  # of a multiprocessor with wgmma; a thread has at most 255
JOINT: Final = ("sm_90",)  # architectures with wgmma
# by the bytes of x that are copied at a time, the time to load a byte over that in whole chunks; 1: one by one, without copies
LOADS: Final = {16: 1.0, 8: 3.0, 4: 4.5, 1: 20.0}
FINISHED: Final = 8.2  # sums per cycle to which a multiprocessor with wgmma applies an epilogue
COSTLY: Final = 3.0  # the same, for an epilogue with the error function
# by the blocks of a cluster, the share of all multiprocessors that clusters can use: each lies in one group of 16 or 18
CLUSTERED: Final = {1: 1.0, 2: 0.94, 4: 0.85, 8: 0.73}


def tiles_by_time(
    rows: int,
    columns: int,
    depth: int,
    count: int,
    traits: DeviceTraits,
    whole: bool = True,
    joint: bool = True,
    turns: bool = True,
    halves: bool = False,
    gathered: bool = False,
    piece: int = 16,
) -> list[Tile]:
    """Returns tile sizes for `count` products of [rows, depth] and [depth, columns], by estimated time.

    whole: see `Product.exact`; joint: include warpgroup tiles, if the device supports them; turns: also those with a warpgroup
    that loads (one product whose operands are copied in aligned chunks); halves: operands are 16-bit floats; gathered: rows are
    windows of several pixels; piece: bytes of x that are copied at a time.
    """
    joint = joint and traits.arch in JOINT

    def fits(t: Tile) -> bool:
        addresses = 2 * t.rows * t.depth // (piece * t.waves * 32) if piece < 16 else 0  # of a thread's pieces
        if t.joint and (not joint or _registers(t, whole) + addresses > _registers_most(t)):
            return False
        if t.turns and (not turns or count > 1):
            return False
        return t.shared <= traits.shared_most and t.waves * traits.wave <= traits.max_threads

    if halves:
        fitting, sizes = filter(fits, TILES + HALF_TILES), (rows, columns, depth, count, traits)
        return sorted(fitting, key=lambda t: half_microseconds(t, *sizes, gathered, False, piece))
    return sorted(filter(fits, TILES), key=lambda t: microseconds(t, rows, columns, depth, count, traits, whole))


def _registers(t: Tile, whole: bool) -> int:
    """Returns registers of a thread of a warpgroup tile: its sums, for 8-bit floats those of a step too, and 16 or 30 more."""
    waves = GROUP_WAVES * t.sharing if t.turns else t.waves  # that have sums of a tile
    sums = t.rows * t.columns // (waves * 32)
    of_step = 0 if whole else t.columns // 2 if t.turns else sums  # in turn, each 64 rows of a tile use the same ones
    return sums + of_step + (16 if t.turns else 30)


def _registers_most(t: Tile) -> int:
    """Returns the registers that a thread of a warpgroup tile may have."""
    return ROLE_REGISTERS[t.consumers][1] if t.turns else min(255, REGISTERS // (t.waves * 32))


def microseconds(
    t: Tile,
    rows: int,
    columns: int,
    depth: int,
    count: int,
    traits: DeviceTraits,
    whole: bool = True,
    finished: float = FINISHED,
    piece: int = 16,
) -> float:
    """Returns estimated microseconds, fitted to measurements on an H200; finished: as `FINISHED`, for warpgroup tiles.

    piece: as for `tiles_by_time`.

    Per cycle a multiprocessor multiplies 1,000 int8, or half as many 8-bit floats, which ``mma.sync`` widens there; it reads 36
    bytes from L2.
    """
    blocks = ceil_div(rows, t.rows) * ceil_div(columns, t.columns) * count * t.split
    room = max(traits.shared_most, 65536)
    resident = max(1, min(room // t.shared, 2048 // (t.waves * traits.wave), 4))
    if t.turns:
        resident = max(t.resident, 1)
    elif t.joint:
        resident = max(1, min(resident, REGISTERS // (_registers(t, whole) * t.waves * 32)))
    busy = min(resident, ceil_div(blocks, int(traits.sm_count * CLUSTERED[t.split])))
    steps = ceil_div(depth, t.depth * t.split)
    if t.joint:
        return 0.25 + _joint_cycles(t, blocks, busy, steps, traits.sm_count, whole, finished, piece) / 1700
    units = busy * t.rows * t.columns * t.depth / (1000 if whole else 500)
    loads = busy * (t.rows * LOADS[piece] + t.columns) * t.depth / 36
    alone = 120 + 45 * t.depth / 32 / t.apart  # cycles per step of a block that has the multiprocessor to itself
    finished = 1 / FINISHED if traits.arch in JOINT else 0
    end = 1500 + busy * t.rows * t.columns * ((1 + t.apart / 4) / 40 + finished)
    cycles = ceil_div(blocks, traits.sm_count * busy) * (steps * max(units, loads, alone) + end)
    return 1.5 + cycles / 1700


def half_microseconds(
    t: Tile,
    rows: int,
    columns: int,
    depth: int,
    count: int,
    traits: DeviceTraits,
    gathered: bool,
    costly: bool = False,
    piece: int = 16,
) -> float:
    """Returns estimated microseconds of a product of 16-bit floats, of `depth` bytes.

    gathered: rows are windows of several pixels; costly: the error function follows; piece: as for `tiles_by_time`.  The error of
    some 200 convolutions of 18 networks is 17 % (root mean square).
    """
    factor = 1.2 if t.turns else 1.15 if t.joint else 1.35 if gathered else 1.1
    finished = COSTLY if costly else FINISHED
    return factor * microseconds(t, rows, columns, depth, count, traits, finished=finished, piece=piece)


def _joint_cycles(
    t: Tile, blocks: int, busy: int, steps: int, sm_count: int, whole: bool, finished: float, piece: int
) -> float:
    """Returns estimated cycles of warpgroup tiles; the error of 85 measured products is 11 % (root mean square).

    Per cycle a multiprocessor multiplies 3,200 bytes, reads 73, and finishes 8.2 sums, or 9 if a warpgroup loads; adding up 128
    sums of 8-bit floats after each step takes 1.3 cycles.  A warpgroup that finishes a tile while another one multiplies takes
    2.2 times as long.
    """
    sums = t.rows * t.columns
    units = busy * sums * t.depth / 3200
    loads = busy * (t.rows * LOADS[piece] + t.columns) * t.depth / 73
    waiting = 550 if t.stages < 6 else 1100 / (t.stages - 2)
    alone = 0 if t.turns and t.consumers > 1 else waiting + sums * t.depth / 6600
    step = max(units, loads, alone) + (0 if whole else 1.3 * busy * sums / 128)
    end = 2300 + busy * sums / (finished * 1.1 if t.turns else finished)
    if t.split > 1:
        end += 900 + (t.split - 1) * sums / 24
    places = int(sm_count * busy * CLUSTERED[t.split])
    rounds: float = ceil_div(blocks, places)
    if t.turns or t.stages < 6:
        rounds = (rounds + max(blocks / places, 1.0)) / 2  # blocks do not start in step
    if t.alternates:
        both = steps * step + 2.2 * end
        return rounds * max(steps * step, both / 2) + 1.1 * end
    return rounds * (steps * step + end)
