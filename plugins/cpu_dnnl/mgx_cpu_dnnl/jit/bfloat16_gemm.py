"""GEMM of bfloat16 with packed weights and a fused epilogue, for AMX tiles.

Weights are packed into panels, as defined in the native module's `byte_tiles.h`."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.errors import No

from .byte_gemm import MIN_WORK
from .byte_gemm_loops import COLUMNS, ROWS, TILE, BytePlan, ByteTiles
from .engine import Engine
from .gemm_epilogue import Product
from .gemm_plan import equal_part
from .kernel import JitKernel
from .separate_epilogue import byte_kernel
from .space import Args

__all__ = ["compile_bfloat16_gemm"]

SIZE: Final = 2  # bytes of an element
NEAR_WEIGHTS: Final = 32 * 1024  # bytes of weights that each tile of rows reads again
CACHED_WEIGHTS: Final = 512 * 1024  # bytes of weights that each block of rows reads again from the L2 cache
ROWS_PER_BLOCK: Final = 128  # rows of a block that stay in a near cache for all panels
MANY_TILES: Final = 4  # tiles of rows per thread for which rows are divided
CACHED_ROWS: Final = 1024 * 1024  # bytes of rows that stay in the L2 cache next to a panel
PANEL_LINES: Final = 32  # cache lines of a panel per multiplication of two of its tiles
MAX_GROUP: Final = 8  # panels per item


def compile_bfloat16_gemm(product: Product, engine: Engine) -> JitKernel | No:
    """Returns a product of bfloat16 with packed weights, accumulated in float32, as a kernel, or `No`.

    Buffers: a, the panels, initial float32 sums by column, padded to a multiple of 16, extra.., outs..
    """
    epilogue = product.epilogue((dt.bfloat16,), dt.float32)
    if isinstance(epilogue, No):
        return epilogue
    a, columns, threads = product.a, product.columns, product.threads
    m, depth = a.lens()
    steps, panels = -(-depth * SIZE // TILE), -(-columns // COLUMNS)
    padded, loose = steps * TILE, depth * SIZE % TILE != 0
    near, rows, group = _blocks(m, panels, padded, loose, threads)
    blocks = -(-m // rows)
    tiles = -(-min(rows, m) // ROWS)
    plan = BytePlan(
        epilogue, Args(), tiles=True, signed=True, loose=loose, near=near,
        last=-(-(columns % COLUMNS) // 16), ragged=columns % 16 != 0, bfloat16=True,
    )  # fmt: skip
    numbers = {
        "m": m, "n": columns, "left": SIZE * (a.strides()[0] if m > 1 else depth), "depth": SIZE * depth, "steps": steps,
        "rows": rows, "group": group, "panels": panels, "blocks": blocks, "groups": -(-panels // group),
        "ahead": PANEL_LINES if near else -(-PANEL_LINES // tiles), "readable": m,
    }  # fmt: skip
    plan.args.enter(numbers)
    return byte_kernel(
        product,
        plan,
        engine,
        ByteTiles,
        "tiles",
        leading=3,
        work=blocks * -(-panels // group),
        grain=max(1, MIN_WORK // (min(rows, m) * padded * min(group * COLUMNS, columns))),
        scratch_bytes=4 * ROWS * COLUMNS + (rows if loose and not near else ROWS) * padded,
        weights=SIZE * depth * columns,
    )


def _blocks(m: int, panels: int, padded: int, loose: bool, threads: int) -> tuple[bool, int, int]:
    """Returns whether each tile of rows reads all weights, the rows of a block, and the panels of an item.

    padded: bytes of a row in whole steps; loose: rows are copied to pad them.  If not all weights are read at once, the rows of
    a block read a panel one after the other, while the next one is prefetched: the weights of a network exceed the L2 cache, and
    loads alone would wait for each line.  Many rows are divided among the items, so that each is copied once and stays in a
    near cache for all panels; else the panels are divided.
    """
    weights = panels * COLUMNS * padded
    near = panels == 1 or weights <= min(NEAR_WEIGHTS, m * padded)
    if near:
        return near, equal_part(m, max(ROWS, m // (4 * threads)), ROWS), panels
    if panels * COLUMNS <= m and m >= MANY_TILES * ROWS * threads:
        few = min(-(-m // (4 * threads)), ROWS_PER_BLOCK)
        most = few if weights <= CACHED_WEIGHTS else min(-(-m // threads), CACHED_ROWS // padded)
        return near, equal_part(m, max(ROWS, most), ROWS), panels
    rows = equal_part(m, max(ROWS, CACHED_ROWS // padded), ROWS)
    blocks = -(-m // rows)
    group = max(1, min(MAX_GROUP, panels * blocks // ((2 if loose else 3) * threads)))
    items = blocks * -(-panels // group)
    if items < 4 * threads and items % threads:  # few work items: the same number for each thread
        rows = equal_part(m, max(ROWS, -(-m // threads)), ROWS)
    return near, rows, group
