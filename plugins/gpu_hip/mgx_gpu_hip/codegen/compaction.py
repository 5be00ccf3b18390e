"""Ops with data-dependent extents (stream compaction): count per block, scan the counts, then store in order."""

from __future__ import annotations

from typing import Any, Final

from mgx_core.ops.axes import normalize

from .elements import as_unsigned, offset_of, pointers
from .geometry import ceil_div, decompose, offset_code
from .pointwise import braced, kernel, threads_of
from .source import NAME, Buffer, DeviceTraits, KernelLaunch, KernelSource, Tensor, finish, storage_type, to_compute
from .topk import exchanges

__all__ = ["compress", "nonmaxsuppression", "nonzero"]

BLOCK = 256
TILE: Final = 64  # boxes compared at once, one bit of a word each
SORTED: Final = 2048  # boxes that are sorted in shared memory


def _count_and_scan(
    condition: list[str], total: int, parameter: str, given: Buffer, traits: DeviceTraits
) -> tuple[str, list[KernelLaunch]]:
    """Returns two kernels: selected elements per block, and the scan of these (the total in `count`).

    parameter, given: operands of the condition.  Positions are in the first scratch buffer, the total in the second output.
    """
    blocks = ceil_div(total, BLOCK)
    count = [
        f"const u32 i = blockIdx.x * {BLOCK}u + threadIdx.x;",
        f"SHARED(u32, sums, [{BLOCK // traits.wave}]);",
        "bool hit = false;",
        *braced(f"if (i < {total}u)", condition),
        "const u32 mine = bit_count(wave_ballot(hit));",
        "if (lane_id() == 0) sums[wave_id()] = mine;",
        "__syncthreads();",
        "if (threadIdx.x == 0) {",
        "  u32 all = 0;",
        f"  for (int w = 0; w < {BLOCK // traits.wave}; ++w) all += sums[w];",
        "  starts[blockIdx.x] = all;",
        "}",
    ]
    scan = [
        f"SHARED(u32, sums, [{BLOCK // traits.wave}]);",
        "u32 carried = 0;",
        f"for (u32 first = 0; first < {blocks}u; first += {BLOCK}u) {{",
        "  const u32 i = first + threadIdx.x;",
        f"  const u32 own = i < {blocks}u ? starts[i] : 0u;",
        "  const u32 upto = wave_scan<Sum>(own);",
        "  __syncthreads();",
        "  if (lane_id() == WAVE - 1) sums[wave_id()] = upto;",
        "  __syncthreads();",
        "  u32 lead = carried;",
        "  for (u32 w = 0; w < wave_id(); ++w) lead += sums[w];",
        f"  if (i < {blocks}u) starts[i] = lead + upto - own;",
        f"  for (u32 w = 0; w < {BLOCK // traits.wave}u; ++w) carried += sums[w];",
        "}",
        "if (threadIdx.x == 0) *count = (i64)carried;",
    ]
    text = kernel(f"{NAME}_count", [parameter, "u32* starts"], count, BLOCK)
    text += kernel(f"{NAME}_sum", ["u32* starts", "i64* count"], scan, BLOCK)
    starts = Buffer("scratch", 0)
    return text, [
        KernelLaunch(f"{NAME}_count", (blocks, 1, 1), (BLOCK, 1, 1), (given, starts)),
        KernelLaunch(f"{NAME}_sum", (1, 1, 1), (BLOCK, 1, 1), (starts, Buffer("output", 1))),
    ]


def _store_selected(condition: list[str], total: int, traits: DeviceTraits, write: list[str]) -> list[str]:
    """Returns statements that store each selected element at its position `at`."""
    return [
        f"const u32 i = blockIdx.x * {BLOCK}u + threadIdx.x;",
        f"SHARED(u32, sums, [{BLOCK // traits.wave}]);",
        "bool hit = false;",
        *braced(f"if (i < {total}u)", condition),
        "const u64 hits = wave_ballot(hit);",
        "if (lane_id() == 0) sums[wave_id()] = bit_count(hits);",
        "__syncthreads();",
        "u32 at = starts[blockIdx.x] + bit_count(hits & ((1ull << lane_id()) - 1));",
        "for (u32 w = 0; w < wave_id(); ++w) at += sums[w];",
        *braced("if (hit)", write),
    ]


