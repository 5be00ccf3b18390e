"""Products of few rows with quantized weights (4- or 8-bit codes), dequantized in registers; each code is read once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from mgx_core import No

from ..join_rows import MAX_ROWS
from .coded_tiles import CodedTiles
from .geometry import ceil_div, decompose
from .pointwise import one_launch
from .product_epilogue import FusedEpilogue, read_and_store
from .row_prologue import RowPrologue, row_prologue
from .source import DeviceTraits, KernelSource, Tensor, storage_type, to_compute, to_storage

__all__ = ["coded_product"]

MAKERS: Final = 4  # blocks per multiprocessor up to which each computes its row in less time than a launch takes
ROW_VECTOR: Final = 8  # adjacent elements of a row that a thread computes, at most
TOGETHER: Final = 8  # rows that share one dequantization of a code
MAGIC: Final = 0x4B000000  # 2^23 as float32: an integer OR'ed into its mantissa is added to it


@dataclass(frozen=True)
class _Split:
    """A wave computes `columns` sums per row; `apart` waves share them, each with another part of k.

    parts: a block takes equally many columns in each of these parts of the matrix.
    """

    columns: int
    apart: int
    waves: int
    parts: int

    @property
    def block(self) -> int:
        """Columns per block, over all parts."""
        return self.columns * (self.waves // self.apart)


def _split(n: int, groups: int, parts: int, traits: DeviceTraits) -> _Split | None:
    """Returns the most columns per wave that keep two blocks per multiprocessor busy; None if no block has all parts."""
    waves = 256 // traits.wave
    every = [
        _Split(columns, apart, waves, parts)
        for columns in (4, 2, 1)
        for apart in (1, 2, 4, 8)
        if apart <= waves and (apart == 1 or (apart - 1) * traits.wave < groups)
    ]
    choices = [c for c in every if c.block % parts == 0]
    busy = (c for c in choices if ceil_div(n, c.block) >= 2 * traits.sm_count)
    return next(busy, choices[-1] if choices else None)


def coded_product(
    op: Any,
    xs: Sequence[Tensor | None],
    ys: Sequence[Tensor],
    traits: DeviceTraits,
    after: FusedEpilogue | None = None,
    prologue: RowPrologue | None = None,
) -> KernelSource | No:
    """a [.., k], codes [n, bytes], scale [n, blocks] and optional zero points like it, all row-major, to results [.., n].

    xs: these, None for absent zero points if operands of `after` follow; codes, scale and zero points of rank 3 are tiled
    (`tiled_codes`); the operands of `prologue`, which computes the one row a, in the place of a.  ys: results that `prologue`
    stores, then results whose last axis is that of the sums, or of one part of them if `after` takes several.
    """
    before = 1 if prologue is None else prologue.operands
    codes, scale, zero = (*xs[before:], None)[:3]
    a = xs[0] if prologue is None else prologue.plan.outputs[prologue.held]
    results = ys if prologue is None else ys[prologue.stored :]
    assert a is not None and codes is not None and scale is not None
    parts = 1 if after is None else after.sums
    rows, k, n = prod(a.lens[:-1]), a.lens[-1], results[0].lens[-1] * parts
    if rows > MAX_ROWS:
        return No(f"with {rows} rows a product with dequantized weights is faster")
    if not rows or not k or not n:
        return No("an extent is 0")
    together = min(rows, TOGETHER)
    ahead: list[str] = []
    made: list[str] | No = []
    if len(codes.lens) == 3:
        tiles = CodedTiles.of(op.bits, a.dtype, codes, scale, zero, parts, before, traits)
        last = f"{rows - 1}u - m0" if rows > together else f"{rows - 1}u"
        source = f"(p0 + (u64)m0 * {k}u)" if prologue is None else "made_row"
        ahead, inner = tiles.fetch(), tiles.sums(source, together, last)
        waves, apart, block = tiles.waves, tiles.waves, tiles.block
        if prologue is not None:
            if tiles.blocks > MAKERS * traits.sm_count:
                return No(
                    f"{tiles.blocks} blocks would each compute the row, at most {MAKERS} per multiprocessor gain by that"
                )
            made = _made(prologue, a, waves * traits.wave, traits)
            if isinstance(made, No):
                return made
    elif prologue is not None:
        return No("the kernel without matrix units does not compute its rows")
    else:
        per_byte, row = 8 // op.bits, codes.lens[1]
        size = 16
        while size > 4 and (row % size or op.block_size % (size * per_byte) or codes.align % size):
            size //= 2
        if row % size or (op.block_size % (size * per_byte) and scale.lens[1] > 1) or codes.align % size:
            return No(f"rows of {row} bytes in blocks of {op.block_size} codes are not a whole number of 32-bit words")
        groups = ceil_div(ceil_div(k, per_byte), size)
        split = _split(n, groups, parts, traits)
        if split is None:
            return No(f"the columns of {parts} parts do not divide evenly into blocks")
        inner = _lines(op, (a, codes, scale, zero), split, together, size, groups)
        waves, apart, block = split.waves, split.apart, split.block
    given = [*xs[:before], codes, scale, zero, *xs[before + 3 :]]
    reads, stores = _finished(
        results, len(ys) - len(results), after, rows, n, parts, together, block, apart, waves * traits.wave
    )
    lines = [
        f"const u32 m0 = blockIdx.y * {together}u;",
        *reads,
        *made,
        f"SHARED(float, sums, [{apart}][{block * together}]);",
        "{",
        *(f"  {line}" for line in inner),
        "}",
        "__syncthreads();",
        *stores,
    ]
    grid = (ceil_div(n // parts, block // parts), ceil_div(rows, together), 1)
    flops = 2 * rows * n * k
    word = "coded_product" if prologue is None else "coded_product_made"
    return one_launch(word, lines, given, ys, grid, waves * traits.wave, ahead=ahead, flops=flops)


def _lines(
    op: Any, xs: tuple[Tensor, Tensor, Tensor, Tensor | None], split: _Split, together: int, size: int, groups: int
) -> list[str]:
    """Returns statements that store the sums of a block's columns in shared memory, `sums[part of k][column][row]`."""
    a, codes, scale, zero = xs
    rows, k, n = prod(a.lens[:-1]), a.lens[-1], codes.lens[0]
    columns, words, in_word = split.columns, size // 4, 32 // op.bits
    in_group = words * in_word
    blocks = scale.lens[1]
    point = "(float)p3[at]" if zero is not None else f"{1 << (op.bits - 1)}.f"
    apart, each = n // split.parts, split.block // split.parts
    return [
        "const u32 wave = threadIdx.x / WAVE;",
        f"const u32 part = wave % {split.apart}u;",
        f"const u32 n0 = wave / {split.apart}u * {columns}u;",
        f"float acc[{columns}][{together}] = {{}};",
        f"for (u32 g = part * WAVE + lane_id(); g < {groups}u; g += {split.apart}u * WAVE) {{",
        f"  vec<u32, {words}> w[{columns}];",
        f"  float s[{columns}], z[{columns}], sum[{columns}][{together}] = {{}};",
        f"  UNROLL for (u32 c = 0; c < {columns}; ++c) {{",
        f"    const u32 result = blockIdx.x * {each}u + (n0 + c) % {each}u;",
        f"    const u32 column = (n0 + c) / {each}u * {apart}u + (result < {apart}u ? result : {apart - 1}u);",
        f"    w[c] = ldv<u32, {words}>(p1 + (u64)column * {codes.lens[1]}u + g * {size}u);",
        f"    const u32 at = column * {blocks}u + g * {in_group}u / {op.block_size}u;",
        f"    s[c] = {to_compute('p2[at]', scale.dtype)};",
        f"    z[c] = {point};",
        "  }",
        f"  UNROLL for (u32 i = 0; i < {words}; ++i) {{",
        f"    const u32 first = g * {in_group}u + i * {in_word}u;",
        f"    float v[{columns}][{in_word}];",
        f"    UNROLL for (u32 c = 0; c < {columns}; ++c) {{",
        *(f"      {line}" for line in _numbers(op.bits)),
        "    }",
        f"    UNROLL for (u32 m = 0; m < {together}; ++m) {{",
        *(f"      {line}" for line in _row(a, in_word, in_group, rows, k, together)),
        f"      UNROLL for (u32 c = 0; c < {columns}; ++c)",
        f"        UNROLL for (u32 j = 0; j < {in_word}; ++j) sum[c][m] += v[c][j] * x[j];",
        "    }",
        "  }",
        f"  UNROLL for (u32 c = 0; c < {columns}; ++c)",
        f"    UNROLL for (u32 m = 0; m < {together}; ++m) acc[c][m] += s[c] * sum[c][m];",
        "}",
        f"UNROLL for (u32 c = 0; c < {columns}; ++c)",
        f"  UNROLL for (u32 m = 0; m < {together}; ++m) {{",
        "    const float whole = wave_reduce<Sum>(acc[c][m]);",
        f"    if (lane_id() == 0) sums[part][(n0 + c) * {together}u + m] = whole;",
        "  }",
    ]


