"""Byte products and convolutions by sums of int16 pairs (``vpmaddwd``), for processors without VNNI.

The left operand is widened to int16 in scratch memory and its zero point is subtracted; weights are packed that way.
Functions of the native module (`byte_pairs.h`) widen rows and compute sums; the epilogue is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from mgx_core.errors import No
from mgx_core.named_tuples import NamedTuple
from mgx_core.records import dataclass

from .byte_pairs_loops import COLUMNS, STEP, ChannelPlan, Channels, FilterPlan, Filters, PairPlan, Pairs
from .engine import Engine
from .gemm_epilogue import Product
from .gemm_plan import equal_part
from .kernel import JitKernel
from .separate_epilogue import byte_kernel
from .space import Args

__all__ = ["WINDOW_NUMBERS", "Windows", "compile_channels", "compile_filters", "compile_pairs"]

CACHED_ROWS: Final = 128 * 1024  # bytes of widened rows that stay in the L2 cache next to a panel
BLOCK_DEPTH: Final = 1536  # depth of one block
MAX_ROWS: Final = 240  # maximum rows of a block
MIN_ROWS: Final = 12
MIN_WORK: Final = 1 << 18  # minimum products per thread
LANES: Final = 8  # channels per vector of a depthwise convolution
CACHED_SUMS: Final = 32 * 1024  # bytes of sums of channels that stay in the L1 cache
CACHED_PAIRS: Final = 32 * 1024  # bytes of interleaved inputs of channels that stay in the L1 cache
MAX_LINES: Final = 8  # maximum lines of results that share interleaved inputs
POINTS: Final = 16  # transformed points of a tile of 2 x 2 results of a 3 x 3 filter
MAX_TILES: Final = 28  # maximum tiles of a block
CACHED_POINTS: Final = 224 * 1024  # bytes of a block's points, which stay in the L2 cache


WINDOW_NUMBERS: Final = 25  # parameters of a convolution's windows


@dataclass(frozen=True)
class Windows:
    """Parameters of a convolution's windows, as in `byte_pairs.h`; lines: taps along the first two axes, each of `run` contiguous
    elements."""

    numbers: Sequence[int]
    lines: int
    run: int
    taps: int

    def enter(self, args: Args) -> None:
        """Appends them to a kernel's arguments."""
        args.enter({"windows": self.numbers[0]})
        for value in self.numbers[1:]:
            args.add(value)


