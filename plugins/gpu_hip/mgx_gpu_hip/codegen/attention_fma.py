"""Attention of float32 in tiles of fused multiply-adds."""

from __future__ import annotations

from mgx_core import No
from mgx_core.types.traced_int import usual

from .attention_parts import batch_setup, copy_tile, finish_kernel, heads, key_bound, logit, result
from .attention_pattern import Pattern
from .geometry import ceil_div
from .pointwise import braced
from .source import DeviceTraits, KernelSource

__all__ = ["fma_attention"]


def fma_attention(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    """Generates a kernel for blocks of queries and keys: 256 threads as 16 x 16, each with a few rows and columns.

    Operands are read from shared memory in vectors of four if the head sizes allow.
    """
    queries, keys = (64, 32) if max(p.d, p.e) <= 64 else (32, 32)
    if max(p.d, p.e) > 128:
        queries, keys = 16, 16
    while queries > 16 and queries // 2 >= usual(p.s):
        queries //= 2
    rows, columns = queries // 16, keys // 16
    out = ceil_div(p.e, 16)
    ld, lv, lw = p.d + (1 if p.d % 4 else 4), p.e + 4 - p.e % 4, keys + 4
    room = keys * max(ld, lv)
    if (queries * ld + room + queries * lw) * 4 > min(traits.shared_bytes, 48 * 1024):
        return No(f"heads of {max(p.d, p.e)} floats exceed the shared memory of a block")
    arrived = ["async_commit();", "async_wait<0>();", "__syncthreads();"]
    lines = [
        f"const u32 first = blockIdx.x * {queries}u, tx = threadIdx.x % 16u, ty = threadIdx.x / 16u;",
        *batch_setup(p, "blockIdx.y"),
        f"SHARED(float, asked, [{queries * ld}]);",
        f"SHARED(float, keys, [{room}]);  // then the values",
        f"SHARED(float, weights, [{queries * lw}]);",
        *copy_tile(p, p.q, "asked", "q", queries, p.d, "first", f"{p.s}u", p.d, ld, 256),
        f"float acc[{rows}][{out}], top[{rows}], sum[{rows}];",
        f"UNROLL for (int r = 0; r < {rows}; ++r) {{",
        "  top[r] = (float)-m::inf(); sum[r] = 0.f;",
        f"  UNROLL for (int c = 0; c < {out}; ++c) acc[r][c] = 0.f;",
        "}",
    ]
    before, limit = key_bound(p, "first", queries)
    lines += before
    sums, column = _weighted(rows, keys, out, lv, lw, p.e)
    place = f"o[(u64)row * {p.o[-2]}u + (u64)({column}) * {p.o[-1]}u]"
    loop = [
        "__syncthreads();",
        *copy_tile(p, p.k, "keys", "k", keys, p.d, "key", limit, p.d, ld, 256),
        *arrived,
        f"float sf[{rows}][{columns}] = {{}};",
        *_scores(p.d, rows, columns, ld),
        "__syncthreads();",
        *copy_tile(p, p.v, "keys", "v", keys, p.e, "key", limit, p.e, lv, 256),
        *_softmax(p, queries, keys, rows, columns, out, lw),
        *arrived,
        *sums,
    ]
    lines += [
        *braced(f"for (u32 key = 0; key < {limit}; key += {keys}u)", loop),
        f"UNROLL for (int r = 0; r < {rows}; ++r) {{",
        f"  const u32 row = first + ty * {rows} + r;",
        f"  if (row < {p.s}u)",
        f"    UNROLL for (int c = 0; c < {out}; ++c)",
        f"      if ({column} < {p.e}u) {result(p, 'acc[r][c] / sum[r]', 'sum[r]', place, f'({column})')}",
        "}",
    ]
    return finish_kernel(p, lines, (ceil_div(p.s, queries), heads(p), 1), 256)


def _scores(d: int, rows: int, columns: int, ld: int) -> list[str]:
    """Returns statements that add the products of a thread's queries and keys to `sf`."""
    step, lane, own = (4, ".v[x]", "vec<float, 4>") if d % 4 == 0 else (1, "", "float")

    def fetch(place: str) -> str:
        return f"ldv<float, 4>({place})" if step == 4 else f"*({place})"

    return [
        f"for (u32 i = 0; i < {d}u; i += {step}) {{",
        f"  {own} b[{columns}];",
        f"  UNROLL for (int c = 0; c < {columns}; ++c) b[c] = {fetch(f'keys + (c * 16 + tx) * {ld} + i')};",
        f"  UNROLL for (int r = 0; r < {rows}; ++r) {{",
        f"    const {own} a = {fetch(f'asked + (ty * {rows} + r) * {ld} + i')};",
        f"    UNROLL for (int c = 0; c < {columns}; ++c)",
        f"      UNROLL for (int x = 0; x < {step}; ++x) sf[r][c] = m::fma(a{lane}, b[c]{lane}, sf[r][c]);",
        "  }",
        "}",
    ]


def _softmax(p: Pattern, queries: int, keys: int, rows: int, columns: int, out: int, lw: int) -> list[str]:
    """Returns statements that convert scores to `weights`, and rescale earlier sums (online softmax)."""
    return [
        f"UNROLL for (int r = 0; r < {rows}; ++r) {{",
        "  float now = top[r], part = 0.f;",
        f"  UNROLL for (int c = 0; c < {columns}; ++c) {{",
        f"    const u32 row = first + ty * {rows} + r, col = key + c * 16 + tx;",
        *(f"    {line}" for line in logit(p, "sf[r][c]", queries, keys)),
        "    now = m::max(now, sf[r][c]);",
        "  }",
        "  now = wave_reduce<Max, 16>(now);",
        "  const float base = now == (float)-m::inf() ? 0.f : now, less = m::exp(top[r] - base);",
        "  top[r] = now;",
        f"  UNROLL for (int c = 0; c < {columns}; ++c) {{",
        "    const float w = m::exp(sf[r][c] - base);",
        "    part += w;",
        f"    weights[(ty * {rows} + r) * {lw} + c * 16 + tx] = w;",
        "  }",
        "  sum[r] = sum[r] * less + wave_reduce<Sum, 16>(part);",
        f"  UNROLL for (int c = 0; c < {out}; ++c) acc[r][c] *= less;",
        "}",
    ]


def _weighted(rows: int, keys: int, out: int, lv: int, lw: int, e: int) -> tuple[list[str], str]:
    """Returns statements that add the weighted values to `acc`, and the column of its element `c`."""
    if e % 64 == 0:
        return [
            f"for (u32 i = 0; i < {keys}u; i += 4) {{",
            f"  vec<float, 4> a[{rows}];",
            f"  UNROLL for (int r = 0; r < {rows}; ++r) a[r] = ldv<float, 4>(weights + (ty * {rows} + r) * {lw} + i);",
            "  UNROLL for (int x = 0; x < 4; ++x)",
            f"    UNROLL for (int j = 0; j < {e // 64}; ++j) {{",
            f"      const vec<float, 4> b = ldv<float, 4>(keys + (i + x) * {lv} + j * 64 + tx * 4);",
            f"      UNROLL for (int r = 0; r < {rows}; ++r)",
            "        UNROLL for (int c = 0; c < 4; ++c) acc[r][j * 4 + c] = m::fma(a[r].v[x], b.v[c], acc[r][j * 4 + c]);",
            "    }",
            "}",
        ], "c / 4 * 64 + tx * 4 + c % 4"
    column = "c * 16 + tx"
    value = f"keys[i * {lv} + {column}]"
    guarded = value if out * 16 == e else f"{column} < {e}u ? {value} : 0.f"
    return [
        f"for (u32 i = 0; i < {keys}u; ++i) {{",
        f"  float b[{out}];",
        f"  UNROLL for (int c = 0; c < {out}; ++c) b[c] = {guarded};",
        f"  UNROLL for (int r = 0; r < {rows}; ++r) {{",
        f"    const float a = weights[(ty * {rows} + r) * {lw} + i];",
        f"    UNROLL for (int c = 0; c < {out}; ++c) acc[r][c] = m::fma(a, b[c], acc[r][c]);",
        "  }",
        "}",
    ], column
