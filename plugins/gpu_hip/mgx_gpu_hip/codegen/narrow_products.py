"""Products and convolutions of bytes and 8-bit and 16-bit floats on matrix units, with fused epilogues."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from mgx_core import No
from mgx_core import dtype as dt

from .extents import SymbolicInt, varies
from .geometry import aligned, ceil_div, decompose, merge
from .narrow_operands import CHUNK, Loader, Product, Windows, bytewise
from .narrow_tiles import GROUP_WAVES, Tile, tiles_by_time
from .narrow_turns import consume, produce, rings
from .narrow_warpgroup import (
    WARPGROUP_SHARED,
    WARPGROUP_TYPES,
    cluster_sums,
    first_weights,
    share_of_cluster,
    warpgroup_loop,
)
from .narrow_zero_points import ZeroPoints
from .pointwise import one_launch
from .product_epilogue import FusedEpilogue, store_vectors
from .source import DeviceTraits, KernelSource, Tensor, storage_type

__all__ = ["HALVES", "Windows", "narrow_product", "refuse_operands"]

SECTOR: Final = 32  # bytes that a cache reads at a time
HALVES: Final = (dt.float16, dt.bfloat16)
NARROW: Final = (dt.int8, dt.uint8, dt.float8_e4m3fn, dt.float8_e5m2, dt.float8_e4m3fnuz, dt.float8_e5m2fnuz)


def refuse_operands(x: dt.DType, w: dt.DType, moved: bool) -> No | None:
    """Declines operands that kernels for bytes do not support; moved: an operand has a zero point."""
    wrong = next((t for t in (x, w) if t not in NARROW), None)
    if wrong is not None:
        return No(f"kernels for bytes do not support {wrong}")
    return No("8-bit floats do not support zero points") if moved and x.is_float else None


def narrow_product(
    xs: Sequence[Tensor | None],
    ys: Sequence[Tensor],
    after: FusedEpilogue | None,
    windows: Windows | None,
    traits: DeviceTraits,
    tile: Tile | int = 0,
) -> KernelSource | No:
    """Generates a kernel for x [.., m, k] times w [.., n, k]^T, or windows of x [n, c, ..] times w [o, k]^T.

    xs: x, w, sums of w along k (int32 [.., n]), zero points of x and of w (broadcast to the extents of the sums), then the
    operands of `after`; ys: results in the extents of the sums, or with the leading ones merged or split; tile: a tile size, or
    its rank by estimated time.
    """
    x, w, sums, x_zero, w_zero = xs[:5]
    assert x is not None and w is not None
    p = _product(x, w, ys[0], windows)
    if isinstance(p, No):
        return p
    if math.prod(p.batch) > 65535:
        return No("the batch has more than 65535 products")
    if p.rows == 0 or p.columns == 0 or p.depth == 0 or 0 in p.batch:
        return No("an extent is 0")
    zeros = ZeroPoints(p, sums, x_zero, w_zero)
    if isinstance(tile, int):
        joint = not (zeros.of_rows or zeros.summed) and {x.dtype, w.dtype} <= {*WARPGROUP_TYPES}
        # bytes of padding other than 0 are stored, which the counters of stages do not wait for
        turns = (
            joint
            and math.prod(p.batch) == 1
            and p.copied("a")
            and p.copied("b")
            and (windows is None or x_zero is None)
        )
        halves, gathered = x.dtype in HALVES, windows is not None and math.prod(windows.kernel) > 1
        count = math.prod(p.batch)
        piece = p.piece if halves else CHUNK
        sizes = p.rows, p.columns, p.depth, count, traits
        tiles = tiles_by_time(*sizes, p.exact, joint, turns, halves, gathered, piece)
        if tile >= len(tiles):
            return No(f"only {len(tiles)} tile sizes fit on the device")
        tile = tiles[tile]
    count = ceil_div(p.columns, tile.columns) * ceil_div(p.rows, tile.rows)
    most = traits.sm_count * max(tile.resident, 1) if tile.turns else count
    grid = (min(count, most) * tile.split, 1, math.prod(p.batch))
    flops = 2 * p.rows * p.columns * (p.depth // x.dtype.size) * math.prod(p.batch)
    shared = _with_arguments(p) if x.dtype in HALVES and not tile.turns else p
    text = _Writer(shared, tile, traits.wave, ys, after, ZeroPoints(shared, sums, x_zero, w_zero))
    ahead, lines = text.ahead(), text.lines()
    if not text.early:
        ahead, lines = [], [*ahead, *lines]
    word = f"narrow_{'convolution' if windows else 'product'}_{tile.rows}x{tile.columns}"
    return one_launch(
        word, lines, xs, ys, grid, text.threads, blocks=tile.resident, ahead=ahead,
        cluster=tile.split if tile.split > 1 else 0, shared=tile.shared, flops=flops,
    )  # fmt: skip


def _product(x: Tensor, w: Tensor, y: Tensor, windows: Windows | None) -> Product | No:
    halves = x.dtype in HALVES and w.dtype is x.dtype
    alike = x.dtype in NARROW and w.dtype in NARROW and x.dtype.is_integer is w.dtype.is_integer
    if not (halves or alike):
        return No(f"matrix units do not multiply {x.dtype} and {w.dtype}")
    if halves:
        axis = -1 if windows is None else 1
        if any(t.strides[a] != 1 and t.lens[a] != 1 for t, a in ((x, axis), (w, -1))):
            return No("the elements of a sum are not adjacent")
        x, w = bytewise(x, axis), bytewise(w, -1)
    if windows is None:
        if len(w.lens) > 2 and any(n != 1 for n in w.lens[:-2]):
            return Product(x, w, tuple(x.lens[:-2]), (x.lens[-2],), w.lens[-2], x.lens[-1], None)
        return Product(x, w, (), tuple(x.lens[:-1]), w.lens[-2], x.lens[-1], None)
    inner = x.lens[1] // windows.group
    if x.strides[1] != 1 and x.lens[1] != 1:
        return No("the image is not channels last")
    columns, depth = w.lens[0] // windows.group, inner * math.prod(windows.kernel)
    return Product(x, w, (windows.group,), (y.lens[0], *y.lens[2:]), columns, depth, windows)


def _with_arguments(p: Product) -> Product:
    """Returns a product of matrices with extents and strides that become arguments, so that layers of other sizes share a kernel.

    Windows of several pixels stay as they are: their loops divide by constants.  The caller leaves out tiles with a warpgroup
    that loads, and products of bytes: with arguments, all of resnet50 takes 4 to 7 % longer.
    """
    if p.windows is not None and (p.windows.group > 1 or not p.rows_of_x):
        return p
    if len(p.row_loop.dims) > 1 or any(type(n) is not int for t in (p.x, p.w) for n in (*t.lens, *t.strides)):
        return p
    depth, axis = _argument("depth", p.depth), 1 if p.windows else len(p.x.lens) - 1
    x = p.x._replace(
        lens=tuple(depth if a == axis else n for a, n in enumerate(p.x.lens)),
        strides=tuple(_argument(f"x{a}", n) for a, n in enumerate(p.x.strides)),
    )
    wide = depth if p.w.lens[-1] == p.depth else _argument("wide", p.w.lens[-1])
    steps = [_argument(f"w{a}", n) for a, n in enumerate(p.w.strides)]
    w = p.w._replace(lens=(*p.w.lens[:-1], wide), strides=tuple(steps))
    places = tuple(_argument(f"place{a}", n) for a, n in enumerate(p.places))
    return replace(p, x=x, w=w, places=places, columns=_argument("columns", p.columns), depth=depth)


def _argument(name: str, n: int) -> int:
    """Returns a number that becomes an argument of the kernel; 0 and 1 stay, since they select other statements."""
    return SymbolicInt.symbol(name, n) if type(n) is int and n > 1 else n


class _Writer:
    """Generates the source of one kernel."""

    def __init__(
        self, p: Product, tile: Tile, wave: int, ys: Sequence[Tensor], after: FusedEpilogue | None, zeros: ZeroPoints
    ) -> None:
        self.p, self.tile, self.wave, self.ys, self.after, self.zeros = p, tile, wave, ys, after, zeros
        self.threads = tile.waves * wave
        self.own = self.width() if tile.joint and wave == 32 else 0  # sums stay in registers in the order of mma.sync
        self.a, self.b = storage_type(p.x.dtype), storage_type(p.w.dtype)
        self.down, self.across = tile.rows // tile.down // 16, tile.columns // tile.across // 16
        self.early = p.x.dtype in HALVES and p.w.constant and p.copied("b") and not tile.turns

    def ahead(self) -> list[str]:
        """Returns statements that locate the tile, and load the first weights if these are constant."""
        t = self.tile
        if t.turns:
            return []
        block = "blockIdx.x" if t.split == 1 else f"(blockIdx.x / {t.split}u)"
        return [
            f"const u32 m0 = {block} / {ceil_div(self.p.columns, t.columns)}u * {t.rows}u;",
            f"const u32 n0 = {block} % {ceil_div(self.p.columns, t.columns)}u * {t.columns}u;",
            *(share_of_cluster(self.p, t) if t.split > 1 else []),
            *(WARPGROUP_SHARED if t.joint else ["SHARED_DYNAMIC(u8, room);"]),
            *Loader(self.p, t, self.threads, self.zeros.x_zero is not None, self.own).lines(),
            *(first_weights(self.p, t) if self.early else []),
        ]

    def lines(self) -> list[str]:
        t = self.tile
        if t.turns:
            return self.by_turns()
        start, end = self.touches() if self.own else ([], [])
        return [
            "const u32 wave = threadIdx.x / WAVE;",
            f"const u32 part = wave % {t.apart}u, wr = wave / {t.apart}u / {t.across}u * {16 * self.down}u, "
            f"wc = wave / {t.apart}u % {t.across}u * {16 * self.across}u;",
            *start,
            *(warpgroup_loop(self.p, t, self.early) if t.joint else self.loop()),
            *(cluster_sums(t) if t.split > 1 else []),
            *end,
            *(self.own_results("acc", "m0 + wave / 4u * 64u") if self.own else [*self.stage(), *self.results()]),
        ]

    def by_turns(self) -> list[str]:
        """Returns statements of a block that takes several tiles, which one warpgroup loads for others."""
        p, t = self.p, self.tile
        across = ceil_div(p.columns, t.columns)
        tiles = across * ceil_div(p.rows, t.rows)
        corner = [
            f"const u32 m0 = tile / {across}u * {t.rows}u;",
            f"const u32 n0 = tile % {across}u * {t.columns}u;",
        ]
        loader = Loader(p, t, GROUP_WAVES * self.wave, self.zeros.x_zero is not None, self.own).lines()
        down = t.rows // (64 * t.sharing)
        mine = "0u" if t.alternates else f"turn * {64 * down}u"
        start, end = self.touches()
        finish = [*end, *self.own_results("acc", f"m0 + {mine}", down)]
        return [
            "const u32 wave = threadIdx.x / WAVE;",
            *WARPGROUP_SHARED,
            *rings(t),
            f"if (wave < {GROUP_WAVES}u) {{",
            *(f"  {line}" for line in produce(p, t, tiles, corner, loader)),
            "} else {",
            *(f"  {line}" for line in consume(p, t, tiles, down, mine, [*corner, *start], finish)),
            "}",
        ]

    # main loop

    def loop(self) -> list[str]:
        t, s = self.tile, self.p.sum
        steps = self.p.steps(t.depth)
        in_kernel = self.zeros.summed
        lines = [
            f"nfrag_c<{s}> acc[{self.down}][{self.across}];",
            f"UNROLL for (int i = 0; i < {self.down}; ++i)",
            f"  UNROLL for (int j = 0; j < {self.across}; ++j) nfrag_zero(acc[i][j]);",
        ]
        extra: list[str] = []
        if self.zeros.of_rows:
            each = f"UNROLL for (int i = 0; i < {self.down}; ++i)"
            lines += [f"nfrag_c<i32> row_sum[{self.down}];", f"{each} nfrag_zero(row_sum[i]);"]
            lines += ["nfrag<i8> ones_b;", "nfrag_ones(ones_b);"]
            extra.append(f"{each} nfrag_mma(row_sum[i], fa[i], ones_b);")
        if in_kernel:
            each = f"UNROLL for (int j = 0; j < {self.across}; ++j)"
            lines += [f"nfrag_c<i32> col_sum[{self.across}];", f"{each} nfrag_zero(col_sum[j]);"]
            lines += ["nfrag<i8> ones_a;", "nfrag_ones(ones_a);"]
            extra.append(f"{each} nfrag_mma(col_sum[j], ones_a, fb[j]);")
        first = "part * 32u" if t.apart > 1 else "0u"
        return [
            *lines,
            f"UNROLL for (u32 s = 0; s < {t.stages - 1}; ++s) {{",
            f"  if (s < {steps}u) {{ load_a(s, s);{'' if self.early else ' load_b(s, s);'} }}",
            "  async_commit();",
            "}",
            "u32 slot = 0;",
            f"for (u32 step = 0; step < {steps}u; ++step) {{",
            f"  async_wait<{t.stages - 2}>();",
            "  __syncthreads();",
            f"  const u32 ahead = step + {t.stages - 1}u;",
            f"  const u32 free = slot ? slot - 1 : {t.stages - 1}u;",
            f"  if (ahead < {steps}u) {{ load_a(ahead, free); load_b(ahead, free); }}",
            "  async_commit();",
            f"  const u8* const as = room + slot * {t.stage_bytes}u + wr * {t.pitch}u;",
            f"  const u8* const bs = room + slot * {t.stage_bytes}u + ({t.rows}u + wc) * {t.pitch}u;",
            f"  UNROLL for (u32 d = {first}; d < {t.depth}u; d += {32 * t.apart}u) {{",
            f"    nfrag<{self.a}> fa[{self.down}];",
            f"    nfrag<{self.b}> fb[{self.across}];",
            f"    UNROLL for (int i = 0; i < {self.down}; ++i)",
            f"      nfrag_load_a<{self.a}>(fa[i], as + i * {16 * t.pitch} + d, {t.pitch});",
            f"    UNROLL for (int j = 0; j < {self.across}; ++j)",
            f"      nfrag_load_b<{self.b}>(fb[j], bs + j * {16 * t.pitch} + d, {t.pitch});",
            f"    UNROLL for (int i = 0; i < {self.down}; ++i)",
            f"      UNROLL for (int j = 0; j < {self.across}; ++j) nfrag_mma(acc[i][j], fa[i], fb[j]);",
            *(f"    {line}" for line in extra),
            "  }",
            f"  slot = slot + 1 == {t.stages}u ? 0 : slot + 1;",
            "}",
        ]

    def stage(self) -> list[str]:
        """Returns statements that store the sums in shared memory."""
        t, s = self.tile, self.p.sum
        setup, terms = [], []
        if self.zeros.of_rows:
            setup += [
                *self.zeros.zero_of_w("n0 + col"),
                "const i32 zw = " + self.zeros.without_bias("w", "zero_w") + ";",
            ]
            terms.append("(i32)((u32)zw * (u32)row_sum[i].x[e])")
        if self.zeros.summed:
            setup += [
                *self.zeros.zero_of_x("m0 + row"),
                "const i32 zx = " + self.zeros.without_bias("x", "zero_x") + ";",
            ]
            terms.append("(i32)((u32)zx * (u32)col_sum[j].x[e])")
        corrections = [
            "    UNROLL for (int e = 0; e < FRAG_C; ++e) {",
            "      const u32 row = wr + i * 16 + frag_row(e), col = wc + j * 16 + frag_col(e);",
            *(f"      {line}" for line in setup),
            f"      acc[i][j].x[e] -= {' + '.join(terms)};",
            "    }",
        ]
        return [
            "async_wait<0>();",
            "__syncthreads();",
            f"{s}* const sums = ({s}*)room;",
            f"UNROLL for (int i = 0; i < {self.down}; ++i)",
            f"  UNROLL for (int j = 0; j < {self.across}; ++j) {{",
            *(corrections if terms else []),
            f"    const u32 row = part * {t.rows}u + wr + i * 16, col = wc + j * 16;",
            f"    nfrag_store(sums + row * {t.sum_pitch}u + col + col / 32 * 4, {t.sum_pitch}, acc[i][j]);",
            "  }",
            "__syncthreads();",
        ]

    def read_sums(self, part: int) -> list[str]:
        """Returns statements that read adjacent sums of one part of the waves, and add them to those of the first."""
        t, s, width = self.tile, self.p.sum, self.width()
        some = min(width, 4)
        at = f"({part * t.rows}u + row) * {t.sum_pitch}u + c + c / 32 * 4"
        return [
            f"UNROLL for (int k = 0; k < {width}; k += {some}) {{",
            f"  const vec<{s}, {some}> q = ldv<{s}, {some}>(sums + ({at}) + k);",
            f"  UNROLL for (int i = 0; i < {some}; ++i) v[k + i] {'+=' if part else '='} q.v[i];",
            "}",
        ]

    # epilogue

    def results(self) -> list[str]:
        """Returns statements that apply the epilogue to the sums in shared memory, to `width` adjacent ones at a time.

        A thread finishes the same columns of several rows and reads operands that do not depend on the row once.
        """
        p, t = self.p, self.tile
        width = self.width()
        wide = math.gcd(t.columns // width, self.threads)  # threads that finish a row together
        fixed, row = self.finish(width, [line for part in range(t.apart) for line in self.read_sums(part)])
        return [
            f"for (u32 c = threadIdx.x % {wide}u * {width}u; c < {t.columns}u; c += {wide * width}u) {{",
            *([f"  if (n0 + c >= {p.columns}u) break;"] if p.columns % t.columns else []),
            *(f"  {line}" for line in fixed),
            f"  for (u32 row = threadIdx.x / {wide}u; row < {t.rows}u; row += {self.threads // wide}u) {{",
            "    const u32 r = m0 + row;",
            *([f"    if (r >= {p.rows}u) break;"] if p.rows % t.rows else []),
            *(f"    {line}" for line in row),
            "  }",
            "}",
        ]

    def own_results(self, sums: str, first: str, down: int = 1) -> list[str]:
        """Returns statements with which a thread of a warpgroup applies the epilogue to its sums, which stay in registers.

        sums: the variable with the sums of `down` times 64 rows, whose first is row `first` of the results.  The order of a
        tile's columns in shared memory (see `Loader`) makes `width` of them adjacent.
        """
        p, t = self.p, self.tile
        width = self.width()
        read = [f"UNROLL for (u32 k = 0; k < {width}u; ++k) {{", f"  const u32 q = part * {width}u + k;"]
        read += [f"  v[k] = {sums}[line / 2][piece * 4 + q / 4].x[q / 2 % 2 * 4 + line % 2 * 2 + q % 2];", "}"]
        fixed, row = self.finish(width, read)

        def lines(partial: bool) -> list[str]:
            return [
                f"UNROLL for (u32 piece = 0; piece < {t.columns // (4 * t.own_sums)}u; ++piece)",
                f"  UNROLL for (u32 part = 0; part < {t.own_sums // width}u; ++part) {{",
                f"    const u32 c = piece * {4 * t.own_sums}u + part * {4 * width}u + lane_id() % 4u * {width}u;",
                *([f"    if (n0 + c >= {p.columns}u) continue;"] if p.columns % t.columns else []),
                *(f"    {line}" for line in fixed),
                f"    UNROLL for (u32 line = 0; line < {2 * down}u; ++line) {{",
                f"      const u32 r = {first} + line / 2 * 64u + wave % 4u * 16u + lane_id() / 4u + line % 2 * 8u;",
                *([f"      if (r >= {p.rows}u) continue;"] if partial else []),
                *(f"      {line}" for line in row),
                "    }",
                "  }",
            ]

        if p.rows % t.rows == 0 or p.rows < t.rows:
            return lines(p.rows < t.rows)
        whole = f"if (m0 + {t.rows}u <= {p.rows}u) {{"  # conditions in unrolled loops keep instructions in order
        return [whole, *lines(False), "} else {", *lines(True), "}"]

    def touches(self) -> tuple[list[str], list[str]]:
        """Returns statements that bring the epilogue's operands along columns to the L1 cache, and those that end their reads.

        Otherwise each thread waits for L2 at each of its groups of columns.
        """
        starts: list[str] = []
        ends: list[str] = []
        if self.after is None:
            return starts, ends
        for n, access in enumerate(self.after.reads()):
            x = self.after.given[access.index]
            size = x.dtype.size
            batch, rows, column = self.split(access.strides)
            if column != 1 or any(batch) or any(rows) or access.offset * size % 4 or x.align % 4:
                continue
            base = f"(const u8*)(p{self.after.index[access.index]} + {access.offset})"
            starts += [
                f"const u32 at{n} = n0 * {size}u + threadIdx.x % 128u * {SECTOR}u;",
                f"const u32 seen{n} = threadIdx.x % 128u < {ceil_div(self.tile.columns * size, SECTOR)}u && "
                f"at{n} + 4u <= {self.p.columns * size}u ? *(const u32*)({base} + at{n}) : 0;",
            ]
            ends.append(f"keep(seen{n});")
        return starts, ends

    def finish(self, width: int, read: list[str]) -> tuple[list[str], list[str]]:
        """Returns statements for all rows of columns `c`, and those for one row `r`; read: statements that read the sums."""
        accesses = self.after.reads() if self.after else []
        strides = [self.split(y.strides) for y in self.ys]
        strides += [self.split(a.strides) for a in accesses]
        rows = merge(self.row_dims, [s[1] for s in strides])
        setup, places = decompose("r", rows.dims, "c")
        names = [*self.outer, *places, "cv"]
        flat = [[*s[0], *rows.strides[n], s[2]] for n, s in enumerate(strides)]
        if varies(self.p.depth):
            flat = [[_argument(f"at{n}_{a}", step) for a, step in enumerate(steps)] for n, steps in enumerate(flat)]
        fixed = self.after.fixed_reads(flat[len(self.ys) :], names, width, places) if self.after else []
        row = [
            *setup,
            f"{self.p.sum} v[{width}];",
            *read,
            *self.zeros.correction(width),
            *store_vectors(self.ys, self.after, flat, names, width, repeated=places),
        ]
        return [f"const u32 cv = (n0 + c{self.zeros.group}) / {width}u;", *fixed], row

    @property
    def outer(self) -> list[str]:
        return [] if self.p.windows is not None else [f"z{i}" for i in range(len(self.p.batch))]

    @property
    def row_dims(self) -> tuple[int, ...]:
        """The extents that the rows enumerate in the results."""
        lens = self.ys[0].lens
        return (lens[0], *lens[2:]) if self.p.windows is not None else tuple(lens[len(self.p.batch) : -1])

    def split(self, strides: Sequence[int]) -> tuple[list[int], list[int], int]:
        """Splits strides into those along the batch, the rows and the columns."""
        if self.p.windows is not None:
            return [], [strides[0], *strides[2:]], strides[1]
        batch = len(self.p.batch)
        return list(strides[:batch]), list(strides[batch:-1]), strides[-1]

    def width(self) -> int:
        """Adjacent columns per thread in the epilogue: 16 bytes of the narrowest result."""
        width = max(CHUNK // min(y.dtype.size for y in self.ys), 1)
        width = min(width, self.tile.own_sums if self.tile.joint else 16)

        def fits(y: Tensor) -> bool:
            batch, rows, column = self.split(y.strides)
            return aligned(y, [*batch, *rows, column], 0, width)

        while width > 1 and (self.p.columns % width or not all(map(fits, self.ys))):
            width //= 2
        return width
