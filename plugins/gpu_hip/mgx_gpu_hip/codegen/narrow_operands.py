"""Loads operands of products on matrix units to shared memory: matrix rows 16 bytes at a time, image windows 4, 8 or 16."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from .extents import plain
from .geometry import Loop, ceil_div, decompose, index_type, merge, offset_code
from .narrow_tiles import Tile
from .source import Tensor, storage_type

__all__ = ["BITS", "CHUNK", "PIECES", "Loader", "Product", "Windows", "bytewise"]

CHUNK: Final = 16  # bytes per load
PIECES: Final = (16, 8, 4)  # bytes per load of a window
# a constant number of steps up to the first, or a multiple of the second, lets compilers unroll the loop: up to 3 % less time
UNROLLED: Final = (6, 4)
BITS: Final = 32  # of a word with a bit for each element of a window


@dataclass(frozen=True)
class Windows:
    """Windows of an image [n, c, *image] as rows of a matrix, k in the order window, then channels (implicit GEMM)."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    begins: tuple[int, ...]
    group: int = 1


@dataclass
class Product:
    """A batched product: rows over `places` by `columns`, with `depth` terms per sum.

    x: its strides along batch, places (the window's first element) and k; w [.., columns, depth] with unit stride along k.
    Extents and strides of both, and the depth, are in bytes (see `bytewise`).
    """

    x: Tensor
    w: Tensor
    batch: tuple[int, ...]
    places: tuple[int, ...]
    columns: int
    depth: int
    windows: Windows | None

    @property
    def rows(self) -> int:
        return math.prod(self.places)

    @property
    def sum(self) -> str:
        return "i32" if self.x.dtype.is_integer else "float"

    @property
    def exact(self) -> bool:
        """True if units add up all products; they keep some 13 bits of sums of 8-bit floats."""
        return self.x.dtype.is_integer or self.x.dtype.size > 1

    @property
    def single(self) -> bool:
        """True if windows are single pixels without padding, so that they are matrix rows."""
        w = self.windows
        assert w is not None
        ends = [(n - 1) * s for n, s in zip(self.places[1:], w.stride, strict=True)]
        inside = all(end < high for end, high in zip(ends, self.x.lens[2:], strict=True))
        return all(k == 1 for k in w.kernel) and not any(w.begins) and inside

    @property
    def row_loop(self) -> Loop:
        """The extents of the rows, merged where possible, and the strides of x along them."""
        if self.windows is None:
            return merge(self.places, [self.x.strides[len(self.batch) : -1]])
        steps = [s * t for s, t in zip(self.x.strides[2:], self.windows.stride, strict=True)]
        return merge(self.places, [[self.x.strides[0], *steps]])

    def steps(self, size: int) -> int:
        """Returns the number of steps of `size` bytes; a constant of the kernel where compilers unroll the loop over them."""
        count = ceil_div(self.depth, size)
        few, together = UNROLLED
        return count if plain(count) > few and plain(count) % together else plain(count)

    def step(self, name: str) -> int:
        """Returns the stride along k of a row of x (a) or w (b)."""
        return 1 if self.windows is not None or name == "b" else self.x.strides[-1]

    def copied(self, name: str, size: int = CHUNK) -> bool:
        """Returns True if rows of x (a) or w (b) are aligned pieces of `size` bytes."""
        x, windows = (self.x, self.windows) if name == "a" else (self.w, None)
        rows = x.strides[:-1] if windows is None else x.strides[:1] + x.strides[2:]
        inner = x.lens[-1] if windows is None else x.lens[1] // windows.group  # weights are padded to whole chunks
        steps = all(s % size == 0 for s in rows)
        return steps and inner % size == 0 and self.step(name) == 1 and x.align % size == 0

    @property
    def piece(self) -> int:
        """Bytes of a window that are copied at a time: of one pixel, aligned; 1 if these are not even words."""
        return next((size for size in PIECES if self.copied("a", size)), 1)

    @property
    def rows_of_x(self) -> bool:
        """True if windows are rows of x: single pixels, which are copied in whole chunks."""
        return self.single and (self.copied("a") or not self.masked)

    @property
    def masked(self) -> bool:
        """True if windows consist of aligned pieces, each of one pixel, and a word has a bit for each pixel of a window."""
        assert self.windows is not None
        return self.piece > 1 and math.prod(self.windows.kernel) <= BITS


