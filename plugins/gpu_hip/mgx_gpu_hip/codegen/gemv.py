"""GEMV: each weight is read once, by enough threads to hide the memory latency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt

from .geometry import aligned, ceil_div
from .pointwise import one_launch
from .product_epilogue import FusedEpilogue, store_results
from .row_prologue import RowPrologue, row_prologue
from .source import DeviceTraits, KernelSource, Tensor, storage_type, to_compute

__all__ = ["TYPES", "gemv"]

THREADS: Final = 128  # per block, which shares a column's sum
LOADS: Final = 8  # vectors of weights that a thread loads ahead of the row's computation, in kernels with a prologue
BUSY: Final = 4  # blocks per multiprocessor that such a kernel should have
TYPES: Final = (dt.float16, dt.bfloat16, dt.float32)


@dataclass(frozen=True)
class _Columns:
    """The columns of a block: `together` adjacent ones in each of `parts` parts of the matrix, which are `apart` columns long.

    `apart` is the number of results, each computed from one column of every part.
    """

    together: int
    parts: int
    apart: int

    @property
    def count(self) -> int:
        return self.together * self.parts

    @property
    def row(self) -> str:
        """The column `c` of a block, relative to its first."""
        return "c" if self.parts == 1 else f"(c / {self.together}u * {self.apart}u + c % {self.together}u)"


def gemv(
    xs: Sequence[Tensor | None],
    ys: Sequence[Tensor],
    after: FusedEpilogue | None,
    traits: DeviceTraits,
    prologue: RowPrologue | None = None,
) -> KernelSource | No:
    """Generates a kernel for x [.., 1, k] times w [n, k]^T.

    xs: x, or the operands of `prologue`, which computes it, then w, then the operands of `after`; ys: results that `prologue`
    stores, then results whose last axis is that of the sums, or of one part of them if `after` takes several.
    """
    before = 1 if prologue is None else prologue.operands
    x, w = xs[0], xs[before]
    results = ys if prologue is None else ys[prologue.stored :]
    assert x is not None and w is not None
    n, k = w.lens
    parts = 1 if after is None else after.sums
    step = 16 // w.dtype.size
    of = x.dtype if prologue is None else prologue.dtype
    if of not in TYPES or of is not w.dtype:
        return No(f"the kernel does not multiply {of} and {w.dtype}")
    if any(prod(y.lens) * parts != n or y.lens[-1] * parts != n for y in results):
        return No("there is more than one row")
    if k % step or not aligned(w, w.strides, 0, step):
        return No(f"rows of {k} elements are not a multiple of 16 bytes")
    if prologue is None:
        if prod(x.lens) != k:
            return No("there is more than one row")
        if not aligned(x, [x.strides[-1]], 0, step):
            return No("the row is not contiguous in vectors of 16 bytes")
        together = 2 if k * parts < THREADS * step and n // parts % 2 == 0 else 1
        columns, threads = _Columns(together, parts, n // parts), THREADS
        sums: list[str] | No = _sums(storage_type(w.dtype), w.dtype, k, step, columns)
    else:
        threads = THREADS if k <= THREADS * prologue.most else 2 * THREADS
        columns = _wide_columns(ceil_div(k, threads * step), n, parts, traits)
        sums = _prologue_sums(prologue, w.dtype, k, step, columns, threads, traits)
    if isinstance(sums, No):
        return sums
    lines = [
        f"const u32 first = blockIdx.x * {columns.together}u;",
        f"const {storage_type(w.dtype)}* const w = p{before} + (u64)first * {k}u;",
        f"float acc[{columns.count}] = {{}};",
        *sums,
        *_whole(columns, threads, traits.wave),
        *(["const u32 k = 0;"] if after else []),
        *store_results(results, after, ["column"], len(ys) - len(results)),
    ]
    word = "single_row" if prologue is None else "single_row_made"
    return one_launch(word, lines, xs, ys, ceil_div(columns.apart, columns.together), threads, flops=2 * n * k)


def _wide_columns(turns: int, n: int, parts: int, traits: DeviceTraits) -> _Columns:
    """Returns the columns per block: many loads in flight per thread, but a busy device; each block computes the row."""
    together, apart = 1, n // parts
    while (
        2 * together * parts * turns <= LOADS
        and apart % (2 * together) == 0
        and apart // (2 * together) >= BUSY * traits.sm_count
    ):
        together *= 2
    return _Columns(together, parts, apart)


def _sums(t: str, of: dt.DType, k: int, step: int, columns: _Columns) -> list[str]:
    """Returns statements that compute each thread's part of a block's sums in `acc`."""
    stride, count = THREADS * step, columns.count

    def fetched(part: int) -> list[str]:
        at = f"i + {part * stride}u" if part else "i"
        column = f"w + (u64){columns.row} * {k}u + {at}"
        return [
            f"a{part} = ldv<{t}, {step}>(p0 + {at});",
            f"UNROLL for (u32 c = 0; c < {count}; ++c) b{part}[c] = ldv<{t}, {step}>({column});",
        ]

    def added(part: int) -> list[str]:
        product = f"{to_compute(f'a{part}.v[j]', of)}, {to_compute(f'b{part}[c].v[j]', of)}"
        return [
            f"UNROLL for (u32 c = 0; c < {count}; ++c)",
            f"  UNROLL for (u32 j = 0; j < {step}; ++j) acc[c] = m::fma({product}, acc[c]);",
        ]

    second = k > stride
    return [
        f"for (u32 i = threadIdx.x * {step}u; i < {k}u; i += {2 * stride}u) {{",
        f"  vec<{t}, {step}> a0, b0[{count}]" + (f", a1, b1[{count}];" if second else ";"),
        *(f"  {line}" for line in fetched(0)),
        *([f"  const bool more = i + {stride}u < {k}u;"] if second else []),
        *([f"  if (more) {{ {' '.join(fetched(1))} }}"] if second else []),
        *(f"  {line}" for line in added(0)),
        *(["  if (more) {", *(f"    {line}" for line in added(1)), "  }"] if second else []),
        "}",
    ]


def _prologue_sums(
    prologue: RowPrologue, of: dt.DType, k: int, step: int, columns: _Columns, threads: int, traits: DeviceTraits
) -> list[str] | No:
    """As `_sums`, for a row that each block computes itself, while its weights are being loaded."""
    turns = ceil_div(k, threads * step)
    row = row_prologue(prologue, threads, turns, step, traits)
    if isinstance(row, No):
        return row
    t, count = storage_type(of), columns.count
    inside = f"if (turn * {threads}u + threadIdx.x < {k // step}u)" if k % (threads * step) else ""
    place = f"w + (u64){columns.row} * {k}u + (turn * {threads}u + threadIdx.x) * {step}u"
    return [
        f"vec<{t}, {step}> b[{turns}][{count}];",
        f"UNROLL for (u32 turn = 0; turn < {turns}; ++turn) {inside}",
        f"  UNROLL for (u32 c = 0; c < {count}; ++c) b[turn][c] = ldv<{t}, {step}>({place});",
        *row,
        f"UNROLL for (u32 turn = 0; turn < {turns}; ++turn) {inside}",
        f"  UNROLL for (u32 c = 0; c < {count}; ++c)",
        f"    UNROLL for (u32 j = 0; j < {step}; ++j)",
        f"      acc[c] = m::fma(row[turn * {step} + j], {to_compute('b[turn][c].v[j]', of)}, acc[c]);",
    ]


def _whole(columns: _Columns, threads: int, wave: int) -> list[str]:
    """Returns statements after which one thread per result has the sums of all parts, `whole0` and so on."""
    count, together = columns.count, columns.together
    lines = [
        f"SHARED(float, sums, [{threads // wave}][{count}]);",
        f"UNROLL for (u32 c = 0; c < {count}; ++c) {{",
        "  const float part = wave_reduce<Sum>(acc[c]);",
        "  if (lane_id() == 0) sums[threadIdx.x / WAVE][c] = part;",
        "}",
        "__syncthreads();",
        f"if (threadIdx.x >= {together}u) return;",
    ]
    for part in range(columns.parts):
        at = f"{part * together}u + threadIdx.x" if part else "threadIdx.x"
        lines += [
            f"float whole{part} = sums[0][{at}];",
            f"UNROLL for (u32 i = 1; i < {threads // wave}; ++i) whole{part} += sums[i][{at}];",
        ]
    return [*lines, "const u32 column = first + threadIdx.x;"]
