"""Triangular systems of small matrices: forward substitution in shared memory, one block per matrix and group of right sides."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import No

from .elements import offset_of
from .geometry import ceil_div, decompose
from .pointwise import one_launch
from .source import DeviceTraits, KernelSource, Tensor, compute_type, finish, to_compute, to_storage

__all__ = ["solve_triangular"]

MAX_ROWS: Final = 128  # a step of each row follows that of the row before: more rows keep a device waiting
THREADS: Final = 256
WIDEST: Final = 32  # right sides per block


def solve_triangular(op: Any, a: Tensor, b: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    n, columns = y.lens[-2:]
    if n > MAX_ROWS:
        return No(f"the kernel supports at most {MAX_ROWS} rows, got {n}")
    if not y.elements:
        return finish("solve", "", [], [a, b], [y])
    kind, size = compute_type(y.dtype), max(y.dtype.size, 4)
    cells = n * (n - 1) // 2  # below the diagonal, row by row
    width = WIDEST
    while width > 1 and (width // 2 >= columns or _bytes(n, cells, width, size) > traits.shared_bytes):
        width //= 2
    if _bytes(n, cells, width, size) > traits.shared_bytes:
        return No(
            f"{n} rows require {_bytes(n, cells, width, size)} bytes of shared memory, a block has {traits.shared_bytes}"
        )
    groups = ceil_div(columns, width)
    setup, names = decompose(f"blockIdx.x / {groups}u", y.lens[:-2], "c")
    # an upper triangle is a lower one with rows and columns in reverse order
    row, column = (f"{n - 1}u - r", f"{n - 1}u - k") if op.upper else ("r", "k")
    cell = to_compute(f"p0[{offset_of(a, [*names, row, column], True)}]", a.dtype)
    diagonal = to_compute(f"p0[{offset_of(a, [*names, row, row], True)}]", a.dtype)
    right = to_compute(f"p1[{offset_of(b, [*names, row, 'j'], True)}]", b.dtype)
    pivot = "" if op.unit else " / d[i]"
    last = "" if op.unit else " / d[r]"
    lines = [
        *setup,
        f"const u32 first = blockIdx.x % {groups}u * {width}u;",
        f"SHARED({kind}, l, [{max(cells, 1)}]);",
        *([] if op.unit else [f"SHARED({kind}, d, [{n}]);"]),
        f"SHARED({kind}, x, [{n * width}]);",
        f"for (u32 i = threadIdx.x; i < {n * n}u; i += {THREADS}u) {{",
        f"  const u32 r = i / {n}u, k = i % {n}u;",
        f"  if (k < r) l[r * (r - 1) / 2 + k] = {cell};",
        *([] if op.unit else [f"  if (k == r) d[r] = {diagonal};"]),
        "}",
        f"for (u32 i = threadIdx.x; i < {n * width}u; i += {THREADS}u) {{",
        f"  const u32 r = i / {width}u, j = first + i % {width}u;",
        f"  x[i] = j < {columns}u ? {right} : ({kind})0;",
        "}",
        f"const u32 lane = threadIdx.x % {width}u;",
        f"for (u32 i = 0; i + 1 < {n}u; ++i) {{",
        "  __syncthreads();",
        f"  const {kind} known = x[i * {width}u + lane]{pivot};",
        f"  for (u32 r = i + 1 + threadIdx.x / {width}u; r < {n}u; r += {THREADS // width}u)",
        f"    x[r * {width}u + lane] -= l[r * (r - 1) / 2 + i] * known;",
        "}",
        "__syncthreads();",
        f"for (u32 i = threadIdx.x; i < {n * width}u; i += {THREADS}u) {{",
        f"  const u32 r = i / {width}u, j = first + i % {width}u;",
        f"  if (j < {columns}u) q0[{offset_of(y, [*names, row, 'j'], True)}] = {to_storage(f'x[i]{last}', y.dtype)};",
        "}",
    ]
    systems = y.elements // (n * columns)
    return one_launch("solve", lines, [a, b], [y], systems * groups, THREADS, flops=systems * columns * n * n)


def _bytes(n: int, cells: int, width: int, size: int) -> int:
    return (cells + n + n * width) * size
