"""Running sums and products along one axis."""

from __future__ import annotations

import math
from typing import Any

from mgx_core.ops.axes import normalize
from mgx_core.ops.scan import PrefixScanSum

from .geometry import ceil_div, decompose, offset_code
from .pointwise import one_launch, threads_of
from .primitives import FLOATS, UNSIGNED
from .source import DeviceTraits, KernelSource, Tensor, computed, finish, read, stored, written

__all__ = ["prefix_scan"]


def prefix_scan(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    """Writes a kernel with one thread per line where neighbouring lines are neighbours in memory, else one block per line."""
    axis = normalize(op.axis, len(x.lens))
    n = x.lens[axis]
    others = [m for a, m in enumerate(x.lens) if a != axis]
    rows = math.prod(others)
    kind = computed(x.dtype)
    kind = "double" if kind in FLOATS else UNSIGNED.get(kind, kind)
    word = op.name
    if not rows or not n:
        return finish(word, "", [], [x], [y])
    how = "Sum" if isinstance(op, PrefixScanSum) else "Prod"
    setup, names = decompose("row", others, "c")
    bases = [offset_code(names, [s for a, s in enumerate(t.strides) if a != axis], 0, "u64") for t in (x, y)]
    out = written("({})".format(f"({computed(y.dtype)})acc"), y.dtype)
    at = f"{n - 1}u - j" if op.reverse else "j"
    lines = [
        *setup,
        f"const {stored(x.dtype)}* const x = p0 + ({bases[0]});",
        f"{stored(y.dtype)}* const y = q0 + ({bases[1]});",
    ]
    value = f"({kind}){read(f'x[(u64)({{0}}) * {x.strides[axis]}u]', x.dtype)}"
    target = f"y[(u64)({at}) * {y.strides[axis]}u]"
    if x.strides[axis] != 1 or n < 64:
        threads = threads_of(rows, traits)
        lines = [
            "const u32 row = blockIdx.x * blockDim.x + threadIdx.x;",
            f"if (row >= {rows}u) return;",
            *lines,
            f"{kind} acc = {how}::id<{kind}>();",
            f"for (u32 j = 0; j < {n}u; ++j) {{",
            *([f"  const {kind} own = {value.format(at)};", f"  {target} = {out};", f"  acc = {how}::f(acc, own);"]
              if op.exclusive else [f"  acc = {how}::f(acc, {value.format(at)});", f"  {target} = {out};"]),
            "}",
        ]  # fmt: skip
        grid = ceil_div(rows, threads)
    else:
        threads = 256
        waves = threads // traits.wave
        before = f"{n}u - j" if op.reverse else "j - 1u"
        item = f"j ? {value.format(before)} : {how}::id<{kind}>()" if op.exclusive else value.format(at)
        lines = [
            "const u32 row = blockIdx.x;",
            *lines,
            f"SHARED({kind}, totals, [{waves}]);",
            f"{kind} carried = {how}::id<{kind}>();",
            f"for (u32 first = 0; first < {n}u; first += {threads}u) {{",
            "  const u32 j = first + threadIdx.x;",
            f"  {kind} acc = {how}::id<{kind}>();",
            f"  if (j < {n}u) acc = {item};",
            f"  acc = wave_scan<{how}>(acc);",
            "  __syncthreads();",
            "  if (lane_id() == WAVE - 1) totals[wave_id()] = acc;",
            "  __syncthreads();",
            f"  {kind} lead = carried;",
            "  for (u32 w = 0; w < wave_id(); ++w) lead = " + f"{how}::f(lead, totals[w]);",
            f"  acc = {how}::f(lead, acc);",
            f"  if (j < {n}u) {target} = {out};",
            f"  for (u32 w = 0; w < {waves}u; ++w) carried = {how}::f(carried, totals[w]);",
            "}",
        ]
        grid = rows
    return one_launch(word, lines, [x], [y], grid, threads)
