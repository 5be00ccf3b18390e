"""Attention of few queries, split over the keys (flash decoding)."""

from __future__ import annotations

from typing import Final

from mgx_core.types.dtype import DType
from mgx_core.types.traced_int import usual

from .attention_parts import batch_setup, flops, heads, key_bound, logit, merged, out_setup, result
from .attention_pattern import Pattern
from .elements import pointers
from .geometry import aligned, ceil_div, decompose, power_of_two
from .pointwise import kernel, one_launch
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, finish, to_compute

__all__ = [
    "CLUSTER", "TOGETHER", "can_vectorize", "cluster_merge", "decode_attention", "lanes_per_row", "merging_launch",
    "part_stores",
]  # fmt: skip

TOGETHER: Final = 4  # keys that a team loads before it uses the first
CLUSTER: Final = 8  # blocks of a cluster, the most that every device with clusters runs


def can_vectorize(p: Pattern, traits: DeviceTraits) -> bool:
    """Returns True if parts of a wave can read keys and values as whole vectors."""
    fits = all(aligned(p.tensor(a), a.strides, a.offset, 16 // p.dtype.size) for a in (p.q, p.k, p.v))
    return p.d == p.e and 0 < lanes_per_row(p.d, p.dtype) <= traits.wave and fits


def lanes_per_row(d: int, of: DType) -> int:
    """Returns how many lanes, a power of two, read a row of `d` elements as whole vectors; 0 for other rows."""
    lanes, rest = divmod(d * of.size, 16)
    return 0 if rest or power_of_two(lanes) != lanes else lanes


def decode_attention(p: Pattern, traits: DeviceTraits) -> KernelSource:
    """A team of lanes reads a key and its value; a query's keys are split over blocks, whose results are merged.

    They are merged in the same launch if the blocks form a cluster, otherwise in a second one.
    """
    t, step = p.word, 16 // p.dtype.size
    lanes = p.d // step
    threads = 128 if traits.wave == 32 else 256
    teams = threads // lanes
    total = heads(p) * p.s
    splits = max(1, min(ceil_div(usual(p.t, 8), 4 * teams), ceil_div(2 * traits.sm_count, usual(total))))
    cluster = traits.clusters and CLUSTER <= splits <= 2 * CLUSTER
    splits = CLUSTER if cluster else splits
    share = ceil_div(p.t, splits)
    bound, limit = key_bound(p, "row", 1)
    lines = [
        *(["cluster_arrive();"] if cluster else []),
        f"const u32 team = threadIdx.x / {lanes}u, lane = threadIdx.x % {lanes}u;  // {lanes} lanes read a key",
        f"const u32 row = blockIdx.y % {p.s}u, head = blockIdx.y / {p.s}u;",
        *batch_setup(p, "head"),
        *bound,
        f"const vec<{t}, {step}> qv = ldv<{t}, {step}>(q + (u64)row * {p.q.strides[-2]}u + lane * {step});",
        f"float top = (float)-m::inf(), sum = 0.f, acc[{step}] = {{}};",
        f"const u32 low = blockIdx.x * {share}u, high = low + {share}u < {limit} ? low + {share}u : {limit};",
        *_key_loop(p, t, step, lanes, teams),
        f"SHARED(float, parts_of_teams, [{teams}][{p.d + 2}]);",
        f"UNROLL for (int i = 0; i < {step}; ++i) parts_of_teams[team][lane * {step} + i] = acc[i];",
        f"if (lane == 0) {{ parts_of_teams[team][{p.d}] = top; parts_of_teams[team][{p.d + 1}] = sum; }}",
        "__syncthreads();",
    ]
    merging = merged("parts_of_teams[0]", teams, p.d + 2, p.d)
    store = result(p, "value / weight", "weight", f"o[(u64)row * {p.o[-2]}u + (u64)c * {p.o[-1]}u]", "c")
    each = f"for (u32 c = threadIdx.x; c < {p.d}u; c += {threads}u) {{"
    if splits == 1:
        lines += [each, *(f"  {line}" for line in merging), f"  {store}", "}"]
        grid = (1, total, 1)
        if total > 65535:
            lines = [line.replace("blockIdx.x", "0u").replace("blockIdx.y", "blockIdx.x") for line in lines]
            grid = (total, 1, 1)
        return one_launch("attention", lines, p.inputs, [p.out], grid, threads, before=p.finishing(), flops=flops(p))
    if cluster:
        lines += [
            *cluster_merge(p, 1, threads, merging),
            f"if (blockIdx.x == 0) {each}",
            *(f"  {line}" for line in merged("parts", splits, p.d + 2, p.d)),
            f"  {store}",
            "}",
        ]
        return one_launch(
            "attention", lines, p.inputs, [p.out], (splits, total, 1), threads,
            before=p.finishing(), cluster=splits, flops=flops(p),
        )  # fmt: skip
    lines += [
        f"float* const mine = parts + (u64)(blockIdx.y * {splits}u + blockIdx.x) * {p.d + 2}u;",
        each,
        *(f"  {line}" for line in [*merging, *part_stores("mine[{}] = {};", p.d)]),
        "}",
    ]
    parameters, buffers = pointers(p.inputs, [p.out])
    text = kernel(f"{NAME}_parts", [*parameters, "float* parts"], lines, threads)
    merging_text, last, space = merging_launch(p, splits)
    launches = [
        KernelLaunch(f"{NAME}_parts", (splits, total, 1), (threads, 1, 1), (*buffers, Buffer("scratch", 0))),
        last,
    ]
    return finish("attention", text + merging_text, launches, p.inputs, [p.out], scratch=[space], flops=flops(p))


def part_stores(store: str, d: int) -> list[str]:
    """Returns statements that store column `c` of a part as `merged` reads it; store: a format of its index and a value."""
    numbers = f"{store.format(f'{d}u', 'all')} {store.format(f'{d + 1}u', 'weight')}"
    return [store.format("c", "value"), f"if (c == 0) {{ {numbers} }}"]


def cluster_merge(p: Pattern, rows: int, threads: int, merging: list[str]) -> list[str]:
    """Returns statements after which the first block of a cluster has the parts of all its blocks: `parts`, in rows of a block.

    merging: statements that compute a block's part of row `r`.  All threads execute these statements, and before them
    ``cluster_arrive()``, so that all blocks run when the first of them stores its part.
    """
    d = p.d
    return [
        f"SHARED(float, parts, [{CLUSTER * rows * (d + 2)}]);",
        "cluster_wait();",
        f"for (u32 e = threadIdx.x; e < {rows * d}u; e += {threads}u) {{",
        f"  const u32 r = e / {d}u, c = e % {d}u;",
        *(f"  {line}" for line in merging),
        f"  float* const mine = parts + (blockIdx.x * {rows}u + r) * {d + 2}u;",
        *(f"  {line}" for line in part_stores("cluster_store(mine + {}, 0u, {});", d)),
        "}",
        "cluster_arrive();",
        "cluster_wait();",
    ]


def merging_launch(p: Pattern, splits: int) -> tuple[str, KernelLaunch, int]:
    """Returns a kernel that merges the `splits` parts of each query in scratch buffer 0, its launch, and the buffer's bytes.

    Parts are in the order of the queries, row by row within a head.
    """
    total = heads(p) * p.s
    lines = [
        f"const u32 row = blockIdx.x % {p.s}u, head = blockIdx.x / {p.s}u;",
        *decompose("head", p.batch, "h")[0],
        *out_setup(p),
        f"const float* const mine = parts + (u64)blockIdx.x * {splits * (p.d + 2)}u;",
        f"for (u32 c = threadIdx.x; c < {p.d}u; c += 64u) {{",
        *(f"  {line}" for line in merged("mine", splits, p.d + 2, p.d)),
        f"  {result(p, 'value / weight', 'weight', f'o[(u64)row * {p.o[-2]}u + (u64)c * {p.o[-1]}u]', 'c')}",
        "}",
    ]
    parameters, buffers = pointers([x if n in p.rows else None for n, x in enumerate(p.inputs)], [p.out])
    text = p.finishing() + kernel(NAME, [*parameters, "const float* parts"], lines, 64)
    launch = KernelLaunch(NAME, (total, 1, 1), (64, 1, 1), (*buffers, Buffer("scratch", 0)))
    return text, launch, 4 * total * splits * (p.d + 2)


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
