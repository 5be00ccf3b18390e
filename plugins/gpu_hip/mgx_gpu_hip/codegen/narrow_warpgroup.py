"""Main loops of warpgroup tiles (wgmma): four waves together multiply 64 rows by all columns of the tile."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt

from .geometry import ceil_div
from .narrow_operands import Product
from .narrow_tiles import ALIGNED, Tile
from .source import storage_type

__all__ = ["WARPGROUP_SHARED", "WARPGROUP_TYPES", "cluster_sums", "first_weights", "share_of_cluster", "warpgroup_loop"]

WARPGROUP_TYPES: Final = (
    dt.int8,
    dt.uint8,
    dt.float8_e4m3fn,
    dt.float8_e5m2,
    dt.float16,
    dt.bfloat16,
)  # types supported by wgmma
WARPGROUP_SHARED: Final = (
    "SHARED_DYNAMIC(u8, given);",
    f"u8* const room = given + ({ALIGNED}u - (u32)((u64)given % {ALIGNED}u)) % {ALIGNED}u;",
)


def warpgroup_loop(p: Product, t: Tile, early: bool) -> list[str]:
    """Returns the main loop of a warpgroup tile: multiplications are in flight while the next steps are loaded.

    wgmma accumulates 8-bit floats with some 14 bits of mantissa, so the sums of each step are added up in float32.  early: the
    first steps of w are being loaded (see `first_weights`).
    """
    across = t.columns // 16
    steps, whole = p.steps(t.depth), p.exact
    pending = _pending(p, t)
    ahead = t.stages - 1 - pending
    each = f"UNROLL for (int j = 0; j < {across}; ++j)"
    product = f"group_mma<{storage_type(p.x.dtype)}, {storage_type(p.w.dtype)}, {t.columns}>"
    first, count = ("", f"{steps}u") if t.split == 1 else ("first + ", "count")
    lines = [
        *(["cluster_arrive();"] if t.split > 1 else []),
        f"nfrag_c<{p.sum}> acc[1][{across}];",
        f"{each} nfrag_zero(acc[0][j]);",
        *([] if whole else [f"nfrag_c<{p.sum}> some[{across}];", f"{each} nfrag_zero(some[j]);"]),
        f"UNROLL for (u32 s = 0; s < {ahead}; ++s) {{",
        f"  if (s < {count}) {{ load_a({first}s, s);{'' if early else f' load_b({first}s, s);'} }}",
        "  async_commit();",
        "}",
        f"u32 slot = 0, free = {ahead}u;",
        f"for (u32 step = 0; step < {count}; ++step) {{",
        f"  async_wait<{ahead - 1}>();",
        "  group_shared();",
        "  __syncthreads();",
        f"  if (step + {ahead}u < {count}) {{ load_a({first}step + {ahead}u, free); load_b({first}step + {ahead}u, free); }}",
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


def share_of_cluster(p: Product, t: Tile) -> list[str]:
    """Returns statements that declare the first step of a block of a cluster, and how many it takes."""
    steps = p.steps(t.depth)
    share = ceil_div(steps, t.split)
    return [
        f"const u32 first = blockIdx.x % {t.split}u * {share}u;",
        f"const u32 count = first < {steps}u ? m::min({steps}u - first, {share}u) : 0u;",
    ]


def first_weights(p: Product, t: Tile) -> list[str]:
    """Returns statements that start to load w for the steps that are loaded before the loop."""
    ahead = t.stages - 1 - (_pending(p, t) if t.joint else 0)
    first, count = ("", f"{p.steps(t.depth)}u") if t.split == 1 else ("first + ", "count")
    return [f"UNROLL for (u32 s = 0; s < {ahead}; ++s) if (s < {count}) load_b({first}s, s);"]


def _pending(p: Product, t: Tile) -> int:
    """Returns how many multiplications are in flight while the next ones are issued."""
    return int(p.exact and t.stages > 3)


def cluster_sums(t: Tile) -> list[str]:
    """Returns statements with which the first block of a cluster adds up the sums of all; the others end.

    A thread's sums go to where the same thread of the first block reads them, four at a time, in memory that no stage uses.
    """
    threads, pieces = 32 * t.waves, t.columns // 16
    place = f"parts + (({{}} * {2 * pieces}u + j * 2 + h) * {threads}u + threadIdx.x) * 4"
    each = f"UNROLL for (u32 j = 0; j < {pieces}u; ++j) UNROLL for (u32 h = 0; h < 2; ++h)"
    return [
        f"float* const parts = (float*)(room + {t.stages * t.stage_bytes}u);",
        f"const u32 rank = blockIdx.x % {t.split}u;",
        "cluster_wait();",
        f"if (rank) {each} cluster_store4({place.format('(rank - 1)')}, 0u, (const float*)acc[0][j].x + 4 * h);",
        "cluster_arrive();",
        "cluster_wait();",
        "if (rank) return;",
        f"for (u32 r = 0; r < {t.split - 1}u; ++r) {each} {{",
        f"  const vec<float, 4> part = ldv<float, 4>({place.format('r')});",
        "  UNROLL for (u32 i = 0; i < 4; ++i) acc[0][j].x[4 * h + i] += part.v[i];",
        "}",
    ]
