"""GEMM of bfloat16 with packed weights and a fused epilogue, for AMX tiles.

Weights are packed into panels, as defined in the native module's `byte_tiles.h`."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.errors import No

from .byte_gemm import MAX_GROUP, Division, packed_kernel
from .byte_gemm_loops import COLUMNS, ROWS, TILE
from .engine import Engine
from .gemm_epilogue import Product
from .gemm_plan import equal_part
from .kernel import JitKernel

__all__ = ["compile_bfloat16_gemm"]

SIZE: Final = 2  # bytes of an element
NEAR_WEIGHTS: Final = 32 * 1024  # bytes of weights that each tile of rows reads again
CACHED_WEIGHTS: Final = 512 * 1024  # bytes of weights that each block of rows reads again from the L2 cache
ROWS_PER_BLOCK: Final = 128  # rows of a block that stay in a near cache for all panels
MANY_TILES: Final = 4  # tiles of rows per thread for which rows are divided
CACHED_ROWS: Final = 1024 * 1024  # bytes of rows that stay in the L2 cache next to a panel


def compile_bfloat16_gemm(product: Product, engine: Engine) -> JitKernel | No:
    """Returns a product of bfloat16 with packed weights, accumulated in float32, as a kernel, or `No`.

    Buffers: a, the panels, initial float32 sums by column, padded to a multiple of 16, extra.., outs..
    """
    epilogue = product.epilogue((dt.bfloat16,), dt.float32)
    if isinstance(epilogue, No):
        return epilogue
    m, depth = product.a.lens()
    division = _division(m, SIZE * depth, -(-product.columns // COLUMNS), product.threads)
    return packed_kernel(product, engine, epilogue, "tiles", TILE, division, m)


def _division(m: int, depth: int, panels: int, threads: int) -> Division:
    """Returns the division of a product of m rows of `depth` bytes.

    If not all weights are read at once, the rows of a block read a panel one after the other, while the next one is prefetched:
    the weights of a network exceed the L2 cache, and loads alone would wait for each line.  Many rows are divided among the
    items, so that each is copied once, if at all, and stays in a near cache for all panels; else the panels are divided.
    """
    padded, loose = -(-depth // TILE) * TILE, depth % TILE != 0
    weights = panels * COLUMNS * padded
    near = panels == 1 or weights <= min(NEAR_WEIGHTS, m * padded)
    if near:
        return Division(near, equal_part(m, max(ROWS, m // (4 * threads)), ROWS), panels)
    if panels * COLUMNS <= m and m >= MANY_TILES * ROWS * threads:
        few = min(-(-m // (4 * threads)), ROWS_PER_BLOCK)
        most = few if weights <= CACHED_WEIGHTS else min(-(-m // threads), CACHED_ROWS // padded)
        return Division(near, equal_part(m, max(ROWS, most), ROWS), panels)
    rows = equal_part(m, max(ROWS, CACHED_ROWS // padded), ROWS)
    blocks = -(-m // rows)
    group = max(1, min(MAX_GROUP, panels * blocks // ((2 if loose else 3) * threads)))
    items = blocks * -(-panels // group)
    if items < 4 * threads and items % threads:  # few work items: the same number for each thread
        rows = equal_part(m, max(ROWS, -(-m // threads)), ROWS)
    return Division(near, rows, group)
