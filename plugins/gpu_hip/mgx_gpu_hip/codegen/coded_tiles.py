"""Products of few rows with quantized weights on matrix units; codes are prefetched before the rows are available."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.types.argument import Array

from ..compile.compiler import capability_of
from .geometry import ceil_div
from .source import DeviceTraits, Tensor, storage_type, to_compute

__all__ = ["CodedTiles", "lane_bytes", "tiled_codes", "tiled_numbers"]

COLUMNS: Final = 16  # columns of weights per instruction, for eight rows
SHARERS: Final = 4  # lanes that share a column
LANES: Final = 32
HELD: Final = 8  # vectors of codes that a lane has in flight
MAX_WAVES: Final = 16
MANY: Final = 80  # waves per multiprocessor from which blocks of fewer waves and more columns are faster


def lane_bytes(op: Any, kind: dt.DType, k: int, codes: Tensor, zero: bool, traits: DeviceTraits) -> int | None:
    """Returns the bytes of codes a lane reads at once; None if the device, type or extents are not supported."""
    if not _has_units(traits) or kind not in (dt.float16, dt.bfloat16):
        return None
    if kind is dt.bfloat16 and (op.bits != 4 or zero):
        return None  # its mantissa cannot represent every difference
    of_byte = 8 // op.bits
    size = 16
    while size >= 4:
        piece = SHARERS * size * of_byte
        if k % piece == 0 and op.block_size % piece == 0 and codes.lens[1] * of_byte >= k:
            return size
        size //= 2
    return None


def tiled_codes(codes: Array, bits: int, size: int, k_bytes: int, parts: int) -> Array:
    """Returns codes [n, bytes] as [tiles, pieces of k, bytes]: the bytes that the lanes of a wave read at once are contiguous.

    bits: per code; size: bytes per lane; k_bytes: used bytes of a row; parts: of the columns, each with its own tiles, padded
    with zeros.  Adjacent codes are in different halves of a 32-bit word, as ``coded::add`` multiplies them.
    """
    used = _columns(_in_halves(codes[:, :k_bytes], bits), parts)
    tiles, pieces = len(used) // COLUMNS, k_bytes // (SHARERS * size)
    split = used.reshape(tiles, 2, COLUMNS // 2, pieces, SHARERS, size).transpose(0, 3, 1, 2, 4, 5)
    return split.reshape(tiles, pieces, 2 * LANES * size)


def _in_halves(codes: Array, bits: int) -> Array:
    """Returns rows of codes with code 2 i of each 32-bit word at bit `bits` * i and code 2 i + 1 16 bits above."""
    words = np.ascontiguousarray(codes).view("<u4")
    moved = np.zeros_like(words)
    for n in range(32 // bits):
        moved |= (words >> (n * bits) & ((1 << bits) - 1)) << (n // 2 * bits + n % 2 * 16)
    return moved.view(np.uint8)


def tiled_numbers(numbers: Array, pieces: int, parts: int) -> Array:
    """Returns scales or zero points [n, blocks] as [tiles, pieces of k, 16], one per column and piece."""
    used = _columns(numbers[:, np.arange(pieces) * numbers.shape[1] // pieces], parts)
    return used.reshape(-1, COLUMNS, pieces).transpose(0, 2, 1)


def _columns(rows: Array, parts: int) -> Array:
    """Returns one row per column of the weights, with each part zero-padded to whole tiles."""
    apart = len(rows) // parts
    split = rows.reshape(parts, apart, rows.shape[1])
    return np.pad(split, ((0, 0), (0, -apart % COLUMNS), (0, 0))).reshape(-1, rows.shape[1])


@dataclass(frozen=True)
class CodedTiles:
    """The distribution of tiles of 16 columns and pieces of k over blocks and waves.

    codes, scale, zero: in the layouts of `tiled_codes` and `tiled_numbers`; index: of the first of them among the kernel's
    operands.  A block has `tiles` tiles, equally many of each of `parts` parts of the columns; its `waves` take pieces of k
    round-robin, `held` of them at once.
    """

    bits: int
    kind: dt.DType
    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    waves: int
    tiles: int
    held: int
    parts: int
    index: int

    @classmethod
    def of(
        cls, bits: int, kind: dt.DType, codes: Tensor, scale: Tensor, zero: Tensor | None, parts: int, index: int,
        traits: DeviceTraits,
    ) -> CodedTiles:  # fmt: skip
        """Returns the fastest distribution, from measurements on an H200."""
        count, pieces, _ = codes.lens
        tiles, waves = parts, min(MAX_WAVES, 1 << (pieces - 1).bit_length())
        while tiles <= 2 and ceil_div(count, tiles) * waves > MANY * traits.sm_count:
            tiles, waves = 2 * tiles, max(waves // 2, min(waves, MAX_WAVES // 2))
        held = max(1, min(ceil_div(pieces, waves), HELD // (2 * tiles)))
        return cls(bits, kind, codes, scale, zero, waves, tiles, held, parts, index)

    @property
    def block(self) -> int:
        """Columns per block, over all parts."""
        return COLUMNS * self.tiles

    @property
    def blocks(self) -> int:
        """Blocks that share all columns."""
        return ceil_div(self.codes.lens[0], self.tiles)

    @property
    def pieces(self) -> int:
        return self.codes.lens[1]

    @property
    def size(self) -> int:
        """Bytes of codes that a lane reads at once."""
        return self.codes.lens[2] // (2 * LANES)

    @property
    def lane(self) -> int:
        """Codes that a lane reads at once."""
        return self.size * 8 // self.bits

    def fetch(self) -> list[str]:
        """Returns statements that prefetch codes, scales and zero points of a wave's first pieces of k."""
        shape = f"[{self.held}][{2 * self.tiles}]"
        return [
            "const u32 wave = threadIdx.x / WAVE, lane = lane_id(), g = lane / 4u, t = lane % 4u;",
            f"vec<u32, {self.size // 4}> w{shape};",
            f"float s{shape};",
            *([f"u32 z{shape};"] if self.zero is not None else []),
            *self._fetched("0u"),
        ]

    def _fetched(self, turn: str) -> list[str]:
        each, apart = self.tiles // self.parts, self.codes.lens[0] // self.parts
        return [
            f"UNROLL for (u32 c = 0; c < {self.held}; ++c) {{",
            f"  const u32 piece = ({turn} + c) * {self.waves}u + wave;",
            f"  if (piece < {self.pieces}u) {{",
            f"    UNROLL for (u32 i = 0; i < {2 * self.tiles}; ++i) {{",
            f"      const u32 of = blockIdx.x * {each}u + i / 2u % {each}u;",
            f"      const u32 tile = i / 2u / {each}u * {apart}u + (of < {apart}u ? of : {apart - 1}u);",
            f"      const u64 place = (u64)tile * {self.pieces}u + piece;",
            f"      const u64 first = ((place * 2u + i % 2u) * {LANES}u + lane) * {self.size}u;",
            f"      w[c][i] = ldv<u32, {self.size // 4}>(p{self.index} + first);",
            f"      const u64 at = place * {COLUMNS}u + i % 2u * 8u + g;",
            f"      s[c][i] = {to_compute(f'p{self.index + 1}[at]', self.scale.dtype)};",
            *([f"      z[c][i] = p{self.index + 2}[at];"] if self.zero is not None else []),
            "    }",
            "  }",
            "}",
        ]

    def sums(self, source: str, together: int, last: str) -> list[str]:
        """Returns statements that store the sums of a block's columns in shared memory, `sums[wave][column][row]`.

        source: expression of the rows' address, aligned to 16 bytes; together: rows per block; last: expression of the last row's
        index.
        """
        turns = ceil_div(self.pieces, self.waves * self.held)
        loop = ["const u32 turn = 0;", *self._added(source, last)]
        if turns > 1:
            loop = [
                f"for (u32 turn = 0; turn < {turns * self.held}u; turn += {self.held}u) {{",
                "  if (turn) {",
                *(f"    {line}" for line in self._fetched("turn")),
                "  }",
                *(f"  {line}" for line in self._added(source, last)),
                "}",
            ]
        return [
            f"float acc[{self.tiles}][4] = {{}};",
            *loop,
            f"UNROLL for (u32 tile = 0; tile < {self.tiles}; ++tile)",
            "  UNROLL for (u32 e = 0; e < 4; ++e) {",
            "    const u32 m = t * 2u + e % 2u, column = tile * 16u + e / 2u * 8u + g;",
            f"    if (m < {together}u) sums[wave][column * {together}u + m] = acc[tile][e];",
            "  }",
        ]

    def _added(self, source: str, last: str) -> list[str]:
        """Returns statements that add the products of the codes held in registers."""
        bits, lane, piece = self.bits, self.lane, SHARERS * self.lane
        t, step = storage_type(self.kind), min(8, lane)

        def zero(column: str) -> str:
            point = f"z[c][{column}]" if self.zero is not None else f"{1 << (bits - 1)}u"
            return f"coded::zero_of<{t}, {bits}>({point})"

        word = "w[c][2 * tile].v[q], w[c][2 * tile + 1].v[q]"
        return [
            f"UNROLL for (u32 c = 0; c < {self.held}; ++c) {{",
            f"  const u32 piece = (turn + c) * {self.waves}u + wave;",
            f"  if (piece < {self.pieces}u) {{",
            f"    const {t}* const from = {source} + (u64)(g < {last} ? g : {last}) * {self.pieces * piece}u"
            f" + piece * {piece}u + t * {lane}u;",
            f"    u32 x[{lane // 2}];",
            f"    UNROLL for (u32 j = 0; j < {lane // step}; ++j) {{",
            f"      const vec<{t}, {step}> y = ldv<{t}, {step}>(from + j * {step}u);",
            f"      UNROLL for (u32 e = 0; e < {step // 2}; ++e)",
            f"        x[j * {step // 2} + e] = pair(y.v[2 * e], y.v[2 * e + 1]);",
            "    }",
            f"    UNROLL for (u32 tile = 0; tile < {self.tiles}; ++tile) {{",
            "      float sum[4] = {};",
            f"      const auto low = {zero('2 * tile')}, high = {zero('2 * tile + 1')};",
            f"      UNROLL for (u32 q = 0; q < {self.size // 4}; ++q)",
            f"        coded::add<{t}, {bits}>(sum, {word}, low, high, x + q * {16 // bits});",
            "      UNROLL for (u32 e = 0; e < 4; ++e) acc[tile][e] += s[c][2 * tile + e / 2] * sum[e];",
            "    }",
            "  }",
            "}",
        ]


def _has_units(traits: DeviceTraits) -> bool:
    """Returns True for devices with ``mma.sync``, or its emulation."""
    return capability_of(traits.arch) >= 80 or (traits.vendor == "host" and traits.wave == 32)
