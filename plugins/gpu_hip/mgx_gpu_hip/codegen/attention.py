"""Attention kernels: tiles on matrix units, tiles of fused multiply-adds for floats, single queries split over keys."""

from __future__ import annotations

import math
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt

from .attention_pattern import Pattern
from .bodies import Access
from .elements import pointers
from .geometry import aligned, ceil_div, decompose
from .pointwise import kernel
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, finish, read, stored, written

__all__ = ["attention_kernel"]

IN_FLIGHT: Final = 8  # elements that a thread reads before it stores the first, where they cannot be read as vectors


def attention_kernel(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    types = {p.tensor(a).dtype for a in (p.q, p.k, p.v)} | {p.out.dtype}
    if len(types) != 1 or not types <= {dt.float16, dt.bfloat16, dt.float32}:
        return No(f"no attention kernel for {', '.join(sorted(map(str, types)))}")
    if p.out.elements == 0:
        return finish("attention", "", [], p.inputs, [p.out])
    if p.t == 0:
        return No("attention over 0 keys")
    if p.s <= 4 and _streams(p, traits):
        return _decode(p, traits)
    if p.d > 256 or p.e > 256:
        return No(f"attention heads of {p.d} and {p.e} elements are too large")
    if types == {dt.float32}:
        return _floats(p, traits)
    return _tiles(p, traits)


def _heads(p: Pattern) -> int:
    return math.prod(p.batch)


def _flops(p: Pattern) -> int:
    return 2 * _heads(p) * p.s * p.t * (p.d + p.e)


def _batch_setup(p: Pattern, index: str) -> list[str]:
    setup, _ = decompose(index, p.batch, "h")
    t = stored(p.out.dtype)
    return [
        *setup,
        *p.lines,
        f"const {t}* const q = p{p.q.index} + ({p.base(p.q)});",
        f"const {t}* const k = p{p.k.index} + ({p.base(p.k)});",
        f"const {t}* const v = p{p.v.index} + ({p.base(p.v)});",
        f"{t}* const o = q0 + ({p.out_base()});",
    ]


def _logit(p: Pattern, product: str, rows: int = 0, keys: int = 0) -> list[str]:
    """Statements that set `product` (code of an lvalue) to the logit; -inf for keys that are masked.

    rows, keys: sizes of the tiles that cover queries and keys; where they divide the extents, no bounds are checked.
    """
    lines, code = p.logits()
    edges = [f"col < {p.t}u"] * (not keys or p.t % keys != 0) + [f"row < {p.s}u"] * (not rows or p.s % rows != 0)
    inside = " && ".join(x for x in (*edges, p.keep) if x)
    if not inside:
        return [f"const float s = {product};", *lines, f"{product} = {code};"]
    return [
        "float z = (float)-m::inf();",
        f"if ({inside}) {{",
        f"  const float s = {product};",
        *(f"  {line}" for line in lines),
        f"  z = {code};",
        "}",
        f"{product} = z;",
    ]


def _copy_tile(p: Pattern, access: Access, target: str, source: str, rows: int, real: int, first: str,
               limit: int, columns: int, ld: int, threads: int) -> list[str]:  # fmt: skip
    """Rows of an operand to shared memory; zeros beyond its extents."""
    tensor, strides = p.tensor(access), access.strides
    t = stored(tensor.dtype)
    step = 16 // tensor.dtype.size
    if aligned(tensor, strides, access.offset, step) and real % step == 0 and columns % step == 0:
        head = [
            f"for (u32 x = threadIdx.x; x < {rows * columns // step}u; x += {threads}u) {{",
            f"  const u32 r = x / {columns // step}u, c = x % {columns // step}u * {step}u;",
            f"  const bool in = {first} + r < {limit}u && c < {real}u;",
        ]
        place = f"{source} + (u64)({first} + r) * {strides[-2]}u + c"
        if ld % step == 0:
            return [*head, f"  async_copy16(&{target}[r * {ld} + c], {place}, in);", "}"]
        return [
            *head,
            f"  vec<{t}, {step}> w;",
            f"  if (in) w = ldv<{t}, {step}>({place});",
            f"  else UNROLL for (int i = 0; i < {step}; ++i) w.v[i] = convert<{t}>(0.f);",
            f"  UNROLL for (int i = 0; i < {step}; ++i) {target}[r * {ld} + c + i] = w.v[i];",
            "}",
        ]
    across = strides[-1] != 1 and strides[-2] == 1  # keys lie along memory
    pair = (f"x % {rows}u", f"x / {rows}u") if across else (f"x / {columns}u", f"x % {columns}u")
    count = rows * columns
    whole = count % (IN_FLIGHT * threads) == 0
    found = [f"const u32 x = x0 + i * {threads}u, r = {pair[0]}, c = {pair[1]};"]
    inside = f"{first} + r < {limit}u && c < {real}u" + ("" if whole else f" && x < {count}u")
    element = f"{source}[(u64)({first} + r) * {strides[-2]}u + (u64)c * {strides[-1]}u]"
    return [
        f"for (u32 x0 = threadIdx.x; x0 < {count}u; x0 += {IN_FLIGHT * threads}u) {{",
        f"  {t} w[{IN_FLIGHT}];",
        f"  UNROLL for (u32 i = 0; i < {IN_FLIGHT}; ++i) {{",
        *(f"    {line}" for line in found),
        f"    w[i] = {inside} ? {element} : convert<{t}>(0.f);",
        "  }",
        f"  UNROLL for (u32 i = 0; i < {IN_FLIGHT}; ++i) {{",
        *(f"    {line}" for line in found),
        f"    {'' if whole else f'if (x < {count}u) '}{target}[r * {ld} + c] = w[i];",
        "  }",
        "}",
    ]


# matrix units ------------------------------------------------------------------------------------------------------------


def _tiles(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    t = stored(p.out.dtype)
    d, e = ceil_div(p.d, 16) * 16, ceil_div(p.e, 16) * 16
    keys = 64 if max(d, e) <= 128 else 32
    waves = 4
    while waves > 1 and ceil_div(p.s, 16 * waves) * _heads(p) < traits.sm_count:
        waves //= 2
    queries = 16 * waves
    threads = waves * traits.wave
    ldk, ldv = d + 8, e + 8
    buffers = 2 if (2 * keys * ldk + keys * ldv + waves * 256) * 2 <= min(traits.shared_bytes, 48 * 1024) else 1
    room = max(keys, queries) * ldk  # the queries are staged in the keys' shared memory
    nk, nd, ne = keys // 16, d // 16, e // 16

    def load_keys(first: str, target: str) -> list[str]:
        return _copy_tile(p, p.k, target, "k", keys, p.d, first, p.t, d, ldk, threads)

    lines = [
        f"const u32 first = blockIdx.x * {queries}u, wave = threadIdx.x / WAVE;  // 16 queries a wave",
        *_batch_setup(p, "blockIdx.y"),
        f"SHARED({t}, keys, [{buffers}][{room}]);",
        f"SHARED({t}, values, [{keys * ldv}]);",
        f"SHARED({t}, scratch, [{waves}][256]);",
        *_copy_tile(p, p.q, "keys[0]", "q", queries, p.d, "first", p.s, d, ldk, threads),
        "async_commit();",
        "async_wait<0>();",
        "__syncthreads();",
        f"frag_a<{t}> qf[{nd}];",
        f"UNROLL for (int i = 0; i < {nd}; ++i) frag_load_a_shared(qf[i], keys[0] + wave * 16 * {ldk} + i * 16, {ldk});",
        f"frag_c of[{ne}];",
        f"UNROLL for (int i = 0; i < {ne}; ++i) frag_fill(of[i], 0.f);",
        "float top[FRAG_ROWS], sum[FRAG_ROWS];",
        "UNROLL for (int i = 0; i < FRAG_ROWS; ++i) { top[i] = (float)-m::inf(); sum[i] = 0.f; }",
    ]
    limit = f"{p.t}u"
    if p.causal_offset is not None:
        lines += [
            f"const i64 seen = (i64)first + {queries + p.causal_offset};  // keys that any of the queries attends",
            f"const u32 last = seen < 0 ? 0u : seen < {p.t} ? (u32)seen : {p.t}u;",
        ]
        limit = "last"
    values = _copy_tile(p, p.v, "values", "v", keys, p.e, "key", p.t, e, ldv, threads)
    if buffers == 2:  # the next keys are prefetched while these are used
        lines += ["__syncthreads();", *load_keys("0u", "keys[0]"), "async_commit();"]
        fetch = [
            *values,
            "async_commit();",
            f"if (key + {keys}u < {limit}) {{",
            *(f"  {x}" for x in load_keys(f"key + {keys}u", f"keys[(key / {keys}u + 1) % 2]")),
            "}",
            "async_commit();",
            "async_wait<2>();",
        ]
        now, arrived = f"keys[key / {keys}u % 2]", "async_wait<1>();"
    else:
        fetch = [*load_keys("key", "keys[0]"), "async_commit();", *values, "async_commit();", "async_wait<1>();"]
        now, arrived = "keys[0]", "async_wait<0>();"
    loop = [
        "__syncthreads();  // what was read before may be overwritten",
        *fetch,
        "__syncthreads();",
        f"const {t}* const these = {now};",
        f"frag_c sf[{nk}];",
        f"UNROLL for (int n = 0; n < {nk}; ++n) {{",
        "  frag_fill(sf[n], 0.f);",
        f"  UNROLL for (int i = 0; i < {nd}; ++i) {{",
        f"    frag_b<{t}> kf;",
        f"    frag_load_bt_shared(kf, these + n * 16 * {ldk} + i * 16, {ldk});",
        "    frag_mma(sf[n], qf[i], kf);",
        "  }",
        "  UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        "    const u32 row = first + wave * 16 + frag_row(i), col = key + n * 16 + frag_col(i);",
        *(f"    {line}" for line in _logit(p, "sf[n].x[i]", queries, keys)),
        "  }",
        "}",
        "float now[FRAG_ROWS], part[FRAG_ROWS];",
        "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) { now[r] = top[r]; part[r] = 0.f; }",
        f"UNROLL for (int n = 0; n < {nk}; ++n)",
        "  UNROLL for (int i = 0; i < FRAG_C; ++i) now[frag_slot(i)] = m::max(now[frag_slot(i)], sf[n].x[i]);",
        "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) {",
        "  now[r] = frag_row_reduce<Max>(now[r]);",
        "  const float base = now[r] == (float)-m::inf() ? 0.f : now[r];",
        "  const float less = fast::exp(top[r] - base);  // what earlier sums are worth now",
        "  top[r] = now[r]; now[r] = base; sum[r] = sum[r] * less;",
        f"  UNROLL for (int j = 0; j < {ne}; ++j)",
        "    UNROLL for (int i = 0; i < FRAG_C; ++i) if (frag_slot(i) == (u32)r) of[j].x[i] *= less;",
        "}",
        arrived,
        "__syncthreads();",
        f"UNROLL for (int n = 0; n < {nk}; ++n) {{",
        "  UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        "    sf[n].x[i] = fast::exp(sf[n].x[i] - now[frag_slot(i)]);",
        "    part[frag_slot(i)] += sf[n].x[i];",
        "  }",
        f"  frag_a<{t}> pf;",
        "  frag_c_to_a(pf, sf[n], scratch[wave]);",
        f"  UNROLL for (int j = 0; j < {ne}; ++j) {{",
        f"    frag_b<{t}> vf;",
        f"    frag_load_b_shared(vf, values + n * 16 * {ldv} + j * 16, {ldv});",
        "    frag_mma(of[j], pf, vf);",
        "  }",
        "}",
        "UNROLL for (int r = 0; r < FRAG_ROWS; ++r) sum[r] += frag_row_reduce<Sum>(part[r]);",
    ]
    empty = "0.f" if p.zero else "m::nan()"
    row, column = p.o[-2], p.o[-1]
    result = f"(total > 0.f ? of[j].x[i] * share : {empty})"
    lines += [
        f"for (u32 key = 0; key < {limit}; key += {keys}u) {{",
        *(f"  {line}" for line in loop),
        "}",
        "UNROLL for (int i = 0; i < FRAG_C; ++i) {",
        "  const u32 row = first + wave * 16 + frag_row(i);",
        "  const float total = sum[frag_slot(i)], share = 1.f / total;",
        f"  if (row < {p.s}u)",
        f"    UNROLL for (int j = 0; j < {ne}; ++j) {{",
        "      const u32 c = j * 16 + frag_col(i);",
        f"      if (c < {p.e}u) o[(u64)row * {row}u + (u64)c * {column}u] = {written(result, p.out.dtype)};",
        "    }",
        "}",
    ]
    blocks = 4 if waves == 4 and max(d, e) <= 64 else 0
    return _finished(p, lines, (ceil_div(p.s, queries), _heads(p), 1), threads, blocks)


def _finished(
    p: Pattern, lines: list[str], grid: tuple[int, int, int], threads: int, blocks: int = 0
) -> KernelSource | No:
    if grid[1] > 65535:  # more heads than the second grid axis allows
        lines = [line.replace("blockIdx.y", "blockIdx.x").replace("@x", "blockIdx.y") for line in
                 (line.replace("blockIdx.x", "@x") for line in lines)]  # fmt: skip
        grid = (grid[1], grid[0], 1)
    parameters, buffers = pointers(p.inputs, [p.out])
    text = kernel(NAME, parameters, lines, threads, blocks)
    launch = KernelLaunch(NAME, grid, (threads, 1, 1), tuple(buffers))
    return finish("attention", text, [launch], p.inputs, [p.out], flops=_flops(p))


# fused multiply-adds --------------------------------------------------------------------------------------------------------


def _floats(p: Pattern, traits: DeviceTraits) -> KernelSource | No:
    """Blocks of queries against blocks of keys, 256 threads as 16 x 16, each with a few rows and columns.

    Operands come from shared memory four neighbours at a time where head sizes allow.
    """
    queries, keys = (64, 32) if max(p.d, p.e) <= 64 else (32, 32)
    if max(p.d, p.e) > 128:
        queries, keys = 16, 16
    rows, columns = queries // 16, keys // 16
    by_four, wide = p.d % 4 == 0, p.e % 64 == 0
    out = ceil_div(p.e, 16)
    ld, lv, lw = (p.d + 4 if by_four else p.d + 1), p.e + 4 - p.e % 4, keys + 4
    room = keys * max(ld, lv)
    if (queries * ld + room + queries * lw) * 4 > min(traits.shared_bytes, 48 * 1024):
        return No(f"attention over heads of {max(p.d, p.e)} floats needs more shared memory than there is")
    arrived = ["async_commit();", "async_wait<0>();", "__syncthreads();"]
    lines = [
        f"const u32 first = blockIdx.x * {queries}u, tx = threadIdx.x % 16u, ty = threadIdx.x / 16u;",
        *_batch_setup(p, "blockIdx.y"),
        f"SHARED(float, asked, [{queries * ld}]);",
        f"SHARED(float, keys, [{room}]);  // then the values",
        f"SHARED(float, weights, [{queries * lw}]);",
        *_copy_tile(p, p.q, "asked", "q", queries, p.d, "first", p.s, p.d, ld, 256),
        f"float acc[{rows}][{out}], top[{rows}], sum[{rows}];",
        f"UNROLL for (int r = 0; r < {rows}; ++r) {{",
        "  top[r] = (float)-m::inf(); sum[r] = 0.f;",
        f"  UNROLL for (int c = 0; c < {out}; ++c) acc[r][c] = 0.f;",
        "}",
    ]
    limit = f"{p.t}u"
    if p.causal_offset is not None:
        lines += [
            f"const i64 seen = (i64)first + {queries + p.causal_offset};  // keys that any of the queries attends",
            f"const u32 last = seen < 0 ? 0u : seen < {p.t} ? (u32)seen : {p.t}u;",
        ]
        limit = "last"
    step = 4 if by_four else 1
    lane = ".v[x]" if by_four else ""
    own = "vec<float, 4>" if by_four else "float"

    def fetch(place: str) -> str:
        return f"ldv<float, 4>({place})" if by_four else f"*({place})"

    products = [
        f"for (u32 i = 0; i < {p.d}u; i += {step}) {{",
        f"  {own} b[{columns}];",
        f"  UNROLL for (int c = 0; c < {columns}; ++c) b[c] = {fetch(f'keys + (c * 16 + tx) * {ld} + i')};",
        f"  UNROLL for (int r = 0; r < {rows}; ++r) {{",
        f"    const {own} a = {fetch(f'asked + (ty * {rows} + r) * {ld} + i')};",
        f"    UNROLL for (int c = 0; c < {columns}; ++c)",
        f"      UNROLL for (int x = 0; x < {step}; ++x) sf[r][c] = m::fma(a{lane}, b[c]{lane}, sf[r][c]);",
        "  }",
        "}",
    ]
    if wide:
        sums = [
            f"for (u32 i = 0; i < {keys}u; i += 4) {{",
            f"  vec<float, 4> a[{rows}];",
            f"  UNROLL for (int r = 0; r < {rows}; ++r) a[r] = ldv<float, 4>(weights + (ty * {rows} + r) * {lw} + i);",
            "  UNROLL for (int x = 0; x < 4; ++x)",
            f"    UNROLL for (int j = 0; j < {p.e // 64}; ++j) {{",
            f"      const vec<float, 4> b = ldv<float, 4>(keys + (i + x) * {lv} + j * 64 + tx * 4);",
            f"      UNROLL for (int r = 0; r < {rows}; ++r)",
            "        UNROLL for (int c = 0; c < 4; ++c) acc[r][j * 4 + c] = m::fma(a[r].v[x], b.v[c], acc[r][j * 4 + c]);",
            "    }",
            "}",
        ]
        column = "c / 4 * 64 + tx * 4 + c % 4"
    else:
        column = "c * 16 + tx"
        guarded = f"keys[i * {lv} + {column}]"
        guarded = guarded if out * 16 == p.e else f"{column} < {p.e}u ? {guarded} : 0.f"
        sums = [
            f"for (u32 i = 0; i < {keys}u; ++i) {{",
            f"  float b[{out}];",
            f"  UNROLL for (int c = 0; c < {out}; ++c) b[c] = {guarded};",
            f"  UNROLL for (int r = 0; r < {rows}; ++r) {{",
            f"    const float a = weights[(ty * {rows} + r) * {lw} + i];",
            f"    UNROLL for (int c = 0; c < {out}; ++c) acc[r][c] = m::fma(a, b[c], acc[r][c]);",
            "  }",
            "}",
        ]
    loop = [
        "__syncthreads();",
        *_copy_tile(p, p.k, "keys", "k", keys, p.d, "key", p.t, p.d, ld, 256),
        *arrived,
        f"float sf[{rows}][{columns}] = {{}};",
        *products,
        "__syncthreads();",
        *_copy_tile(p, p.v, "keys", "v", keys, p.e, "key", p.t, p.e, lv, 256),
        f"UNROLL for (int r = 0; r < {rows}; ++r) {{",
        "  float now = top[r], part = 0.f;",
        f"  UNROLL for (int c = 0; c < {columns}; ++c) {{",
        f"    const u32 row = first + ty * {rows} + r, col = key + c * 16 + tx;",
        *(f"    {line}" for line in _logit(p, "sf[r][c]", queries, keys)),
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
        *arrived,
        *sums,
    ]
    empty = "0.f" if p.zero else "m::nan()"
    lines += [
        f"for (u32 key = 0; key < {limit}; key += {keys}u) {{",
        *(f"  {line}" for line in loop),
        "}",
        f"UNROLL for (int r = 0; r < {rows}; ++r) {{",
        f"  const u32 row = first + ty * {rows} + r;",
        f"  if (row < {p.s}u)",
        f"    UNROLL for (int c = 0; c < {out}; ++c)",
        f"      if ({column} < {p.e}u) o[(u64)row * {p.o[-2]}u + (u64)({column}) * {p.o[-1]}u] = "
        f"sum[r] > 0.f ? acc[r][c] / sum[r] : {empty};",
        "}",
    ]
    return _finished(p, lines, (ceil_div(p.s, queries), _heads(p), 1), 256)


# few queries ---------------------------------------------------------------------------------------------------------------


def _streams(p: Pattern, traits: DeviceTraits) -> bool:
    """True if keys and values can be read in whole vectors by a part of a wave."""
    step = 16 // p.out.dtype.size
    lanes = p.d // step if step else 0
    fits = all(aligned(p.tensor(a), a.strides, a.offset, step) for a in (p.q, p.k, p.v))
    return p.d == p.e and p.d % step == 0 and lanes & (lanes - 1) == 0 and lanes <= traits.wave and fits


def _decode(p: Pattern, traits: DeviceTraits) -> KernelSource:
    """A few lanes read a key and its value; the keys of a query are split over blocks, a second launch combines their results."""
    t, step = stored(p.out.dtype), 16 // p.out.dtype.size
    lanes = p.d // step
    threads = 128 if traits.wave == 32 else 256
    teams = threads // lanes
    total = _heads(p) * p.s
    splits = max(1, min(ceil_div(p.t, 4 * teams), ceil_div(2 * traits.sm_count, total)))
    share = ceil_div(p.t, splits)
    split = splits > 1
    lines = [
        f"const u32 team = threadIdx.x / {lanes}u, lane = threadIdx.x % {lanes}u;  // {lanes} lanes read a key",
        f"const u32 row = blockIdx.y % {p.s}u, head = blockIdx.y / {p.s}u;",
        *_batch_setup(p, "head"),
        f"const vec<{t}, {step}> qv = ldv<{t}, {step}>(q + (u64)row * {p.q.strides[-2]}u + lane * {step});",
        f"float top = (float)-m::inf(), sum = 0.f, acc[{step}] = {{}};",
        f"const u32 low = blockIdx.x * {share}u, high = low + {share}u < {p.t}u ? low + {share}u : {p.t}u;",
        f"for (u32 at = low; at < high; at += {teams}u) {{",
        "  const u32 col = at + team;",
        "  const bool in = col < high;",
        "  float dot = 0.f;",
        f"  vec<{t}, {step}> vv;",
        "  if (in) {",
        f"    const vec<{t}, {step}> kv = ldv<{t}, {step}>(k + (u64)col * {p.k.strides[-2]}u + lane * {step});",
        f"    vv = ldv<{t}, {step}>(v + (u64)col * {p.v.strides[-2]}u + lane * {step});",
        f"    UNROLL for (int i = 0; i < {step}; ++i) dot += {read('qv.v[i]', p.out.dtype)} * {read('kv.v[i]', p.out.dtype)};",
        "  }",
        f"  dot = wave_reduce<Sum, {lanes}>(dot);",
        "  if (in) {",
        *(f"    {line}" for line in _logit(p, "dot")),
        "    const float now = m::max(top, dot), base = now == (float)-m::inf() ? 0.f : now;",
        "    const float less = m::exp(top - base), w = m::exp(dot - base);",
        "    top = now; sum = sum * less + w;",
        f"    UNROLL for (int i = 0; i < {step}; ++i) acc[i] = acc[i] * less + w * {read('vv.v[i]', p.out.dtype)};",
        "  }",
        "}",
        f"SHARED(float, tops, [{teams}]);",
        f"SHARED(float, sums, [{teams}]);",
        f"SHARED(float, accs, [{teams}][{p.d}]);",
        "if (lane == 0) { tops[team] = top; sums[team] = sum; }",
        f"UNROLL for (int i = 0; i < {step}; ++i) accs[team][lane * {step} + i] = acc[i];",
        "__syncthreads();",
        f"for (u32 c = threadIdx.x; c < {p.d}u; c += {threads}u) {{",
        "  float all = (float)-m::inf(), weight = 0.f, value = 0.f;",
        f"  for (int i = 0; i < {teams}; ++i) all = m::max(all, tops[i]);",
        "  const float base = all == (float)-m::inf() ? 0.f : all;",
        f"  for (int i = 0; i < {teams}; ++i) {{",
        "    const float w = m::exp(tops[i] - base);",
        "    weight += w * sums[i]; value += w * accs[i][c];",
        "  }",
    ]
    empty = "0.f" if p.zero else "m::nan()"
    place = f"o[(u64)row * {p.o[-2]}u + (u64)c * {p.o[-1]}u]"
    result = written(f"(weight > 0.f ? value / weight : {empty})", p.out.dtype)
    if not split:
        lines += [f"  {place} = {result};", "}"]
        parameters, buffers = pointers(p.inputs, [p.out])
        launch = KernelLaunch(NAME, (1, total, 1), (threads, 1, 1), tuple(buffers))
        if total > 65535:
            lines = [line.replace("blockIdx.x", "0u").replace("blockIdx.y", "blockIdx.x") for line in lines]
            launch = KernelLaunch(NAME, (total, 1, 1), (threads, 1, 1), tuple(buffers))
        return finish(
            "attention", kernel(NAME, parameters, lines, threads), [launch], p.inputs, [p.out], flops=_flops(p)
        )
    lines += [
        f"  const u32 slot = blockIdx.y * {splits}u + blockIdx.x;",
        f"  parts[(u64)slot * {p.d + 2}u + c] = value;",
        f"  if (c == 0) {{ parts[(u64)slot * {p.d + 2}u + {p.d}u] = all; parts[(u64)slot * {p.d + 2}u + {p.d + 1}u] = weight; }}",
        "}",
    ]
    parameters, buffers = pointers(p.inputs, [p.out])
    parts = Buffer("scratch", 0)
    text = kernel(f"{NAME}_parts", [*parameters, "float* parts"], lines, threads)
    join = [
        f"const u32 row = blockIdx.x % {p.s}u, head = blockIdx.x / {p.s}u;",
        *decompose("head", p.batch, "h")[0],
        f"{t}* const o = q0 + ({p.out_base()});",
        f"const float* const mine = parts + (u64)blockIdx.x * {splits * (p.d + 2)}u;",
        "float all = (float)-m::inf();",
        f"for (u32 i = 0; i < {splits}u; ++i) all = m::max(all, mine[i * {p.d + 2}u + {p.d}u]);",
        "const float base = all == (float)-m::inf() ? 0.f : all;",
        f"for (u32 c = threadIdx.x; c < {p.d}u; c += 64u) {{",
        "  float weight = 0.f, value = 0.f;",
        f"  for (u32 i = 0; i < {splits}u; ++i) {{",
        f"    const float w = m::exp(mine[i * {p.d + 2}u + {p.d}u] - base);",
        f"    weight += w * mine[i * {p.d + 2}u + {p.d + 1}u]; value += w * mine[i * {p.d + 2}u + c];",
        "  }",
        f"  {place} = {result};",
        "}",
    ]
    text += kernel(NAME, [f"{t}* RESTRICT q0", "const float* parts"], join, 64)
    launches = [
        KernelLaunch(f"{NAME}_parts", (splits, total, 1), (threads, 1, 1), (*buffers, parts)),
        KernelLaunch(NAME, (total, 1, 1), (64, 1, 1), (Buffer("output", 0), parts)),
    ]
    return finish(
        "attention", text, launches, p.inputs, [p.out], scratch=[4 * total * splits * (p.d + 2)], flops=_flops(p)
    )
