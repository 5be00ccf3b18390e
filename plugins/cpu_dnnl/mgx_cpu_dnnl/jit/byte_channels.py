"""Depthwise convolutions of bytes on processors with VNNI.

A function of the native module (`byte_channels.h`) computes the sums of a block of results; the epilogue is compiled.
"""

from __future__ import annotations

from typing import Final

from mgx_core.errors import No
from mgx_core.named_tuples import NamedTuple
from mgx_core.records import dataclass
from mgx_core.types.traced_int import usual

from .byte_pairs import Windows
from .code import Code, V, i64
from .cost import grain_for
from .engine import Engine
from .gemm_epilogue import Product, ProductPlan
from .gemm_plan import equal_part
from .kernel import JitKernel
from .product_writer import ProductWriter
from .separate_epilogue import byte_kernel
from .space import Args, items

__all__ = ["Fours", "compile_fours"]

CACHED_BYTES: Final = 48 * 1024  # bytes of sums and of interleaved taps that stay in the L1 cache
LINE: Final = 64
MIN_CHANNELS: Final = 16  # minimum channels of an item
MIN_WORK: Final = 1 << 18  # minimum products per thread
SLACK: Final = 256  # bytes that may be written past the end


class Fours(NamedTuple):
    """Layout of the taps in groups of four, as in `byte_channels.h`."""

    upright: bool
    groups: int
    taps: int
    passes: int
    shared: int


@dataclass
class FourPlan(ProductPlan):
    """Plan; ragged: the channels do not fill pairs of vectors."""

    kind = "fours of channels"
    ragged: bool


class Channels(ProductWriter):
    """Code generator for depthwise convolutions: an item is a block of results of a block of channels."""

    def __init__(self, c: Code, plan: FourPlan) -> None:
        super().__init__(c, plan.epilogue, plan.args, 4)
        self.plan = plan

    def write(self) -> None:
        c = self.c
        left, weights, totals, zero = self.given
        sums, rows, block = self.sums, self.arg("rows"), self.arg("block")
        space = c.gep(sums, c.op("mul", rows, block), "i32")

        def item(index: list[V], _: V) -> None:
            channel = c.op("mul", index[0], block)
            row0 = c.op("mul", index[1], rows)
            count = c.intrinsic("smin", rows, c.op("sub", self.arg("m"), row0))
            some = c.intrinsic("smin", block, c.op("sub", self.arg("n"), channel))
            what = c.gep(weights, c.op("mul", channel, i64(4)), "i8"), c.gep(totals, channel, "i32")
            where = self.place("windows"), self.place("upright"), row0, count, some
            c.run("mgx_channel_fours_1", c.gep(left, channel, "i8"), *where, *what, sums, space, zero)
            self.results.rows(sums, some, row0, count, channel, some, self.plan.ragged)

        items(c, [self.arg("blocks"), self.arg("parts")], item)


def compile_fours(
    product: Product, engine: Engine, windows: Windows, fours: Fours, fast: bool = True
) -> JitKernel | No:
    """Returns a depthwise convolution as a kernel, or `No`.

    product: a: [results, channels]; columns: the channels, at least 16.  fast: as in `Epilogue.combine`.  Buffers: the left
    operand, weights, their sums by channel, the zero point, extra.., outs..
    """
    epilogue = product.epilogue_of_bytes(fast)
    if isinstance(epilogue, No):
        return epilogue
    m, channels = product.a.lens()
    _, _, _, *rest = windows.numbers
    width, stride, gap = rest[8], rest[14], rest[17]
    apart = gap * (1 if fours.upright else 4)
    columns = (width - 1) * stride + (fours.taps - 1) * apart + 1
    block = _channels(channels, 4 * (fours.shared * usual(width) + fours.groups * usual(columns)))
    rows = _rows(
        m, width, max(1, CACHED_BYTES // (4 * block) - fours.groups * usual(columns)), product.threads, fours.shared
    )
    plan = FourPlan(epilogue, Args(), ragged=channels % (2 * engine.lanes) != 0)
    blocks, parts = -(-channels // block), -(-m // rows)
    numbers = {"m": m, "n": channels, "rows": rows, "block": block, "blocks": blocks, "parts": parts}
    plan.args.enter(numbers)
    windows.enter(plan.args)
    plan.args.enter({name: int(value) for name, value in fours._asdict().items()})
    space = (4 * fours.groups * columns + columns + 3 * gap) * block + 2 * SLACK
    return byte_kernel(
        product,
        plan,
        engine,
        Channels,
        "fours",
        leading=4,
        work=blocks * parts,
        grain=grain_for(MIN_WORK, 2 * rows * block * windows.taps),
        scratch_bytes=4 * rows * block + space,
        weights=0,
        taps=windows.taps,
    )


def _channels(channels: int, size: int) -> int:
    """Returns the channels of an item: whole cache lines, as many as fit into the cache at so many bytes each."""
    blocks = max(1, round(channels * size / CACHED_BYTES))
    block = -(-channels // (LINE * blocks)) * LINE
    return channels if blocks == 1 or 0 < channels % block < MIN_CHANNELS else block


def _rows(m: int, width: int, most: int, threads: int, shared: int) -> int:
    """Returns the results of an item: whole lines that share interleaved taps, or equal parts of one line."""
    across, results = usual(width), usual(m)
    most = min(most, -(-results // threads))
    if most < across:
        return equal_part(across, most, 1)
    lines = most // across
    return equal_part(results // across, lines, shared if lines >= shared else 1) * width
