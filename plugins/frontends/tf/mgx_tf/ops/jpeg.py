"""JPEG files: entropy-coded blocks of cosine coefficients, in one pass or in several, as pixels."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.types.argument import Array
from mgx_core.types.memory_limit import require_room

from .jpeg_codes import Bits, Table
from .jpeg_pixels import coloured, fast_pixels, larger, pixels_of, wider

__all__ = ["extents", "jpeg"]

ZIGZAG = np.array([
    0, 1, 8, 16, 9, 2, 3, 10, 17, 24, 32, 25, 18, 11, 4, 5, 12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6, 7, 14, 21, 28, 35,
    42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51, 58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
])  # fmt: skip
PLACES: list[int] = ZIGZAG.tolist()
SCANS = 256  # passes over a picture; encoders make about ten
FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive


@dataclass
class Component:
    """One of the planes: its blocks a unit, its tables, its coefficients [rows, columns, 64]."""

    across: int
    down: int
    table: int
    rows: int = 0  # of blocks that hold pixels
    columns: int = 0
    blocks: list[list[list[int]]] = field(default_factory=list)
    direct: int = 0
    coded: int = 0
    last: int = 0
    seen: bool = False  # whether a scan holds its first coefficients


class _Decoder:
    def __init__(self, data: bytes, recover: bool = False) -> None:
        self.data = data
        self.recover = recover
        self.scans = 0
        self.jfif = False
        self.quantization: dict[int, Array] = {}
        self.tables: dict[tuple[int, int], Table] = {}
        self.parts: dict[int, Component] = {}
        self.height = self.width = self.restart = 0
        self.progressive = False
        self.transform: int | None = None
        self.pending = 0  # blocks whose coefficients of a band have ended

    def read(self, stop: bool = False) -> None:
        """All segments; with `stop` only up to the extents."""
        at = 2
        while at + 2 <= len(self.data):
            if self.data[at] != 0xFF:
                at += 1
                continue
            kind = self.data[at + 1]
            if kind in (0xFF, 0x00, 0x01) or 0xD0 <= kind <= 0xD8:
                at += 1 if kind == 0xFF else 2
                continue
            if kind == 0xD9:
                return
            if at + 4 > len(self.data):
                break
            (size,) = struct.unpack_from(">H", self.data, at + 2)
            body = self.data[at + 4 : at + 2 + size]
            at += 2 + size
            if kind == 0xDB:
                self._quantization(body)
            elif kind == 0xC4:
                self._codes(body)
            elif kind in FRAMES:
                self._frame(body, kind == 0xC2)
                if stop:
                    return
            elif 0xC3 <= kind <= 0xCF and kind not in (0xC8, 0xCC):
                raise ShapeError("JPEG files with arithmetic codes, lossless or hierarchical ones are not read")
            elif kind == 0xDD:
                (self.restart,) = struct.unpack(">H", body[:2])
            elif kind == 0xE0 and body[:5] == b"JFIF\0":
                self.jfif = True
            elif kind == 0xEE and body[:5] == b"Adobe":
                self.transform = body[11]
            elif kind == 0xDA:
                at = self._scan(body, at)
        if not stop:
            self._ended("the file has no end marker")

    def _ended(self, why: str) -> None:
        """Errors: ShapeError for data that end early, unless what is missing may be grey."""
        if not self.recover:
            raise ShapeError(f"the data of a JPEG file end early: {why} (try_recover_truncated reads what is there)")

    def _quantization(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            wide, name = body[at] >> 4, body[at] & 15
            kind = ">u2" if wide else "u1"
            self.quantization[name] = np.frombuffer(body, kind, 64, at + 1).astype(np.int64)
            at += 1 + 64 * (1 + wide)

    def _codes(self, body: bytes) -> None:
        at = 0
        while at < len(body):
            counts = body[at + 1 : at + 17]
            total = sum(counts)
            self.tables[body[at] >> 4, body[at] & 15] = Table(counts, body[at + 17 : at + 17 + total])
            at += 17 + total

    def _frame(self, body: bytes, progressive: bool) -> None:
        if self.parts:
            raise ShapeError("a JPEG file has one frame, got a second one")
        depth, self.height, self.width, count = struct.unpack(">BHHB", body[:6])
        if depth != 8 or not self.height or not self.width or count not in (1, 3, 4):
            raise ShapeError(f"JPEG files of 8 bits and 1, 3 or 4 planes are read, got {depth} bits and {count} planes")
        self.progressive = progressive
        for k in range(count):
            name, sizes, table = body[6 + 3 * k : 9 + 3 * k]
            self.parts[name] = Component(sizes >> 4, sizes & 15, table)
        if len(self.parts) != count:
            raise ShapeError(f"the planes of a JPEG file need names of their own, got {list(self.parts)} for {count}")
        if not all(1 <= v <= 4 for p in self.parts.values() for v in (p.across, p.down)):
            raise ShapeError("a plane of a JPEG file has 1 to 4 blocks a unit along each axis")
        self.across = max(p.across for p in self.parts.values())
        self.down = max(p.down for p in self.parts.values())
        self.units = -(-self.height // (8 * self.down)), -(-self.width // (8 * self.across))
        require_room((*self.units, self.across * self.down * len(self.parts), 64), 64)
        for p in self.parts.values():
            p.rows = -(-self.height * p.down // (8 * self.down))
            p.columns = -(-self.width * p.across // (8 * self.across))
            p.blocks = [[[0] * 64 for _ in range(self.units[1] * p.across)] for _ in range(self.units[0] * p.down)]

    def _scan(self, body: bytes, at: int) -> int:
        count = body[0]
        self.scans += 1
        if self.scans > SCANS or not 1 <= count <= len(self.parts):
            raise ShapeError(f"at most {SCANS} scans of 1 to {len(self.parts)} planes are read, got one of {count}")
        chosen = []
        for k in range(count):
            part = self.parts[body[1 + 2 * k]]
            part.direct, part.coded = body[2 + 2 * k] >> 4, body[2 + 2 * k] & 15
            chosen.append(part)
        first, last, shifts = body[1 + 2 * count : 4 + 2 * count]
        high, low = shifts >> 4, shifts & 15
        if self.progressive and (first > last or last > 63 or (count > 1 and last)):
            raise ShapeError(f"a scan of {count} planes cannot hold the coefficients {first} to {last}")
        for part in chosen:
            part.seen = part.seen or not self.progressive or first == 0
        pieces, end = self._pieces(at)
        if count == 1:
            part = chosen[0]
            order = [[(part, r, c)] for r in range(part.rows) for c in range(part.columns)]
        else:
            order = [
                [(p, u * p.down + r, v * p.across + c) for p in chosen for r in range(p.down) for c in range(p.across)]
                for u in range(self.units[0])
                for v in range(self.units[1])
            ]
        each = self.restart or len(order)
        for k, start in enumerate(range(0, len(order), each)):
            if k >= len(pieces):
                self._ended(f"{len(pieces)} of {-(-len(order) // each)} pieces of a scan are there")
                break
            bits = Bits(pieces[k])
            self.pending = 0
            for p in chosen:
                p.last = 0
            for unit in order[start : start + each]:
                if bits.ended:
                    self._ended("a scan lacks blocks")
                    break
                for part, r, c in unit:
                    block = part.blocks[r][c]
                    self._block(bits, part, block, first, last, high, low)
                    if bits.ended:
                        if not self.progressive:
                            block[:] = [0] * 64
                        break
            if bits.ended:
                self._ended("a scan lacks blocks")
        return end

    def _pieces(self, at: int) -> tuple[list[bytes], int]:
        """Entropy-coded data between restarts, and where they end."""
        pieces: list[bytes] = []
        begin = at
        while True:
            at = self.data.find(b"\xff", at)
            if at < 0 or at + 1 >= len(self.data):
                return [*pieces, self.data[begin:]], len(self.data)
            kind = self.data[at + 1]
            if kind == 0:
                at += 2
            elif 0xD0 <= kind <= 0xD7:
                pieces.append(self.data[begin:at])
                at = begin = at + 2
            elif kind == 0xFF:
                at += 1
            else:
                return [*pieces, self.data[begin:at]], at

    def _block(self, bits: Bits, part: Component, block: list[int], first: int, last: int, high: int, low: int) -> None:
        if not self.progressive:
            first, last, high, low = 0, 63, 0, 0
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
        if self.pending:
            self.pending -= 1
            return
        while k <= last:
            symbol = bits.code(table)
            run, size = symbol >> 4, symbol & 15
            if size:
                k += run
                if k > 63:
                    raise ShapeError("a block of a JPEG file has too many coefficients")
                block[PLACES[k]] = bits.number(size) << low
                k += 1
            elif run == 15:
                k += 16
            else:
                self.pending = (1 << run) - 1 + bits.take(run)
                return

    def _refined(self, bits: Bits, table: Table, block: list[int], k: int, last: int, unit: int) -> None:
        """One more bit of each coefficient of a band, and those that were zero so far."""

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


def extents(data: bytes) -> tuple[int, int, int]:
    """Height, width and planes of a JPEG file."""
    held = _Decoder(data)
    held.read(stop=True)
    return held.height, held.width, len(held.parts)


def _has_colours(held: _Decoder) -> bool:
    """Returns whether the planes are red, green and blue, and not brightness and two differences to it."""
    if len(held.parts) != 3 or held.jfif:
        return False
    return held.transform == 0 if held.transform is not None else bytes(held.parts) == b"RGB"


def jpeg(data: bytes, grey: bool = False, smooth: bool = True, exact: bool = False, recover: bool = False) -> Array:
    """The pixels uint8 [height, width, 1 or 3] of a JPEG file.  Errors: ShapeError for damaged files and rare kinds.

    grey: the brightness alone; smooth: colours that are stored for several pixels are smoothed between them; exact: blocks are
    transformed with 13 bits, else with 8; recover: what is missing at the end of the data is grey.
    """
    held = _Decoder(data, recover)
    held.read()
    parts = list(held.parts.values())
    if not held.scans or not (recover or all(p.seen for p in parts)):
        raise ShapeError("a JPEG file needs a frame and a scan of each plane")
    if len(parts) == 4:
        raise ShapeError("JPEG files of four planes are not read")
    colours = _has_colours(held)
    planes: list[Array] = []
    for part in parts[:1] if grey and not colours else parts:
        table = np.zeros(64, np.int64)
        table[ZIGZAG] = held.quantization[part.table]
        blocks = np.array(part.blocks, np.int64)
        rows, columns = blocks.shape[:2]
        square = blocks.reshape(rows, columns, 8, 8)
        pixels = pixels_of(square * table.reshape(8, 8)) if exact else fast_pixels(square, table)
        plane = pixels.swapaxes(1, 2).reshape(rows * 8, columns * 8)
        down, across = held.down // part.down, held.across // part.across
        high, wide = -(-held.height // down), -(-held.width // across)
        plane = plane[:high, :wide]
        if (down, across) == (2, 2):
            plane = larger(plane, smooth and wide > 2)
        elif (down, across) == (1, 2):
            plane = wider(plane, smooth and wide > 2)
        elif (down, across) != (1, 1):
            plane = np.repeat(np.repeat(plane, across, 1), down, 0)
        planes.append(plane[: held.height, : held.width])
    return coloured(planes, colours, grey)