def _made(prologue: RowPrologue, row: Tensor, threads: int, traits: DeviceTraits) -> list[str] | No:
    """Returns statements that compute the row in every block, `made_row` in shared memory."""
    k, t = row.lens[-1], storage_type(row.dtype)
    if prod(row.lens) != k:
        return No("there is more than one row")
    if k * row.dtype.size > traits.shared_bytes // 2:
        return No(f"a row of {k} elements does not fit into shared memory")
    width = ROW_VECTOR
    while width > 1 and k < width * threads:
        width //= 2
    if k % width:
        return No(f"a row of {k} elements is not a whole number of vectors")
    turns = ceil_div(k, width * threads)
    lines = row_prologue(prologue, threads, turns, width, traits)
    if isinstance(lines, No):
        return lines
    return [
        f"SHARED({t}, made_row, [{k}]);",
        "{",
        *(f"  {line}" for line in lines),
        f"  UNROLL for (u32 turn = 0; turn < {turns}; ++turn) {{",
        f"    const u32 first = (turn * {threads}u + threadIdx.x) * {width}u;",
        f"    UNROLL for (u32 j = 0; j < {width}; ++j)",
        f"      if (first + j < {k}u) made_row[first + j] = {to_storage(f'row[turn * {width} + j]', row.dtype)};",
        "  }",
        "}",
        "__syncthreads();",
    ]


