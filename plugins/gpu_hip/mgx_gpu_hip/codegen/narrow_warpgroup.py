"""Main loops of warpgroup tiles (wgmma): four waves together multiply 64 rows by all columns of the tile."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt

from .geometry import ceil_div
from .narrow_operands import Product
from .narrow_tiles import ALIGNED, Tile
from .source import storage_type

__all__ = ["WARPGROUP_SHARED", "WARPGROUP_TYPES", "warpgroup_loop"]

WARPGROUP_TYPES: Final = (dt.int8, dt.uint8, dt.float8_e4m3fn, dt.float8_e5m2)  # types supported by wgmma
WARPGROUP_SHARED: Final = (
    "SHARED_DYNAMIC(u8, given);",
    f"u8* const room = given + ({ALIGNED}u - (u32)((u64)given % {ALIGNED}u)) % {ALIGNED}u;",
)


def warpgroup_loop(p: Product, t: Tile) -> list[str]:
    """Returns the main loop of a warpgroup tile: multiplications are in flight while the next steps are loaded.

    wgmma accumulates 8-bit floats with some 14 bits of mantissa, so the sums of each step are added up in float32.
    """
    across = t.columns // 16
    steps, whole = ceil_div(p.depth, t.depth), p.x.dtype.is_integer
    pending = int(whole and t.stages > 3)  # multiplications in flight while the next ones are issued
    ahead = t.stages - 1 - pending
    each = f"UNROLL for (int j = 0; j < {across}; ++j)"
    product = f"group_mma<{storage_type(p.x.dtype)}, {storage_type(p.w.dtype)}, {t.columns}>"
    lines = [
        f"nfrag_c<{p.sum}> acc[1][{across}];",
        f"{each} nfrag_zero(acc[0][j]);",
        *([] if whole else [f"nfrag_c<{p.sum}> some[{across}];", f"{each} nfrag_zero(some[j]);"]),
        f"UNROLL for (u32 s = 0; s < {ahead}; ++s) {{",
        f"  if (s < {steps}u) {{ load_a(s, s); load_b(s, s); }}",
        "  async_commit();",
        "}",
        f"u32 slot = 0, free = {ahead}u;",
        f"for (u32 step = 0; step < {steps}u; ++step) {{",
        f"  async_wait<{ahead - 1}>();",
        "  group_shared();",
        "  __syncthreads();",
        f"  if (step + {ahead}u < {steps}u) {{ load_a(step + {ahead}u, free); load_b(step + {ahead}u, free); }}",
        "  async_commit();",
        f"  const u8* const as = room + slot * {t.stage_bytes}u + wave / 4u * {64 * t.pitch}u;",
        f"  const u8* const bs = room + slot * {t.stage_bytes}u + {t.rows * t.pitch}u;",
        "  group_begin();",
        f"  UNROLL for (u32 d = 0; d < {t.depth}u; d += 32u) {product}({'acc[0]' if whole else 'some'}, as, bs, d, "
        f"{'true' if whole else 'd > 0u'});",
        "  group_commit();",
    ]
    if whole:
        lines.append(f"  group_wait<{pending}>();")
    else:
        add = "UNROLL for (int e = 0; e < FRAG_C; ++e) acc[0][j].x[e] += some[j].x[e];"
        lines += ["  group_wait<0>();", f"  group_hold(some, {across});", f"  {each} {add}"]
    return [
        *lines,
        f"  slot = slot + 1 == {t.stages}u ? 0 : slot + 1;",
        f"  free = free + 1 == {t.stages}u ? 0 : free + 1;",
        "}",
        "group_wait<0>();",
        f"group_hold(acc[0], {across});",
    ]
