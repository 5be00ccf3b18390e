"""Parts shared by attention kernels: head offsets, logits, and copies of tiles to shared memory."""

from __future__ import annotations

import math
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.types.traced_int import divides

from .attention_pattern import Pattern
from .bodies import Access
from .geometry import aligned, decompose
from .pointwise import one_launch
from .source import NAME, KernelSource, storage_type, to_storage

__all__ = [
    "batch_setup", "copied_at_once", "copy_tile", "finish_kernel", "flops", "heads", "key_bound", "logit", "merged",
    "other_types", "out_setup", "result",
]  # fmt: skip

IN_FLIGHT: Final = 8  # elements that a thread loads before it stores the first, if vectors are not possible


def other_types(p: Pattern) -> No | None:
    """Returns why kernels do not take an attention's types; None for one float type of all operands, and of a bare result."""
    types = {p.tensor(a).dtype for a in (p.q, p.k, p.v)} | ({p.out.dtype} if p.after is None else set())
    if len(types) == 1 and types <= {dt.float16, dt.bfloat16, dt.float32}:
        return None
    return No(f"no attention kernel for {', '.join(sorted(map(str, types)))}")


def heads(p: Pattern) -> int:
    return math.prod(p.batch)


def flops(p: Pattern) -> int:
    return 2 * heads(p) * p.s * p.t * (p.d + p.e)


def batch_setup(p: Pattern, index: str) -> list[str]:
    setup, _ = decompose(index, p.batch, "h")
    t = p.word
    return [
        *setup,
        *p.lines,
        f"const {t}* const q = p{p.q.index} + ({p.base(p.q)});",
        f"const {t}* const k = p{p.k.index} + ({p.base(p.k)});",
        f"const {t}* const v = p{p.v.index} + ({p.base(p.v)});",
        *out_setup(p),
    ]


def out_setup(p: Pattern) -> list[str]:
    """Returns statements that set `o`, the offset of a head's results, and `channel`, its first channel in a row."""
    channel = [f"const u32 channel = ({p.out_base()}) % {p.out.lens[-1]}u;"] if p.rows else []
    return [f"{storage_type(p.out.dtype)}* const o = q0 + ({p.out_base()});", *channel]


def logit(p: Pattern, product: str, rows: int = 0, keys: int = 0, raw: bool = False) -> list[str]:
    """Returns statements that set `product` (an lvalue) to the logit; -inf for masked keys.

    rows, keys: tile sizes of queries and keys; if they divide the extents, bounds checks are omitted.  Results of queries beyond
    the last are not stored, so that only reads of memory along the queries need a check.  raw: leave out the scores' factor,
    `Pattern.scale`.
    """
    lines, code = ([], "s") if raw else p.logits()
    reads_rows = p.score is not None and any(a.strides[-2] for a in p.score.reads())
    edges = [f"col < {p.t}u"] * (not keys or not divides(keys, p.t))
    edges += [f"row < {p.s}u"] * (reads_rows and (not rows or not divides(rows, p.s)))
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


def key_bound(p: Pattern, first: str, queries: int) -> tuple[list[str], str]:
    """Returns code that computes an upper bound of the keys attended by `queries` queries from `first` on, and its expression.

    Keys beyond the bound are not read: in a cache they may be uninitialized.
    """
    most = "present" if p.present else f"{p.t}u"
    if not p.causal:
        return [], most
    return [
        f"const i64 seen = start + (i64){first} + {queries};",
        f"const u32 last = seen < 0 ? 0u : seen < (i64){most} ? (u32)seen : {most};",
    ], "last"


def result(p: Pattern, value: str, total: str, place: str, column: str) -> str:
    """Returns a statement that stores a result: `value`, a weighted sum, divided by `total`, then passed to the epilogue.

    column: index within the head.  A query without keys gives zero.  NaN scores make the total NaN, and so the result.
    """
    value = f"({total} {p.sees} ? {value} : 0.f)" if p.sees else value
    if p.after is None:
        return f"{place} = {to_storage(value, p.out.dtype)};"
    given = [value, f"channel + {column}" if p.rows else "0", place, *(f"p{n}" for n in p.rows)]
    return f"{NAME}_finished({', '.join(given)});"