class Pairing(NamedTuple):
    """The pairs of taps of a depthwise convolution's windows, as in `byte_pairs_avx2.cpp`.

    lines: lines of a window, 0 if it has a single one, whose columns are paired; taps: pairs in a line; apart: columns from one
    pair to the next; width: results of a line; step, down: strides between results in columns and lines, `down` 0 if lines of
    results share no pairs.
    """

    lines: int
    taps: int
    apart: int
    width: int
    step: int
    down: int

    @classmethod
    def of(cls, windows: Windows) -> Pairing:
        """Returns the pairing of windows."""
        _, _, _, *rest = windows.numbers
        width, taps, stride, dilation = rest[8], rest[9:12], rest[12:15], rest[15:18]
        if windows.lines == 1:
            return cls(0, -(-taps[2] // 2), 2 * dilation[2], width, stride[2], 0)
        shared = taps[0] == 1 and dilation[1] == 1
        return cls(windows.lines, taps[2], dilation[2], width, stride[2], stride[1] if shared else 0)

    def groups(self, lines: int) -> int:
        """Returns the pairs of lines that some lines of results read at once."""
        if self.lines == 0:
            return lines
        return ((lines - 1) * self.down + self.lines + 1) // 2

    def columns(self, results: int) -> int:
        """Returns the columns that adjacent results of a line read."""
        return (results - 1) * self.step + (self.taps - 1) * self.apart + 1

    def results(self, columns: int) -> int:
        """Returns the most results of a line that read no more columns."""
        return (columns - self.columns(1)) // self.step + 1


def compile_pairs(
    product: Product,
    engine: Engine,
    signed: bool,
    windows: Windows | None = None,
    groups: int = 1,
    fast: bool = True,
) -> JitKernel | No:
    """Returns a byte product with packed weights or, with `windows`, a convolution as a kernel, or `No`.

    product: of a convolution, a: [results, depth] as if its windows were rows; columns: of all groups.  fast: as in
    `Epilogue.combine`.  Buffers: the left operand, packed panels of all groups, the zero point, extra.., outs..
    """
    epilogue = product.epilogue_of_bytes(fast)
    if isinstance(epilogue, No):
        return epilogue
    threads, columns = product.threads, product.columns // groups
    m, depth = product.a.lens()
    unit = STEP if windows is None else windows.run
    piece = depth
    if depth > BLOCK_DEPTH and unit % STEP == 0:
        piece = min(depth, max(1, BLOCK_DEPTH // unit) * unit)
    pitch = -(-piece // STEP) * STEP
    panels = -(-columns // COLUMNS)
    most = min(MAX_ROWS, max(MIN_ROWS, CACHED_ROWS // (2 * pitch)), -(-m // threads))
    rows = equal_part(m, max(1, most), 1)
    blocks = -(-m // rows)
    group = panels
    if threads > 1 and blocks * groups < 4 * threads:
        group = max(2, panels * blocks * groups // (4 * threads))
    plan = PairPlan(
        epilogue, Args(), windows=windows is not None, grouped=groups > 1, whole=piece == depth,
        ragged=columns % COLUMNS != 0, narrow=0 < columns % COLUMNS <= COLUMNS // 2, signed=signed,
    )  # fmt: skip
    numbers = {
        "m": m, "n": product.columns, "left": product.a.strides()[0] if m > 1 else depth, "depth": depth, "piece": piece,
        "pitch": pitch, "rows": rows, "group": min(group, panels), "panels": panels, "blocks": blocks,
        "groups": -(-panels // min(group, panels)), "columns": columns, "kinds": groups,
        "channels": 0 if windows is None else windows.numbers[0], "run": unit, "lines": 0 if windows is None else piece // unit,
    }  # fmt: skip
    space = rows * min(group, panels) * COLUMNS if piece != depth else 6 * COLUMNS
    numbers["space"] = space
    _enter(plan.args, numbers, windows)
    return byte_kernel(
        product,
        plan,
        engine,
        Pairs,
        "pairs",
        leading=3,
        work=groups * blocks * -(-panels // min(group, panels)),
        grain=max(1, MIN_WORK // max(1, rows * depth * min(group, panels) * COLUMNS)),
        scratch_bytes=4 * space + 2 * rows * pitch,
        weights=2 * depth * product.columns,
    )


def compile_channels(product: Product, engine: Engine, windows: Windows, fast: bool = True) -> JitKernel | No:
    """Returns a depthwise convolution as a kernel, or `No`.

    product: a: [results, channels]; columns: the channels.  Buffers: the left operand, weights, their sums by channel, the zero
    point, extra.., outs..
    """
    epilogue = product.epilogue_of_bytes(fast)
    if isinstance(epilogue, No):
        return epilogue
    m, channels = product.a.lens()
    pairing = Pairing.of(windows)
    unit = 2 * engine.lanes
    most = max(1, CACHED_SUMS // (4 * pairing.width * min(channels, 2 * unit)))  # lines
    rows = equal_part(pairing.width, CACHED_SUMS // (4 * min(channels, unit)), 1) if most == 1 else pairing.width
    if rows == pairing.width:
        rows *= equal_part(m // rows, min(most, MAX_LINES, -(-m // (rows * product.threads))), 1)
    blocks = -(-channels // max(unit, CACHED_SUMS // (4 * rows) // unit * unit))
    block = min(channels, -(-channels // (blocks * unit)) * unit)
    groups, vectors = pairing.groups(max(1, rows // pairing.width)), -(-block // LANES)
    tile = max(LANES, pairing.results(CACHED_PAIRS // (4 * LANES * groups * vectors)))
    tile = equal_part(min(rows, pairing.width), tile, 1)
    space = 2 * LANES * groups * vectors * pairing.columns(tile)
    plan = ChannelPlan(epilogue, Args(), ragged=channels % unit != 0)
    blocks, parts = -(-channels // block), -(-m // rows)
    numbers = {
        "m": m, "n": channels, "rows": rows, "block": block, "blocks": blocks, "parts": parts, "tile": tile, "space": space,
    }  # fmt: skip
    _enter(plan.args, numbers, windows)
    return byte_kernel(
        product,
        plan,
        engine,
        Channels,
        "channels",
        leading=4,
        work=blocks * parts,
        grain=max(1, MIN_WORK // max(1, 8 * rows * block * windows.taps)),
        scratch_bytes=2 * space + 4 * (rows * block + LANES),
        weights=0,
        taps=windows.taps,
    )


def compile_filters(
    product: Product, engine: Engine, windows: Windows, lens: Sequence[int], fast: bool = True
) -> JitKernel | No:
    """Returns a 3 x 3 convolution of stride 1 by Winograd's F(2x2, 3x3), with 16 products per 4 results rather than 36, or `No`.

    product: as in `compile_pairs`; channels: at least 16; lens: images, height and width of the results.  Buffers: the left
    operand, panels of filters at 16 points, the zero point, extra.., outs..
    """
    epilogue = product.epilogue_of_bytes(fast)
    if isinstance(epilogue, No):
        return epilogue
    images, height, width = lens
    channels, threads = windows.numbers[0], product.threads
    pitch, panels = -(-channels // STEP) * STEP, -(-product.columns // COLUMNS)
    down, over = -(-height // 2), -(-width // 2)
    most = max(1, min(MAX_TILES, CACHED_POINTS // (2 * POINTS * pitch)))
    across = equal_part(over, most, 1)
    lines = max(1, min(down, most // across)) if across == over else 1
    lines = equal_part(down, lines, 1)
    blocks = images * -(-down // lines) * -(-over // across)
    group = panels
    if threads > 1 and blocks < 4 * threads:
        group = min(panels, max(2, panels * blocks // (4 * threads)))
    columns = product.columns % COLUMNS
    plan = FilterPlan(epilogue, Args(), ragged=columns != 0, narrow=0 < columns <= COLUMNS // 2)
    tiles = lines * across
    numbers = {
        "m": product.a.lens()[0], "n": product.columns, "images": images, "height": height, "width": width, "tiles_down": down,
        "tiles_across": over, "down": -(-down // lines), "over": -(-over // across), "lines": lines, "across": across,
        "pitch": pitch, "panels": panels, "group": group, "groups": -(-panels // group), "sums": 4 * tiles * COLUMNS,
        "products": POINTS * tiles * COLUMNS, "points": POINTS * tiles * pitch,
    }  # fmt: skip
    _enter(plan.args, numbers, windows)
    return byte_kernel(
        product,
        plan,
        engine,
        Filters,
        "filters",
        leading=3,
        work=blocks * -(-panels // group),
        grain=max(1, MIN_WORK // (POINTS * tiles * pitch * group * COLUMNS)),
        scratch_bytes=4 * (POINTS + 4) * tiles * COLUMNS + 2 * POINTS * tiles * pitch + -(-channels // 64) * 64,
        weights=2 * POINTS * pitch * product.columns,
    )


def _enter(args: Args, numbers: dict[str, int], windows: Windows | None) -> None:
    """Appends the run-time arguments of a kernel."""
    args.enter(numbers)
    if windows is not None:
        windows.enter(args)
