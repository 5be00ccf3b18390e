"""A JPEG decoder: baseline, extended and progressive files."""

from __future__ import annotations

import struct

import numpy as np

from mgx_core.errors import ShapeError
from mgx_core.types.argument import Array
from mgx_core.types.memory_limit import require_memory

from .jpeg_blocks import ZIGZAG, Component, Scan
from .jpeg_huffman import Bits, Table, table_of
from .jpeg_pixels import fast_inverse_dct, inverse_dct, to_rgb, upsample, upsample_rows

__all__ = ["extents", "jpeg"]

SCANS = 256  # limit of scans per image; encoders write about ten
FRAMES = (0xC0, 0xC1, 0xC2)  # baseline, extended, progressive


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

    def read(self, stop: bool = False) -> None:
        """Parses all segments, or up to the frame header if `stop` is set."""
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
                raise ShapeError("arithmetic-coded, lossless and hierarchical JPEG files are not supported")
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
        """Errors: ShapeError for truncated data, unless `recover` is set."""
        if not self.recover:
            raise ShapeError(f"the JPEG file is truncated: {why} (set try_recover_truncated to decode the rest)")

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
            self.tables[body[at] >> 4, body[at] & 15] = table_of(counts, body[at + 17 : at + 17 + total])
            at += 17 + total

    def _frame(self, body: bytes, progressive: bool) -> None:
        if self.parts:
            raise ShapeError("the JPEG file contains a second frame header")
        depth, self.height, self.width, count = struct.unpack(">BHHB", body[:6])
        if depth != 8 or not self.height or not self.width or count not in (1, 3, 4):
            raise ShapeError(
                f"JPEG files must have 8 bits and 1, 3 or 4 components, got {depth} bits and {count} components"
            )
        self.progressive = progressive
        for k in range(count):
            name, sizes, table = body[6 + 3 * k : 9 + 3 * k]
            self.parts[name] = Component(sizes >> 4, sizes & 15, table)
        if len(self.parts) != count:
            raise ShapeError(f"the {count} components of a JPEG file must have distinct ids, got {list(self.parts)}")
        if not all(1 <= v <= 4 for p in self.parts.values() for v in (p.across, p.down)):
            raise ShapeError("sampling factors of a JPEG file must be 1 to 4")
        self.across = max(p.across for p in self.parts.values())
        self.down = max(p.down for p in self.parts.values())
        self.units = -(-self.height // (8 * self.down)), -(-self.width // (8 * self.across))
        require_memory((*self.units, self.across * self.down * len(self.parts), 64), 64)
        for p in self.parts.values():
            p.rows = -(-self.height * p.down // (8 * self.down))
            p.columns = -(-self.width * p.across // (8 * self.across))
            p.blocks = [[[0] * 64 for _ in range(self.units[1] * p.across)] for _ in range(self.units[0] * p.down)]

    def _scan(self, body: bytes, at: int) -> int:
        count = body[0]
        self.scans += 1
        if self.scans > SCANS or not 1 <= count <= len(self.parts):
            raise ShapeError(
                f"at most {SCANS} scans of 1 to {len(self.parts)} components are supported, got one of {count}"
            )
        chosen = []
        for k in range(count):
            part = self.parts[body[1 + 2 * k]]
            part.direct, part.coded = body[2 + 2 * k] >> 4, body[2 + 2 * k] & 15
            chosen.append(part)
        first, last, shifts = body[1 + 2 * count : 4 + 2 * count]
        scan = Scan(self.tables, self.progressive, first, last, shifts >> 4, shifts & 15)
        if self.progressive and (first > last or last > 63 or (count > 1 and last)):
            raise ShapeError(f"a scan of {count} components cannot contain the coefficients {first} to {last}")
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
                self._ended(f"a scan has {len(pieces)} of {-(-len(order) // each)} restart intervals")
                break
            bits = Bits(pieces[k])
            scan.pending = 0
            for p in chosen:
                p.last = 0
            for unit in order[start : start + each]:
                if bits.ended:
                    self._ended("a scan lacks blocks")
                    break
                for part, r, c in unit:  # the MCU in which the data end is completed with zero bits
                    scan.read(bits, part, part.blocks[r][c])
            if bits.ended:
                self._ended("a scan lacks blocks")
        return end

    def _pieces(self, at: int) -> tuple[list[bytes], int]:
        """Returns the entropy-coded segments between restart markers, and the position of their end."""
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


def extents(data: bytes) -> tuple[int, int, int]:
    """Returns height, width and number of components of a JPEG file."""
    held = _Decoder(data)
    held.read(stop=True)
    return held.height, held.width, len(held.parts)


def _has_colors(held: _Decoder) -> bool:
    """True if the components are RGB, not YCbCr."""
    if len(held.parts) != 3 or held.jfif:
        return False
    return held.transform == 0 if held.transform is not None else bytes(held.parts) == b"RGB"


def jpeg(data: bytes, gray: bool = False, smooth: bool = True, exact: bool = False, recover: bool = False) -> Array:
    """Decodes a JPEG file to pixels uint8 [height, width, 1 or 3].  Errors: ShapeError for corrupt or unsupported files.

    gray: returns luma only; smooth: interpolates upsampled chroma; exact: computes the inverse DCT with 13-bit constants, else
    8-bit ones; recover: data missing at the end of a file is gray instead of an error.
    """
    held = _Decoder(data, recover)
    held.read()
    parts = list(held.parts.values())
    if not held.scans or not (recover or all(p.seen for p in parts)):
        raise ShapeError("a JPEG file must have a frame header and a scan of each component")
    if len(parts) == 4:
        raise ShapeError("JPEG files with four components are not supported")
    colors = _has_colors(held)
    planes: list[Array] = []
    for part in parts[:1] if gray and not colors else parts:
        table = np.zeros(64, np.int64)
        table[ZIGZAG] = held.quantization[part.table]
        blocks = np.array(part.blocks, np.int64)
        rows, columns = blocks.shape[:2]
        square = blocks.reshape(rows, columns, 8, 8)
        pixels = inverse_dct(square * table.reshape(8, 8)) if exact else fast_inverse_dct(square, table)
        plane = pixels.swapaxes(1, 2).reshape(rows * 8, columns * 8)
        down, across = held.down // part.down, held.across // part.across
        high, wide = -(-held.height // down), -(-held.width // across)
        plane = plane[:high, :wide]
        if (down, across) == (2, 2):
            plane = upsample(plane, smooth and wide > 2)
        elif (down, across) == (1, 2):
            plane = upsample_rows(plane, smooth and wide > 2)
        elif (down, across) != (1, 1):
            plane = np.repeat(np.repeat(plane, across, 1), down, 0)
        planes.append(plane[: held.height, : held.width])
    return to_rgb(planes, colors, gray)