def nonzero(op: Any, x: Tensor, y: Tensor, count: Tensor, traits: DeviceTraits) -> KernelSource:
    """y int64 [rank, up to the number of elements of x]; count int64 [1]: the number of columns written."""
    total = x.elements
    lens = x.lens or (1,)
    strides = x.strides or (0,)
    setup, names = decompose("i", lens, "c")
    at = offset_code(names, strides, 0, "u64")
    condition = [*setup, f"hit = {to_compute(f'p0[{at}]', x.dtype)} != 0;"]
    write = [*setup, *(f"q0[{a * y.strides[0]}ull + (u64)at * {y.strides[1]}u] = {c};" for a, c in enumerate(names))]
    blocks, parameter, given = ceil_div(total, BLOCK), f"const {storage_type(x.dtype)}* RESTRICT p0", Buffer("input", 0)
    text, launches = _count_and_scan(condition, total, parameter, given, traits)
    lines = _store_selected(condition, total, traits, write)
    text += kernel(NAME, [parameter, "i64* RESTRICT q0", "const u32* starts"], lines, BLOCK)
    args = (given, Buffer("output", 0), Buffer("scratch", 0))
    launches.append(KernelLaunch(NAME, (blocks, 1, 1), (BLOCK, 1, 1), args))
    return finish("nonzero", text, launches, [x], [y, count], scratch=[4 * max(blocks, 1)], extents=[(0, 1, 1)])


def compress(op: Any, x: Tensor, condition: Tensor, y: Tensor, count: Tensor, traits: DeviceTraits) -> KernelSource:
    """y with as many slices as the condition has entries; count int64 [1]: the number written."""
    x, y = as_unsigned(x), as_unsigned(y)
    total = condition.elements
    axis = 0 if op.axis is None else normalize(op.axis, len(x.lens))
    test = [f"hit = p0[i * {condition.strides[0]}u];"]
    parameter, given = "const bool* RESTRICT p0", Buffer("input", 1)
    text, launches = _count_and_scan(test, total, parameter, given, traits)
    lines = _store_selected(test, total, traits, ["kept[at] = i;"])
    text += kernel(f"{NAME}_list", [parameter, "const u32* starts", "u32* kept"], lines, BLOCK)
    elements = y.elements
    setup, names = decompose("i", y.lens, "c")
    threads = threads_of(elements, traits)
    if op.axis is None:
        more, inner = decompose("kept[c0]", x.lens, "d")
        source = offset_code(inner, x.strides, 0, "u64")
        more = [line.replace("kept[c0]", "pick") for line in more]
    else:
        more, source = [], offset_of(x, ["pick" if a == axis else c for a, c in enumerate(names)], True)
    lines = [
        "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
        f"if (i >= {elements}u) return;",
        *setup,
        f"if ((i64){names[axis]} >= *count) return;",
        f"const u32 pick = kept[{names[axis]}];",
        *more,
        f"q0[{offset_code(names, y.strides, 0, 'u64')}] = p1[{source}];",
    ]
    t = storage_type(x.dtype)
    text += kernel(
        NAME, [f"const {t}* RESTRICT p1", f"{t}* RESTRICT q0", "const u32* kept", "const i64* count"], lines, threads
    )
    blocks, kept = ceil_div(total, BLOCK), Buffer("scratch", 1)
    args = (Buffer("input", 0), Buffer("output", 0), kept, Buffer("output", 1))
    launches += [
        KernelLaunch(f"{NAME}_list", (blocks, 1, 1), (BLOCK, 1, 1), (given, Buffer("scratch", 0), kept)),
        KernelLaunch(NAME, (ceil_div(elements, threads), 1, 1), (threads, 1, 1), args),
    ]
    return finish(
        "compress", text, launches, [x, condition], [y, count], scratch=[4 * max(blocks, 1), 4 * max(total, 1)],
        extents=[(0, axis, 1)],
    )  # fmt: skip


