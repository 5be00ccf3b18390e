"""Determinants of small matrices: LU elimination with partial pivoting in shared memory, one block per matrix."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import No

from .elements import offset_of
from .geometry import decompose
from .pointwise import one_launch
from .source import DeviceTraits, KernelSource, Tensor, finish, to_compute, to_storage

__all__ = ["determinant"]

MAX_ROWS: Final = 64  # rows of a float64 matrix that fits in shared memory
THREADS: Final = 64


def determinant(op: Any, x: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource | No:
    n = x.lens[-1]
    if n > MAX_ROWS:
        return No(f"the kernel supports at most {MAX_ROWS} rows, got {n}")
    matrices = y.elements
    if not matrices:
        return finish("det", "", [], [x], [y])
    setup, names = decompose("blockIdx.x", y.lens, "c")
    element = to_compute(f"p0[{offset_of(x, [*names, 'r', 'k'], True)}]", x.dtype)
    lines = [
        *setup,
        f"SHARED(double, a, [{max(n * n, 1)}]);",
        f"for (u32 i = threadIdx.x; i < {n * n}u; i += {THREADS}u) {{",
        f"  const u32 r = i / {max(n, 1)}u, k = i % {max(n, 1)}u;",
        f"  a[i] = (double){element};",
        "}",
        "double product = 1;",
        f"for (u32 j = 0; j < {n}u; ++j) {{",
        "  __syncthreads();",
        "  u32 pivot = j;  // all threads choose it, from the same numbers",
        f"  double most = m::abs(a[j * {n}u + j]);",
        f"  for (u32 r = j + 1; r < {n}u; ++r) {{",
        f"    const double size = m::abs(a[r * {n}u + j]);",
        "    if (size > most) { most = size; pivot = r; }",
        "  }",
        f"  const double by = a[pivot * {n}u + j];",
        "  product = by == 0 ? 0 : product * (pivot == j ? by : -by);",
        "  if (by == 0) break;  // every thread leaves: the matrix is singular",
        "  __syncthreads();",
        f"  for (u32 k = j + threadIdx.x; pivot != j && k < {n}u; k += {THREADS}u) {{",
        f"    const double upper = a[j * {n}u + k];",
        f"    a[j * {n}u + k] = a[pivot * {n}u + k];",
        f"    a[pivot * {n}u + k] = upper;",
        "  }",
        "  __syncthreads();",
        f"  const u32 rest = {n - 1}u - j;",
        f"  for (u32 i = threadIdx.x; i < rest * rest; i += {THREADS}u) {{",
        "    const u32 r = j + 1 + i / rest, k = j + 1 + i % rest;",
        f"    a[r * {n}u + k] -= a[r * {n}u + j] / by * a[j * {n}u + k];",
        "  }",
        "}",
        f"if (threadIdx.x == 0) q0[{offset_of(y, names, True)}] = {_rounded(y)};",
    ]
    return one_launch("det", lines, [x], [y], matrices, THREADS, flops=matrices * n**3 * 2 // 3)


def _rounded(y: Tensor) -> str:
    return "product" if y.dtype.size == 8 else to_storage("(float)product", y.dtype)
