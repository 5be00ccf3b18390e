"""Products of few rows with weights in codes, on matrix units: codes are on their way before the rows are there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from mgx_core import dtype as dt

from .geometry import ceil_div
from .source import DeviceTraits, Tensor, read, stored

__all__ = ["CodedTiles", "CodedWeights"]

COLUMNS: Final = 16  # of the weights that one instruction takes, for eight rows
SHARERS: Final = 4  # lanes that have parts of one column
HELD: Final = 8  # vectors of 16 bytes of codes that a lane waits for at once
MOST_WAVES: Final = 16
BUSY: Final = 12  # waves a multiprocessor that hide the memory's latency


class CodedWeights(NamedTuple):
    """Weights in codes [n, row bytes] with scales and perhaps zero points [n, blocks]; names: of their memory in a kernel."""

    bits: int
    block_size: int
    k: int
    codes: Tensor
    scale: Tensor
    zero: Tensor | None
    names: tuple[str, str, str]

    @property
    def of_byte(self) -> int:
        return 8 // self.bits

    @property
    def constant(self) -> bool:
        """True if they are there before the program runs."""
        return all(t is None or t.constant for t in (self.codes, self.scale, self.zero))


@dataclass(frozen=True)
class CodedTiles:
    """The division of the columns and of k among blocks and waves.

    size: bytes of codes that a lane reads at once; a block has `tiles` times 16 columns, a part of them in each of `parts` of the
    matrix; each of its `waves` takes one in so many pieces of k, `held` of them at once.
    """

    weights: CodedWeights
    kind: dt.DType
    size: int
    waves: int
    tiles: int
    held: int
    parts: int

    @classmethod
    def of(cls, weights: CodedWeights, kind: dt.DType, parts: int, traits: DeviceTraits) -> CodedTiles | None:
        """Returns the division; None where the device, the type or the extents do not allow it."""
        if not _has_units(traits) or kind not in (dt.float16, dt.bfloat16):
            return None
        if kind is dt.bfloat16 and (weights.bits != 4 or weights.zero is not None):
            return None  # whose few digits do not hold every difference
        n, row = weights.codes.lens
        size, each = 16, SHARERS * 16 * weights.of_byte
        while size >= 4 and (weights.k % each or weights.block_size % each or row % size):
            size, each = size // 2, each // 2
        if size < 4 or weights.codes.align % size:
            return None
        chunks, tiles = weights.k // each, parts
        wanted = BUSY * traits.sm_count
        while tiles <= 2 and ceil_div(n, COLUMNS * 2 * tiles) * min(chunks, MOST_WAVES) >= 2 * wanted:
            tiles *= 2
        waves = min(MOST_WAVES, 1 << (chunks - 1).bit_length())
        while waves > 4 and ceil_div(n, COLUMNS * tiles) * waves // 2 >= wanted:
            waves //= 2
        held = max(1, min(ceil_div(chunks, waves), HELD * 16 // size // (2 * tiles)))
        return cls(weights, kind, size, waves, tiles, held, parts)

    @property
    def block(self) -> int:
        """Columns of a block, counted in all parts."""
        return COLUMNS * self.tiles

    @property
    def piece(self) -> int:
        """Codes of k that the lanes of a column read at once."""
        return SHARERS * self.size * self.weights.of_byte

    @property
    def pieces(self) -> int:
        return self.weights.k // self.piece

    def fetch(self) -> list[str]:
        """Returns statements that begin to read codes, scales and zero points of a wave's first pieces of k."""
        shape = f"[{self.held}][{2 * self.tiles}]"
        return [
            "const u32 wave = threadIdx.x / WAVE, lane = lane_id(), g = lane / 4u, t = lane % 4u;",
            f"const u32 first = blockIdx.x * {self.block // self.parts}u;",
            f"vec<u32, {self.size // 4}> w{shape};",
            f"float s{shape}{f', z{shape}' if self.weights.zero is not None else ''};",
            *self._fetched("0u"),
        ]

    def _fetched(self, turn: str) -> list[str]:
        weights, each = self.weights, self.tiles // self.parts
        (n, row), of = weights.codes.lens, weights.scale
        apart, (codes, scale, zero) = n // self.parts, weights.names
        return [
            f"UNROLL for (u32 c = 0; c < {self.held}; ++c) {{",
            f"  const u32 piece = ({turn} + c) * {self.waves}u + wave;",
            f"  if (piece < {self.pieces}u) {{",
            f"    UNROLL for (u32 i = 0; i < {2 * self.tiles}; ++i) {{",
            f"      const u32 result = first + i / 2u % {each}u * {COLUMNS}u + i % 2u * 8u + g;",
            f"      const u32 column = i / 2u / {each}u * {apart}u + (result < {apart}u ? result : {apart - 1}u);",
            f"      const u32 place = (piece * {SHARERS}u + t) * {self.size}u;",
            f"      w[c][i] = ldv<u32, {self.size // 4}>({codes} + (u64)column * {row}u + place);",
            f"      const u32 at = column * {of.lens[1]}u + piece * {self.piece}u / {weights.block_size}u;",
            f"      s[c][i] = {read(f'{scale}[at]', of.dtype)};",
            *([f"      z[c][i] = (float){zero}[at];"] if weights.zero is not None else []),
            "    }",
            "  }",
            "}",
        ]

    def sums(self, source: str, together: int, last: str) -> list[str]:
        """Returns statements that leave the sums of a block's columns in shared memory, `sums[wave][column][row]`.

        source: code of the memory of the rows; together: rows of the block; last: code of the number of the last one.
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
        """Returns statements that add the products of the codes that are held."""
        bits, lane = self.weights.bits, self.piece // SHARERS
        t, step = stored(self.kind), min(8, lane)

        def zero(column: str) -> str:
            point = f"z[c][{column}]" if self.weights.zero is not None else f"{1 << (bits - 1)}.f"
            return f"coded::zero_of<{t}, {bits}>({point})"

        word = "w[c][2 * tile].v[q], w[c][2 * tile + 1].v[q]"
        return [
            f"UNROLL for (u32 c = 0; c < {self.held}; ++c) {{",
            f"  const u32 piece = (turn + c) * {self.waves}u + wave;",
            f"  if (piece < {self.pieces}u) {{",
            f"    const {t}* const from = {source} + (u64)(g < {last} ? g : {last}) * {self.weights.k}u"
            f" + piece * {self.piece}u + t * {lane}u;",
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
    """Returns True for devices whose matrix units are addressed as ``mma.sync`` is, or emulated so."""
    if traits.vendor == "cuda":
        return int("".join(c for c in traits.arch if c.isdigit()) or "0") >= 80
    return traits.vendor == "host" and traits.wave == 32
