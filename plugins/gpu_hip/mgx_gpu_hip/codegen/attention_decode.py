"""Attention of few queries, split over the keys (flash decoding)."""

from __future__ import annotations

from typing import Final

from .attention_parts import batch_setup, flops, heads, key_bound, logit, out_setup, result
from .attention_pattern import Pattern
from .elements import pointers
from .geometry import aligned, ceil_div, decompose
from .pointwise import kernel, one_launch
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, finish, to_compute

__all__ = ["can_vectorize", "decode_attention"]

TOGETHER: Final = 4  # keys that a team loads before it uses the first


def can_vectorize(p: Pattern, traits: DeviceTraits) -> bool:
    """Returns True if parts of a wave can read keys and values as whole vectors."""
    step = 16 // p.dtype.size
    lanes = p.d // step if step else 0
    fits = all(aligned(p.tensor(a), a.strides, a.offset, step) for a in (p.q, p.k, p.v))
    return p.d == p.e and p.d % step == 0 and lanes & (lanes - 1) == 0 and lanes <= traits.wave and fits


def decode_attention(p: Pattern, traits: DeviceTraits) -> KernelSource:
    """A team of lanes reads a key and its value; a query's keys are split over blocks, whose results a second launch merges."""
    t, step = p.word, 16 // p.dtype.size
    lanes = p.d // step
    threads = 128 if traits.wave == 32 else 256
    teams = threads // lanes
    total = heads(p) * p.s
    splits = max(1, min(ceil_div(p.t, 4 * teams), ceil_div(2 * traits.sm_count, total)))
    share = ceil_div(p.t, splits)
    split = splits > 1
    bound, limit = key_bound(p, "row", 1)
    lines = [
        f"const u32 team = threadIdx.x / {lanes}u, lane = threadIdx.x % {lanes}u;  // {lanes} lanes read a key",
        f"const u32 row = blockIdx.y % {p.s}u, head = blockIdx.y / {p.s}u;",
        *batch_setup(p, "head"),
        *bound,
        f"const vec<{t}, {step}> qv = ldv<{t}, {step}>(q + (u64)row * {p.q.strides[-2]}u + lane * {step});",
        f"float top = (float)-m::inf(), sum = 0.f, acc[{step}] = {{}};",
        f"const u32 low = blockIdx.x * {share}u, high = low + {share}u < {limit} ? low + {share}u : {limit};",
        *_key_loop(p, t, step, lanes, teams),
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
    place = f"o[(u64)row * {p.o[-2]}u + (u64)c * {p.o[-1]}u]"
    store = result(p, "value / weight", "weight", place, "c")
    if not split:
        lines += [f"  {store}", "}"]
        grid = (1, total, 1)
        if total > 65535:
            lines = [line.replace("blockIdx.x", "0u").replace("blockIdx.y", "blockIdx.x") for line in lines]
            grid = (total, 1, 1)
        return one_launch("attention", lines, p.inputs, [p.out], grid, threads, before=p.finishing(), flops=flops(p))
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
        *out_setup(p),
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
        f"  {store}",
        "}",
    ]
    rows = pointers([x if n in p.rows else None for n, x in enumerate(p.inputs)], [p.out])
    text += p.finishing() + kernel(NAME, [*rows[0], "const float* parts"], join, 64)
    launches = [
        KernelLaunch(f"{NAME}_parts", (splits, total, 1), (threads, 1, 1), (*buffers, parts)),
        KernelLaunch(NAME, (total, 1, 1), (64, 1, 1), (*rows[1], parts)),
    ]
    return finish(
        "attention", text, launches, p.inputs, [p.out], scratch=[4 * total * splits * (p.d + 2)], flops=flops(p)
    )


def _key_loop(p: Pattern, t: str, step: int, lanes: int, teams: int) -> list[str]:
    """Returns the loop over a block's keys, which computes each team's maximum logit, sum of weights and weighted values."""
    product = f"{to_compute('qv.v[i]', p.dtype)} * {to_compute('kv[u].v[i]', p.dtype)}"
    return [
        f"for (u32 at = low; at < high; at += {teams * TOGETHER}u) {{",
        f"  vec<{t}, {step}> kv[{TOGETHER}], vv[{TOGETHER}];",
        f"  UNROLL for (u32 u = 0; u < {TOGETHER}; ++u) {{",
        f"    const u32 next = at + u * {teams}u + team, col = next < high ? next : high - 1u;",
        f"    kv[u] = ldv<{t}, {step}>(k + (u64)col * {p.k.strides[-2]}u + lane * {step});",
        f"    vv[u] = ldv<{t}, {step}>(v + (u64)col * {p.v.strides[-2]}u + lane * {step});",
        "  }",
        f"  float dots[{TOGETHER}], now = top;",
        f"  UNROLL for (u32 u = 0; u < {TOGETHER}; ++u) {{",
        f"    const u32 col = at + u * {teams}u + team;",
        "    float dot = 0.f;",
        f"    UNROLL for (int i = 0; i < {step}; ++i) dot += {product};",
        f"    dot = wave_reduce<Sum, {lanes}>(dot);",
        "    if (col < high) {",
        *(f"      {line}" for line in logit(p, "dot")),
        "    } else {",
        "      dot = (float)-m::inf();",
        "    }",
        "    dots[u] = dot;",
        "    now = m::max(now, dot);",
        "  }",
        "  const float base = now == (float)-m::inf() ? 0.f : now, less = m::exp(top - base);",
        "  top = now; sum *= less;",
        f"  UNROLL for (int i = 0; i < {step}; ++i) acc[i] *= less;",
        f"  UNROLL for (u32 u = 0; u < {TOGETHER}; ++u) {{",
        f"    if (at + u * {teams}u + team >= high) break;  // 0 times an infinite value is NaN",
        "    const float w = m::exp(dots[u] - base);",
        "    sum += w;",
        f"    UNROLL for (int i = 0; i < {step}; ++i) acc[i] += w * {to_compute('vv[u].v[i]', p.dtype)};",
        "  }",
        "}",
    ]
