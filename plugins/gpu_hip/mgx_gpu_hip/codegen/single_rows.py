"""One row times a matrix: every weight is read once, by as many threads as hide the memory's latency."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt

from .after_product import Finish
from .elements import pointers
from .expressions import Lines, store_value
from .geometry import aligned, ceil_div, index_type, offset_code
from .pointwise import kernel
from .source import NAME, DeviceTraits, KernelLaunch, KernelSource, Tensor, finish, read, stored, written

__all__ = ["TYPES", "single_row"]

THREADS: Final = 128  # of a block, which shares a column's sum
TYPES: Final = (dt.float16, dt.bfloat16, dt.float32)


def single_row(
    xs: Sequence[Tensor | None], ys: Sequence[Tensor], after: Finish | None, traits: DeviceTraits
) -> KernelSource | No:
    """Returns a kernel for x [.., 1, k] times w [n, k]^T.

    xs: x, w, then the operands of `after`; ys: results of n elements, whose last axis is that of the sums.
    """
    x, w = xs[:2]
    assert x is not None and w is not None
    n, k = w.lens
    step = 16 // w.dtype.size
    if x.dtype not in TYPES or x.dtype is not w.dtype:
        return No(f"a product of {x.dtype} and {w.dtype}")
    if prod(x.lens) != k or any(prod(y.lens) != n or y.lens[-1] != n for y in ys):
        return No("there is more than one row")
    if k % step or not aligned(w, w.strides, 0, step) or not aligned(x, [x.strides[-1]], 0, step):
        return No(f"rows of {k} elements are not whole vectors of 16 bytes")
    columns = 2 if k < THREADS * step and n % 2 == 0 else 1
    parameters, buffers = pointers(xs, ys)
    lines = [*_sums(stored(w.dtype), w.dtype, k, step, columns, traits.wave), *_results(ys, after, columns)]
    launch = KernelLaunch(NAME, (ceil_div(n, columns), 1, 1), (THREADS, 1, 1), tuple(buffers))
    text = kernel(NAME, parameters, lines, THREADS)
    return finish("single_row", text, [launch], xs, ys, flops=2 * n * k)


def _sums(t: str, of: dt.DType, k: int, step: int, columns: int, wave: int) -> list[str]:
    """Returns statements that leave the sums of a block's columns in `sums`, by wave."""
    stride = THREADS * step

    def fetched(part: int) -> list[str]:
        at = f"i + {part * stride}u" if part else "i"
        return [
            f"a{part} = ldv<{t}, {step}>(p0 + {at});",
            f"UNROLL for (u32 c = 0; c < {columns}; ++c) b{part}[c] = ldv<{t}, {step}>(w + (u64)c * {k}u + {at});",
        ]

    def added(part: int) -> list[str]:
        product = f"{read(f'a{part}.v[j]', of)}, {read(f'b{part}[c].v[j]', of)}"
        return [
            f"UNROLL for (u32 c = 0; c < {columns}; ++c)",
            f"  UNROLL for (u32 j = 0; j < {step}; ++j) acc[c] = m::fma({product}, acc[c]);",
        ]

    second = k > stride
    return [
        f"const u32 first = blockIdx.x * {columns}u;",
        f"const {t}* const w = p1 + (u64)first * {k}u;",
        f"float acc[{columns}] = {{}};",
        f"for (u32 i = threadIdx.x * {step}u; i < {k}u; i += {2 * stride}u) {{",
        f"  vec<{t}, {step}> a0, b0[{columns}]" + (f", a1, b1[{columns}];" if second else ";"),
        *(f"  {line}" for line in fetched(0)),
        *([f"  const bool more = i + {stride}u < {k}u;"] if second else []),
        *([f"  if (more) {{ {' '.join(fetched(1))} }}"] if second else []),
        *(f"  {line}" for line in added(0)),
        *(["  if (more) {", *(f"    {line}" for line in added(1)), "  }"] if second else []),
        "}",
        f"SHARED(float, sums, [{THREADS // wave}][{columns}]);",
        f"UNROLL for (u32 c = 0; c < {columns}; ++c) {{",
        "  const float part = wave_reduce<Sum>(acc[c]);",
        "  if (lane_id() == 0) sums[threadIdx.x / WAVE][c] = part;",
        "}",
        "__syncthreads();",
        f"if (threadIdx.x >= {columns}u) return;",
        "float whole = sums[0][threadIdx.x];",
        f"UNROLL for (u32 i = 1; i < {THREADS // wave}; ++i) whole += sums[i][threadIdx.x];",
        "const u32 column = first + threadIdx.x;",
    ]


def _results(ys: Sequence[Tensor], after: Finish | None, columns: int) -> list[str]:
    """Returns statements that finish a column's sum."""
    index = index_type(*ys, *(after.given[1:] if after else ()))
    inner = Lines("t")
    lines: list[str] = []
    if after is None:
        stores = [written("whole", y.dtype) for y in ys]
    else:
        readers = [after.reader(a, [a.strides[-1]], 1) for a in after.reads()]
        for n, reader in enumerate(readers):
            lines += after.load(n, reader, ["column"], index)
        values = after.values("whole", readers, inner)
        stores = [store_value(v, y.dtype) for v, y in zip(values, ys, strict=True)]
    lines += ["const u32 k = 0;", *inner.lines] if inner.lines else []
    for n, (y, value) in enumerate(zip(ys, stores, strict=True)):
        lines.append(f"q{n}[{offset_code(['column'], [y.strides[-1]], 0, index)}] = {value};")
    return lines
