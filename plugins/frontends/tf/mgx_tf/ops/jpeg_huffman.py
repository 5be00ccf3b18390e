"""Bit reader and Huffman tables of JPEG files."""

from __future__ import annotations

from mgx_core.errors import ShapeError

__all__ = ["Bits", "Table"]


class Bits:
    """Reads entropy-coded bits, most significant first.  Past the end it returns zeros and sets `ended`."""

    def __init__(self, data: bytes) -> None:
        self.data = data.replace(b"\xff\0", b"\xff")
        self.at = self.held = self.count = 0
        self.over = 0  # buffered bits from past the end
        self.ended = False

    def need(self, count: int) -> None:
        while self.count < count:
            if self.at < len(self.data):
                byte = self.data[self.at]
                self.at += 1
            else:
                byte = 0
                self.over += 8
            self.held = ((self.held << 8) | byte) & 0xFFFFFFFFFF
            self.count += 8

    def take(self, count: int) -> int:
        if not count:
            return 0
        self.need(count)
        self._use(count)
        return (self.held >> self.count) & ((1 << count) - 1)

    def code(self, table: dict[int, tuple[int, int]]) -> int:
        """Decodes the next symbol."""
        self.need(16)
        length, symbol = table[(self.held >> (self.count - 16)) & 0xFFFF]
        self._use(length)
        return symbol

    def _use(self, count: int) -> None:
        self.count -= count
        if self.count < self.over:
            self.over, self.ended = self.count, True

    def number(self, size: int) -> int:
        """Returns a signed number of `size` bits in JPEG's encoding."""
        if not size:
            return 0
        found = self.take(size)
        return found if found >> (size - 1) else found - (1 << size) + 1


class Table(dict[int, tuple[int, int]]):
    """A Huffman table: 16-bit lookahead -> (length, symbol), filled on demand."""

    def __init__(self, counts: bytes, symbols: bytes) -> None:
        super().__init__()
        self.codes: dict[tuple[int, int], int] = {}
        code = at = 0
        for length, count in enumerate(counts, 1):
            for _ in range(count):
                self.codes[length, code] = symbols[at]
                code, at = code + 1, at + 1
            code <<= 1

    def __missing__(self, word: int) -> tuple[int, int]:
        for length in range(1, 17):
            symbol = self.codes.get((length, word >> (16 - length)))
            if symbol is not None:
                self[word] = length, symbol
                return length, symbol
        raise ShapeError("the JPEG file contains an undefined Huffman code")
