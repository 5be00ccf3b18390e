"""Reductions of slices of different lengths, whose positions are operands."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import No
from mgx_core import dtype as dt

from .elements import Coordinates, each_element, offset_of
from .primitives import FLOATS, UNSIGNED
from .source import NAME, DeviceTraits, KernelSource, Tensor, compute_type, to_compute, to_storage

__all__ = ["reduce_slices"]

OPS: Final = {"sum": "Sum", "mean": "Sum", "max": "Max", "min": "Min"}  # of the prelude
POSITIONS: Final = (dt.int32, dt.int64)
PART: Final = 64  # elements accumulated on their own

BOUND: Final = f"""DEV i64 {NAME}_bound(i64 at, i64 rows) {{
  at = at < 0 ? at + rows : at;
  return at < 0 ? 0 : at > rows ? rows : at;
}}
"""


def reduce_slices(
    op: Any, x: Tensor, starts: Tensor, ends: Tensor, y: Tensor, traits: DeviceTraits
) -> KernelSource | No:
    """One thread per element of the result."""
    value = compute_type(x.dtype)
    if op.reduction == "mean" and value not in FLOATS:
        return No("means of integers are not defined for empty slices")
    if starts.dtype not in POSITIONS or ends.dtype not in POSITIONS:
        return No(f"positions must be of type int32 or int64, got {starts.dtype} and {ends.dtype}")
    kind = UNSIGNED.get(value, value) if op.reduction == "sum" else value  # signed overflow is undefined in C++
    # parts are added in double, so that sums of many floats keep their precision
    total = "double" if kind == "float" and op.reduction in ("sum", "mean") else kind
    combine, rows = OPS[op.reduction], x.lens[0]

    def bound(pointer: str, positions: Tensor, at: Coordinates) -> str:
        return f"{NAME}_bound((i64){pointer}[{offset_of(positions, at[:1])}], (i64){rows})"

    def element(at: Coordinates) -> tuple[list[str], list[str]]:
        read = to_compute(f"p0[{offset_of(x, ['row', *at[1:]])}]", x.dtype)
        lines = [
            f"const i64 first = {bound('p1', starts, at)}, end = {bound('p2', ends, at)};",
            f"{total} whole = {combine}::id<{total}>();",
            "for (i64 next = first; next < end;) {",
            f"  {kind} part = {combine}::id<{kind}>();",
            f"  const i64 stop = next + {PART} < end ? next + {PART} : end;",
            "  for (; next < stop; ++next) {",
            "    const u64 row = (u64)next;",
            f"    part = {combine}::f(part, ({kind}){read});",
            "  }",
            f"  whole = {combine}::f(whole, ({total})part);",
            "}",
        ]
        count = f"({total})(end > first ? end - first : 0)"
        result = f"({value})(whole / {count})" if op.reduction == "mean" else f"({value})whole"
        return lines, [to_storage(result, y.dtype)]

    return each_element(op.name, [x, starts, ends], [y], traits, element, before=BOUND, unroll=1)
