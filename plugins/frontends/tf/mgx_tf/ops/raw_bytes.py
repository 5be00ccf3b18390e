"""Strings that hold numbers, tables and tensors as bytes."""

from __future__ import annotations

import csv
import zlib
from typing import Literal

import numpy as np
from google.protobuf.message import DecodeError

from mgx_core import MgxError, Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_bytes, require_room

from ..wire.messages import message
from ..wire.tensors import tensor_array
from .damage import reading
from .fingerprint import fingerprint
from .jpeg import extents
from .text import decoded, each, encoded, strings

__all__: list[str] = []

MASK = (1 << 64) - 1
PIECE = 1 << 22  # bytes that are decompressed between two looks at the room


@op("tf_decode_raw", exact=True)
class DecodeRaw(Operation):
    """The numbers that strings of equal length hold, each string a row; shorter ones are filled up with zeros to `length`.

    x: string [..] -> target [.., n].  Errors: ShapeError for unequal lengths, or parts of a number.
    Source: TensorFlow DecodeRaw, DecodePaddedRaw.
    """

    target: DType
    little: bool = True
    length: int = -1

    def infer(self, x: Shape) -> Shape:
        strings(x)
        size = np.dtype(self.target.numpy).itemsize
        last: Dim = fresh("numbers") if self.length < 0 else self.length // size
        return Shape.of(self.target, (*x.dims, last))

    def compute(self, x: Array) -> Array:
        rows = [encoded(w) for w in x.reshape(-1).tolist()]
        kind = np.dtype(self.target.numpy)
        if self.length >= 0:
            require_room((len(rows), self.length), 1)
            rows = [row[: self.length].ljust(self.length, b"\0") for row in rows]
        sizes = {len(row) for row in rows} or {0}
        if len(sizes) > 1 or min(sizes) % kind.itemsize:
            raise ShapeError(
                f"strings of one length, a multiple of {kind.itemsize} bytes, are needed, got {sorted(sizes)}"
            )
        made = np.frombuffer(b"".join(rows), kind if self.little else kind.newbyteorder(">")).astype(kind)
        return made.reshape(*x.shape, min(sizes) // kind.itemsize)


@op("tf_decompress", exact=True)
class Decompress(Operation):
    """The contents of compressed strings.  x: string [..] -> string [..].

    Errors: ShapeError for damaged ones.  Source: TensorFlow DecodeCompressed.
    """

    how: Literal["", "ZLIB", "GZIP"] = ""

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        held = 0  # letters so far

        def opened(word: str) -> str:
            nonlocal held
            made = encoded(word) if not self.how else _decompressed(encoded(word), self.how, held)
            held += len(made)
            return decoded(made)

        with reading("compressed string"):
            return each(opened, x)


def _decompressed(data: bytes, how: str, held: int) -> bytes:
    """The contents of one string, all members of a GZIP file.  Errors: DeviceError as soon as they exceed the room."""
    bits = {"ZLIB": zlib.MAX_WBITS, "GZIP": zlib.MAX_WBITS + 16}[how]
    pieces: list[bytes] = []
    while True:
        open_ = zlib.decompressobj(bits)
        while not open_.eof:
            piece = open_.decompress(data, PIECE)
            held += len(piece)
            require_bytes(held, "the contents of compressed strings")
            pieces.append(piece)
            data = open_.unconsumed_tail
            if not piece and not data and not open_.eof:
                raise ShapeError("a compressed string ends early")
        data = open_.unused_data.lstrip(b"\0")
        if how == "ZLIB" or not data:
            return b"".join(pieces)


@op("tf_decode_csv", exact=True)
class DecodeCsv(Operation):
    """The fields of lines of text, column by column.

    x: string [..]; then a default for each column, empty where a field must be there -> a tensor [..] for each column.
    Errors: ShapeError for another number of fields, text that is no number, missing fields.  Source: TensorFlow DecodeCSV.
    """

    delimiter: str = ","
    quotes: bool = True
    nothing: str = ""
    columns: tuple[int, ...] = ()

    def infer(self, x: Shape, *defaults: Shape) -> TupleShape:
        strings(x)
        if len(self.columns) not in (0, len(defaults)) or list(self.columns) != sorted(
            {c for c in self.columns if c >= 0}
        ):
            raise ShapeError(f"rising columns from 0 on are needed, one for each default, got {self.columns}")
        return TupleShape([x.with_dtype(d.dtype) for d in defaults])

    def compute(self, x: Array, *defaults: Array) -> tuple[Array, ...]:
        with reading("table"):
            return self._columns(x, defaults)

    def _columns(self, x: Array, defaults: tuple[Array, ...]) -> tuple[Array, ...]:
        quoting: Literal[0, 3] = 0 if self.quotes else 3  # csv.QUOTE_MINIMAL, csv.QUOTE_NONE
        rows = list(csv.reader(x.reshape(-1).tolist(), delimiter=self.delimiter, quoting=quoting))
        if len(rows) != x.size:
            raise ShapeError(f"{x.size} strings hold {len(rows)} lines, one each is needed")
        chosen = self.columns or tuple(range(len(defaults)))
        out = []
        for column, default in zip(chosen, defaults, strict=True):
            made = np.empty(len(rows), default.dtype)
            for k, row in enumerate(rows):
                if column >= len(row) or (not self.columns and len(row) != len(defaults)):
                    raise ShapeError(f"line {k} has {len(row)} fields, {len(defaults)} are needed")
                made[k] = self._value(row[column], default, k, column)
            out.append(made.reshape(x.shape))
        return tuple(out)

    def _value(self, word: str, default: Array, line: int, column: int) -> object:
        if word in ("", self.nothing):
            if not default.size:
                raise ShapeError(f"field {column} of line {line} is missing and has no default")
            return default.reshape(-1)[0]
        try:
            return word if default.dtype == object else float(word) if default.dtype.kind == "f" else int(word)
        except ValueError:
            raise ShapeError(f"field {column} of line {line} is no {default.dtype}: {word!r}") from None


@op("tf_parse_tensor", exact=True)
class ParseTensor(Operation):
    """The tensor that a string holds as a message.

    x: string, one element -> target of `dims`, -1 for unknown extents.
    Errors: ShapeError for a damaged message or another type.  Source: TensorFlow ParseTensor.
    """

    target: DType

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.unranked(self.target)

    def compute(self, x: Array) -> Array:
        held = message("TensorProto")()
        try:
            held.ParseFromString(encoded(str(x.reshape(-1)[0])))
            made = tensor_array(held)
        except (MgxError, DecodeError, ValueError) as error:
            raise ShapeError(f"a serialized tensor is damaged: {error}") from None
        if made.dtype != np.dtype(self.target.numpy):
            raise ShapeError(f"a serialized tensor of {self.target} is needed, got {made.dtype}")
        return made


def _hash64(data: bytes) -> int:
    """Source: MurmurHash64A with TensorFlow's seed."""
    scale, seed = 0xC6A4A7935BD1E995, 0xDECAFCAFFE
    found = (seed ^ (len(data) * scale)) & MASK
    whole = len(data) // 8 * 8
    for at in range(0, whole, 8):
        word = int.from_bytes(data[at : at + 8], "little") * scale & MASK
        found = (found ^ ((word ^ (word >> 47)) * scale & MASK)) * scale & MASK
    if rest := data[whole:]:
        found = (found ^ int.from_bytes(rest, "little")) * scale & MASK
    found = (found ^ (found >> 47)) * scale & MASK
    return found ^ (found >> 47)


@op("tf_hash64", exact=True)
class Hash64(Operation):
    """The number of a bucket for each string.  x: string [..] -> int64 [..].  Source: TensorFlow StringToHashBucket."""

    buckets: int

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.with_dtype(dt.int64)

    def compute(self, x: Array) -> Array:
        return each(lambda w: _hash64(encoded(w)) % self.buckets, x, np.int64)


@op("tf_fingerprint_bytes", exact=True)
class FingerprintBytes(Operation):
    """The eight bytes of the fingerprint of each string.  x: string [n] -> uint8 [n, 8].  Source: TensorFlow Fingerprint."""

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.uint8, (*x.dims, 8))

    def compute(self, x: Array) -> Array:
        found = each(lambda w: fingerprint(encoded(w)), x, np.uint64)
        return found.astype("<u8").view(np.uint8).reshape(*x.shape, 8)


