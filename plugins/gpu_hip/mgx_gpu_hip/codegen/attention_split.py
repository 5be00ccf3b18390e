"""Attention of few queries and heads in tiles on matrix units: the waves of a block split its keys."""

from __future__ import annotations

from mgx_core import No
from mgx_core.types.traced_int import usual

from .attention_parts import batch_setup, copy_tile, finish_kernel, heads, key_bound, result
from .attention_pattern import Pattern
from .attention_tiles import accumulate_values, compute_scores, load_queries
from .extents import plain, varies
from .geometry import aligned, ceil_div
from .source import DeviceTraits, KernelSource, storage_type

__all__ = ["ROWS", "split_keys", "waves_for"]

ROWS = 16  # queries per block
KEYS = 64  # keys per tile


def _shared_bytes(p: Pattern, waves: int) -> int:
    """Returns bytes of shared memory: the queries, and per wave keys, values and a piece of the weights."""
    d, e = _wide(p.d), _wide(p.e)
    return 2 * (ROWS * (d + 8) + waves * (KEYS * (d + e + 16) + 256))


def _wide(size: int) -> int:
    return -(-size // 16) * 16


def waves_for(p: Pattern, traits: DeviceTraits) -> int:
    """Returns the number of waves to split a block's keys over; 1 if blocks of several waves of queries fill the device."""
    symbolic = varies(p.d) or varies(p.e)
    if symbolic or usual(ceil_div(p.s, 2 * ROWS) * heads(p)) >= traits.sm_count:
        return 1
    waves = int(plain(min(4, ceil_div(usual(p.t), KEYS))))
    while waves > 1 and _shared_bytes(p, waves) > traits.shared_most:
        waves -= 1
    return waves


def split_keys(p: Pattern, traits: DeviceTraits, waves: int) -> KernelSource | No:
    """Generates a kernel whose waves sum over separate keys, and merge their sums by their maximum scores at the end."""
    t, d, e = p.word, _wide(p.d), _wide(p.e)
    ldk, ldv = d + 8, e + 8
    threads, each = waves * traits.wave, KEYS * (ldk + ldv)
    before, limit = key_bound(p, "first", ROWS)
    copies = [
        *copy_tile(p, p.k, "these", "k", KEYS, p.d, "key", limit, d, ldk, traits.wave, "lane_id()"),
        "async_commit();",
        *copy_tile(p, p.v, "values", "v", KEYS, p.e, "key", limit, e, ldv, traits.wave, "lane_id()"),
        "async_commit();",
        "async_wait<1>();",
    ]
    lines = [
        f"const u32 first = blockIdx.x * {ROWS}u, wave = threadIdx.x / WAVE;",
        *batch_setup(p, "blockIdx.y"),
        *before,
        f"SHARED_DYNAMIC({t}, queries);",
        f"{t}* const these = queries + {ROWS * ldk} + wave * {each}u;",
        f"{t}* const values = these + {KEYS * ldk};",
        f"{t} (*const scratch)[256] = ({t} (*)[256])(queries + {ROWS * ldk + waves * each});",
        *copy_tile(p, p.q, "queries", "q", ROWS, p.d, "first", f"{p.s}u", d, ldk, threads),
        "{",
        f"  const u32 key = wave * {KEYS}u;",
        *(f"  {x}" for x in copies),
        "}",
        "__syncthreads();",
        *load_queries(p, "queries", ldk),
        f"for (u32 key = wave * {KEYS}u; key < {limit}; key += {waves * KEYS}u) {{",
        f"  if (key >= {waves * KEYS}u) {{  // the first were read with the queries",
        "    wave_sync();",
        *(f"    {x}" for x in copies),
        "    wave_sync();",
        "  }",
        *(f"  {x}" for x in compute_scores(p, KEYS, ldk, "first", ROWS)),
        "  async_wait<0>();",
        "  wave_sync();",
        *(f"  {x}" for x in accumulate_values(p, KEYS, ldv)),
        "}",
        *_merge(p, waves, each, ROWS * ldk, threads),
    ]
    return finish_kernel(p, lines, (ceil_div(p.s, ROWS), heads(p), 1), threads, 0, _shared_bytes(p, waves))


def _merge(p: Pattern, waves: int, each: int, start: int, threads: int) -> list[str]:
    """Returns statements that merge all waves' sums; each wave stages its own in the shared memory of its keys."""
    t, e = storage_type(p.out.dtype), _wide(p.e)
    width = 8 if p.e % 8 == 0 and aligned(p.out, p.o, 0, 8) else 1
    across = e // width
    place = f"o[(u64)row * {p.o[-2]}u + (u64)c * {p.o[-1]}u]"
    store = f"stv<{t}, {width}>(&{place}, out);" if width > 1 else f"{place} = out.v[0];"
    return [
        "async_wait<0>();  // a wave without keys has read none of what it copies",
        "wave_sync();",
        "float* const mine = (float*)these;",
        f"UNROLL for (int j = 0; j < {e // 16}; ++j)",
        f"  UNROLL for (int i = 0; i < FRAG_C; ++i) mine[frag_row(i) * {e} + j * 16 + frag_col(i)] = of[j].x[i];",
        "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) {",
        f"  mine[{ROWS * e} + frag_slot_row(r)] = top[r];",
        f"  mine[{ROWS * e + ROWS} + frag_slot_row(r)] = sum[r];",
        "}",
        "__syncthreads();",
        f"for (u32 x = threadIdx.x; x < {ROWS * across}u; x += {threads}u) {{",
        f"  const u32 r = x / {across}u, c = x % {across}u * {width}u, row = first + r;",
        f"  if (row >= {p.s}u || c >= {p.e}u) continue;",
        f"  const float* parts[{waves}];",
        f"  UNROLL for (int w = 0; w < {waves}; ++w) parts[w] = (const float*)(queries + {start} + w * {each});",
        "  float most = (float)-m::inf(), total = 0.f;",
        f"  UNROLL for (int w = 0; w < {waves}; ++w) most = m::max(most, parts[w][{ROWS * e} + r]);",
        "  if (most == (float)-m::inf()) most = 0.f;",
        f"  float less[{waves}];",
        f"  UNROLL for (int w = 0; w < {waves}; ++w) {{",
        f"    less[w] = fast::exp(parts[w][{ROWS * e} + r] - most);",
        f"    total += parts[w][{ROWS * e + ROWS} + r] * less[w];",
        "  }",
        "  const float share = 1.f / total;",
        f"  vec<{t}, {width}> out;",
        f"  UNROLL for (int k = 0; k < {width}; ++k) {{",
        "    float value = 0.f;",
        f"    UNROLL for (int w = 0; w < {waves}; ++w) value += parts[w][r * {e} + c + k] * less[w];",
        f"    {result(p, 'value * share', 'total', 'out.v[k]', '(c + k)')}",
        "  }",
        f"  {store}",
        "}",
    ]
