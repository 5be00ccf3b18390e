"""Matrix products without a library: tiles on matrix units for 16-bit floats, fused multiply-adds for the rest.

Products of small matrices, for which a tile is mostly empty, have a thread for each few results instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from mgx_core import dtype as dt

from .elements import pointers
from .geometry import (
    Reader,
    aligned,
    ceil_div,
    decompose,
    index_type,
    offset_code,
    preferred_width,
    store_code,
    vector_width,
)
from .pointwise import kernel, one_launch, threads_of
from .primitives import constant
from .source import (
    NAME,
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

__all__ = ["ScaledDot", "is_small", "product", "product_text"]

TILE = 64
SHORT = 32  # largest inner extent of a product whose sums one thread computes
SIDE = 8  # such a product has a side of at most this extent


@dataclass(frozen=True)
class ScaledDot:
    """A product of floats whose sums are multiplied by `alpha` before they are stored."""

    alpha: float
    name: ClassVar[str] = "dot"


def is_small(m: int, n: int, k: int) -> bool:
    """Returns True for matrices so small that memory traffic decides, and tiles would be mostly empty.

    False for symbolic extents, which a comparison would restrict.
    """
    return all(type(x) is int for x in (m, n, k)) and k <= SHORT and min(m, n) <= SIDE


def product(op: Any, a: Tensor, b: Tensor, y: Tensor, traits: DeviceTraits) -> KernelSource:
    if y.elements == 0:
        return finish("product", "", [], [a, b], [y])
    alpha = op.alpha if isinstance(op, ScaledDot) else 1.0
    if is_small(y.lens[-2], y.lens[-1], a.lens[-1]):
        return _small(a, b, y, traits, alpha)
    text, blocks, threads = product_text(NAME, a, b, y, traits, alpha)
    _, buffers = pointers([a, b], [y])
    launch = KernelLaunch(NAME, (blocks, 1, 1), (threads, 1, 1), tuple(buffers))
    return finish("product", text, [launch], [a, b], [y], flops=2 * y.elements * a.lens[-1])


def _stored(sums: str, y: Tensor, alpha: float) -> str:
    """Returns the code that converts sums, times alpha, to the type of y."""
    kind = compute_type(y.dtype)
    return to_storage(f"({kind}){sums}" + ("" if alpha == 1 else f" * {constant(alpha, kind)}"), y.dtype)


def _small(a: Tensor, b: Tensor, y: Tensor, traits: DeviceTraits, alpha: float) -> KernelSource:
    """Returns a kernel in which a thread computes adjacent results of a row, or one where the columns of b are contiguous."""
    if b.strides[-2] == 1 and b.strides[-1] != 1:
        return _small_columns(a, b, y, traits, alpha)
    n, k = y.lens[-1], a.lens[-1]
    width = vector_width(n, [(y, y.strides, 0)], preferred_width([b, y]))
    while width > 1 and y.elements < width * traits.wave * traits.sm_count:
        width //= 2
    index, kind, items = index_type(a, b, y), _wide(a), y.elements // width
    setup, names = decompose("i", (*y.lens[:-1], n // width), "c")
    row, column = names[:-1], [*names[:-2], names[-1]]
    reader = Reader(b, (*b.strides[:-2], b.strides[-2], b.strides[-1]), 0, width)
    steps = [offset_code(["d"], [stride], 0, index) for stride in (a.strides[-1], b.strides[-2])]
    factor, term = to_compute(f"a[{steps[0]}]", a.dtype), to_compute(reader.element("x"), b.dtype)
    at = offset_code(names, y.strides, 0, index, width)
    if width == 1:
        stores = [f"q0[{at}] = {_stored('sums[0]', y, alpha)};"]
    else:
        stores = [
            f"vec<{storage_type(y.dtype)}, {width}> out;",
            f"UNROLL for (int k = 0; k < {width}; ++k) out.v[k] = {_stored('sums[k]', y, alpha)};",
            f"{store_code(y, width)}(q0 + ({at}), out);",
        ]
    lines = [
        f"const u32 i = blockIdx.x * blockDim.x + threadIdx.x;  // {width} neighbor{'s' * (width > 1)} each",
        "if (i >= n) return;",
        *setup,
        f"const {storage_type(a.dtype)}* const a = p0 + ({offset_code(row, a.strides[:-1], 0, index)});",
        f"const {storage_type(b.dtype)}* const b = "
        f"p1 + ({offset_code(column, (*b.strides[:-2], b.strides[-1]), 0, index, width)});",
        f"{kind} sums[{width}] = {{}};",
        f"UNROLL for (u32 d = 0; d < {k}u; ++d) {{",
        f"  const {kind} factor = ({kind}){factor};",
        *("  " + line for line in reader.lines("x", "b", steps[1])),
        f"  UNROLL for (int k = 0; k < {width}; ++k) sums[k] += factor * ({kind}){term};",
        "}",
        *stores,
    ]
    threads = threads_of(items, traits)
    flops = 2 * y.elements * k
    return one_launch("product", lines, [a, b], [y], ceil_div(items, threads), threads, items=items, flops=flops)


def _small_columns(a: Tensor, b: Tensor, y: Tensor, traits: DeviceTraits, alpha: float) -> KernelSource:
    """Returns a kernel in which a thread computes one result, reading a column of b as vectors."""
    k, index, kind = a.lens[-1], index_type(a, b, y), _wide(a)
    column = (*b.strides[:-2], b.strides[-1], 1)
    width = vector_width(k, [(b, column, 0)], preferred_width([b]))
    setup, names = decompose("i", y.lens, "c")
    row = Reader(a, a.strides, 0, width), Reader(b, column, 0, width)
    factors = [to_compute(reader.element(name), x.dtype) for reader, name, x in zip(row, "uv", (a, b), strict=True)]
    at = [
        offset_code([*names[:-1], "d"], a.strides, 0, index),
        offset_code([*names[:-2], names[-1], "d"], column, 0, index),
    ]
    lines = [
        "const u32 i = blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i >= n) return;",
        *setup,
        f"{kind} sum = 0;",
        f"UNROLL for (u32 d = 0; d < {k}u; d += {width}u) {{",
        *("  " + line for line in row[0].lines("u", "p0", at[0])),
        *("  " + line for line in row[1].lines("v", "p1", at[1])),
        f"  UNROLL for (int k = 0; k < {width}; ++k) sum += ({kind}){factors[0]} * ({kind}){factors[1]};",
        "}",
        f"q0[{offset_code(names, y.strides, 0, index)}] = {_stored('sum', y, alpha)};",
    ]
    threads, flops = threads_of(y.elements, traits), 2 * y.elements * k
    blocks = ceil_div(y.elements, threads)
    return one_launch("product", lines, [a, b], [y], blocks, threads, items=y.elements, flops=flops)


def _wide(x: Tensor) -> str:
    """Returns the type of sums of products of these elements."""
    kind = compute_type(x.dtype)
    return {"i8": "i32", "i16": "i32", "u8": "u32", "u16": "u32"}.get(kind, kind)


def product_text(
    name: str, a: Tensor, b: Tensor, y: Tensor, traits: DeviceTraits, alpha: float = 1.0
) -> tuple[str, int, int]:
    """Returns a kernel ``name(p0, p1, q0)`` for y = alpha a b, its number of blocks and threads.

    y may be wider than the operands.
    """
    m, n = y.lens[-2:]
    batch = y.lens[:-2]
    down, across = ceil_div(m, TILE), ceil_div(n, TILE)
    setup, names = decompose("batch", batch, "c")
    bases = [offset_code(names, t.strides[:-2], 0, "u64") for t in (a, b, y)]
    ta, ty = storage_type(a.dtype), storage_type(y.dtype)
    head = [
        f"const u32 col0 = blockIdx.x % {across}u * {TILE}u, tile = blockIdx.x / {across}u;",
        f"const u32 row0 = tile % {down}u * {TILE}u, batch = tile / {down}u;",
        *setup,
        f"const {ta}* const a = p0 + ({bases[0]});",
        f"const {ta}* const b = p1 + ({bases[1]});",
        f"{ty}* const y = q0 + ({bases[2]});",
    ]
    narrow = a.dtype in (dt.float16, dt.bfloat16)
    threads = 4 * traits.wave if narrow else 256
    depth = 32 if narrow else 16
    body = _matrix if narrow else _scalar
    lines = [*head, *body(a, b, y, threads, depth, alpha)]
    parameters, _ = pointers([a, b], [y])
    return kernel(name, parameters, lines, threads), across * down * math.prod(batch), threads


def _tile(
    t: Tensor, name: str, target: str, rows: int, columns: int, ld: int, first: tuple[str, str], threads: int
) -> list[str]:
    """Returns statements that copy a tile of the matrix `name` to shared memory as [rows][ld], with zeros beyond its extents."""
    kind, step = storage_type(t.dtype), 16 // t.dtype.size
    high, wide = t.lens[-2:]
    inside = f"{first[0]} + r < {high}u && {first[1]} + c < {wide}u"
    if aligned(t, t.strides, 0, step) and wide % step == 0 and columns % step == 0 and ld % step == 0:
        return [
            f"for (u32 x = threadIdx.x; x < {rows * columns // step}u; x += {threads}u) {{",
            f"  const u32 r = x / {columns // step}u, c = x % {columns // step}u * {step}u;",
            f"  async_copy<16>(&{target}[r * {ld} + c], "
            f"{name} + (u64)({first[0]} + r) * {t.strides[-2]}u + {first[1]} + c, {inside});",
            "}",
        ]
    across = t.strides[-1] != 1
    pair = (f"x % {rows}u", f"x / {rows}u") if across else (f"x / {columns}u", f"x % {columns}u")
    zero = f"convert<{kind}>(0.f)"
    return [
        f"for (u32 x = threadIdx.x; x < {rows * columns}u; x += {threads}u) {{",
        f"  const u32 r = {pair[0]}, c = {pair[1]};",
        f"  {target}[r * {ld} + c] = {inside} ? "
        f"{name}[(u64)({first[0]} + r) * {t.strides[-2]}u + (u64)({first[1]} + c) * {t.strides[-1]}u] : {zero};",
        "}",
    ]


def _matrix(a: Tensor, b: Tensor, y: Tensor, threads: int, depth: int, alpha: float) -> list[str]:
    """Returns the body for matrix units: four waves, each 32 x 32 of the tile."""
    t = storage_type(a.dtype)
    m, n, k = y.lens[-2], y.lens[-1], a.lens[-1]
    turned = b.strides[-2] == 1 and b.strides[-1] != 1  # b is column-major
    la, lb = depth + 8, (depth if turned else TILE) + 8
    if turned:
        flipped = Tensor(b.dtype, (*b.lens[:-2], n, k), (*b.strides[:-2], b.strides[-1], 1), b.align)
        tile = _tile(flipped, "b", "bs", TILE, depth, lb, ("col0", "k0"), threads)
        load = f"frag_load_bt_shared(fb[j], bs + (wc + j * 16) * {lb} + d, {lb})"
    else:
        tile = _tile(b, "b", "bs", depth, TILE, lb, ("k0", "col0"), threads)
        load = f"frag_load_b_shared(fb[j], bs + d * {lb} + wc + j * 16, {lb})"
    sm, sn = y.strides[-2:]
    return [
        "const u32 wave = threadIdx.x / WAVE, wr = wave / 2 * 32, wc = wave % 2 * 32;",
        f"SHARED({t}, as, [{TILE * la}]);",
        f"SHARED({t}, bs, [{(TILE if turned else depth) * lb}]);",
        "frag_c acc[2][2];",
        "UNROLL for (int i = 0; i < 2; ++i)",
        "  UNROLL for (int j = 0; j < 2; ++j) frag_fill(acc[i][j], 0.f);",
        f"for (u32 k0 = 0; k0 < {k}u; k0 += {depth}u) {{",
        "  __syncthreads();",
        *("  " + x for x in _tile(a, "a", "as", TILE, depth, la, ("row0", "k0"), threads)),
        *("  " + x for x in tile),
        "  async_commit();",
        "  async_wait<0>();",
        "  __syncthreads();",
        f"  UNROLL for (int d = 0; d < {depth}; d += 16) {{",
        f"    frag_a<{t}> fa[2];",
        f"    frag_b<{t}> fb[2];",
        f"    UNROLL for (int i = 0; i < 2; ++i) frag_load_a_shared(fa[i], as + (wr + i * 16) * {la} + d, {la});",
        f"    UNROLL for (int j = 0; j < 2; ++j) {load};",
        "    UNROLL for (int i = 0; i < 2; ++i)",
        "      UNROLL for (int j = 0; j < 2; ++j) frag_mma(acc[i][j], fa[i], fb[j]);",
        "  }",
        "}",
        "UNROLL for (int i = 0; i < 2; ++i)",
        "  UNROLL for (int j = 0; j < 2; ++j)",
        "    UNROLL for (int e = 0; e < FRAG_C; ++e) {",
        "      const u32 row = row0 + wr + i * 16 + frag_row(e), col = col0 + wc + j * 16 + frag_col(e);",
        f"      if (row < {m}u && col < {n}u) y[(u64)row * {sm}u + (u64)col * {sn}u] = {_stored('acc[i][j].x[e]', y, alpha)};",
        "    }",
    ]


def _scalar(a: Tensor, b: Tensor, y: Tensor, threads: int, depth: int, alpha: float) -> list[str]:
    """Returns the body for FMAs: 16 x 16 threads, each 4 x 4 of the tile."""
    t, wide = storage_type(a.dtype), _wide(a)
    m, n, k = y.lens[-2], y.lens[-1], a.lens[-1]
    step = 16 // a.dtype.size
    la, lb = depth + step, TILE + step
    sm, sn = y.strides[-2:]
    return [
        "const u32 tx = threadIdx.x % 16u, ty = threadIdx.x / 16u;",
        f"SHARED({t}, as, [{TILE * la}]);",
        f"SHARED({t}, bs, [{depth * lb}]);",
        f"{wide} acc[4][4] = {{}};",
        f"for (u32 k0 = 0; k0 < {k}u; k0 += {depth}u) {{",
        "  __syncthreads();",
        *("  " + x for x in _tile(a, "a", "as", TILE, depth, la, ("row0", "k0"), threads)),
        *("  " + x for x in _tile(b, "b", "bs", depth, TILE, lb, ("k0", "col0"), threads)),
        "  async_commit();",
        "  async_wait<0>();",
        "  __syncthreads();",
        f"  UNROLL for (int d = 0; d < {depth}; ++d) {{",
        f"    {wide} av[4], bv[4];",
        f"    UNROLL for (int i = 0; i < 4; ++i) av[i] = ({wide}){to_compute(f'as[(ty + i * 16) * {la} + d]', a.dtype)};",
        f"    UNROLL for (int j = 0; j < 4; ++j) bv[j] = ({wide}){to_compute(f'bs[d * {lb} + tx + j * 16]', b.dtype)};",
        "    UNROLL for (int i = 0; i < 4; ++i)",
        "      UNROLL for (int j = 0; j < 4; ++j) acc[i][j] += av[i] * bv[j];",
        "  }",
        "}",
        "UNROLL for (int i = 0; i < 4; ++i)",
        "  UNROLL for (int j = 0; j < 4; ++j) {",
        "    const u32 row = row0 + ty + i * 16, col = col0 + tx + j * 16;",
        f"    if (row < {m}u && col < {n}u) y[(u64)row * {sm}u + (u64)col * {sn}u] = {_stored('acc[i][j]', y, alpha)};",
        "  }",
    ]