def nonmaxsuppression(op: Any, xs: list[Tensor | None], ys: list[Tensor], traits: DeviceTraits) -> KernelSource:
    """For each batch entry and class, a block sorts the boxes by score and selects from them tile by tile; a last block writes
    the selected boxes in order.

    Extents may be arguments: the number of boxes above the threshold decides which memory is used for sorting.
    ys: int64 [up to all scores, 3], and int64 [1], the number written.
    """
    y, count = ys
    boxes, scores, most, overlap, least = given = [*xs, *[None] * 5][:5]
    assert boxes is not None and scores is not None
    b, c, n = scores.lens
    classes = max(c, 1)
    threads = min(1024, traits.max_threads)
    score = to_compute(f"p1[{offset_of(scores, ['b', 'c', 'i'], True)}]", scores.dtype)
    ratio = "0.f" if overlap is None else to_compute("p3[0]", overlap.dtype)
    lines = [
        f"const u32 b = blockIdx.x / {classes}u, c = blockIdx.x % {classes}u;",
        f"u32* const mine = picked + (u64)blockIdx.x * {n}u;",
        f"const i64 limit = {'0' if most is None else '(i64)p2[0]'};",
        f"const float ratio = (float){ratio};",
        *_sort(score, None if least is None else to_compute("p4[0]", least.dtype), n, threads),
        *_select(_corners(boxes, op.center_point_box), threads, traits.wave),
        "if (threadIdx.x == 0) counts[blockIdx.x] = found;",
    ]
    names, buffers = pointers(given, [])
    text = f"""DEV u64 {NAME}_item(float s, u32 i) {{  // less for an earlier pick; NaN counts as the least score
  u32 key = bits_as<u32>(s == 0.f ? 0.f : s);
  key = s != s ? 0u : key & 1u << 31 ? ~key : key | 1u << 31;
  return (u64)~key << 32 | i;
}}
DEV bool {NAME}_covers(const float* a, const float* b, float ratio) {{  // two boxes: corners and area
  const float h = m::max(m::min(a[2], b[2]) - m::max(a[0], b[0]), 0.f);
  const float w = m::max(m::min(a[3], b[3]) - m::max(a[1], b[1]), 0.f);
  if (h * w <= 0.f && ratio >= 0.f) return false;  // as most pairs, without a division
  const float joined = a[4] + b[4] - h * w;
  return a[4] > 0.f && b[4] > 0.f && joined > 0.f && h * w / joined > ratio;
}}
"""
    text += kernel(f"{NAME}_pick", [*names, "u64* order", "u32* picked", "u32* counts"], lines, threads)
    join = [
        "SHARED(u32, lds, [32]);",
        "u32 start = 0;",
        f"for (u32 g = threadIdx.x; g < blockIdx.x; g += {BLOCK}u) start += counts[g];",
        "start = block_reduce<Sum>(start, lds);",
        "const u32 own = counts[blockIdx.x];",
        f"for (u32 i = threadIdx.x; i < own; i += {BLOCK}u) {{",
        f"  i64* const row = q0 + (u64)(start + i) * {y.strides[0]}u;",
        f"  row[0] = blockIdx.x / {classes}u; row[{y.strides[1]}] = blockIdx.x % {classes}u;",
        f"  row[{2 * y.strides[1]}] = picked[(u64)blockIdx.x * {n}u + i];",
        "}",
        f"if (blockIdx.x == {max(b * c, 1) - 1}u && threadIdx.x == 0) *count = (i64)(start + own);",
    ]
    text += kernel(NAME, ["i64* RESTRICT q0", "i64* count", "const u32* picked", "const u32* counts"], join, BLOCK)
    order, picked, counts = (Buffer("scratch", i) for i in range(3))
    launches = [
        KernelLaunch(f"{NAME}_pick", (b * c, 1, 1), (threads, 1, 1), (*buffers, order, picked, counts)),
        KernelLaunch(NAME, (b * c, 1, 1), (BLOCK, 1, 1), (Buffer("output", 0), Buffer("output", 1), picked, counts)),
    ]
    return finish(
        "nonmaxsuppression", text, launches, given, [y, count],
        scratch=[max(16 * b * c * n, 1), max(4 * b * c * n, 1), max(4 * b * c, 1)], extents=[(0, 0, 1)],
    )  # fmt: skip


