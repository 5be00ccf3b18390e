"""Bit reader and Huffman tables of JPEG files."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.types.argument import Array

__all__ = ["Bits", "Table", "table_of", "undefined_code"]


class Bits:
    """Reads entropy-coded bits, most significant first.  Past the end there are zeros.

    at: position of the next bit; size: number of bits; words: the 32 bits from each byte on.
    """

    def __init__(self, data: bytes) -> None:
        clean = data.replace(b"\xff\0", b"\xff")
        self.at, self.size = 0, 8 * len(clean)
        octets = np.frombuffer(clean + bytes(4), np.uint8).astype(np.uint32)
        self.words = memoryview(octets[:-3] << 24 | octets[1:-2] << 16 | octets[2:-1] << 8 | octets[3:])

    @property
    def ended(self) -> bool:
        """True if bits from past the end were used."""
        return self.at > self.size

    def ahead(self) -> int:
        """Returns the next 16 bits without using them."""
        at = self.at
        return self.words[at >> 3] >> (16 - (at & 7)) & 0xFFFF if at < self.size else 0

    def take(self, count: int) -> int:
        found = 0
        for most in (*[16] * (count // 16), count % 16):
            found = found << most | self.ahead() >> (16 - most)
            self.at += most
        return found

    def code(self, table: Table) -> int:
        """Decodes the next symbol."""
        word = self.ahead()
        length = table.lengths[word]
        if not length:
            raise undefined_code()
        self.at += length
        return table.symbols[word]

    def number(self, size: int) -> int:
        """Returns a signed number of `size` bits in JPEG's encoding."""
        return signed(self.take(size), size)


def undefined_code() -> ShapeError:
    return ShapeError("the JPEG file contains an undefined Huffman code")


def signed(bits: int, size: int) -> int:
    """Returns the number that `size` bits encode: those with a leading 0 are negative."""
    return bits if not size or bits >> (size - 1) else bits - (1 << size) + 1


class Table:
    """A Huffman table: length and symbol of the code at the head of each 16-bit lookahead; 0 and 0 where there is none.

    steps: for tables of coefficients, what follows by lookahead, packed: from the lowest bit, 5 bits for the number of bits
    used, 4 for that of zeros before the coefficient, 4 for its size, then its value.  size 0: no coefficient, but a run of
    zeros; value 0 with another size: the lookahead does not contain the value, of which no bits are used.
    """

    def __init__(self, counts: bytes, symbols: bytes) -> None:
        lengths, found = np.zeros((2, 1 << 16), np.uint8)
        code = at = 0
        for length, count in enumerate(counts, 1):
            for symbol in symbols[at : at + count]:
                words = slice(code << (16 - length), (code + 1) << (16 - length))
                lengths[words], found[words] = length, symbol
                code += 1
            at += count
            code <<= 1
        self.lengths, self.symbols = memoryview(lengths), memoryview(found)
        self.steps = memoryview(_steps(lengths.astype(np.int32), found.astype(np.int32)))


def _steps(lengths: Array, symbols: Array) -> Array:
    run, size = symbols >> 4, symbols & 15
    rest = 16 - lengths - size
    whole = (size > 0) & (rest >= 0) & (lengths > 0)
    bits = np.arange(1 << 16, dtype=np.int32) >> np.maximum(rest, 0) & ((1 << size) - 1)
    values = np.where(bits >> np.maximum(size - 1, 0), bits, bits - (1 << size) + 1)
    used = lengths + np.where(whole, size, 0)
    return np.asarray(used | run << 5 | size << 9 | np.where(whole, values, 0) << 13, np.int32)


@lru_cache(maxsize=16)
def table_of(counts: bytes, symbols: bytes) -> Table:
    """Returns the table of a file: most files have the same ones."""
    return Table(counts, symbols)
