"""String split, join and n-grams."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_memory
from mgx_core.types.strings import decoded, encoded

from .ragged import splits_of
from .text import strings

__all__: list[str] = []


@op("tf_string_split", exact=True)
class StringSplit(Operation):
    """The parts of split strings, as a sparse tensor.

    x: string [n] -> indices int64 [parts, 2], values string [parts], extents int64 [2].  An empty delimiter splits at runs of
    ASCII whitespace; `each`: at each of its characters (if it is empty, between all bytes); most: maximum number of splits, -1
    for no limit.
    Errors: ShapeError unless x is a vector.  Source: TensorFlow StringSplitV2.
    """

    delimiter: str = ""
    most: int = -1
    each: bool = False
    skip_empty: bool = False

    def infer(self, x: Shape) -> TupleShape:
        strings(x)
        if x.rank != 1:
            raise ShapeError(f"a vector of strings is required, got {x}")
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
            parts = re.split("|".join(map(re.escape, self.delimiter)), word) if self.delimiter else _bytes(word)
        elif self.delimiter:
            parts = word.split(self.delimiter, self.most)
        else:
            # bytes are split at ASCII whitespace alone, unlike strings
            parts = [decoded(p) for p in encoded(word).split(None, self.most)] if self.most else [word]
            if parts and len(parts) == self.most:  # TensorFlow appends what follows the last split, also if it is empty
                parts.append("")
        return [p for p in parts if p] if self.skip_empty else parts


def _bytes(word: str) -> list[str]:
    """Returns the bytes of a string, each as a string."""
    return [decoded(bytes([b])) for b in encoded(word)]


@op("tf_string_join", exact=True)
class StringJoin(Operation):
    """Each string of x, a separator, the string of y.  x, y: string [..] -> string [..].  Source: TensorFlow StringJoin."""

    separator: str = ""

    def infer(self, x: Shape, y: Shape) -> Shape:
        strings(x, y)
        return x.as_standard()

    def compute(self, x: Array, y: Array) -> Array:
        longest = (max(map(len, v.reshape(-1).tolist()), default=0) for v in (x, y))
        require_memory((sum(longest), *x.shape), 1)
        out = np.empty(x.size, object)
        out[:] = [a + self.separator + b for a, b in zip(x.reshape(-1).tolist(), y.reshape(-1).tolist(), strict=True)]
        return out.reshape(x.shape)


@op("tf_string_reduce_join", exact=True)
class StringReduceJoin(Operation):
    """Strings joined along axes.

    x: string [..] -> without these axes, or with extent 1 if `keep`.  Source: TensorFlow ReduceJoin.
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


@op("tf_string_ngrams", exact=True)
class StringNGrams(Operation):
    """N-grams of the words of each row.

    words: string [k], splits: int64 [rows + 1] -> string [found], int64 [rows + 1].  widths: n-gram widths, all n-grams of the
    first width first; left, right: padding words before and after a row, `pad` times at most (-1: width - 1); short: a row with
    too few words yields one n-gram of all words and padding.
    Errors: ShapeError unless splits ascend from 0 to k; ParameterError for a width below 1, or a `pad` below -1 (below 0 without
    widths); DeviceError for results larger than the memory limit.
    Source: TensorFlow StringNGrams.
    """

    separator: str
    widths: tuple[int, ...]
    left: str = ""
    right: str = ""
    pad: int = 0
    short: bool = False

    def infer(self, words: Shape, splits: Shape) -> TupleShape:
        strings(words)
        if any(w < 1 for w in self.widths):
            raise ParameterError(f"widths of at least 1 are required, got {list(self.widths)}")
        least = -1 if self.widths else 0
        if self.pad < least:
            raise ParameterError(f"a padding of at least {least} is required, got {self.pad}")
        return TupleShape([words.with_dims((fresh("ngrams"),)), splits.as_standard()])

    def compute(self, words: Array, splits: Array) -> tuple[Array, ...]:
        ends = splits.tolist()
        if ends and (any(a > b for a, b in itertools.pairwise(ends)) or ends[0] != 0 or ends[-1] != len(words)):
            raise ShapeError(f"splits must ascend from 0 to the number of words, {len(words)}, got {ends}")
        rows = [words[a:b].tolist() for a, b in itertools.pairwise(ends)]
        kinds = [self._kinds(len(row)) if len(words) else [] for row in rows]
        # each word counts its characters and a reference, so that empty words are limited, too
        letters = max(map(len, (self.left, self.right, *words.tolist()))) + len(self.separator)
        count = sum(number * width for row in kinds for width, _, number in row)
        require_memory((count, letters + 8), 1, "the n-grams")
        made = [list(self._runs(row, of)) for row, of in zip(rows, kinds, strict=True)]
        flat = np.empty(sum(map(len, made)), object)
        flat[:] = list(itertools.chain(*made))
        return flat, splits_of(map(len, made))[: len(ends)].astype(splits.dtype)

    def _kinds(self, length: int) -> list[tuple[int, int, int]]:
        """Returns width, padding per side and number of the n-grams of a row."""
        pads = [(w, w - 1 if self.pad < 0 else min(self.pad, w - 1)) for w in self.widths]
        found = [(w, pad, length + 2 * pad - w + 1) for w, pad in pads if length + 2 * pad >= w]
        return [(length + 2 * self.pad, self.pad, 1)] if self.short and length and not found else found

    def _runs(self, row: list[str], kinds: list[tuple[int, int, int]]) -> Iterator[str]:
        for width, pad, number in kinds:
            padded = [self.left] * pad + row + [self.right] * pad
            yield from (self.separator.join(padded[k : k + width]) for k in range(number))
