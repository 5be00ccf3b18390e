"""Decodes the DCT coefficients of JPEG blocks, scan by scan."""

from __future__ import annotations

from dataclasses import field
from typing import Final

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.records import dataclass

from .jpeg_huffman import Bits, Table, undefined_code

__all__ = ["ZIGZAG", "Component", "Scan"]

ZIGZAG: Final = np.array([
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35,
    42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
])  # fmt: skip
PLACES: Final[list[int]] = ZIGZAG.tolist()


@dataclass
class Component:
    """A color component: sampling factors, tables, and coefficients [rows, columns, 64]."""

    across: int
    down: int
    table: int
    rows: int = 0  # counts blocks inside the image
    columns: int = 0
    blocks: list[list[list[int]]] = field(default_factory=list)
    direct: int = 0
    coded: int = 0
    last: int = 0
    seen: bool = False  # whether a scan has decoded its DC coefficients


class Scan:
    """One scan over some components.

    tables: Huffman tables by class and id; progressive: whether the file has several scans per component;
    first, last: the band of coefficients; high, low: successive approximation: point transforms before and after this scan.
    """

    def __init__(
        self, tables: dict[tuple[int, int], Table], progressive: bool, first: int, last: int, high: int, low: int
    ) -> None:
        self.tables = tables
        self.progressive = progressive
        self.first, self.last, self.high, self.low = (first, last, high, low) if progressive else (0, 63, 0, 0)
        self.pending = 0  # remaining blocks of an end-of-band run

    def read(self, bits: Bits, part: Component, block: list[int]) -> None:
        """Decodes one block, or refines it with this scan's data."""
        first, last, high, low = self.first, self.last, self.high, self.low
        if first == 0:
            if high:
                block[0] |= bits.take(1) << low
            else:
                part.last += bits.number(bits.code(self.tables[0, part.direct]))
                block[0] = part.last << low
            first = 1
            if self.progressive:
                return
        if high:
            self._refined(bits, self.tables[1, part.coded], block, first, last, 1 << low)
        else:
            self._band(bits, self.tables[1, part.coded], block, first, last, low)

    def _band(self, bits: Bits, table: Table, block: list[int], k: int, last: int, low: int) -> None:
        """Decodes coefficients; those whose bits are in the lookahead, nearly all, are read here rather than by `bits`."""
        if self.pending:
            self.pending -= 1
            return
        words, end, at, steps = bits.words, bits.size, bits.at, table.steps
        while k <= last:
            step = steps[words[at >> 3] >> (16 - (at & 7)) & 0xFFFF if at < end else 0]
            at += step & 31
            run, size = step >> 5 & 15, step >> 9 & 15
            if size:
                k += run
                if k > 63:
                    raise ShapeError("a block of a JPEG file has too many coefficients")
                value = step >> 13
                if not value:
                    bits.at = at
                    value = bits.number(size)
                    at = bits.at
                block[PLACES[k]] = value << low
                k += 1
            elif run == 15:
                k += 16
            elif not step:
                raise undefined_code()
            else:
                bits.at = at
                self.pending = (1 << run) - 1 + bits.take(run)
                return
        bits.at = at

    def _refined(self, bits: Bits, table: Table, block: list[int], k: int, last: int, unit: int) -> None:
        """Decodes a refinement scan: one more bit of each nonzero coefficient of a band, and newly nonzero ones."""

        def more(place: int) -> None:
            if bits.take(1) and not abs(block[place]) & unit:
                block[place] += unit if block[place] > 0 else -unit

        if not self.pending:
            while k <= last:
                symbol = bits.code(table)
                run, size = symbol >> 4, symbol & 15
                value = 0
                if size:
                    value = unit if bits.take(1) else -unit
                elif run < 15:
                    self.pending = (1 << run) + bits.take(run)
                    break
                while k <= last:
                    place = PLACES[k]
                    k += 1
                    if block[place]:
                        more(place)
                    elif run:
                        run -= 1
                    else:
                        if value:
                            block[place] = value
                        break
        if self.pending:
            while k <= last:
                if block[PLACES[k]]:
                    more(PLACES[k])
                k += 1
            self.pending -= 1
