"""Strings: case, patterns, parts, numbers.

A string tensor is an object array of `str`; bytes that are not UTF-8 are surrogates.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.operation import Operation, op
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_room

__all__: list[str] = []

LONGEST = 1 << 16  # characters of a pattern
SAFE_REPEATS = 4  # times that a part may be repeated whose own length varies


def strings(*xs: Shape) -> None:
    """Errors: ShapeError unless all are strings."""
    for x in xs:
        if x.dtype.kind != "s":
            raise ShapeError(f"strings are needed, got {x}")


def each(function: Callable[[str], Any], x: Array, kind: Any = object) -> Array:
    """A function of each string."""
    out = np.empty(x.size, object)
    for n, word in enumerate(x.reshape(-1).tolist()):
        out[n] = function(word)
    return out.reshape(x.shape).astype(kind)


def encoded(word: str) -> bytes:
    return word.encode("utf-8", "surrogateescape")


def decoded(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


@op("tf_string_equal", exact=True)
class StringEqual(Operation):
    """True where two strings are the same.  x, y: string [..] -> bool [..].  Source: TensorFlow Equal."""

    def infer(self, x: Shape, y: Shape) -> Shape:
        strings(x, y)
        return x.with_dtype(dt.bool_)

    def compute(self, x: Array, y: Array) -> Array:
        return np.asarray(x == y, bool)


@op("tf_string_case", exact=True)
class StringCase(Operation):
    """Strings in lower or upper case, or without white space at their ends.

    x: string [..] -> string [..].  Without `unicode` only ASCII letters change.  Source: TensorFlow StringLower.
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


def pattern_of(text: str) -> re.Pattern[bytes]:
    """A pattern of RE2 as Python's.  Errors: ParameterError for one that is malformed or may take exponential time."""
    if len(text) > LONGEST:
        raise ParameterError(f"a pattern of {len(text)} characters is longer than {LONGEST}")
    spelled = text.replace("\\pP", r"[!-#%-*,-/:;?@\[-\]_{}]").replace("\\pL", "[A-Za-z]").replace("\\pN", "[0-9]")
    spelled = spelled.replace("\\C", ".").replace("\\z", "\\Z").replace("(?P<", "(?P<")
    for name, members in CLASSES.items():
        spelled = spelled.replace(f"[:{name}:]", members)
    try:
        if _explodes(spelled):
            raise ParameterError(f"pattern {text!r} repeats what repeats or branches, which may take exponential time")
        return re.compile(encoded(spelled))
    except re.error as error:
        raise ParameterError(f"pattern {text!r} is malformed: {error}") from None


_CLASS = r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]"
_TOKEN = re.compile(rf"\\.|{_CLASS}|\((?:\?[^:=!)]*[:=!])?|\)|\||([*+?]|\{{\d*,?\d*\}})[?+]?|.", re.DOTALL)


def _explodes(text: str) -> bool:
    """True if a group that may be repeated often can match the same text in several ways: it repeats or branches itself."""
    varies = [False]  # of each open group: it has a branch or a part whose number of repetitions is open
    closed = False  # the group that has just been closed does
    for token in _TOKEN.finditer(text):
        what, repeat = token[0], token[1]
        if repeat:
            if closed and _often(repeat):
                return True
            varies[-1] = varies[-1] or not re.fullmatch(r"\{\d+\}", repeat)
            continue
        closed = False
        if what.startswith("("):
            varies.append(False)
        elif what == ")" and len(varies) > 1:
            closed = varies.pop()
            varies[-1] = varies[-1] or closed
        elif what == "|":
            varies[-1] = True
    return False


def _often(repeat: str) -> bool:
    numbers = re.fullmatch(r"\{(\d*)(,?)(\d*)\}", repeat)
    if numbers is None:
        return repeat != "?"
    most = numbers[3] if numbers[2] else numbers[1]
    return not most or int(most) > SAFE_REPEATS


CLASSES = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "digit": "0-9", "lower": "a-z", "upper": "A-Z", "space": r"\t\n\v\f\r ",
    "punct": r"!-/:-@\[-`{-~", "blank": r"\t ", "xdigit": "0-9A-Fa-f", "word": r"0-9A-Za-z_", "cntrl": r"\x00-\x1f\x7f",
    "print": " -~", "graph": "!-~",
}  # fmt: skip


@op("tf_regex_replace", exact=True)
class RegexReplace(Operation):
    """Strings with what matches a pattern rewritten: everywhere, or the first place.

    x: string [..] -> string [..]; pattern in RE2's syntax, ``\\\\1`` in `rewrite` stands for a group.
    Errors: ParameterError for a malformed pattern.  Source: TensorFlow StaticRegexReplace.
    """

    pattern: str
    rewrite: str
    everywhere: bool = True

    def infer(self, x: Shape) -> Shape:
        strings(x)
        pattern_of(self.pattern)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        found, by = pattern_of(self.pattern), self._rewriting
        return each(lambda w: decoded(found.sub(by, encoded(w), 0 if self.everywhere else 1)), x)

    def _rewriting(self, match: re.Match[bytes]) -> bytes:
        return re.sub(rb"\\(.)", lambda m: self._group(match, m.group(1)), encoded(self.rewrite))

    def _group(self, match: re.Match[bytes], word: bytes) -> bytes:
        if not word.isdigit():
            return word
        return match.group(int(word)) or b"" if int(word) <= len(match.groups()) else b""


