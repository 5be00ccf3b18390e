"""Convolutions of few input channels on matrix units: implicit GEMM that reads windows directly from shared memory.

The image is loaded once, converted from any layout and type to channels last.  Each run of eight contiguous elements there is a
part of a window's row; the weights are stored in the order of these runs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt
from mgx_core.types.traced_int import larger

from .few_channels_tiles import RUN, Filters, Tile, tiles_by_time
from .geometry import aligned, ceil_div, offset_code
from .pointwise import one_launch
from .product_epilogue import FusedEpilogue, store_vectors
from .source import DeviceTraits, KernelSource, Tensor, compute_type, storage_type

__all__ = ["few_channels"]

WITHOUT_UNITS: Final = ("gfx10", "sm_5", "sm_6", "sm_7")  # architectures without matrix units
AT_ONCE: Final = 4  # pixels that a thread loads before it stores the first


def few_channels(
    xs: Sequence[Tensor | None],
    ys: Sequence[Tensor],
    after: FusedEpilogue | None,
    filters: Filters,
    traits: DeviceTraits,
    tile: Tile | int = 0,
) -> KernelSource | No:
    """Generates a kernel for windows of x [n, c, (h,) w] times weights [o, depth] in the order of `filters`.

    xs: x, of any type and strides; weights, zero-padded to a multiple of 16 rows; the zero point of x, which pads it, or None;
    the operands of `after`.  ys: results [n, o, (h,) w].  tile: a tile size, or its rank by estimated time.
    """
    x, w, zero = (*xs, None)[:3]
    assert x is not None and w is not None
    if w.dtype not in (dt.float16, dt.bfloat16):
        return No(f"matrix units do not support {w.dtype}")
    if traits.arch.startswith(WITHOUT_UNITS):
        return No(f"{traits.arch} has no matrix units")
    count, columns, *image = ys[0].lens
    high, wide = image if len(image) == 2 else (1, *image)
    if 0 in ys[0].lens:
        return No("an extent is 0")
    if isinstance(tile, int):
        tiles = tiles_by_time(filters, columns, (high, wide), count, traits)
        if tile >= len(tiles):
            return No(f"only {len(tiles)} tile sizes fit on the device")
        tile = tiles[tile]
    text = _Writer(x, w, ys, after, tile, traits, (high, wide), zero is not None)
    blocks = -larger(-text.tiles, -traits.sm_count * tile.resident(traits))  # the smaller number
    grid = (blocks, ceil_div(columns, tile.columns), 1)
    flops = 2 * ys[0].elements * filters.channels * math.prod(filters.kernel)
    ahead, lines = text.lines()
    return one_launch(
        "convolution_few_channels", lines, xs, ys, grid, text.threads, ahead=ahead, shared=tile.shared, flops=flops
    )


class _Writer:
    """Generates the source of one kernel."""

    def __init__(
        self,
        x: Tensor,
        w: Tensor,
        ys: Sequence[Tensor],
        after: FusedEpilogue | None,
        tile: Tile,
        traits: DeviceTraits,
        image: tuple[int, int],
        moved: bool,
    ) -> None:
        self.x, self.w, self.ys, self.after, self.tile, self.f = x, w, ys, after, tile, tile.filters
        self.moved = moved  # x has a zero point
        self.image, self.t, self.wave = image, storage_type(w.dtype), traits.wave
        self.threads = tile.waves * traits.wave
        self.down_tiles, self.across_tiles = ceil_div(image[0], tile.high), ceil_div(image[1], tile.wide)
        self.tiles = ys[0].lens[0] * self.down_tiles * self.across_tiles
        self.steps = self.f.kernel[0] // tile.taps

    def lines(self) -> tuple[list[str], list[str]]:
        """Returns statements that may run before the previous kernel has ended, and the others."""
        t, whole = self.tile, self.tile.whole
        images = (1 if whole else 2) * t.columns * t.weight_pitch
        ahead = [
            "SHARED_DYNAMIC(u8, room);",
            f"{self.t}* const ws = ({self.t}*)room;",
            f"const u32 n0 = blockIdx.y * {t.columns}u;",
            *self.load_weights(),
        ]
        first = ["load_weights(ws, 0u);", "async_commit();"]
        lines = [
            f"{self.t}* const tiles = ws + {images};",
            f"float* const sums = (float*)(tiles + {2 * t.rows * t.pitch}) + wave_id() * {16 * t.sum_pitch}u;",
            *self.load_image(),
            *self.rows(),
            f"frag_c acc[{t.down}][{t.across}];",
            *self.multiply(),
            *([] if self.w.constant else first),
            "u32 slot = 0;",
            "load_image(tiles, blockIdx.x, 0u);",
            "async_wait<0>();",
            "__syncthreads();",
            f"for (u32 tile = blockIdx.x; tile < {self.tiles}u; tile += gridDim.x) {{",
            f"  UNROLL for (int i = 0; i < {t.down}; ++i)",
            f"    UNROLL for (int j = 0; j < {t.across}; ++j) frag_fill(acc[i][j], 0.f);",
            *(f"  {line}" for line in (self.one_step() if whole else self.several_steps())),
            "}",
        ]
        return [*ahead, *first] if self.w.constant else ahead, lines

    def one_step(self) -> list[str]:
        size = self.tile.rows * self.tile.pitch
        return [
            "const u32 next = tile + gridDim.x;",
            f"multiply(ws, tiles + slot * {size}u);",
            f"if (next < {self.tiles}u) load_image(tiles + (slot ^ 1u) * {size}u, next, 0u);",
            *self.results(),
            "__syncthreads();",
            "slot ^= 1u;",
        ]

    def several_steps(self) -> list[str]:
        size, weights = self.tile.rows * self.tile.pitch, self.tile.columns * self.tile.weight_pitch
        return [
            f"for (u32 step = 0; step < {self.steps}u; ++step) {{",
            f"  const bool last = step + 1 == {self.steps}u;",
            "  const u32 next = last ? tile + gridDim.x : tile, part = last ? 0u : step + 1;",
            f"  if (next < {self.tiles}u) load_weights(ws + (slot ^ 1u) * {weights}u, part);",
            "  async_commit();",
            f"  multiply(ws + slot * {weights}u, tiles + slot * {size}u);",
            f"  if (next < {self.tiles}u) load_image(tiles + (slot ^ 1u) * {size}u, next, part);",
            "  if (last) {",
            *(f"    {line}" for line in self.results()),
            "  }",
            "  async_wait<0>();",
            "  __syncthreads();",
            "  slot ^= 1u;",
            "}",
        ]

    # loading operands

    def load_weights(self) -> list[str]:
        """Returns a function that starts an asynchronous copy of the weights of a part of the window to shared memory."""
        t, rows = self.tile, self.w.lens[0]
        chunks = t.depth // RUN
        cut = rows % t.columns != 0
        there = f"n0 + r < {rows}u" if cut else "true"
        return [
            f"auto load_weights = [&]({self.t}* to, u32 part) {{",
            f"  for (u32 e = threadIdx.x; e < {t.columns * chunks}u; e += {self.threads}u) {{",
            f"    const u32 r = e / {chunks}u, k = e % {chunks}u * {RUN}u;",
            f"    const u32 at = (n0 + r) * {self.w.strides[0]}u + part * {t.depth}u + k;",
            f"    async_copy<16>(to + r * {t.weight_pitch}u + k, p1 + at, {there});",
            "  }",
            "};",
        ]

    def load_image(self) -> list[str]:
        """Returns a function that copies the pixels of a tile, or of some rows of its windows, to shared memory."""
        t, f, x = self.tile, self.f, self.x
        source = storage_type(x.dtype)
        return [
            f"const {source} none = {'p2[0]' if self.moved else '{0}'};",
            f"const {self.t} zero = {{0}};",
            f"auto load_image = [&]({self.t}* to, u32 tile, u32 part) {{",
            f"  const u32 tx = tile % {self.across_tiles}u, tq = tile / {self.across_tiles}u, ty = tq % {self.down_tiles}u;",
            f"  const {source}* const from = p0 + (u64)(tq / {self.down_tiles}u) * {x.strides[0]}ull;",
            f"  const i32 iy0 = (i32)(ty * {t.high * f.stride[0]}u) - {f.begins[0]}, "
            f"ix0 = (i32)(tx * {t.wide * f.stride[1]}u) - {f.begins[1]};",
            f"  for (u32 e0 = threadIdx.x; e0 < {t.rows * t.pixels}u; e0 += {AT_ONCE * self.threads}u) {{",
            f"    {source} raw[{AT_ONCE}][{f.channels}];",
            *(f"    {line}" for line in [*self.read_pixels(), *self.write_pixels()]),
            "  }",
            "};",
        ]

    def split_pixel(self) -> str:
        wide = self.tile.pixels
        return f"  const u32 e = e0 + i * {self.threads}u, r = e / {wide}u, c = e % {wide}u;"

    def read_pixels(self) -> list[str]:
        """Returns statements that read pixels one block apart; 0 in the padding."""
        t, f, x = self.tile, self.f, self.x
        _, down, across = _planar(x.strides)
        reach = sum((int(n) - 1) * int(s) for n, s in zip(x.lens[1:], x.strides[1:], strict=True))
        inner = "u32" if reach < 1 << 31 else "u64"
        high, wide = x.lens[2:] if len(x.lens) == 4 else (1, x.lens[2])
        row = "iy0 + (i32)r"
        if not t.whole:
            row = f"iy0 + (i32)(r / {t.taps}u) * {f.stride[0]} + (i32)(part * {t.taps}u + r % {t.taps}u) * {f.dilation[0]}"
        channels = [offset_code(["at", "1u"], [1, c * x.strides[1]], 0, inner) for c in range(f.channels)]
        return [
            f"UNROLL for (u32 i = 0; i < {AT_ONCE}; ++i) {{",
            self.split_pixel(),
            f"  const i32 iy = {row}, ix = ix0 + (i32)c;",
            f"  const bool in = e < {t.rows * t.pixels}u && (u32)iy < {high}u && (u32)ix < {wide}u;",
            f"  const {inner} at = {offset_code(['(u32)iy', '(u32)ix'], [down, across], 0, inner)};",
            *(f"  raw[i][{c}] = in ? from[{at}] : none;" for c, at in enumerate(channels)),
            "}",
        ]

    def write_pixels(self) -> list[str]:
        """Returns statements that convert these pixels and write them to shared memory, with zeros after their channels."""
        t, f = self.tile, self.f
        to = f"to + r * {t.pitch}u + c * {f.taken}u"
        less = " - (i32)none" if self.moved else ""
        values = [f"convert<{self.t}>(raw[i][{c}]{less})" if c < f.channels else "zero" for c in range(f.taken)]
        if f.taken in (1, 2, 4, 8):
            store = [
                f"const vec<{self.t}, {f.taken}> v = {{{{{', '.join(values)}}}}};",
                f"stv<{self.t}, {f.taken}>({to}, v);",
            ]
        else:
            store = [f"({to})[{c}] = {value};" for c, value in enumerate(values)]
        return [
            f"UNROLL for (u32 i = 0; i < {AT_ONCE}; ++i) {{",
            self.split_pixel(),
            f"  if (e < {t.rows * t.pixels}u) {{",
            *(f"    {line}" for line in store),
            "  }",
            "}",
        ]

    def rows(self) -> list[str]:
        """Returns statements that compute the offsets of a lane's windows in shared memory."""
        t, f = self.tile, self.f
        step, last = t.row_step * t.pitch, t.high * t.wide
        cut = last < t.places
        return [
            f"u32 rows[{t.down}][run_rows<{f.align}>::count];",
            f"UNROLL for (u32 i = 0; i < {t.down}; ++i)",
            f"  UNROLL for (u32 k = 0; k < run_rows<{f.align}>::count; ++k) {{",
            f"    const u32 m = wave_id() * {16 * t.down}u + i * 16u + run_row<{f.align}>(k);",
            f"    rows[i][k] = {f'm >= {last}u ? 0u : ' if cut else ''}m / {t.wide}u * {step}u + "
            f"m % {t.wide}u * {f.stride[1] * f.taken}u;",
            "  }",
        ]

    def multiply(self) -> list[str]:
        """Returns a function that accumulates the products of the operands in shared memory."""
        t, f = self.tile, self.f
        runs = [(j * t.tap_step * t.pitch + f.begin(q), f.length(q)) for j in range(t.taps) for q in range(f.per_row)]
        if len(runs) % 2:
            runs.append((runs[-1][0], 0))
        lines = [f"auto multiply = [&](const {self.t}* w, const {self.t}* x) {{", f"  frag_b<{self.t}> fb[{t.across}];"]
        for n in range(0, len(runs), 2):
            (low, some), (high, more) = runs[n : n + 2]
            lines += [
                f"  UNROLL for (int j = 0; j < {t.across}; ++j) "
                f"frag_load_bt_shared(fb[j], w + j * {16 * t.weight_pitch} + {n * RUN}, {t.weight_pitch});",
                f"  UNROLL for (int i = 0; i < {t.down}; ++i) {{",
                f"    frag_a<{self.t}> fa;",
                f"    frag_load_runs<{f.align}, {some}, {more}>(fa, x, rows[i], {low}u, {high}u);",
                f"    UNROLL for (int j = 0; j < {t.across}; ++j) frag_mma(acc[i][j], fa, fb[j]);",
                "  }",
            ]
        return [*lines, "};"]

    # storing results

    def results(self) -> list[str]:
        """Returns statements that apply the epilogue, 16 positions of a wave at a time, and store vectors."""
        t, ys = self.tile, self.ys
        width = self.width()
        accesses = self.after.reads() if self.after else []
        places = ["image", "oy", "ox", "cv"]
        per_row = t.columns // width
        columns = ys[0].lens[1]
        ragged = columns % t.columns != 0
        edges = [] if t.high * t.wide == t.places else [f"m >= {t.high * t.wide}u"]
        edges += [f"oy >= {self.image[0]}u"] if self.image[0] % t.high else []
        edges += [f"ox >= {self.image[1]}u"] if self.image[1] % t.wide else []
        edges += [f"n0 + c >= {columns}u"] if ragged else []
        some = min(width, 4)
        kind = compute_type(self.after.given[0].dtype if self.after else ys[0].dtype)  # of the sums, which are exact
        lines = [
            f"const u32 ox0 = tile % {self.across_tiles}u * {t.wide}u, oq = tile / {self.across_tiles}u;",
            f"const u32 oy0 = oq % {self.down_tiles}u * {t.high}u, image = oq / {self.down_tiles}u;",
            f"UNROLL for (int i = 0; i < {t.down}; ++i) {{",
            "  wave_sync();",
            f"  UNROLL for (int j = 0; j < {t.across}; ++j) frag_store<float>(acc[i][j], sums + j * 16, {t.sum_pitch});",
            "  wave_sync();",
            f"  UNROLL for (u32 e = lane_id(); e < {16 * per_row}u; e += WAVE) {{",
            f"    const u32 row = e / {per_row}u, c = e % {per_row}u * {width}u;",
            f"    const u32 m = wave_id() * {16 * t.down}u + i * 16u + row;",
            f"    const u32 oy = oy0 + m / {t.wide}u, ox = ox0 + m % {t.wide}u, cv = (n0 + c) / {width}u;",
            *([f"    if ({' || '.join(edges)}) continue;"] if edges else []),
            f"    {kind} v[{width}];",
            f"    UNROLL for (int k = 0; k < {width}; k += {some}) {{",
            f"      const vec<float, {some}> q = ldv<float, {some}>(sums + row * {t.sum_pitch}u + c + k);",
            f"      UNROLL for (int l = 0; l < {some}; ++l) v[k + l] = ({kind})q.v[l];",
            "    }",
        ]
        strides = [_inside(x) for x in (*(y.strides for y in ys), *(a.strides for a in accesses))]
        stores = store_vectors(ys, self.after, strides, places, width)
        lines += [f"    {line}" for line in stores]
        return [*lines, "  }", "}"]

    def width(self) -> int:
        """Adjacent filters per lane in the epilogue: 16 bytes of the narrowest result."""
        width = min(16 // min(y.dtype.size for y in self.ys), 16)
        while width > 1 and (
            self.ys[0].lens[1] % width or not all(aligned(y, _inside(y.strides), 0, width) for y in self.ys)
        ):
            width //= 2
        return width


def _planar(strides: Sequence[int]) -> tuple[int, int, int]:
    """Returns the strides along images, rows and columns."""
    return strides[0], strides[2] if len(strides) == 4 else 0, strides[-1]


def _inside(strides: Sequence[int]) -> list[int]:
    """Returns the strides along images, rows, columns and filters."""
    return [*_planar(strides), strides[1]]