def _sort(score: str, least: str | None, n: int, threads: int) -> list[str]:
    """Returns statements that sort the `all` boxes scored above `least`, in `items`, whose low halves are box indices.

    Padding up to a power of two, which is less than 2 n, is sorted last.
    """
    add = f"{{ const u32 at = atomic_add(&total[0], 1u); const u64 item = {NAME}_item((float){score}, i);"
    add += f" spare[at] = item; if (at < {SORTED}u) part[at] = item; }}"
    return [
        "SHARED(u32, total, [1]);",
        f"SHARED(u64, part, [{SORTED}]);",
        f"u64* const spare = order + (u64)blockIdx.x * {2 * n}u;",
        "if (threadIdx.x == 0) total[0] = 0u;",
        "__syncthreads();",
        "if (limit > 0)",
        f"  for (u32 i = threadIdx.x; i < {n}u; i += {threads}u)",
        f"    {add}" if least is None else f"    if ({score} > {least}) {add}",
        "__syncthreads();",
        "const u32 all = total[0];",
        f"u64* const items = all <= {SORTED}u ? part : spare;",
        "u32 span = 1;",
        "while (span < all) span *= 2;",
        f"for (u32 i = all + threadIdx.x; i < span; i += {threads}u) items[i] = ~0ull;",
        "__syncthreads();",
        *exchanges("span", "u64", "items", "b < a"),
    ]


def _select(box: list[str], threads: int, wave: int) -> list[str]:
    """Returns statements that select boxes in order, `found` of them, to `mine`.

    The boxes of a tile are compared with all boxes selected before, and with each other, one bit per pair; one thread then
    selects from the remaining boxes of the tile. box: statements that load the corners and area of box `place` to `box`.
    """
    return [
        f"SHARED(float, tile, [{TILE}][5]);",
        f"SHARED(u32, names, [{TILE}]);",
        f"SHARED(u32, gone, [{TILE}]);",
        f"SHARED(u64, covered, [{TILE}]);",
        "SHARED(u32, so_far, [1]);",
        "u32 found = 0;",
        f"for (u32 first = 0; first < all && (i64)found < limit; first += {TILE}u) {{",
        f"  const u32 there = m::min({TILE}u, all - first), own = threadIdx.x % {TILE}u;",
        f"  if (threadIdx.x < {TILE}u) {{",
        "    gone[own] = own >= there;",
        "    const u32 place = own < there ? (u32)items[first + own] : 0u;",
        "    names[own] = place;",
        "    float* const box = tile[own];",
        *(f"    {line}" for line in box),
        "  }",
        "  __syncthreads();",
        f"  for (u32 k = threadIdx.x / {TILE}u; k < found && own < there; k += {threads // TILE}u) {{",
        "    const u32 place = mine[k];",
        "    float box[5];",
        *(f"    {line}" for line in box),
        f"    if ({NAME}_covers(box, tile[own], ratio)) {{ gone[own] = 1u; break; }}",
        "  }",
        f"  for (u32 t = wave_id(); t < {TILE}u; t += {threads // wave}u) {{",
        "    u64 bits = 0;",
        f"    for (u32 half = 0; half < {TILE}u; half += WAVE) {{",
        "      const u32 u = half + lane_id();",
        f"      bits |= wave_ballot(t < u && u < there && {NAME}_covers(tile[t], tile[u], ratio)) << half;",
        "    }",
        "    if (lane_id() == 0) covered[t] = bits;",
        "  }",
        "  __syncthreads();",
        "  if (wave_id() == 0) {",
        "    u64 left = 0;",
        f"    for (u32 half = 0; half < {TILE}u; half += WAVE) left |= wave_ballot(!gone[half + lane_id()]) << half;",
        "    if (lane_id() == 0) {",
        "      for (u32 t = 0; t < there && (i64)found < limit; ++t)",
        "        if (left >> t & 1) { mine[found++] = names[t]; left &= ~covered[t]; }",
        "      so_far[0] = found;",
        "    }",
        "  }",
        "  __syncthreads();",
        "  found = so_far[0];",
        "}",
    ]


def _corners(boxes: Tensor, center: bool) -> list[str]:
    """Returns statements that load the box at `place` to `box`: its lower corner, its upper corner, its area."""
    x, y, w, h = (to_compute(f"p0[{offset_of(boxes, ['b', 'place', str(k)], True)}]", boxes.dtype) for k in range(4))
    corners = (
        f"  const float x = {x}, y = {y}, w = {w} / 2, h = {h} / 2;",
        "  box[0] = x - w; box[1] = y - h; box[2] = x + w; box[3] = y + h;",
    ) if center else (
        f"  const float x = {x}, y = {y}, w = {w}, h = {h};",
        "  box[0] = m::min(x, w); box[1] = m::min(y, h); box[2] = m::max(x, w); box[3] = m::max(y, h);",
    )  # fmt: skip
    return ["{", *corners, "}", "box[4] = (box[2] - box[0]) * (box[3] - box[1]);"]
