"""Argmax and argmin along one axis."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import No
from mgx_core.ops.axes import normalize
from mgx_core.ops.reduce import Argmax
from mgx_core.types.traced_int import usual

from .elements import Coordinates, each_element, offset_of
from .geometry import ceil_div, decompose, offset_code
from .pointwise import one_launch
from .source import NAME, DeviceTraits, KernelSource, Tensor, compute_type, finish, to_compute

__all__ = ["argminmax"]

MIN_LONG: Final = 8192  # minimum elements of a few lines for the largest blocks
AHEAD: Final = 8  # elements of a long line that a thread loads at a time


def _pair(kind: str, largest: bool, last: bool) -> str:
    """Returns a struct of value and index, and its ordering: NaN before all numbers, ties by index."""
    sign = ">" if largest else "<"
    nan_a = "(a.v != a.v && b.v == b.v)"
    tie = ">" if last else "<"
    return f"""struct {NAME}_pair {{ {kind} v; i32 i; }};
DEV bool {NAME}_before({NAME}_pair a, {NAME}_pair b) {{
  if (a.i < 0 || b.i < 0) return b.i < 0 && a.i >= 0;
  const bool same = a.v == b.v || (a.v != a.v && b.v != b.v);
  return same ? a.i {tie} b.i : a.v {sign} b.v || {nan_a};
}}
"""


def argminmax(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    """argmax and argmin."""
    axis = normalize(op.axis, len(x.lens))
    n, kind = x.lens[axis], compute_type(x.dtype)
    if n >= 1 << 31:
        return No(f"{op.name} does not support an axis of {n} elements")
    pair = _pair(kind, isinstance(op, Argmax), op.select_last_index)
    if x.strides[axis] != 1 or n < 16:

        def element(at: Coordinates) -> tuple[list[str], list[str]]:
            place = [*at[:axis], "j", *at[axis + 1 :]]
            return [
                f"{NAME}_pair best = {{0, -1}};",
                f"for (u32 j = 0; j < {n}u; ++j) {{",
                f"  const {NAME}_pair now = {{{to_compute(f'p0[{offset_of(x, place)}]', x.dtype)}, (i32)j}};",
                f"  if ({NAME}_before(now, best)) best = now;",
                "}",
            ], ["(i64)best.i"]

        return each_element(op.name, [x], [y], traits, element, before=pair, unroll=1)
    rows = y.elements
    if not rows:
        return finish(op.name, pair, [], [x], [y])
    setup, names = decompose("row", y.lens, "c")
    block = n >= 2048 and rows < traits.sm_count * 8
    threads = traits.max_threads if usual(n) >= MIN_LONG and usual(rows) <= 2 * traits.sm_count else 256
    lanes = threads if block else traits.wave
    ahead = AHEAD if usual(n) >= 2 * AHEAD * lanes else 1
    base = offset_code(
        [c for a, c in enumerate(names) if a != axis], [s for a, s in enumerate(x.strides) if a != axis], 0, "u64"
    )
    lines = [
        f"const u32 lane = threadIdx.x % {lanes}u, row = blockIdx.x * {threads // lanes}u + threadIdx.x / {lanes}u;",
        *([] if block else [f"if (row >= {rows}u) return;"]),
        *setup,
        f"{NAME}_pair best = {{0, -1}};",
        f"for (u32 first = lane; first < {n}u; first += {ahead * lanes}u) {{",
        f"  UNROLL for (u32 k = 0; k < {ahead}u; ++k) {{",
        f"    const u32 j = first + k * {lanes}u;",
        f"    if (j >= {n}u) continue;",
        f"    const {NAME}_pair now = {{{to_compute(f'p0[{base} + j]', x.dtype)}, (i32)j}};",
        f"    if ({NAME}_before(now, best)) best = now;",
        "  }",
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
