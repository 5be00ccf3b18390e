"""Convolutions of floats as products of their windows, gathered on load (implicit GEMM); extents of images may be arguments.

Rows are positions of the results, columns filters, and k runs over a window's pixels, then its channels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.types.traced_int import divides

from .extents import estimated
from .geometry import aligned, ceil_div, decompose, index_type, merge
from .narrow_operands import CHUNK, Windows
from .pointwise import one_launch
from .product_epilogue import FusedEpilogue, store_vectors
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type

__all__ = ["TYPES", "chunk_of", "window_product"]

TYPES: Final = (dt.float32, dt.float16, dt.bfloat16)
STEP: Final = 128  # bytes of k per step
PITCH: Final = STEP + CHUNK  # bytes between rows in shared memory, so that eight rows fall into different banks
SIDE: Final = 8  # rows and columns of float32 sums of a thread
THREADS: Final = 256  # of a block, for float32
MOST_STAGES: Final = 4
ROOM: Final = 112 << 10  # bytes of shared memory of a block, of which two share a multiprocessor


@dataclass(frozen=True)
class _Tile:
    """rows x columns of sums per block, whose threads are in parts that each add up a part of k.

    apart: parts on matrix units; down, across: waves of a part along rows and columns.
    """

    rows: int
    columns: int
    apart: int
    down: int
    across: int

    def parts(self, dtype: dt.DType) -> int:
        if dtype is dt.float32:
            return min(THREADS * SIDE * SIDE // (self.rows * self.columns), STEP // CHUNK)
        return self.apart

    def threads(self, dtype: dt.DType, wave: int) -> int:
        of_part = self.down * self.across * wave
        if dtype is dt.float32:
            of_part = self.rows * self.columns // (SIDE * SIDE)
        return of_part * self.parts(dtype)

    def stages(self, traits: DeviceTraits) -> int:
        """Returns how many steps are in flight."""
        return min(MOST_STAGES, min(ROOM, traits.shared_most) // ((self.rows + self.columns) * PITCH))


TILES: Final = (
    _Tile(128, 128, 1, 4, 2),
    _Tile(128, 64, 2, 2, 2),
    _Tile(128, 32, 2, 4, 1),
    _Tile(64, 64, 4, 2, 1),
    _Tile(64, 32, 4, 2, 1),
    _Tile(32, 64, 4, 1, 2),
    _Tile(32, 32, 4, 1, 1),
)


def chunk_of(dtype: dt.DType) -> int:
    """Returns the elements of a load."""
    return CHUNK // dtype.size


def window_product(
    xs: Sequence[Tensor | None],
    ys: Sequence[Tensor],
    after: FusedEpilogue | None,
    windows: Windows,
    traits: DeviceTraits,
) -> KernelSource | No:
    """Generates a kernel for windows of x [n, c, ..], channels last, times w [o, k]^T.

    xs: x and w, in whole chunks, then the operands of `after`; ys: results [n, o, ..].
    """
    x, w = xs[:2]
    assert x is not None and w is not None
    if x.dtype not in TYPES or w.dtype is not x.dtype:
        return No(f"the kernel does not multiply {x.dtype} and {w.dtype}")
    chunk = chunk_of(x.dtype)
    steps = (x.lens[1] // windows.group, *x.strides[:1], *x.strides[2:])
    if x.strides[1] != 1 or x.align % CHUNK or not all(divides(chunk, s) for s in steps):
        return No("the image is not channels last in whole chunks")
    rows, columns = ys[0].elements // ys[0].lens[1], w.lens[0] // windows.group
    tile = _tile(x, rows, columns, w.lens[1], windows.group, traits)
    if tile is None:
        return No("no tile fits into the device's shared memory")
    text = _Writer(x, w, ys, after, windows, tile, traits)
    grid = (ceil_div(rows, tile.rows) * ceil_div(columns, tile.columns), 1, windows.group)
    return one_launch(
        f"convolution_product_{tile.rows}x{tile.columns}",
        text.lines(),
        xs,
        ys,
        grid,
        text.threads,
        blocks=0 if text.units else 2,  # which bounds the registers of a thread
        shared=max(text.stages * text.stage, text.sum_bytes),
        flops=2 * ys[0].elements * w.lens[1],
    )


def _tile(x: Tensor, rows: int, columns: int, depth: int, count: int, traits: DeviceTraits) -> _Tile | None:
    """Returns the tile with the least estimated time; None if none fits."""
    fits = [t for t in TILES if t.stages(traits) > 1 and t.threads(x.dtype, traits.wave) <= traits.max_threads]
    number = estimated(rows)

    def nanoseconds(t: _Tile) -> float:
        """Returns an estimate: of 154 measurements on an H200, its error is 9 % (root mean square).

        The time of a block's step is that of its float32 products, or of its loads, whatever else runs on its multiprocessor.
        """
        blocks = math.ceil(number / t.rows) * ceil_div(columns, t.columns) * count
        rounds = (math.ceil(blocks / traits.sm_count) + max(blocks / traits.sm_count, 1)) / 2
        sums = t.rows * t.columns
        step, end = (t.rows + t.columns) * 0.064, 400 + sums * 0.08
        if x.dtype is dt.float32:
            step, end = sums / 93, 200 + sums * 0.02
        return 1500 + rounds * (depth * step + end)

    return min(fits, key=nanoseconds, default=None)


class _Writer:
    """Generates the source of one kernel."""

    def __init__(
        self,
        x: Tensor,
        w: Tensor,
        ys: Sequence[Tensor],
        after: FusedEpilogue | None,
        windows: Windows,
        tile: _Tile,
        traits: DeviceTraits,
    ) -> None:
        self.x, self.w, self.ys, self.after, self.windows, self.tile = x, w, ys, after, windows, tile
        self.t = storage_type(x.dtype)
        self.threads, self.parts = tile.threads(x.dtype, traits.wave), tile.parts(x.dtype)
        self.units = x.dtype is not dt.float32
        self.places = (ys[0].lens[0], *ys[0].lens[2:])
        self.rows, self.columns, self.depth = math.prod(self.places), w.lens[0] // windows.group, w.lens[1]
        self.stages, self.stage = tile.stages(traits), (tile.rows + tile.columns) * PITCH
        self.down, self.across = tile.rows // tile.down // 16, tile.columns // tile.across // 16
        self.sum_pitch = tile.columns + 4
        self.together = 1  # of a thread's rows of float32 sums, those that are stored together
        while 2 * self.together <= SIDE and 2 * self.together * self.scalar_bytes <= self.stages * self.stage:
            self.together *= 2
        self.strip = 16 * tile.down if self.units else self.together * tile.rows // SIDE  # rows of all threads
        self.sum_bytes = self.parts * self.strip * self.sum_pitch * 4

    @property
    def scalar_bytes(self) -> int:
        """Returns the bytes of one row of float32 sums of each thread."""
        return self.parts * self.tile.rows // SIDE * self.sum_pitch * 4

    def lines(self) -> list[str]:
        t, of_part = self.tile, self.threads // self.parts
        across = ceil_div(self.columns, t.columns)
        where = [f"const u32 part = threadIdx.x / {of_part}u, own = threadIdx.x % {of_part}u;"]
        if self.units:
            where += [
                f"const u32 wd = own / WAVE / {t.across}u, wc = own / WAVE % {t.across}u * {16 * self.across}u;",
                f"const u32 wr = wd * {16 * self.down}u;",
            ]
        else:
            nx = t.columns // SIDE
            where += [f"const u32 tx = own % {nx}u, ty = own / {nx}u;"]
        return [
            f"const u32 m0 = blockIdx.x / {across}u * {t.rows}u, n0 = blockIdx.x % {across}u * {t.columns}u;",
            *where,
            "SHARED_DYNAMIC(u8, room);",
            *self.load_image(),
            *self.load_weights(),
            *self.loop(),
            *self.results(),
        ]

    # loading operands

    def chunks(self, rows: int) -> tuple[int, list[str]]:
        """Returns how many chunks of a step with so many rows a thread loads, and the guard of those beyond the last row."""
        count = ceil_div(rows * STEP // CHUNK, self.threads)
        per_pass = self.threads * CHUNK // STEP
        return count, [f"if (r >= {rows}u) break;"] if rows % per_pass else []

    def row_of_chunk(self) -> str:
        return f"const u32 r = threadIdx.x / {STEP // CHUNK}u + i * {self.threads * CHUNK // STEP}u;"

    def load_image(self) -> list[str]:
        """Returns statements that locate the windows of a thread's rows, and a function that loads one step of them."""
        x, w, t = self.x, self.windows, self.tile
        count, guard = self.chunks(t.rows)
        inner, chunk, axes = x.lens[1] // w.group, chunk_of(x.dtype), len(w.kernel)
        kind = index_type(x).replace("u", "i")
        steps = (x.strides[0], *x.strides[2:])
        setup, names = decompose("m", self.places, "c")
        taps, tap = decompose(f"k / {inner}u", w.kernel, "t")
        begins = [
            f"const i32 s{n} = (i32){name} * {stride} - {begin};"
            for n, (name, stride, begin) in enumerate(zip(names[1:], w.stride, w.begins, strict=True))
        ]
        terms = [names[0], *(f"s{n}" for n in range(axes))]
        moves = [f"({kind})o{n} * {s}" for n, s in enumerate(steps[1:])]
        inside = [f"(u32)(a_at[i][{n}] + o{n}) < {x.lens[2 + n]}u" for n in range(axes)]
        return [
            f"const {self.t}* const x = p0 + blockIdx.z * {inner}u;",
            f"{kind} a_row[{count}];",
            f"i32 a_at[{count}][{axes}];",
            f"UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"  {self.row_of_chunk()}",
            "  const u32 m = m0 + r;",
            *(f"  {line}" for line in (*setup, *begins)),
            f"  a_row[i] = {' + '.join(f'({kind}){name} * {step}' for name, step in zip(terms, steps, strict=True))};",
            f"  a_at[i][0] = m < {self.rows}u ? s0 : {-(1 << 30)};",
            *(f"  a_at[i][{n}] = s{n};" for n in range(1, axes)),
            "}",
            "auto load_image = [&](u32 step, u8* to) {",
            f"  const u32 q = threadIdx.x % {STEP // CHUNK}u, k = step * {STEP // x.dtype.size}u + q * {chunk}u;",
            *(f"  {line}" for line in taps),
            *(
                f"  const i32 o{n} = (i32){name} * {d};"
                for n, (name, d) in enumerate(zip(tap, w.dilation, strict=True))
            ),
            f"  const {kind} moved = {' + '.join([*moves, f'({kind})(k % {inner}u)'])};",
            f"  UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"    {self.row_of_chunk()}",
            *(f"    {line}" for line in guard),
            f"    const bool there = k < {self.depth}u && {' && '.join(inside)};",
            f"    async_copy<16>(to + r * {PITCH}u + q * {CHUNK}u, x + (a_row[i] + moved), there);",
            "  }",
            "};",
        ]

    def load_weights(self) -> list[str]:
        """Returns a function that loads one step of the weights of the block's columns."""
        t, count_guard = self.tile, self.chunks(self.tile.columns)
        count, guard = count_guard
        return [
            f"const {self.t}* const w = p1 + (u64)blockIdx.z * {self.columns}u * {self.w.strides[0]}u;",
            "auto load_weights = [&](u32 step, u8* to) {",
            f"  const u32 q = threadIdx.x % {STEP // CHUNK}u, k = step * {STEP // self.x.dtype.size}u "
            f"+ q * {chunk_of(self.x.dtype)}u;",
            f"  UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"    {self.row_of_chunk()}",
            *(f"    {line}" for line in guard),
            f"    const bool there = k < {self.depth}u && n0 + r < {self.columns}u;",
            f"    async_copy<16>(to + ({t.rows}u + r) * {PITCH}u + q * {CHUNK}u, "
            f"w + (u64)(n0 + r) * {self.w.strides[0]}u + k, there);",
            "  }",
            "};",
        ]

    # main loop

    def loop(self) -> list[str]:
        steps, ahead = ceil_div(self.depth, STEP // self.x.dtype.size), self.stages - 1
        return [
            *self.start(),
            f"UNROLL for (u32 s = 0; s < {ahead}u; ++s) {{",
            f"  if (s < {steps}u) {{ load_image(s, room + s * {self.stage}u); load_weights(s, room + s * {self.stage}u); }}",
            "  async_commit();",
            "}",
            f"u32 slot = 0, free = {ahead}u;",
            f"for (u32 step = 0; step < {steps}u; ++step) {{",
            f"  async_wait<{ahead - 1}>();",
            "  __syncthreads();",
            f"  if (step + {ahead}u < {steps}u) {{",
            f"    load_image(step + {ahead}u, room + free * {self.stage}u);",
            f"    load_weights(step + {ahead}u, room + free * {self.stage}u);",
            "  }",
            "  async_commit();",
            f"  const {self.t}* const as = (const {self.t}*)(room + slot * {self.stage}u);",
            f"  const {self.t}* const bs = as + {self.tile.rows * PITCH // self.x.dtype.size}u;",
            *(f"  {line}" for line in (self.matrix() if self.units else self.scalar())),
            "  free = slot;",
            f"  slot = slot + 1 == {self.stages}u ? 0 : slot + 1;",
            "}",
            "async_wait<0>();",
        ]

    def start(self) -> list[str]:
        """Returns statements that declare the thread's sums."""
        if not self.units:
            return [f"float acc[{SIDE}][{SIDE}] = {{}};"]
        return [
            f"frag_c acc[{self.down}][{self.across}];",
            f"UNROLL for (int i = 0; i < {self.down}; ++i)",
            f"  UNROLL for (int j = 0; j < {self.across}; ++j) frag_fill(acc[i][j], 0.f);",
        ]

    def matrix(self) -> list[str]:
        """Returns statements that multiply a step on matrix units."""
        pitch = PITCH // self.x.dtype.size
        return [
            f"UNROLL for (u32 d = part * 16u; d < {STEP // self.x.dtype.size}u; d += {16 * self.parts}u) {{",
            f"  frag_a<{self.t}> fa[{self.down}];",
            f"  frag_b<{self.t}> fb[{self.across}];",
            f"  UNROLL for (int i = 0; i < {self.down}; ++i) "
            f"frag_load_a_shared(fa[i], as + (wr + i * 16u) * {pitch}u + d, {pitch});",
            f"  UNROLL for (int j = 0; j < {self.across}; ++j) "
            f"frag_load_bt_shared(fb[j], bs + (wc + j * 16u) * {pitch}u + d, {pitch});",
            f"  UNROLL for (int i = 0; i < {self.down}; ++i)",
            f"    UNROLL for (int j = 0; j < {self.across}; ++j) frag_mma(acc[i][j], fa[i], fb[j]);",
            "}",
        ]

    def scalar(self) -> list[str]:
        """Returns statements that multiply a step by multiply-adds; a thread's rows and columns are spread over the tile."""
        t, pitch = self.tile, PITCH // 4
        return [
            f"UNROLL for (u32 d = part * 4u; d < {STEP // 4}u; d += {4 * self.parts}u) {{",
            f"  vec<float, 4> b[{SIDE}];",
            f"  UNROLL for (int j = 0; j < {SIDE}; ++j) "
            f"b[j] = ldv<float, 4>(bs + (tx + j * {t.columns // SIDE}u) * {pitch}u + d);",
            f"  UNROLL for (int i = 0; i < {SIDE}; ++i) {{",
            f"    const vec<float, 4> a = ldv<float, 4>(as + (ty + i * {t.rows // SIDE}u) * {pitch}u + d);",
            f"    UNROLL for (int j = 0; j < {SIDE}; ++j)",
            "      UNROLL for (int k = 0; k < 4; ++k) acc[i][j] += a.v[k] * b[j].v[k];",
            "  }",
            "}",
        ]

    # storing results

    def results(self) -> list[str]:
        """Returns statements that apply the epilogue to the sums, through shared memory, and store vectors."""
        t, width = self.tile, self.width()
        per_row = t.columns // width
        if self.units:
            count, row = self.down, f"s / 16u * {16 * self.down}u + i * 16u + s % 16u"
            stores = [
                f"UNROLL for (int j = 0; j < {self.across}; ++j) "
                f"frag_store<float>(acc[i][j], sums + (part * {self.strip}u + wd * 16u) * {self.sum_pitch}u + wc + j * 16, "
                f"{self.sum_pitch});"
            ]
        else:
            count, row = SIDE // self.together, f"s + i * {self.strip}u"
            stores = [
                f"UNROLL for (u32 u = 0; u < {self.together}u; ++u)",
                f"  UNROLL for (u32 j = 0; j < {SIDE}u; ++j)",
                f"    sums[(part * {self.strip}u + u * {t.rows // SIDE}u + ty) * {self.sum_pitch}u "
                f"+ tx + j * {t.columns // SIDE}u] = acc[i * {self.together}u + u][j];",
            ]
        return [
            "float* const sums = (float*)room;",
            f"UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            "  __syncthreads();",
            *(f"  {line}" for line in stores),
            "  __syncthreads();",
            f"  for (u32 e = threadIdx.x; e < {self.strip * per_row}u; e += {self.threads}u) {{",
            f"    const u32 s = e / {per_row}u, c = e % {per_row}u * {width}u, m = m0 + {row};",
            f"    if (m >= {self.rows}u || n0 + c >= {self.columns}u) continue;",
            *(f"    {line}" for line in self.finish(width)),
            "  }",
            "}",
        ]

    def finish(self, width: int) -> list[str]:
        """Returns statements that finish `width` adjacent sums of row `m`, those from column `c` of the tile on."""
        some = min(width, 4)
        kind = compute_type(self.after.given[0].dtype if self.after else self.ys[0].dtype)
        strides = [y.strides for y in self.ys] + [a.strides for a in (self.after.reads() if self.after else ())]
        rows = merge(self.places, [[s[0], *s[2:]] for s in strides])
        setup, names = decompose("m", rows.dims, "c")
        flat = [[*rows.strides[n], s[1]] for n, s in enumerate(strides)]
        lines = [f"{kind} v[{width}];"]
        for part in range(self.parts):
            lines += [
                f"UNROLL for (int k = 0; k < {width}; k += {some}) {{",
                f"  const vec<float, {some}> q = "
                f"ldv<float, {some}>(sums + ({part * self.strip}u + s) * {self.sum_pitch}u + c + k);",
                f"  UNROLL for (int l = 0; l < {some}; ++l) v[k + l] {'+=' if part else '='} ({kind})q.v[l];",
                "}",
            ]
        group = f" + blockIdx.z * {self.columns}u" if self.windows.group > 1 else ""
        return [
            *setup,
            f"const u32 cv = (n0 + c{group}) / {width}u;",
            *lines,
            *store_vectors(self.ys, self.after, flat, [*names, "cv"], width),
        ]

    def width(self) -> int:
        """Returns how many adjacent columns a thread finishes: 16 bytes of the narrowest result."""
        width = CHUNK // min(y.dtype.size for y in self.ys)

        def fits(y: Tensor) -> bool:
            return aligned(y, [y.strides[0], *y.strides[2:], y.strides[1]], 0, width)

        while width > 1 and (self.columns % width or not all(map(fits, self.ys))):
            width //= 2
        return width