@op("tf_regex_match", exact=True)
class RegexMatch(Operation):
    """True where a string as a whole matches a pattern in RE2's syntax.

    x: string [..] -> bool [..].  Errors: ParameterError for a malformed pattern.  Source: TensorFlow RegexFullMatch.
    """

    pattern: str

    def infer(self, x: Shape) -> Shape:
        strings(x)
        pattern_of(self.pattern)
        return x.with_dtype(dt.bool_)

    def compute(self, x: Array) -> Array:
        found = pattern_of(self.pattern)
        return each(lambda w: found.fullmatch(encoded(w)) is not None, x, bool)


@op("tf_string_split", exact=True)
class StringSplit(Operation):
    """The parts of strings, with the row and the place of each.

    x: string [n] -> int64 [parts, 2], string [parts], int64 [2].  An empty delimiter splits at runs of white space; `each`: at
    each of its characters (and all characters apart if it is empty); most: splits at most, -1 for all.
    Errors: ShapeError unless x is a vector.  Source: TensorFlow StringSplitV2.
    """

    delimiter: str = ""
    most: int = -1
    each: bool = False
    skip_empty: bool = False

    def infer(self, x: Shape) -> TupleShape:
        strings(x)
        if x.rank != 1:
            raise ShapeError(f"a vector of strings is needed, got {x}")
        parts = fresh("parts")
        return TupleShape([Shape.of(dt.int64, (parts, 2)), x.with_dims((parts,)), Shape.of(dt.int64, (2,))])

    def compute(self, x: Array) -> tuple[Array, ...]:
        rows = [self._parts(w) for w in x.tolist()]
        places = [(row, k) for row, parts in enumerate(rows) for k in range(len(parts))]
        values = np.empty(len(places), object)
        values[:] = [p for parts in rows for p in parts]
        shape = np.array([len(rows), max(map(len, rows), default=0)], np.int64)
        return np.array(places, np.int64).reshape(-1, 2), values, shape

    def _parts(self, word: str) -> list[str]:
        if self.each:
            parts = re.split("|".join(map(re.escape, self.delimiter)), word) if self.delimiter else list(word)
        else:
            parts = word.split(self.delimiter or None, self.most)
        return [p for p in parts if p] if self.skip_empty else parts


@op("tf_string_join", exact=True)
class StringJoin(Operation):
    """Each string of x, a separator, the string of y.  x, y: string [..] -> string [..].  Source: TensorFlow StringJoin."""

    separator: str = ""

    def infer(self, x: Shape, y: Shape) -> Shape:
        strings(x, y)
        return x.as_standard()

    def compute(self, x: Array, y: Array) -> Array:
        longest = (max(map(len, v.reshape(-1).tolist()), default=0) for v in (x, y))
        require_room((sum(longest), *x.shape), 1)
        out = np.empty(x.size, object)
        out[:] = [a + self.separator + b for a, b in zip(x.reshape(-1).tolist(), y.reshape(-1).tolist(), strict=True)]
        return out.reshape(x.shape)


@op("tf_string_reduce_join", exact=True)
class StringReduceJoin(Operation):
    """Strings along some axes joined to one.

    x: string [..] -> fewer axes, or of extent 1 if `keep`.  Source: TensorFlow ReduceJoin.
    """

    axes: tuple[int, ...]
    separator: str = ""
    keep: bool = False

    def infer(self, x: Shape) -> Shape:
        strings(x)
        kept = [1 if a in self.axes else d for a, d in enumerate(x.dims)]
        return x.with_dims(kept if self.keep else [d for a, d in enumerate(kept) if a not in self.axes])

    def compute(self, x: Array) -> Array:
        rest = [a for a in range(x.ndim) if a not in self.axes]
        lines = np.transpose(x, (*rest, *self.axes)).reshape(*(x.shape[a] for a in rest), -1)
        out = np.empty(lines.shape[:-1], object)
        for place in np.ndindex(out.shape):
            out[place] = self.separator.join(lines[place].tolist())
        return out.reshape([1 if a in self.axes else d for a, d in enumerate(x.shape)]) if self.keep else out


@op("tf_string_length", exact=True)
class StringLength(Operation):
    """The number of bytes, or of characters, of each string.  x: string [..] -> int64 [..].  Source: TensorFlow StringLength."""

    unicode: bool = False

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.with_dtype(dt.int64)

    def compute(self, x: Array) -> Array:
        return each(lambda w: len(w if self.unicode else encoded(w)), x, np.int64)


@op("tf_substr", exact=True)
class Substr(Operation):
    """Part of each string: from a position on, so many bytes or characters.

    x: string [..], start, count: int64 [..] -> string [..]; a negative start counts from the end.
    Errors: ShapeError for a start outside.  Source: TensorFlow Substr.
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
                raise ShapeError(f"position {int(at)} lies outside a string of {len(text)}")
            part = text[begin : begin + max(int(most), 0)]
            out[n] = part if self.unicode else decoded(part)
        return out.reshape(x.shape)


@op("tf_as_string", exact=True)
class AsString(Operation):
    """Numbers as text.  x: number or bool [..] -> string [..].  Source: TensorFlow AsString."""

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
    """Text as numbers.

    x: string [..] -> target [..].  Errors: ShapeError for text that is none.  Source: TensorFlow StringToNumber.
    """

    target: DType

    def infer(self, x: Shape) -> Shape:
        strings(x)
        return x.with_dtype(self.target)

    def compute(self, x: Array) -> Array:
        try:
            return each(lambda w: float(w) if self.target.is_float else int(w), x).astype(self.target.numpy)
        except (OverflowError, ValueError) as error:
            raise ShapeError(f"text that is no number: {error}") from None