def bytewise(x: Tensor, axis: int) -> Tensor:
    """Returns a tensor with unit stride along an axis as one of bytes: its extent along this axis and its other strides grow."""
    size, axis = x.dtype.size, axis % len(x.lens)
    lens = [n * size if a == axis else n for a, n in enumerate(x.lens)]
    return x._replace(lens=tuple(lens), strides=tuple(1 if a == axis else s * size for a, s in enumerate(x.strides)))


class Loader:
    """Emits statements with which a block copies steps of x and w to shared memory.

    zero: x has a zero point, which pads images; own: if not 0, columns of w are stored in the order that gives a thread of a
    warpgroup `own` adjacent sums and four threads 4 `own` (see `Tile.own_sums`).  Rows of a tile beyond the operand's end are not
    read: redirecting all of them to the last row would make that cache line a bottleneck.
    """

    def __init__(self, p: Product, tile: Tile, threads: int, zero: bool, own: int = 0) -> None:
        self.p, self.tile, self.threads, self.zero, self.own = p, tile, threads, zero, own
        self.inside: dict[str, str] = {}  # by operand, the condition that its row exists

    def lines(self) -> list[str]:
        return [
            *self.batch(),
            *self.zeros(),
            *self.operand("a", self.p.x, self.tile.rows),
            *self.operand("b", self.p.w, self.tile.columns),
        ]

    def batch(self) -> list[str]:
        """Returns the addresses of this block's product."""
        p = self.p
        setup, names = decompose("blockIdx.z", p.batch, "z")
        if p.windows is not None:
            inner = p.x.lens[1] // p.windows.group
            x_base, w_base = f"blockIdx.z * {inner}u", f"(u64)blockIdx.z * {p.columns}u * {p.w.strides[0]}u"
            setup = []
        elif p.batch:
            x_base = offset_code(names, p.x.strides[: len(p.batch)], 0, "u64")
            w_strides = [0 if n == 1 else s for n, s in zip(p.w.lens[:-2], p.w.strides[:-2], strict=True)]
            w_base = offset_code(names, [0] * (len(p.batch) - len(w_strides)) + w_strides, 0, "u64")
        else:
            x_base = w_base = "0"
        return [
            *setup,
            f"const u8* const x = (const u8*)p0 + ({x_base});",
            f"const u8* const w = (const u8*)p1 + ({w_base});",
        ]

    def zeros(self) -> list[str]:
        types = {"a": storage_type(self.p.x.dtype), "b": storage_type(self.p.w.dtype)}
        lines = [f"const u32 pad_{n} = 0x01010101u * (u32)nfrag_bias<{t}>();" for n, t in types.items()]
        if self.p.windows is not None:
            zero = "(u8)p3[0]" if self.zero else "0u"
            lines.append(f"const u32 outside = 0x01010101u * {zero};")
        return lines

    def operand(self, name: str, x: Tensor, rows: int) -> list[str]:
        """Returns statements that locate the rows a thread loads, and a function that loads one step of them."""
        per_row = self.tile.depth // CHUNK
        count = ceil_div(rows * per_row, self.threads)
        base, start, limit, rest = (
            ("x", "m0", self.p.rows, 0) if name == "a" else ("w", "n0", self.p.columns, self.tile.rows)
        )
        own = self.own
        some = self.tile.own_sums
        ordered = [
            f"  const u32 q = r / 8u % {some // 2}u * 2u + r % 2u;",
            f"  r = r / {4 * some}u * {4 * some}u + q / {own}u * {4 * own}u + r % 8u / 2u * {own}u + q % {own}u;",
        ]
        ragged = rows * per_row % self.threads != 0
        place = f"(q ^ e / {per_row}u % 8u)" if self.tile.joint else "q"
        lines = [f"const u8* {name}_row[{count}];"]
        windowed = name == "a" and self.p.windows is not None and not self.p.rows_of_x
        if windowed and self.p.masked:
            return self.masked_windows()
        axes = len(self.p.places) - 1
        if windowed:
            lines.append(f"i32 {name}_at[{count}][{axes}];")
        cut = limit % rows != 0
        if cut:
            lines.append(f"bool {name}_in[{count}];")
        self.inside[name] = f"{name}_in[i]" if cut else "true"
        lines += [
            f"UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"  u32 r = (threadIdx.x + i * {self.threads}u) / {per_row}u;",
            *(ordered if name == "b" and own else []),
            f"  r += {start};",
            *([f"  {name}_in[i] = r < {limit}u;"] if cut else []),
            f"  r = r < {limit}u ? r : {limit - 1}u;",
            *(f"  {line}" for line in self.row(name, base, axes if windowed else 0)),
            "}",
            f"auto load_{name} = [&](u32 step, u32 slot) {{",
            f"  UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"    const u32 e = threadIdx.x + i * {self.threads}u, q = e % {per_row}u;",
            *([f"    if (e >= {rows * per_row}u) break;"] if ragged else []),
            f"    const u32 k = step * {self.tile.depth}u + q * {CHUNK}u;",
            f"    const u32 at = (e / {per_row}u + {rest}u) * {self.tile.pitch}u + {place} * {CHUNK}u;",
            f"    u8* const to = room + slot * {self.tile.stage_bytes}u + at;",
            *(f"    {line}" for line in (self.windowed() if windowed else self.straight(name, x))),
            "  }",
            "};",
        ]
        return lines

    def masked_windows(self) -> list[str]:
        """Returns the statements of `operand` for windows whose pixels inside the image are bits of a word.

        A piece then takes few instructions: its address is the sum of its row's and its step's, its condition one bit.
        """
        p, t, w = self.p, self.tile, self.p.windows
        assert w is not None
        size = p.piece
        per_row = t.depth // size
        count = ceil_div(t.rows * per_row, self.threads)
        inner = p.x.lens[1] // w.group
        steps = (p.x.strides[0], *p.x.strides[2:])
        kind = index_type(p.x).replace("u", "i")
        setup, names = decompose("r", p.places, "c")
        begins = zip(names[1:], w.stride, w.begins, strict=True)
        locate = [
            f"const i32 s{n} = (i32){name} * {stride} - {begin};" for n, (name, stride, begin) in enumerate(begins)
        ]
        first = [names[0], *(f"s{n}" for n in range(len(w.kernel)))]
        inside, taps = "1u", 1
        for n in reversed(range(len(w.kernel))):  # each axis selects the bits of the axes after it
            bits = [
                f"((u32)(s{n} + {i * w.dilation[n]}) < {p.x.lens[2 + n]}u ? {inside} << {i * taps} : 0u)"
                for i in range(w.kernel[n])
            ]
            locate.append(f"const u32 inside{n} = {' | '.join(bits)};")
            inside, taps = f"inside{n}", taps * w.kernel[n]
        cut = p.rows % t.rows != 0
        ragged = t.rows * per_row % self.threads != 0
        tap_setup, tap = decompose(f"k / {inner}u", w.kernel, "t")
        moves = [f"({kind}){i} * {d * s}" for i, d, s in zip(tap, w.dilation, steps[1:], strict=True)]
        whole = self.threads % per_row == 0  # each piece of a thread has the same place in its row
        common = [
            f"const u32 k = step * {t.depth}u + q * {size}u;",
            *tap_setup,
            f"const {kind} moved = {' + '.join([*moves, f'({kind})(k % {inner}u)'])};",
            f"const u32 bit = k < {p.depth}u ? 1u << k / {inner}u : 0u, fill = k < {p.depth}u ? outside : pad_a;",
        ]
        at_q = f"threadIdx.x % {per_row}u" if whole else f"e % {per_row}u"
        place = "q" if not t.joint else f"(q ^ e / {per_row}u % 8u * {CHUNK // size}u)"
        chosen = [f"const u32 q = {at_q};", *common]
        return [
            f"{kind} a_at[{count}];",
            f"u32 a_inside[{count}];",
            f"UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"  const u32 r = m0 + (threadIdx.x + i * {self.threads}u) / {per_row}u;",
            *(f"  {line}" for line in (*setup, *locate)),
            f"  a_at[i] = {' + '.join(f'({kind}){name} * {step}' for name, step in zip(first, steps, strict=True))};",
            f"  a_inside[i] = {f'r < {p.rows}u ? {inside} : 0u' if cut else inside};",
            "}",
            "auto load_a = [&](u32 step, u32 slot) {",
            *(f"  {line}" for line in chosen if whole),
            f"  UNROLL for (u32 i = 0; i < {count}; ++i) {{",
            f"    const u32 e = threadIdx.x + i * {self.threads}u;",
            *([f"    if (e >= {t.rows * per_row}u) break;"] if ragged else []),
            *(f"    {line}" for line in chosen if not whole),
            f"    u8* const to = room + slot * {t.stage_bytes}u + e / {per_row}u * {t.pitch}u + {place} * {size}u;",
            f"    narrow_copy<{size}>(to, x + (a_at[i] + moved), (a_inside[i] & bit) != 0u, fill);",
            "  }",
            "};",
        ]

    def row(self, name: str, base: str, axes: int) -> list[str]:
        """Returns statements that locate row `r`."""
        p = self.p
        if name == "b":
            return [f"b_row[i] = {base} + (u64)r * {p.w.strides[-2]}u;"]
        if p.windows is None or not axes:
            loop = p.row_loop
            setup, names = decompose("r", loop.dims, "c")
            return [*setup, f"a_row[i] = {base} + ({offset_code(names, loop.strides[0], 0, 'u64')});"]
        setup, names = decompose("r", p.places, "c")
        lines = [*setup, f"a_row[i] = {base} + (u64){names[0]} * {p.x.strides[0]}u;"]
        for n, (step, begin) in enumerate(zip(p.windows.stride, p.windows.begins, strict=True)):
            lines.append(f"a_at[i][{n}] = (i32){names[n + 1]} * {step} - {begin};")
        return lines

    def straight(self, name: str, x: Tensor) -> list[str]:
        """Returns statements that load 16 bytes of a matrix row."""
        depth, pad = self.p.depth, f"pad_{name}"
        step = self.p.step(name)
        if self.p.copied(name):
            limit = x.lens[-1] if name == "b" else depth
            return [f"narrow_copy<{CHUNK}>(to, {name}_row[i] + k, k < {limit}u && {self.inside[name]}, {pad});"]
        return [
            "u32 word[4];",
            f"UNROLL for (u32 j = 0; j < {CHUNK}; ++j) {{",
            f"  const bool there = k + j < {depth}u && {self.inside[name]};",
            f"  const u32 b = there ? {name}_row[i][(u64)(k + j) * {step}u] : {pad} & 0xffu;",
            "  word[j / 4] = j % 4 ? word[j / 4] | b << (8 * (j % 4)) : b;",
            "}",
            "words::w16 all = {word[0], word[1], word[2], word[3]};",
            "*(words::w16*)to = all;",
        ]

    def windowed(self) -> list[str]:
        """Returns statements that load 16 bytes of a window: of one pixel if its channels are whole chunks, else byte by byte."""
        w, x = self.p.windows, self.p.x
        assert w is not None
        inner = x.lens[1] // w.group
        steps = (x.strides[0], *x.strides[2:], inner)
        whole = inner % CHUNK == 0 and x.align % CHUNK == 0 and all(s % CHUNK == 0 for s in steps)

        def pixel(k: str) -> tuple[list[str], str, str]:
            setup, taps = decompose(f"{k} / {inner}u", w.kernel, "t")
            inside, terms = [], []
            for n, (tap, d) in enumerate(zip(taps, w.dilation, strict=True)):
                setup.append(f"const i32 s{n} = a_at[i][{n}] + (i32){tap} * {d};")
                inside.append(f"(u32)s{n} < {x.lens[2 + n]}u")
                terms.append(f"(i64)s{n} * {x.strides[2 + n]}")
            return setup, " && ".join(inside), " + ".join([*terms, f"{k} % {inner}u"])

        if whole:
            setup, inside, place = pixel("k")
            return [
                *setup,
                f"const bool inside = {inside}, past = k >= {self.p.depth}u || !{self.inside['a']};",
                f"narrow_copy<{CHUNK}>(to, a_row[i] + ({place}), inside && !past, past ? pad_a : outside);",
            ]
        setup, inside, place = pixel("kk")
        return [
            "u32 word[4];",
            f"UNROLL for (u32 j = 0; j < {CHUNK}; ++j) {{",
            "  const u32 kk = k + j;",
            *(f"  {line}" for line in setup),
            f"  const u32 b = kk >= {self.p.depth}u ? pad_a & 0xffu : {inside} ? a_row[i][{place}] : outside & 0xffu;",
            "  word[j / 4] = j % 4 ? word[j / 4] | b << (8 * (j % 4)) : b;",
            "}",
            "words::w16 all = {word[0], word[1], word[2], word[3]};",
            "*(words::w16*)to = all;",
        ]