def merged(parts: str, count: int, apart: int, d: int) -> list[str]:
    """Returns statements that merge the sums over separate keys: `value`, column `c` of the weighted sum, and `weight`.

    parts: expression of the address of the first part: its weighted sum of `d` elements, its maximum logit `all`, and its sum of
    weights; the next one is `apart` floats after it.
    """
    return [
        "float all = (float)-m::inf(), weight = 0.f, value = 0.f;",
        f"for (u32 i = 0; i < {count}u; ++i) all = m::max(all, {parts}[i * {apart}u + {d}u]);",
        "const float base = all == (float)-m::inf() ? 0.f : all;",
        f"for (u32 i = 0; i < {count}u; ++i) {{",
        f"  const float w = m::exp({parts}[i * {apart}u + {d}u] - base);",
        f"  weight += w * {parts}[i * {apart}u + {d + 1}u]; value += w * {parts}[i * {apart}u + c];",
        "}",
    ]


def copied_at_once(p: Pattern, access: Access, *columns: int) -> int:
    """Returns how many elements of a row are copied to shared memory at once: vectors of 16, 8 or 4 bytes; 0 for single elements.

    columns: extents that are whole numbers of vectors.
    """
    tensor = p.tensor(access)
    steps = [size // tensor.dtype.size for size in (16, 8, 4) if size > tensor.dtype.size]
    fitting = (
        n for n in steps if aligned(tensor, access.strides, access.offset, n) and not any(c % n for c in columns)
    )
    return next(fitting, 0)


def copy_tile(p: Pattern, access: Access, target: str, source: str, rows: int, real: int, first: str, limit: str,
               columns: int, ld: int, threads: int, thread: str = "threadIdx.x", place: str = "c") -> list[str]:  # fmt: skip
    """Returns statements that copy rows of an operand to shared memory, with zeros beyond its extents.

    thread: index of a thread among the `threads` that copy; place: where the 16 bytes from column `c` of row `r` are stored.
    """
    tensor, strides = p.tensor(access), access.strides
    t = storage_type(tensor.dtype)
    step = copied_at_once(p, access, real, columns)
    if step:
        head = [
            f"for (u32 x = {thread}; x < {rows * columns // step}u; x += {threads}u) {{",
            f"  const u32 r = x / {columns // step}u, c = x % {columns // step}u * {step}u;",
            f"  const bool in = {first} + r < {limit} && c < {real}u;",
        ]
        at = f"{source} + (u64)({first} + r) * {strides[-2]}u + c"
        if ld % step == 0 and step * tensor.dtype.size == 16:
            return [*head, f"  async_copy<16>(&{target}[r * {ld} + {place}], {at}, in);", "}"]
        return [
            *head,
            f"  vec<{t}, {step}> w;",
            f"  if (in) w = ldv<{t}, {step}>({at});",
            f"  else UNROLL for (int i = 0; i < {step}; ++i) w.v[i] = convert<{t}>(0.f);",
            f"  UNROLL for (int i = 0; i < {step}; ++i) {target}[r * {ld} + c + i] = w.v[i];",
            "}",
        ]
    across = strides[-1] != 1 and strides[-2] == 1  # keys are contiguous in memory
    pair = (f"x % {rows}u", f"x / {rows}u") if across else (f"x / {columns}u", f"x % {columns}u")
    count = rows * columns
    whole = count % (IN_FLIGHT * threads) == 0
    found = [f"const u32 x = x0 + i * {threads}u, r = {pair[0]}, c = {pair[1]};"]
    inside = f"{first} + r < {limit} && c < {real}u" + ("" if whole else f" && x < {count}u")
    element = f"{source}[(u64)({first} + r) * {strides[-2]}u + (u64)c * {strides[-1]}u]"
    return [
        f"for (u32 x0 = {thread}; x0 < {count}u; x0 += {IN_FLIGHT * threads}u) {{",
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


def finish_kernel(
    p: Pattern, lines: list[str], grid: tuple[int, int, int], threads: int, blocks: int = 0, shared: int = 0
) -> KernelSource | No:
    """Returns the complete kernel; grid: tiles of queries, heads, 1; shared: bytes of dynamic shared memory."""
    if grid[1] > 65535:  # exceeds the second grid dimension
        lines = [line.replace("blockIdx.y", "blockIdx.x").replace("@x", "blockIdx.y") for line in
                 (line.replace("blockIdx.x", "@x") for line in lines)]  # fmt: skip
        grid = (grid[1], grid[0], 1)
    return one_launch(
        "attention", lines, p.inputs, [p.out], grid, threads,
        before=p.finishing(), blocks=blocks, shared=shared, flops=flops(p),
    )  # fmt: skip
