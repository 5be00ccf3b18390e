"""String operations: case, length, substrings, conversion to and from numbers.

A string tensor is an object array of `str`; bytes that are not UTF-8 are surrogate escapes.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.strings import decoded, encoded

__all__: list[str] = []


def strings(*xs: Shape) -> None:
    """Errors: ShapeError unless all shapes are strings."""
    for x in xs:
        if x.dtype.kind != "s":
            raise ShapeError(f"strings are required, got {x}")


def each(function: Callable[[str], Any], x: Array, kind: Any = object) -> Array:
    """Applies a function to each string."""
    out = np.empty(x.size, object)
    for n, word in enumerate(x.reshape(-1).tolist()):
        out[n] = function(word)
    return out.reshape(x.shape).astype(kind)


@op("tf_string_equal", exact=True)
class StringEqual(Operation):
    """True where two strings are equal.  x, y: string [..] -> bool [..].  Source: TensorFlow Equal."""

    def infer(self, x: Shape, y: Shape) -> Shape:
        strings(x, y)
        return x.with_dtype(dt.bool_)

    def compute(self, x: Array, y: Array) -> Array:
        return np.asarray(x == y, bool)


@op("tf_string_case", exact=True)
class StringCase(Operation):
    """Strings in lower or upper case, or stripped of whitespace.

    x: string [..] -> string [..].  Without `unicode` only ASCII letters change.  Source: TensorFlow StringLower, StringUpper,
    StringStrip.
    """

    how: Literal["lower", "upper", "strip"]
    unicode: bool = False

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        if self.unicode or self.how == "strip":
            return each(
                lambda w: w.strip() if self.how == "strip" else w.lower() if self.how == "lower" else w.upper(), x
            )
        return each(lambda w: decoded(encoded(w).lower() if self.how == "lower" else encoded(w).upper()), x)


@op("tf_string_length", exact=True)
class StringLength(Operation):
    """The number of bytes or characters of each string.  x: string [..] -> int64 [..].  Source: TensorFlow StringLength."""

    unicode: bool = False

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.with_dtype(dt.int64)

    def compute(self, x: Array) -> Array:
        return each(lambda w: len(w if self.unicode else encoded(w)), x, np.int64)


@op("tf_substr", exact=True)
class Substr(Operation):
    """Substrings, in bytes or characters.

    x: string [..], start, count: int64 [..] -> string [..]; a negative start counts from the end.
    Errors: ShapeError for a start out of range.  Source: TensorFlow Substr.
    """

    unicode: bool = False

    def infer(self, x: Shape, start: Shape, count: Shape) -> Shape:
        strings(x)
        return x.as_standard()

    def compute(self, x: Array, start: Array, count: Array) -> Array:
        out = np.empty(x.size, object)
        for n, (word, at, most) in enumerate(zip(x.reshape(-1), start.reshape(-1), count.reshape(-1), strict=True)):
            text: Any = word if self.unicode else encoded(word)
            begin = int(at) + len(text) if at < 0 else int(at)
            if not 0 <= begin <= len(text):
                raise ShapeError(f"position {int(at)} is outside a string of length {len(text)}")
            part = text[begin : begin + max(int(most), 0)]
            out[n] = part if self.unicode else decoded(part)
        return out.reshape(x.shape)


@op("tf_as_string", exact=True)
class AsString(Operation):
    """Numbers formatted as text.  x: number or bool [..] -> string [..].  Source: TensorFlow AsString."""

    precision: int = -1
    scientific: bool = False
    shortest: bool = False
    width: int = -1
    fill: str = ""

    def infer(self, x: Shape) -> Shape:
        return x.with_dtype(dt.string)

    def compute(self, x: Array) -> Array:
        if x.dtype == bool:
            return each(lambda v: "true" if v else "false", x.astype(object))
        form = "%" + self.fill + (str(self.width) if self.width >= 0 else "")
        if x.dtype.kind in "iu":
            return each(lambda v: (form + "d") % v, x.astype(object))
        digits = f".{self.precision}" if self.precision >= 0 else ""
        letter = "e" if self.scientific else "g" if self.shortest else "f"
        return each(lambda v: (form + digits + letter) % v, x.astype(np.float64).astype(object))


@op("tf_string_to_number", exact=True)
class StringToNumber(Operation):
    """Numbers parsed from text.

    x: string [..] -> target [..].  Errors: ShapeError for malformed numbers.  Source: TensorFlow StringToNumber.
    """

    target: DType

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.with_dtype(self.target)

    def compute(self, x: Array) -> Array:
        try:
            return each(lambda w: float(w) if self.target.is_float else int(w), x).astype(self.target.numpy)
        except (OverflowError, ValueError) as error:
            raise ShapeError(f"malformed number: {error}") from None


@op("tf_base64", exact=True)
class Base64(Operation):
    """Strings encoded to, or decoded from, web-safe base64, with or without padding.

    x: string [..] -> string [..].  Errors: ShapeError for invalid base64.  Source: TensorFlow EncodeBase64, DecodeBase64.
    """

    back: bool = False
    padded: bool = False

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x

    def compute(self, x: Array) -> Array:
        return each(self._decoded if self.back else self._encoded, x)

    def _encoded(self, word: str) -> str:
        made = base64.urlsafe_b64encode(encoded(word)).decode()
        return made if self.padded else made.rstrip("=")

    def _decoded(self, word: str) -> str:
        given = encoded(word)
        data = given.rstrip(b"=")
        padded = data + b"=" * (-len(data) % 4)
        if given not in (data, padded):
            raise ShapeError(
                f"{word!r} is not base64: it must end with {len(padded) - len(data)} or no padding characters ="
            )
        if b"+" in data or b"/" in data:
            raise ShapeError(f"{word!r} is not web-safe base64: - and _ are required instead of + and /")
        try:
            return decoded(base64.b64decode(padded, b"-_", validate=True))
        except ValueError as error:
            raise ShapeError(f"{word!r} is not base64: {error}") from None
