"""Attention in tiles on matrix units (flash attention)."""

from __future__ import annotations

import math
from typing import Final

from mgx_core import No
from mgx_core.types.traced_int import usual

from .attention_parts import batch_setup, copy_tile, finish_kernel, heads, key_bound, logit, result
from .attention_pattern import Pattern
from .extents import plain
from .geometry import aligned, ceil_div
from .pointwise import braced
from .primitives import constant
from .source import DeviceTraits, KernelSource, storage_type

__all__ = [
    "SUM_OF_WEIGHTS", "accumulate_values", "compute_scores", "load_queries", "piece_logits", "piece_weights", "query_fragments",
    "rescale_sums", "store_results", "tiled_attention", "zero_sums",
]  # fmt: skip

# a statement that adds up the weights of a tile
SUM_OF_WEIGHTS: Final = "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) sum[r] += frag_row_reduce<Sum>(part[r]);"


def tiled_attention(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    t = p.word
    d, e = ceil_div(p.d, 16) * 16, ceil_div(p.e, 16) * 16
    keys = 64 if max(d, e) <= 128 else 32
    waves = 4
    while waves > 1 and usual(ceil_div(p.s, 16 * waves) * heads(p)) < traits.sm_count:
        waves //= 2
    ldk, ldv = d + 8, e + 8

    def taken(buffers: int) -> int:
        """Returns bytes of shared memory; the queries are staged in the buffer of the keys."""
        return 2 * (buffers * max(keys, 16 * waves) * ldk + keys * ldv + waves * 256)

    while waves > 1 and taken(1) > traits.shared_most:
        waves //= 2
    queries = 16 * waves
    threads = waves * traits.wave
    fits = (2 * keys * ldk + keys * ldv + waves * 256) * 2 <= min(traits.shared_bytes, 48 * 1024)
    buffers = 2 if fits and taken(2) <= traits.shared_most else 1
    room = max(keys, queries) * ldk
    # with a separate buffer, queries are loaded together with the first keys and values; results then reuse it
    own = waves > 1 and buffers == 2 and d >= e and 4 * (taken(2) + 2 * queries * ldk) <= traits.shared_most
    apart = plain(queries * ldk) if own else 0
    total = taken(buffers) + 2 * apart
    asked = 0 if total <= traits.shared_bytes else total
    before, limit = key_bound(p, "first", queries)

    def load_keys(first: str, target: str) -> list[str]:
        return copy_tile(p, p.k, target, "k", keys, p.d, first, limit, d, ldk, threads)

    def load_values(first: str) -> list[str]:
        return copy_tile(p, p.v, "values", "v", keys, p.e, first, limit, e, ldv, threads)

    lines = [
        f"const u32 first = blockIdx.x * {queries}u, wave = threadIdx.x / WAVE;  // 16 queries a wave",
        *batch_setup(p, "blockIdx.y"),
        *before,
        *_memory(t, buffers, plain(room), plain(keys * ldv), waves, apart, dynamic=asked > 0),
        *copy_tile(p, p.q, "queries", "q", queries, p.d, "first", f"{p.s}u", d, ldk, threads),
    ]
    if buffers == 2:  # double buffering: prefetches the next keys
        fetch = [
            *load_values("key"),
            "async_commit();",
            *braced(f"if (key + {keys}u < {limit})", load_keys(f"key + {keys}u", f"keys[(key / {keys}u + 1) % 2]")),
            "async_commit();",
        ]
        now, arrived, wait = f"keys[key / {keys}u % 2]", "async_wait<1>();", "async_wait<2>();"
    else:
        fetch = [*load_keys("key", "keys[0]"), "async_commit();", *load_values("key"), "async_commit();"]
        now, arrived, wait = "keys[0]", "async_wait<0>();", "async_wait<1>();"
    again = ["__syncthreads();  // what was read before may be overwritten", *fetch]
    if own:
        lines += [
            *load_keys("0u", "keys[0]"),
            "async_commit();",
            "{",
            "  const u32 key = 0;",
            *(f"  {x}" for x in fetch),
            "}",
        ]
        again = braced("if (key)", again)
    else:
        lines += ["async_commit();"]
    lines += [
        wait if own else "async_wait<0>();",
        "__syncthreads();",
        *load_queries(p, f"queries + wave * 16 * {ldk}", ldk),
    ]
    if buffers == 2 and not own:
        lines += ["__syncthreads();", *load_keys("0u", "keys[0]"), "async_commit();"]
    loop = [
        *again,
        wait,
        "__syncthreads();",
        f"const {t}* const these = {now};",
        *compute_scores(p, keys, ldk, "first + wave * 16", queries),
        arrived,
        "__syncthreads();",
        *accumulate_values(p, keys, ldv),
    ]
    lines += [
        *braced(f"for (u32 key = 0; key < {limit}; key += {keys}u)", loop),
        *store_results(p, ldk if own else 0),
    ]
    blocks = 4 if waves == 4 and max(d, e) <= 64 else 0
    return finish_kernel(p, lines, (ceil_div(p.s, queries), heads(p), 1), threads, blocks, asked)


def load_queries(p: Pattern, queries: str, ld: int) -> list[str]:
    """Returns statements that load a wave's queries to registers and initialize its sums.

    queries: their address in shared memory; ld: elements between queries.
    """
    return [*query_fragments(p, queries, ld), *zero_sums(p)]


def query_fragments(p: Pattern, queries: str, ld: int) -> list[str]:
    """Returns statements that load a wave's queries to registers; arguments: as for `load_queries`."""
    nd = ceil_div(p.d, 16)
    return [
        f"frag_a<{p.word}> qf[{nd}];",
        f"UNROLL for (int i = 0; i < {nd}; ++i) frag_load_a_shared(qf[i], {queries} + i * 16, {ld});",
    ]


def zero_sums(p: Pattern) -> list[str]:
    """Returns statements that initialize a wave's sums and their highest logits."""
    ne = ceil_div(p.e, 16)
    return [
        f"frag_c of[{ne}];",
        f"UNROLL for (int i = 0; i < {ne}; ++i) frag_fill(of[i], 0.f);",
        "float top[FRAG_ROWS], sum[FRAG_ROWS];",
        "UNROLL for (int i = 0; i < FRAG_ROWS; ++i) { top[i] = (float)-m::inf(); sum[i] = 0.f; }",
    ]


def compute_scores(p: Pattern, keys: int, ld: int, first: str, queries: int) -> list[str]:
    """Returns statements that compute the scores of a tile of keys (`these`), and the factors that rescale earlier sums.

    first: the query of the wave's first row; queries: per block.
    """
    t, nk, nd = p.word, keys // 16, ceil_div(p.d, 16)
    return [
        f"frag_c sf[{nk}];",
        f"UNROLL for (int n = 0; n < {nk}; ++n) {{",
        "  frag_fill(sf[n], 0.f);",
        f"  UNROLL for (int i = 0; i < {nd}; ++i) {{",
        f"    frag_b<{t}> kf;",
        f"    frag_load_bt_shared(kf, these + n * 16 * {ld} + i * 16, {ld});",
        "    frag_mma(sf[n], qf[i], kf);",
        "  }",
        *(f"  {line}" for line in piece_logits(p, first, queries, keys)),
        "}",
        *rescale_sums(p, nk),
    ]


def piece_logits(p: Pattern, first: str, queries: int, keys: int, raw: bool = False) -> list[str]:
    """Returns statements that replace the products of the tile's piece `n` of 16 keys by logits; see `logit`."""
    return [
        "UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        f"  const u32 row = {first} + frag_row(i), col = key + n * 16 + frag_col(i);",
        *(f"  {line}" for line in logit(p, "sf[n].x[i]", queries, keys, raw)),
        "}",
    ]


def rescale_sums(p: Pattern, pieces: int, scale: float = 1.0) -> list[str]:
    """Returns statements that rescale earlier sums by the highest logits including those of this tile.

    scale: a positive factor of the logits.
    """
    nk, ne, unit = pieces, ceil_div(p.e, 16), _unit(scale)
    return [
        "float now[FRAG_ROWS], part[FRAG_ROWS];",
        "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) { now[r] = top[r]; part[r] = 0.f; }",
        f"UNROLL for (int n = 0; n < {nk}; ++n)",
        "  UNROLL for (int i = 0; i < FRAG_C; ++i) now[frag_slot(i)] = m::max(now[frag_slot(i)], sf[n].x[i]);",
        "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) {",
        "  now[r] = frag_row_reduce<Max>(now[r]);",
        "  const float base = now[r] == (float)-m::inf() ? 0.f : now[r];",
        f"  const float less = fast::exp2((top[r] - base) * {unit});  // what earlier sums are worth now",
        f"  top[r] = now[r]; now[r] = base * -{unit}; sum[r] = sum[r] * less;",
        "  if (base < -1e38f) {  // only keys to which a mask added the lowest bfloat16: its power of 2 overflows",
        "    now[r] = 0.f;",
        f"    UNROLL for (int n = 0; n < {nk}; ++n)",
        "      UNROLL for (int i = 0; i < FRAG_C; ++i) if (frag_slot(i) == (u32)r) sf[n].x[i] -= base;",
        "  }",
        f"  UNROLL for (int j = 0; j < {ne}; ++j)",
        "    UNROLL for (int i = 0; i < FRAG_C; ++i) if (frag_slot(i) == (u32)r) of[j].x[i] *= less;",
        "}",
    ]


def piece_weights(scale: float = 1.0) -> list[str]:
    """Returns statements that replace the logits of the tile's piece `n` by weights; scale: as for `rescale_sums`."""
    return [
        "UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        f"  sf[n].x[i] = fast::exp2(sf[n].x[i] * {_unit(scale)} + now[frag_slot(i)]);",
        "  part[frag_slot(i)] += sf[n].x[i];",
        "}",
    ]


def _unit(scale: float) -> str:
    """Returns the factor that turns logits with this factor into powers of 2."""
    return constant(scale / math.log(2), "float")


def accumulate_values(p: Pattern, keys: int, ld: int) -> list[str]:
    """Returns statements that convert a tile's scores to weights and accumulate the weighted `values`."""
    t, nk, ne = p.word, keys // 16, ceil_div(p.e, 16)
    return [
        f"UNROLL for (int n = 0; n < {nk}; ++n) {{",
        *(f"  {line}" for line in piece_weights()),
        f"  frag_a<{t}> pf;",
        "  frag_c_to_a(pf, sf[n], scratch[wave]);",
        f"  UNROLL for (int j = 0; j < {ne}; ++j) {{",
        f"    frag_b<{t}> vf;",
        f"    frag_load_b_shared(vf, values + n * 16 * {ld} + j * 16, {ld});",
        "    frag_mma(of[j], pf, vf);",
        "  }",
        "}",
        SUM_OF_WEIGHTS,
    ]


def store_results(p: Pattern, ld: int) -> list[str]:
    """Returns statements that normalize and store each wave's sums.

    ld: elements between queries in memory of their own, through which results are stored as vectors if possible; 0: none.
    """
    pieces = ceil_div(p.e, 16)
    return _store_vectors(p, ld, pieces) if ld and p.e % 8 == 0 and aligned(p.out, p.o, 0, 8) else _store(p, pieces)


def _store(p: Pattern, pieces: int) -> list[str]:
    """Returns statements that normalize and store each sum."""
    place = f"o[(u64)row * {p.o[-2]}u + (u64)c * {p.o[-1]}u]"
    return [
        "UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        "  const u32 row = first + wave * 16 + frag_row(i);",
        "  const float total = sum[frag_slot(i)], share = 1.f / total;",
        f"  if (row < {p.s}u)",
        f"    UNROLL for (int j = 0; j < {pieces}; ++j) {{",
        "      const u32 c = j * 16 + frag_col(i);",
        f"      if (c < {p.e}u) {result(p, 'of[j].x[i] * share', 'total', place, 'c')}",
        "    }",
        "}",
    ]


def _store_vectors(p: Pattern, ld: int, pieces: int) -> list[str]:
    """Returns statements that do so through the shared memory of a wave's own queries, 16 bytes per thread."""
    t, across = storage_type(p.out.dtype), p.e // 8
    place = f"own[frag_row(i) * {ld} + j * 16 + frag_col(i)]"
    result_of = result(p, "of[j].x[i] * share", "total", place, "j * 16 + frag_col(i)")
    return [
        f"{t}* const own = ({t}*)(queries + wave * 16 * {ld});",
        "UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        "  const float total = sum[frag_slot(i)], share = 1.f / total;",
        f"  UNROLL for (int j = 0; j < {pieces}; ++j) {result_of}",
        "}",
        "wave_sync();",
        f"UNROLL for (u32 x = lane_id(); x < {16 * across}u; x += WAVE) {{",
        f"  const u32 r = x / {across}u, c = x % {across}u * 8u, row = first + wave * 16 + r;",
        f"  if (row < {p.s}u) stv<{t}, 8>(o + (u64)row * {p.o[-2]}u + c, ldv<{t}, 8>(own + r * {ld} + c));",
        "}",
    ]


def _memory(t: str, buffers: int, room: int, values: int, waves: int, apart: int, dynamic: bool) -> list[str]:
    """Returns the declarations of shared memory.

    apart: elements of a separate buffer of queries, 0 if they share the keys'; dynamic: all of it is dynamic shared memory, which
    may be larger than static.
    """
    if not dynamic:
        return [
            f"SHARED({t}, keys, [{buffers}][{room}]);",
            f"SHARED({t}, values, [{values}]);",
            f"SHARED({t}, scratch, [{waves}][256]);",
            f"SHARED({t}, queries, [{apart}]);" if apart else f"{t}* const queries = keys[0];",
        ]
    return [
        f"SHARED_DYNAMIC({t}, shared);",
        f"{t} (*const keys)[{room}] = ({t} (*)[{room}])shared;",
        f"{t}* const values = shared + {buffers * room};",
        f"{t} (*const scratch)[256] = ({t} (*)[256])(values + {values});",
        f"{t}* const queries = {f'values + {values + waves * 256}' if apart else 'keys[0]'};",
    ]