@op("tf_jpeg_extents", exact=True)
class JpegExtents(Operation):
    """Height, width and channels of a JPEG file.

    x: string, one element -> int64 [3].  Errors: ShapeError for damaged files.  Source: TensorFlow ExtractJpegShape.
    """

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.int64, (3,))

    def compute(self, x: Array) -> Array:
        with reading("JPEG file"):
            return np.array(extents(encoded(str(x.reshape(-1)[0]))), np.int64)


@op("tf_segment_join", exact=True)
class SegmentJoin(Operation):
    """The words of each segment, joined.

    x: string [n], segments: int64 [n], count: int64, one element -> string [count].
    Errors: ShapeError for segments outside.  Source: TensorFlow UnsortedSegmentJoin.
    """

    separator: str = ""

    def infer(self, x: Shape, segments: Shape, count: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.string, (fresh("segments"),))

    def compute(self, x: Array, segments: Array, count: Array) -> Array:
        total = int(count.reshape(-1)[0])
        require_room((max(total, 0),), 64)
        rows: list[list[str]] = [[] for _ in range(total)]
        for word, at in zip(x.tolist(), segments.tolist(), strict=True):
            if at >= total:
                raise ShapeError(f"segment {at} lies outside 0..{total - 1}")
            if at >= 0:
                rows[at].append(word)
        out = np.empty(total, object)
        out[:] = [self.separator.join(row) for row in rows]
        return out


@op("tf_string_format", exact=True)
class StringFormat(Operation):
    """A text with tensors in place of each `placeholder`, of long ones the first and the last `most` elements an axis.

    xs: any -> string [].  Errors: ShapeError for another number of places.  Source: TensorFlow StringFormat.
    """

    template: str
    placeholder: str
    most: int = 3

    def infer(self, *xs: Shape) -> Shape:
        return Shape.of(dt.string, ())

    def compute(self, *xs: Array) -> Array:
        parts = self.template.split(self.placeholder)
        if len(parts) != len(xs) + 1:
            raise ShapeError(f"{len(parts) - 1} tensors are needed, got {len(xs)}")
        words = [self._text(x, 1) for x in xs]
        made = parts[0] + "".join(w + p for w, p in zip(words, parts[1:], strict=True))
        out = np.empty((), object)
        out[()] = made
        return out

    def _text(self, x: Array, level: int) -> str:
        """level: the axes from the first one to x's, and one more."""
        if not x.ndim:
            value = x[()]
            return f'"{value}"' if x.dtype == object else f"{value:.6g}" if x.dtype.kind == "f" else str(value)
        gap = " " if x.ndim == 1 else "\n" * (x.ndim - 1) + " " * level
        if not 0 <= self.most * 2 < len(x):
            return "[" + gap.join(self._text(np.asarray(r), level + 1) for r in x) + "]"
        first, last = (
            [self._text(np.asarray(r), level + 1) for r in rows] for rows in (x[: self.most], x[len(x) - self.most :])
        )
        # what is left out has a gap before it even if nothing stands there
        return "[" + gap.join(first) + gap + gap.join(["...", *last]) + "]"
