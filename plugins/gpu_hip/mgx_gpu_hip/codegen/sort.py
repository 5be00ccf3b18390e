"""Positions of extremes and the k first of an order along one axis."""

from __future__ import annotations

import math
from typing import Any

from mgx_core.ops.axes import normalize
from mgx_core.ops.reduce import Argmax

from .elements import Coordinates, each_element, offset_of
from .geometry import ceil_div, decompose, offset_code
from .pointwise import each_item, one_launch
from .source import NAME, DeviceTraits, KernelSource, Tensor, computed, finish, read, stored

__all__ = ["extreme", "topk"]


def _pair(kind: str, largest: bool, nan_first: bool, last: bool = False) -> str:
    """Returns a value with its position, and their order: NaN before or after all numbers, equal values by position."""
    sign = ">" if largest else "<"
    nan_a = "(a.v != a.v && b.v == b.v)" if nan_first else "(a.v == a.v && b.v != b.v)"
    tie = ">" if last else "<"
    return f"""struct {NAME}_pair {{ {kind} v; i32 i; }};
DEV bool {NAME}_before({NAME}_pair a, {NAME}_pair b) {{
  if (a.i < 0 || b.i < 0) return b.i < 0 && a.i >= 0;
  const bool same = a.v == b.v || (a.v != a.v && b.v != b.v);
  return same ? a.i {tie} b.i : a.v {sign} b.v || {nan_a};
}}
"""


def extreme(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    """argmax and argmin."""
    axis = normalize(op.axis, len(x.lens))
    n, kind = x.lens[axis], computed(x.dtype)
    pair = _pair(kind, isinstance(op, Argmax), True, op.select_last_index)
    if x.strides[axis] != 1 or n < 16:

        def element(at: Coordinates) -> tuple[list[str], list[str]]:
            place = [*at[:axis], "j", *at[axis + 1 :]]
            return [
                f"{NAME}_pair best = {{0, -1}};",
                f"for (u32 j = 0; j < {n}u; ++j) {{",
                f"  const {NAME}_pair now = {{{read(f'p0[{offset_of(x, place)}]', x.dtype)}, (i32)j}};",
                f"  if ({NAME}_before(now, best)) best = now;",
                "}",
            ], ["(i64)best.i"]

        return each_element(op.name, [x], [y], traits, element, before=pair, unroll=1)
    rows = y.elements
    if not rows:
        return finish(op.name, pair, [], [x], [y])
    setup, names = decompose("row", y.lens, "c")
    block = n >= 2048 and rows < traits.sm_count * 8
    threads = 256
    lanes = threads if block else traits.wave
    base = offset_code(
        [c for a, c in enumerate(names) if a != axis], [s for a, s in enumerate(x.strides) if a != axis], 0, "u64"
    )
    lines = [
        f"const u32 lane = threadIdx.x % {lanes}u, row = blockIdx.x * {threads // lanes}u + threadIdx.x / {lanes}u;",
        *([] if block else [f"if (row >= {rows}u) return;"]),
        *setup,
        f"{NAME}_pair best = {{0, -1}};",
        f"for (u32 j = lane; j < {n}u; j += {lanes}u) {{",
        f"  const {NAME}_pair now = {{{read(f'p0[{base} + j]', x.dtype)}, (i32)j}};",
        f"  if ({NAME}_before(now, best)) best = now;",
        "}",
        *_join(),
    ]
    place = offset_code(names, [0 if a == axis else s for a, s in enumerate(y.strides)], 0, "u64")
    if block:
        lines += [
            f"SHARED({NAME}_pair, found, [{threads // traits.wave}]);",
            "if (lane_id() == 0) found[wave_id()] = best;",
            "__syncthreads();",
            f"for (int w = 0; w < {threads // traits.wave}; ++w) if ({NAME}_before(found[w], best)) best = found[w];",
        ]
    lines.append(f"if (lane == 0) q0[{place}] = best.i;")
    return one_launch(op.name, lines, [x], [y], ceil_div(rows, threads // lanes), threads, before=pair)


def _join() -> list[str]:
    return [
        "UNROLL for (int m = WAVE / 2; m; m >>= 1) {",
        f"  const {NAME}_pair other = wave_xor(best, m);",
        f"  if ({NAME}_before(other, best)) best = other;",
        "}",
    ]


def topk(op: Any, x: Tensor, values: Tensor, places: Tensor, traits: DeviceTraits) -> KernelSource:
    """Returns the first k: long rows by finding one after the other, short ones by counting the elements before each."""
    axis, k = normalize(op.axis, len(x.lens)), int(op.k)
    n, kind = x.lens[axis], computed(x.dtype)
    pair = _pair(kind, op.largest, op.largest)
    others = [m for a, m in enumerate(x.lens) if a != axis]
    rows = math.prod(others)
    if not rows or not k:
        return finish("topk", pair, [], [x], [values, places])
    setup, names = decompose("row", others, "c")

    def base(t: Tensor) -> str:
        return offset_code(names, [s for a, s in enumerate(t.strides) if a != axis], 0, "u64")

    t = stored(x.dtype)
    lines = [
        *setup,
        f"const {t}* const x = p0 + ({base(x)});",
        f"{t}* const v = q0 + ({base(values)});",
        f"i64* const w = q1 + ({base(places)});",
    ]
    step = x.strides[axis]
    item = read(f"x[(u64){{0}} * {step}u]", x.dtype)
    sv, sw = values.strides[axis], places.strides[axis]
    if k <= 64 and n > 1024:
        threads = 256
        waves = threads // traits.wave
        body = [
            f"{NAME}_pair last = {{0, -1}};",
            f"SHARED({NAME}_pair, found, [{waves}]);",
            f"for (u32 k = 0; k < {k}u; ++k) {{",
            f"  {NAME}_pair best = {{0, -1}};",
            f"  for (u32 j = threadIdx.x; j < {n}u; j += {threads}u) {{",
            f"    const {NAME}_pair now = {{{item.format('j')}, (i32)j}};",
            f"    if ((k == 0 || {NAME}_before(last, now)) && {NAME}_before(now, best)) best = now;",
            "  }",
            *(f"  {line}" for line in _join()),
            "  __syncthreads();",
            "  if (lane_id() == 0) found[wave_id()] = best;",
            "  __syncthreads();",
            "  last = found[0];",
            f"  for (int i = 1; i < {waves}; ++i) if ({NAME}_before(found[i], last)) last = found[i];",
            f"  if (threadIdx.x == 0) {{ v[(u64)k * {sv}u] = x[(u64)last.i * {step}u]; w[(u64)k * {sw}u] = last.i; }}",
            "}",
        ]
        lines = ["const u32 row = blockIdx.x;", *lines, *body]
        return one_launch("topk", lines, [x], [values, places], rows, threads, before=pair)
    lines = [
        f"const u32 row = i / {n}u, own = i % {n}u;",
        *lines,
        f"const {NAME}_pair mine = {{{item.format('own')}, (i32)own}};",
        "u32 rank = 0;",
        f"for (u32 j = 0; j < {n}u; ++j) {{",
        f"  const {NAME}_pair now = {{{item.format('j')}, (i32)j}};",
        f"  rank += {NAME}_before(now, mine);",
        "}",
        f"if (rank < {k}u) {{ v[(u64)rank * {sv}u] = x[(u64)own * {step}u]; w[(u64)rank * {sw}u] = own; }}",
    ]
    return each_item("topk", lines, [x], [values, places], rows * n, traits, pair)
