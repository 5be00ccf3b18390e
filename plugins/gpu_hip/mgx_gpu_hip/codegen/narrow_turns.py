"""Persistent, warp-specialized kernels: one warpgroup (the producer) loads tiles to a ring of stages for others."""

from __future__ import annotations

from .narrow_operands import Product
from .narrow_tiles import GROUP_WAVES, ROLE_REGISTERS, Tile
from .source import storage_type

__all__ = ["consume", "produce", "rings"]


def rings(t: Tile) -> list[str]:
    """Returns statements that declare the stages' counters, `full` (loaded) and `free` (multiplied), and those of turns.

    A warpgroup waits for its turn before it waits for stages: their counters only tell two successive uses of a stage apart.
    """
    loaded, multiplied = GROUP_WAVES * 32, GROUP_WAVES * t.sharing
    return [
        f"ring_t* const full = (ring_t*)(room + {t.shared_of_rings}u);",
        f"ring_t* const free = full + {t.stages};",
        f"ring_t* const turns = free + {t.stages};",
        f"if (threadIdx.x < {t.stages}u) {{",
        f"  ring_init(full + threadIdx.x, {loaded});",
        f"  ring_init(free + threadIdx.x, {multiplied});",
        "}",
        f"if (threadIdx.x < {t.consumers}u) ring_init(turns + threadIdx.x, {GROUP_WAVES});",
        "__syncthreads();",
    ]


def produce(p: Product, t: Tile, tiles: int, corner: list[str], loader: list[str]) -> list[str]:
    """Returns statements with which a warpgroup loads all steps of the block's tiles; loader: see `Loader.lines`."""
    steps = p.steps(t.depth)
    return [
        f"group_registers<{ROLE_REGISTERS[t.consumers][0]}, false>();",
        "u32 slot = 0, phase = 1;",
        f"for (u32 tile = blockIdx.x; tile < {tiles}u; tile += gridDim.x) {{",
        *(f"  {line}" for line in (*corner, *loader)),
        f"  for (u32 step = 0; step < {steps}u; ++step) {{",
        "    ring_wait(free + slot, phase);",
        "    load_a(step, slot);",
        "    load_b(step, slot);",
        "    ring_arrive_copies(full + slot);",
        f"    if (++slot == {t.stages}u) slot = 0, phase ^= 1;",
        "  }",
        "}",
    ]


def consume(p: Product, t: Tile, tiles: int, down: int, mine: str, corner: list[str], finish: list[str]) -> list[str]:
    """Returns statements with which a warpgroup multiplies its tiles and finishes their sums.

    It multiplies `down` times 64 rows of a tile, from its row `mine` on; corner: statements that declare the first row and column
    of `tile`; finish: those that finish the sums.
    """
    steps = p.steps(t.depth)
    across = t.columns // 16
    ahead = steps if t.alternates else 0  # steps of the other warpgroup's tile
    skip = [f"slot += {ahead % t.stages}u, phase ^= {ahead // t.stages % 2}u;"]
    skip.append(f"if (slot >= {t.stages}u) slot -= {t.stages}u, phase ^= 1;")
    start, stride = ("blockIdx.x + turn * gridDim.x", "2 * gridDim.x") if t.alternates else ("blockIdx.x", "gridDim.x")
    return [
        f"group_registers<{ROLE_REGISTERS[t.consumers][1]}, true>();",
        f"const u32 turn = wave / {GROUP_WAVES}u - 1;",
        "u32 slot = 0, phase = 0;",
        *([f"if (turn) {{ {' '.join(skip)} }}", "u32 round = turn ^ 1;"] if t.alternates else []),
        f"for (u32 tile = {start}; tile < {tiles}u; tile += {stride}) {{",
        *(
            f"  {line}"
            for line in (*corner, *(["ring_wait(turns + turn, round);", "round ^= 1;"] if t.alternates else []))
        ),
        *(f"  {line}" for line in _multiply(p, t, steps, down, across, mine)),
        *([f"  {line}" for line in skip] if t.alternates else []),
        *(f"  {line}" for line in finish),
        "}",
    ]


def _multiply(p: Product, t: Tile, steps: int, down: int, across: int, mine: str) -> list[str]:
    """Returns the loop over a tile's steps; a stage is free when the multiplications that read it are complete."""
    product = f"group_mma<{storage_type(p.x.dtype)}, {storage_type(p.w.dtype)}, {t.columns}>"
    each = f"UNROLL for (int i = 0; i < {down}; ++i)"
    declare = [
        f"nfrag_c<{p.sum}> acc[{down}][{across}];",
        f"UNROLL for (int i = 0; i < {down}; ++i) UNROLL for (int j = 0; j < {across}; ++j) nfrag_zero(acc[i][j]);",
    ]
    at = [
        f"const u8* const as = room + slot * {t.stage_bytes}u + ({mine}) * {t.pitch}u;",
        f"const u8* const bs = room + slot * {t.stage_bytes}u + {t.rows * t.pitch}u;",
    ]
    release = "wave_sync(); if (lane_id() == 0) ring_arrive(free + {});"
    turn = f"if (++slot == {t.stages}u) slot = 0, phase ^= 1;"
    pass_on = ["wave_sync();", "if (lane_id() == 0) ring_arrive(turns + (turn ^ 1));"] if t.alternates else []
    if p.exact:
        return [
            *declare,
            "u32 last = 0;",
            f"for (u32 step = 0; step < {steps}u; ++step) {{",
            "  ring_wait(full + slot, phase);",
            "  group_shared();",
            *(f"  {line}" for line in at),
            "  group_begin();",
            f"  UNROLL for (u32 d = 0; d < {t.depth}u; d += 32u) {each}",
            f"    {product}(acc[i], as + i * {64 * t.pitch}, bs, d, true);",
            "  group_commit();",
            "  group_wait<1>();",
            f"  if (step) {{ {release.format('last')} }}",
            "  last = slot;",
            f"  {turn}",
            "}",
            *pass_on,
            "group_wait<0>();",
            f"{each} group_hold(acc[i], {across});",
            release.format("last"),
        ]
    lines = []
    for i in range(down):
        add = f"UNROLL for (int e = 0; e < FRAG_C; ++e) acc[{i}][j].x[e] += some[j].x[e];"
        lines += [
            "group_begin();",
            f"UNROLL for (u32 d = 0; d < {t.depth}u; d += 32u) {product}(some, as + {i * 64 * t.pitch}, bs, d, d > 0u);",
            "group_commit();",
            "group_wait<0>();",
            f"group_hold(some, {across});",
            f"UNROLL for (int j = 0; j < {across}; ++j) {add}",
        ]
    return [
        *declare,
        f"nfrag_c<{p.sum}> some[{across}];",
        f"UNROLL for (int j = 0; j < {across}; ++j) nfrag_zero(some[j]);",
        f"for (u32 step = 0; step < {steps}u; ++step) {{",
        "  ring_wait(full + slot, phase);",
        "  group_shared();",
        *([f"  if (step == {steps - 1}u) {{ {' '.join(pass_on)} }}"] if pass_on else []),
        *(f"  {line}" for line in at),
        *(f"  {line}" for line in lines),
        f"  {release.format('slot')}",
        f"  {turn}",
        "}",
    ]
