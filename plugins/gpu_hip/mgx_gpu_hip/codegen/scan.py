"""Prefix sums and products along one axis.

Adjacent lines take a thread each; other long lines take a block each, or a wave if there are many.  If that leaves
multiprocessors idle, lines are split into parts: one launch computes the total of each part, the next one starts each part from
the totals before it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

from mgx_core.ops.axes import normalize
from mgx_core.ops.scan import PrefixScanSum
from mgx_core.types.traced_int import usual

from .elements import pointers
from .geometry import ceil_div, decompose, memory_order, offset_code, vector_width
from .pointwise import kernel, threads_of
from .primitives import FLOATS, UNSIGNED
from .source import (
    NAME,
    Buffer,
    DeviceTraits,
    KernelLaunch,
    KernelSource,
    Tensor,
    compute_type,
    finish,
    storage_type,
    to_compute,
    to_storage,
)

__all__ = ["prefix_scan"]

BLOCK: Final = 256
ITEMS: Final = 4  # adjacent elements that a thread of a block combines alone
MAX_WAVE: Final = 1024  # maximum length of lines for a wave each
MAX_SHORT: Final = 64  # maximum length of lines for a thread each if they are not adjacent
ADJACENT: Final = 32  # minimum number of adjacent lines for a thread each
MIN_PART: Final = {"block": 2 * BLOCK * ITEMS, "thread": 32}  # minimum elements of a part
MIN_SPLIT: Final = {"block": 16384, "thread": 256}  # minimum length of lines to split: more launches cost more
MAX_PARTS: Final = 1024  # maximum parts of a line


@dataclass(frozen=True)
class _Scan:
    """A scan of `rows` lines of n elements in `parts` parts of `share` elements.

    how, kind: the operation and its C type; items: adjacent elements that a thread of a block combines alone.
    """

    op: Any
    x: Tensor
    y: Tensor
    axis: int
    how: str
    kind: str
    rows: int
    parts: int
    share: int
    items: int

    @property
    def n(self) -> int:
        return self.x.lens[self.axis]

    def lines(self) -> list[str]:
        """Returns statements that locate the line `row` in x and y; adjacent ones are adjacent in the memory of x."""
        order = [a for a in memory_order(self.x.strides, self.x.lens) if a != self.axis]
        setup, names = decompose("row", [self.x.lens[a] for a in order], "c")
        bases = [offset_code(names, [t.strides[a] for a in order], 0, "u64") for t in (self.x, self.y)]
        return [
            *setup,
            f"const {storage_type(self.x.dtype)}* const x = p0 + ({bases[0]});",
            f"{storage_type(self.y.dtype)}* const y = q0 + ({bases[1]});",
        ]

    def span(self, part: str) -> list[str]:
        """Returns statements that compute the bounds of a part of the line."""
        end = f"low + {self.share}u < {self.n}u ? low + {self.share}u : {self.n}u"
        return [f"const u32 low = {part} * {self.share}u, high = {end};"] if self.parts > 1 else [
            f"const u32 low = 0, high = {self.n}u;"
        ]  # fmt: skip

    def value(self, j: str) -> str:
        """Returns the j-th element in scan order."""
        at = f"({self.n - 1}u - ({j}))" if self.op.reverse else f"({j})"
        return f"({self.kind}){to_compute(f'x[(u64){at} * {self.x.strides[self.axis]}u]', self.x.dtype)}"

    def result(self, code: str) -> str:
        return to_storage(f"({compute_type(self.y.dtype)})({code})", self.y.dtype)

    def target(self, j: str) -> str:
        at = f"({self.n - 1}u - ({j}))" if self.op.reverse else f"({j})"
        return f"y[(u64){at} * {self.y.strides[self.axis]}u]"


def prefix_scan(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    """Generates a kernel with one thread per line if lines are short or adjacent, otherwise one block or wave per line."""
    axis = normalize(op.axis, len(x.lens))
    n = x.lens[axis]
    rows = math.prod(m for a, m in enumerate(x.lens) if a != axis)
    if not rows or not n:
        return finish(op.name, "", [], [x], [y])
    kind = compute_type(x.dtype)
    kind = "double" if kind in FLOATS else UNSIGNED.get(kind, kind)
    how = "Sum" if isinstance(op, PrefixScanSum) else "Prod"
    about, lines = usual(n), usual(rows)
    block = about >= MAX_SHORT and (x.strides[axis] == 1 or lines < ADJACENT)
    form, busy = ("block", 2 * traits.sm_count) if block else ("thread", 256 * traits.sm_count)
    parts, share, items = 1, n, ITEMS
    if how == "Prod" and kind in FLOATS:
        items = 1  # products of long runs could overflow although a zero before them makes the result 0
    elif 2 * lines < busy and about >= MIN_SPLIT[form]:
        parts = min(ceil_div(about, MIN_PART[form]), ceil_div(2 * busy, lines), MAX_PARTS)
        unit = BLOCK * ITEMS if block else 1
        share = ceil_div(ceil_div(n, unit), parts) * unit
        parts = ceil_div(n, share)
    scan = _Scan(op, x, y, axis, how, kind, rows, parts, share, items)
    return _line_per_block(scan, traits) if block else _line_per_thread(scan, traits)


def _line_per_thread(s: _Scan, traits: DeviceTraits) -> KernelSource:
    """Returns kernels with one thread per line, or per part of it."""
    count = s.rows * s.parts
    threads = threads_of(count, traits)
    head = ["const u32 i = blockIdx.x * blockDim.x + threadIdx.x;", f"if (i >= {count}u) return;"]
    head.append(f"const u32 row = i % {s.rows}u, part = i / {s.rows}u;" if s.parts > 1 else "const u32 row = i;")
    head += [*s.lines(), *s.span("part")]
    take = f"acc = {s.how}::f(acc, {s.value('j')});"
    loop = "for (u32 j = low; j < high; ++j) "
    out = s.result("acc")
    step = (
        [f"  const {s.kind} own = {s.value('j')};", f"  {s.target('j')} = {out};", f"  acc = {s.how}::f(acc, own);"]
        if s.op.exclusive
        else [f"  {take}", f"  {s.target('j')} = {out};"]
    )
    start = f"totals[(u64)row * {s.parts}u + part]" if s.parts > 1 else f"{s.how}::id<{s.kind}>()"
    body = [*head, f"{s.kind} acc = {start};", loop + "{", *step, "}"]
    grid = (ceil_div(count, threads), 1, 1)
    total = [
        *head,
        f"{s.kind} acc = {s.how}::id<{s.kind}>();",
        loop + take,
        f"totals[(u64)row * {s.parts}u + part] = acc;",
    ]
    leads = [
        f"{s.kind}* const mine = totals + (u64)blockIdx.x * {s.parts}u;",
        f"const u32 low = 0, high = {s.parts}u;",
        f"{s.kind} carried = {s.how}::id<{s.kind}>();",
        *_loop(s, BLOCK, traits.wave, 1, ["own[0] = j < high ? mine[j] : id;"], ["if (j < high) mine[j] = before;"]),
    ]
    return _launched(s, [(total, grid, threads), (leads, (s.rows, 1, 1), BLOCK), (body, grid, threads)])


def _line_per_block(s: _Scan, traits: DeviceTraits) -> KernelSource:
    """Returns kernels with one block per line, or per part of it."""
    strides = [(t, [*(v for a, v in enumerate(t.strides) if a != s.axis), t.strides[s.axis]], 0) for t in (s.x, s.y)]
    items = s.items
    width = vector_width(s.n, strides, items)
    own_wave = s.parts == 1 and usual(s.n) <= MAX_WAVE and usual(s.rows) >= 2 * traits.sm_count
    each = BLOCK // traits.wave if own_wave else 1  # lines of a block
    head = (
        [f"const u32 row = blockIdx.x * {each}u + wave_id();", f"if (row >= {s.rows}u) return;"]
        if own_wave
        else ["const u32 row = blockIdx.x, part = blockIdx.y;"]
    )
    head += [*s.lines(), *s.span("part")]
    if width == items > 1:  # groups do not straddle lines
        first = f"{s.n - items}u - j" if s.op.reverse else "j"
        k = f"{items - 1} - k" if s.op.reverse else "k"
        load = [
            f"UNROLL for (int k = 0; k < {items}; ++k) own[k] = id;",
            "if (j < high) {",
            f"  const vec<{storage_type(s.x.dtype)}, {items}> a = {_moved('ldv', s.x, items)}(x + ({first}));",
            f"  UNROLL for (int k = 0; k < {items}; ++k) own[k] = ({s.kind}){to_compute(f'a.v[{k}]', s.x.dtype)};",
            "}",
        ]
        store = [
            f"vec<{storage_type(s.y.dtype)}, {items}> b;",
            f"UNROLL for (int k = 0; k < {items}; ++k) {{",
            *_item(s, f"b.v[{k}] = {{}};"),
            "}",
            f"if (j < high) {_moved('stv', s.y, items)}(y + ({first}), b);",
        ]
    else:
        load = [f"UNROLL for (int k = 0; k < {items}; ++k) own[k] = j + k < high ? {s.value('j + k')} : id;"]
        put = f"if (j + k < high) {s.target('j + k')} = {{}};"
        store = [f"UNROLL for (int k = 0; k < {items}; ++k) {{", *_item(s, put), "}"]
    start = [f"{s.kind} carried = {s.how}::id<{s.kind}>();"]
    share = f"SHARED({s.kind}, lds, [32]);"
    if s.parts > 1:
        start += [
            share,
            f"for (u32 i = threadIdx.x; i < part; i += {BLOCK}u) "
            f"carried = {s.how}::f(carried, totals[(u64)row * {s.parts}u + i]);",
            f"carried = block_reduce<{s.how}>(carried, lds);",
        ]
    total = [
        *head,
        f"const {s.kind} id = {s.how}::id<{s.kind}>();",
        f"{s.kind} acc = id;",
        f"for (u32 first = low; first < high; first += {BLOCK * items}u) {{",
        f"  const u32 j = first + threadIdx.x * {items}u;",
        f"  {s.kind} own[{items}];",
        *(f"  {line}" for line in load),
        f"  UNROLL for (int k = 0; k < {items}; ++k) acc = {s.how}::f(acc, own[k]);",
        "}",
        share,
        f"acc = block_reduce<{s.how}>(acc, lds);",
        f"if (threadIdx.x == 0) totals[(u64)row * {s.parts}u + part] = acc;",
    ]
    body = [*head, *start, *_loop(s, traits.wave if own_wave else BLOCK, traits.wave, items, load, store)]
    grid = (ceil_div(s.rows, each), s.parts, 1)
    return _launched(s, [(total, grid, BLOCK), (body, grid, BLOCK)])


def _moved(function: str, x: Tensor, items: int) -> str:
    size = items * x.dtype.size
    many = {"ldv": "load_many", "stv": "store_many"}
    return f"{function if size <= 16 else many[function]}<{storage_type(x.dtype)}, {items}>"


def _item(s: _Scan, put: str) -> list[str]:
    """Returns statements that store the result of a thread's k-th element: the scan before it, including itself or not."""
    value = f"k ? {s.how}::f(before, own[k ? k - 1 : 0]) : before" if s.op.exclusive else f"{s.how}::f(before, own[k])"
    return [f"  const {s.kind} all = {value};", "  " + put.format(s.result("all"))]


