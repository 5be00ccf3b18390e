"""Tokenization of strings."""

from __future__ import annotations

from typing import Final

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.shape import Shape

from .regex import compile_pattern
from .text import padded, words_of

__all__: list[str] = []

SPECIAL: Final = frozenset("\\.+*?()|[]{}^$")  # characters with a meaning in a pattern
START, END = "\x02", "\x03"  # markers that `mark` adds around the tokens of a string


@op("tokenizer", exact=True)
class Tokenizer(Operation):
    """Splits each string into tokens, padded to the maximum count.

    x: string [c] or [n, c] -> string [.., most tokens].  Tokens are the matches of `tokenexp`, or the text between
    matches of one of `separators` (a lone empty separator: every character), in both cases only those of
    `mincharnum` characters or more.
    Errors: ParameterError unless one of `tokenexp` and `separators` is given, for malformed expressions, or mincharnum < 1.
    Source: ONNX Runtime Tokenizer-1.
    """

    mark: bool = False
    mincharnum: int
    pad_value: str
    separators: tuple[str, ...] = ()
    tokenexp: str = ""

    def check(self) -> None:
        if bool(self.separators) == bool(self.tokenexp):
            raise ParameterError("exactly one of separators and tokenexp must be given")
        if self.mincharnum < 1:
            raise ParameterError(f"mincharnum must be positive, got {self.mincharnum}")
        if self.separators != ("",):
            for pattern in self.separators or (self.tokenexp,):
                compile_pattern(pattern)

    def infer(self, x: Shape) -> Shape:
        if x.dtype is not dt.string or x.rank not in (1, 2):
            raise ShapeError(f"strings of dims [c] or [n, c] are required, got {x}")
        return x.with_dims([*x.dims, fresh("tokens")])

    def compute(self, x: Array) -> Array:
        rows = list(map(self._tokens, words_of(x)))
        if self.mark:
            rows = [[START, *row, END] for row in rows]
        out = padded(rows, self.pad_value)
        return out.reshape(*x.shape, out.shape[1])

    def _tokens(self, text: str) -> list[str]:
        if self.tokenexp:
            parts = [text[a:b] for a, b in compile_pattern(self.tokenexp).find_all(text)]
        elif self.separators == ("",):
            parts = list(text)
        else:
            parts = [text]
            for separator in self.separators:
                if separator and SPECIAL.isdisjoint(separator):
                    parts = [piece for part in parts for piece in part.split(separator)]
                else:
                    pattern = compile_pattern(separator)
                    parts = [piece for part in parts for piece in _between(part, pattern.find_all(part))]
        return [p for p in parts if len(p) >= self.mincharnum]


def _between(text: str, matches: list[tuple[int, int]]) -> list[str]:
    starts = [0, *(b for _, b in matches)]
    ends = [*(a for a, _ in matches), len(text)]
    return [text[a:b] for a, b in zip(starts, ends, strict=True)]
