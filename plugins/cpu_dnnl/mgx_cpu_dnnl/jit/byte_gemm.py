"""Byte GEMM with packed weights and a fused epilogue, for AMX tiles or VNNI dot products.

Weights are packed into panels, as defined in the native module's `byte_tiles.h` and `byte_dots.h`."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.errors import No

from .byte_gemm_loops import COLUMNS, FOUR, ROWS, TILE, BytePlan, ByteTiles
from .engine import Engine
from .gemm_epilogue import Product
from .kernel import JitKernel
from .separate_epilogue import byte_kernel
from .space import Args

__all__ = ["compile_byte_gemm"]

CACHED_WEIGHTS: Final = 512 * 1024  # bytes of weights that stay in the L2 cache next to the current rows
CACHED_ROWS: Final = 512 * 1024  # bytes of rows that stay in the L2 cache next to a panel
MIN_WORK: Final = 1 << 20  # minimum products per thread


def compile_byte_gemm(product: Product, engine: Engine, tiled: bool, fast: bool = True) -> JitKernel | No:
    """Returns a product of bytes with packed int8 weights, accumulated in int32, as a kernel, or `No`.

    tiled: uses AMX; fast: as in `Epilogue.combine`.  Buffers: a, the panels, initial int32 sums by column, padded to a
    multiple of 16, extra.., outs..
    """
    epilogue = product.epilogue_of_bytes(fast)
    if isinstance(epilogue, No):
        return epilogue
    a, columns, threads = product.a, product.columns, product.threads
    m, depth = a.lens()
    step = TILE if tiled else FOUR
    steps, panels = -(-depth // step), -(-columns // COLUMNS)
    padded = steps * step
    near = panels * padded * COLUMNS <= CACHED_WEIGHTS or panels == 1
    most = -(-m // (4 * threads)) if near else max(ROWS, CACHED_ROWS // padded)
    rows = -(-min(most, m) // ROWS) * ROWS
    blocks = -(-m // rows)
    group = panels if near else max(1, min(8, panels * blocks // (3 * threads)))
    tiles = -(-min(rows, m) // ROWS)
    reach = -(-(padded - depth) // max(1, a.strides()[0]))  # rows that the last step of a row reads past its end
    if reach > 1 and not near:
        return No(f"rows of depth {depth} would have to be copied for each group of columns")
    plan = BytePlan(
        epilogue, Args(), tiles=tiled, signed=a.dtype is dt.int8, loose=depth % step != 0, near=near,
        last=-(-(columns % COLUMNS) // 16), ragged=columns % 16 != 0,
    )  # fmt: skip
    numbers = {
        "m": m, "n": columns, "left": a.strides()[0], "depth": depth, "steps": steps, "rows": rows, "group": group,
        "panels": panels, "blocks": blocks, "groups": -(-panels // group), "ahead": 0 if near else -(-32 // tiles),
        "readable": max(0, m - reach),
    }  # fmt: skip
    plan.args.enter(numbers)
    return byte_kernel(
        product,
        plan,
        engine,
        ByteTiles,
        "bytes",
        leading=3,
        work=blocks * -(-panels // group),
        grain=max(1, MIN_WORK // (min(rows, m) * padded * min(group * COLUMNS, columns))),
        scratch_bytes=4 * ROWS * COLUMNS + ROWS * padded,
        weights=depth * columns,
    )