def _finished(
    ys: Sequence[Tensor],
    first: int,
    after: FusedEpilogue | None,
    rows: int,
    n: int,
    parts: int,
    together: int,
    block: int,
    apart: int,
    threads: int,
) -> tuple[list[str], list[str]]:
    """Returns statements that read the epilogue's operands, and those that add the sums of a block's waves and store the results.

    first: index of the first of `ys` among the kernel's results.  The former statements are for the start of the kernel, so that
    reading overlaps with the sums, if no thread has more than one result.
    """
    each = block // parts
    wholes = []
    for part in range(parts):
        at = f"({part * each}u + result) * {together}u + m"
        wholes += [
            f"float whole{part} = sums[0][{at}];",
            f"UNROLL for (u32 i = 1; i < {apart}; ++i) whole{part} += sums[i][{at}];",
        ]
    setup, names = decompose("row", ys[0].lens[:-1], "z")
    loads, stores = read_and_store(ys, after, [*names, "n"], first)
    place = f"const u32 m = e / {each}u, result = e % {each}u;"
    inside = f"m0 + m < {rows}u && blockIdx.x * {each}u + result < {n // parts}u"
    if each * together <= threads:
        reads = [
            "const u32 e = threadIdx.x;",
            place,
            f"const bool stores = e < {each * together}u && {inside};",
            f"const u32 row = stores ? m0 + m : 0u, n = stores ? blockIdx.x * {each}u + result : 0u;",
            *setup,
            *loads,
        ]
        return reads, ["if (stores) {", *(f"  {line}" for line in [*wholes, *stores]), "}"]
    return [], [
        f"for (u32 e = threadIdx.x; e < {each * together}u; e += blockDim.x) {{",
        f"  {place}",
        f"  if (!({inside})) continue;",
        f"  const u32 row = m0 + m, n = blockIdx.x * {each}u + result;",
        *(f"  {line}" for line in [*wholes, *setup, *loads, *stores]),
        "}",
    ]


def _numbers(bits: int) -> list[str]:
    """Returns statements that dequantize a word of codes: the code at bit b becomes (code - zero point) 2^b, exactly."""
    lines = ["const u32 low = w[c].v[i], high = low >> 16;"]
    count = 16 // bits
    for j in range(2 * count):
        shift = j % count * bits
        mask = ((1 << bits) - 1) << shift
        word = "high" if j >= count else "low"
        lines.append(
            f"v[c][{j}] = bits_as<float>({MAGIC}u | ({word} & {mask}u)) - (8388608.f + z[c] * {float(1 << shift)}f);"
        )
    return lines


def _row(a: Tensor, count: int, group: int, rows: int, k: int, together: int) -> list[str]:
    """Returns statements that read the row elements matching a word's codes, divided by the power of two of their bit."""
    t = storage_type(a.dtype)
    line = "m0 + m" if rows % together == 0 else f"(m0 + m < {rows}u ? m0 + m : {rows - 1}u)"
    lines = [f"const {t}* const from = p0 + (u64)({line}) * {k}u + first;", f"float x[{count}];"]
    whole = count * a.dtype.size
    step = 16 // a.dtype.size
    if k % group == 0 and a.align % min(whole, 16) == 0 and (k * a.dtype.size) % min(whole, 16) == 0:
        width = min(count, step)
        lines += [f"const vec<{t}, {width}> y{i} = ldv<{t}, {width}>(from + {i});" for i in range(0, count, width)]
        lines += [f"x[{j}] = {to_compute(f'y{j // width * width}.v[{j % width}]', a.dtype)};" for j in range(count)]
    else:
        lines.append(
            f"UNROLL for (u32 j = 0; j < {count}; ++j) x[j] = first + j < {k}u ? {to_compute('from[j]', a.dtype)} : 0.f;"
        )
    half = count // 2
    bits = 32 // count
    lines += [f"x[{j}] *= {1.0 / (1 << (j % half * bits))!r}f;" for j in range(count) if j % half]
    return lines