def _loop(s: _Scan, threads: int, wave: int, items: int, load: list[str], store: list[str]) -> list[str]:
    """Returns the pass of a block, or of a wave, from `low` to `high`.

    threads: those that take part; `load` fills own[] with `items` elements, `store` reads the prefix `before`; `carried` is the
    prefix before `low`.
    """
    waves = threads // wave
    if waves > 1:
        place = "threadIdx.x"
        shared = [f"SHARED({s.kind}, sums, [{waves}]);"]
        prefix = [
            "__syncthreads();",
            "if (lane_id() == WAVE - 1) sums[wave_id()] = upto;",
            "__syncthreads();",
            f"{s.kind} before = carried;",
            f"for (u32 w = 0; w < wave_id(); ++w) before = {s.how}::f(before, sums[w]);",
        ]
        carry = f"for (u32 w = 0; w < {waves}u; ++w) carried = {s.how}::f(carried, sums[w]);"
    else:
        place, shared, prefix = "lane_id()", [], [f"{s.kind} before = carried;"]
        carry = f"carried = {s.how}::f(carried, wave_get(upto, WAVE - 1));"
    return [
        f"const {s.kind} id = {s.how}::id<{s.kind}>();",
        *shared,
        f"for (u32 first = low; first < high; first += {threads * items}u) {{",
        f"  const u32 j = first + {place} * {items}u;",
        f"  {s.kind} own[{items}];",
        *(f"  {line}" for line in load),
        f"  UNROLL for (int k = 1; k < {items}; ++k) own[k] = {s.how}::f(own[k - 1], own[k]);",
        f"  const {s.kind} upto = wave_scan<{s.how}>(own[{items - 1}]), left = wave_up(upto, 1);",
        *(f"  {line}" for line in prefix),
        f"  if (lane_id()) before = {s.how}::f(before, left);",
        *(f"  {line}" for line in store),
        f"  {carry}",
        "}",
    ]


def _launched(s: _Scan, kernels: list[tuple[list[str], tuple[int, int, int], int]]) -> KernelSource:
    """Returns the kernels as launches; only the last one if lines are not split."""
    names, buffers = pointers([s.x], [s.y])
    scratch: list[int] = []
    if s.parts > 1:
        names, buffers = [*names, f"{s.kind}* totals"], [*buffers, Buffer("scratch", 0)]
        scratch = [8 * s.rows * s.parts]
    else:
        kernels = kernels[-1:]
    text, launches = "", []
    for at, (lines, grid, threads) in enumerate(kernels):
        name = NAME if at == len(kernels) - 1 else f"{NAME}_{at}"
        text += kernel(name, names, lines, threads)
        launches.append(KernelLaunch(name, grid, (threads, 1, 1), tuple(buffers)))
    return finish(s.op.name, text, launches, [s.x], [s.y], scratch=scratch)
