"""Unicode decoding and encoding of strings."""

from __future__ import annotations

import sys
from itertools import pairwise
from typing import Literal

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.strings import decoded, encoded

from .ragged import splits_of
from .text import strings

__all__: list[str] = []


@op("tf_unicode_decode", exact=True)
class UnicodeDecode(Operation):
    """The code points of strings.

    x: string [n] -> row splits int64 [n + 1], int32 [points]; `instead` replaces each maximal invalid subpart (and each other
    invalid byte) and, if `controls`, U+0000 to U+001F.
    Errors: ShapeError unless x is a vector; ParameterError unless `instead` is a code point.  Source: TensorFlow UnicodeDecode.
    """

    instead: int = 0xFFFD
    controls: bool = False

    def infer(self, x: Shape) -> TupleShape:
        strings(x)
        if x.rank != 1:
            raise ShapeError(f"a vector of strings is required, got {x}")
        if not 0 <= self.instead <= sys.maxunicode:
            raise ParameterError(f"a replacement within 0..{sys.maxunicode} is required, got {self.instead}")
        return TupleShape([Shape.of(dt.int64, (x.dims[0] + 1,)), Shape.of(dt.int32, (fresh("points"),))])

    def compute(self, x: Array) -> tuple[Array, ...]:
        rows = [self._points(encoded(word)) for word in x.tolist()]
        points = np.array([p for row in rows for p in row], np.int32)
        return splits_of(map(len, rows)), points

    def _points(self, word: bytes) -> list[int]:
        by = dict.fromkeys([0xFFFD, *(range(0x20) if self.controls else ())], self.instead)
        # splits at the string's own U+FFFD, so that those in the decoded parts are replacements
        parts = [p.decode("utf-8", "replace").translate(by) for p in word.split(b"\xef\xbf\xbd")]
        return [ord(p) for p in "\ufffd".join(parts)]


@op("tf_unicode_offsets", exact=True)
class UnicodeOffsets(Operation):
    """The byte offset of each character; an invalid byte counts as a character.

    x: string [n] -> int64 [characters].  Source: TensorFlow UnicodeDecodeWithOffsets.
    """

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return Shape.of(dt.int64, (fresh("characters"),))

    def compute(self, x: Array) -> Array:
        starts: list[int] = []
        for word in x.tolist():
            at = 0
            for character in word:
                starts.append(at)
                at += len(encoded(character))
        return np.array(starts, np.int64)


@op("tf_unicode_encode", exact=True)
class UnicodeEncode(Operation):
    """Strings of code points, row by row.

    points: int32 [k], splits: int64 [n + 1] -> string [n]; instead: replaces invalid code points, -1 drops them.
    Errors: ShapeError unless splits rise from 0 to k.  Source: TensorFlow UnicodeEncode.
    """

    encoding: Literal["UTF-8", "UTF-16-BE", "UTF-32-BE"] = "UTF-8"
    instead: int = 0xFFFD

    def infer(self, points: Shape, splits: Shape) -> Shape:
        if points.rank != 1 or splits.rank != 1:
            raise ShapeError(f"vectors of code points and splits are required, got {points} and {splits}")
        return Shape.of(dt.string, (splits.dims[0] - 1,))

    def compute(self, points: Array, splits: Array) -> Array:
        if not len(splits) or (np.diff(splits) < 0).any() or splits[0] != 0 or splits[-1] != len(points):
            raise ShapeError(f"splits must ascend from 0 to {len(points)}, got {splits.tolist()[:8]}")
        out = np.empty(len(splits) - 1, object)
        for row, (begin, end) in enumerate(pairwise(splits.tolist())):
            word = "".join(self._character(p) for p in points[begin:end].tolist())
            out[row] = decoded(word.encode(self.encoding.lower()))
        return out

    def _character(self, point: int) -> str:
        if 0 <= point < 0x110000 and not 0xD800 <= point < 0xE000:
            return chr(point)
        return chr(self.instead) if 0 <= self.instead < 0xD800 or 0xE000 <= self.instead < 0x110000 else ""
