"""Byte GEMM with packed weights and a fused epilogue, for AMX tiles or VNNI dot products.

Weights are packed into panels, as defined in the native module's `byte_tiles.h` and `byte_dots.h`."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.errors import No
from mgx_core.named_tuples import NamedTuple
from mgx_core.types.traced_int import larger, usual

from .byte_gemm_loops import COLUMNS, FOUR, ROWS, TILE, BytePlan, ByteTiles
from .cost import grain_for
from .engine import Engine
from .gemm_epilogue import Epilogue, Product
from .kernel import JitKernel
from .separate_epilogue import byte_kernel
from .space import Args

__all__ = ["Division", "compile_byte_gemm", "packed_kernel"]

CACHED_WEIGHTS: Final = 512 * 1024  # bytes of weights that stay in the L2 cache next to the current rows
CACHED_ROWS: Final = 512 * 1024  # bytes of rows that stay in the L2 cache next to a panel
MIN_WORK: Final = 1 << 20  # minimum products per thread
PANEL_LINES: Final = 32  # cache lines of a panel per multiplication of two of its tiles
MAX_GROUP: Final = 8  # panels per item


class Division(NamedTuple):
    """The parts of a product; near: each tile of rows reads all weights; rows: of a block; group: panels of an item."""

    near: bool
    rows: int
    group: int


def compile_byte_gemm(product: Product, engine: Engine, tiled: bool, fast: bool = True) -> JitKernel | No:
    """Returns a product of bytes with packed int8 weights, accumulated in int32, as a kernel, or `No`.

    tiled: uses AMX; fast: as in `Epilogue.combine`.  Buffers: a, the panels, initial int32 sums by column, padded to a
    multiple of 16, extra.., outs..
    """
    epilogue = product.epilogue_of_bytes(fast)
    if isinstance(epilogue, No):
        return epilogue
    a, columns, threads = product.a, product.columns, product.threads
    (m, depth), usual_rows = a.lens(), usual(a.lens()[0])
    step = TILE if tiled else FOUR
    steps, panels = -(-depth // step), -(-columns // COLUMNS)
    padded = steps * step
    near = panels * padded * COLUMNS <= CACHED_WEIGHTS or panels == 1
    most = -(-usual_rows // (4 * threads)) if near else max(ROWS, CACHED_ROWS // padded)
    rows = -(-min(most, usual_rows) // ROWS) * ROWS
    blocks = -(-usual_rows // rows)
    group = panels if near else max(1, min(MAX_GROUP, panels * blocks // (3 * threads)))
    reach = -(-(padded - depth) // max(1, a.strides()[0]))  # rows that the last step of a row reads past its end
    if reach > 1 and not near:
        return No(f"rows of depth {depth} would have to be copied for each group of columns")
    return packed_kernel(product, engine, epilogue, "bytes", step, Division(near, rows, group), larger(0, m - reach))


def packed_kernel(
    product: Product, engine: Engine, epilogue: Epilogue, name: str, step: int, division: Division, readable: int
) -> JitKernel:
    """Returns a product with packed weights as a kernel, reported as `name`; buffers as in `compile_byte_gemm`.

    step: depth per instruction, in bytes; readable: rows whose last step may be read in place.
    """
    a, columns, (near, rows, group) = product.a, product.columns, division
    m, elements = a.lens()
    depth, bfloat16 = a.dtype.size * elements, a.dtype is dt.bfloat16
    steps, panels = -(-depth // step), -(-columns // COLUMNS)
    blocks, groups, padded = -(-m // rows), -(-panels // group), steps * step
    plan = BytePlan(
        epilogue, Args(), tiles=step == TILE, signed=a.dtype is not dt.uint8, loose=depth != padded, near=near,
        last=-(-(columns % COLUMNS) // 16), ragged=columns % 16 != 0, bfloat16=bfloat16,
    )  # fmt: skip
    usual_rows = min(rows, usual(m))
    tiles = -(-usual_rows // ROWS)  # of a block, which prefetch the next panel in turn
    ahead = -(-PANEL_LINES // tiles) if not near else PANEL_LINES if bfloat16 else 0
    numbers = {
        "m": m, "n": columns, "left": a.dtype.size * (a.strides()[0] if m > 1 else elements), "depth": depth, "steps": steps,
        "rows": rows, "group": group, "panels": panels, "blocks": blocks, "groups": groups, "ahead": ahead, "readable": readable,
    }  # fmt: skip
    plan.args.enter(numbers)
    copied = rows if plan.copied and not near else ROWS
    return byte_kernel(
        product,
        plan,
        engine,
        ByteTiles,
        name,
        leading=3,
        work=blocks * groups,
        grain=grain_for(MIN_WORK, usual_rows * padded * min(group * COLUMNS, columns)),
        scratch_bytes=4 * ROWS * COLUMNS + copied * padded,
        weights=depth * columns,
    )
