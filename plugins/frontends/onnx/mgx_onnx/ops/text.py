"""Ops on strings: joining, splitting, cleaning, matching, counting n-grams.

String tensors are object arrays of `str`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise, repeat, zip_longest
from typing import Any, Final, Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.named_tuples import NamedTuple
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import broadcast, fresh, may_equal
from mgx_core.types.memory_limit import require_memory
from mgx_core.types.shape import Shape, TupleShape

from .regex import compile_pattern

__all__ = ["padded", "words_of"]

MAX_COORDINATES: Final = 1 << 28  # limit of an n-gram vector's elements
FEW: Final = 256  # tokens up to which looking up n-grams one by one is faster than with arrays


@op("string_concat", exact=True)
class StringConcat(Operation):
    """Concatenates strings of x and y with broadcasting.

    x, y: string [..] -> string [..].  Errors: ShapeError if the dims do not broadcast.  Source: ONNX StringConcat-20.
    """

    def infer(self, x: Shape, y: Shape) -> Shape:
        _check_strings(x)
        _check_strings(y)
        a, b = (x.dims, y.dims) if x.rank >= y.rank else (y.dims, x.dims)
        lead = len(a) - len(b)
        return x.with_dims([*a[:lead], *(broadcast(m, n) for m, n in zip(a[lead:], b, strict=True))])

    def compute(self, x: Array, y: Array) -> Array:
        longest = (max(map(len, v.reshape(-1).tolist()), default=0) for v in (x, y))
        require_memory((sum(longest), *np.broadcast_shapes(x.shape, y.shape)), 1)
        return np.asarray(np.add(x, y, dtype=object), dtype=object)


@op("string_split", exact=True)
class StringSplit(Operation):
    """Splits each string at a delimiter; returns the parts, padded with empty strings, and their number.

    x: string [..] -> string [.., most parts], int64 [..].  An empty `delimiter` splits at runs of whitespace.
    `maxsplit` < 0 sets no limit.  Source: ONNX StringSplit-20.
    """

    delimiter: str = ""
    maxsplit: int = -1

    def infer(self, x: Shape) -> TupleShape:
        _check_strings(x)
        return TupleShape([x.with_dims([*x.dims, fresh("parts")]), Shape.of(dt.int64, x.dims)])

    def compute(self, x: Array) -> tuple[Array, Array]:
        limit = max(-1, min(self.maxsplit, 1 << 30))
        delimiter = self.delimiter or None
        parts = [s.split(delimiter, limit) for s in words_of(x)]
        counts = np.fromiter(map(len, parts), np.int64, len(parts))
        out = padded(parts, "")
        return out.reshape(*x.shape, out.shape[1]), counts.reshape(x.shape)


@op("string_normalizer", exact=True)
class StringNormalizer(Operation):
    """Removes stop words and optionally changes case.

    x: string [n] or [1, n] -> string [m] or [1, m]; one empty string if none is left.
    Stop words are compared case-insensitively unless `is_case_sensitive`.
    Errors: ShapeError for other dims.  Source: ONNX StringNormalizer-10.
    """

    case_change_action: Literal["NONE", "LOWER", "UPPER"] = "NONE"
    is_case_sensitive: bool = False
    stopwords: tuple[str, ...] = ()

    def infer(self, x: Shape) -> Shape:
        _check_strings(x)
        if x.rank not in (1, 2) or (x.rank == 2 and not may_equal(x.dims[0], 1)):
            raise ShapeError(f"dims must be [n] or [1, n], got {list(x.dims)}")
        kept = fresh("kept", 0, x.dims[-1] + 1) if self.stopwords or x.dims[-1] == 0 else x.dims[-1]
        return x.with_dims([1, kept] if x.rank == 2 else [kept])

    def compute(self, x: Array) -> Array:
        if x.ndim == 2 and len(x) != 1:
            raise ShapeError(f"dims must be [n] or [1, n], got {list(x.shape)}")
        words = words_of(x)
        if self.is_case_sensitive and self.stopwords:
            exact = set(self.stopwords)
            words = [w for w in words if w not in exact]
        elif self.stopwords:
            stop = {w.lower() for w in self.stopwords}
            words = [w for w in words if w.lower() not in stop]
        if self.case_change_action == "LOWER":
            words = list(map(str.lower, words))
        elif self.case_change_action == "UPPER":
            words = list(map(str.upper, words))
        out = np.array(words or [""], object)
        return out.reshape(1, -1) if x.ndim == 2 else out


@op("regex_full_match", exact=True)
class RegexFullMatch(Operation):
    """True where a regular expression in RE2's syntax matches a whole string.

    x: string [..] -> bool [..].  Matching takes time linear in the length of the strings for any pattern.
    Errors: ParameterError for a malformed pattern.  Source: ONNX RegexFullMatch-20.
    """

    pattern: str

    def check(self) -> None:
        compile_pattern(self.pattern)

    def infer(self, x: Shape) -> Shape:
        _check_strings(x)
        return x.with_dtype(dt.bool_)

    def compute(self, x: Array) -> Array:
        words = words_of(x)
        found = dict.fromkeys(words, False)  # columns of a table repeat few words
        match = compile_pattern(self.pattern).fullmatch
        for word in found:
            found[word] = match(word)
        return np.fromiter(map(found.__getitem__, words), np.bool_, len(words)).reshape(x.shape)


@op("tf_idf_vectorizer", exact=True)
class TfIdfVectorizer(Operation):
    """Counts each n-gram of a pool, optionally weighted.

    x: string, int32 or int64 [c] or [n, c] -> float32 [k] or [n, k], k = max(ngram_indexes) + 1.  The pool contains
    all 1-grams, then all 2-grams, ...; `ngram_counts`: the start of each length in the pool; `ngram_indexes`: the
    coordinate of each n-gram.  The tokens of an n-gram may be 1 to max_skip_count + 1 apart.  Mode TF counts, IDF
    uses the weight if it occurs, TFIDF multiplies.
    Errors: ParameterError for pools that do not fit.  Source: ONNX TfIdfVectorizer-9.
    """

    mode: Literal["TF", "IDF", "TFIDF"]
    min_gram_length: int
    max_gram_length: int
    max_skip_count: int
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] = ()
    pool_strings: tuple[str, ...] = ()
    weights: tuple[float, ...] = ()

    def check(self) -> None:
        if not 1 <= self.min_gram_length <= self.max_gram_length:
            raise ParameterError(
                f"gram lengths must satisfy 1 <= min <= max, got {self.min_gram_length} and {self.max_gram_length}"
            )
        if self.max_skip_count < 0:
            raise ParameterError(f"max_skip_count must not be negative, got {self.max_skip_count}")
        if bool(self.pool_int64s) == bool(self.pool_strings):
            raise ParameterError("exactly one of pool_int64s and pool_strings must be given")
        ends = [*self.ngram_counts, len(self._pool())]
        if not self.ngram_counts or ends[0] != 0 or any(a > b for a, b in pairwise(ends)):
            raise ParameterError(
                f"ngram_counts must ascend from 0 to at most the pool's size {ends[-1]}, got {ends[:-1]}"
            )
        if self.max_gram_length > len(self.ngram_counts):
            raise ParameterError(
                f"max_gram_length is {self.max_gram_length}, the pool has lengths up to {len(self.ngram_counts)}"
            )
        grams = 0
        for n, (a, b) in enumerate(pairwise(ends), 1):
            if (b - a) % n:
                raise ParameterError(f"the pool's part for {n}-grams has {b - a} items, which is not a multiple of {n}")
            grams += (b - a) // n
        if len(self.ngram_indexes) != grams or not grams:
            raise ParameterError(
                f"ngram_indexes must have one entry for each of the {grams} n-grams, got {len(self.ngram_indexes)}"
            )
        if min(self.ngram_indexes) < 0 or max(self.ngram_indexes) >= MAX_COORDINATES:
            raise ParameterError(f"ngram_indexes must lie in [0, {MAX_COORDINATES})")
        if self.weights and len(self.weights) != grams:
            raise ParameterError(
                f"weights must have one entry for each of the {grams} n-grams, got {len(self.weights)}"
            )

    def _pool(self) -> tuple[int, ...] | tuple[str, ...]:
        return self.pool_int64s or self.pool_strings

    def infer(self, x: Shape) -> Shape:
        if x.dtype not in ((dt.string,) if self.pool_strings else (dt.int32, dt.int64)):
            wanted = "strings" if self.pool_strings else "int32 or int64 tokens"
            raise ShapeError(f"the pool requires {wanted}, got {x.dtype}")
        if x.rank not in (1, 2):
            raise ShapeError(f"dims must be [c] or [n, c], got {list(x.dims)}")
        return Shape.of(dt.float32, [*x.dims[:-1], max(self.ngram_indexes) + 1])

    def compute(self, x: Array) -> Array:
        known = _pool_of(self)
        rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(x.shape[0] if x.ndim == 2 else 1, 0)
        size = len(known.weights)
        flat = np.zeros(len(rows) * size, np.float32)
        if rows.size <= FEW:
            found = Counter(self._cells_of_few(rows, known))
            flat[list(found)] = list(found.values())
        else:
            np.add.at(flat, self._cells(rows, known), np.float32(1))
        counts: Array = flat.reshape(len(rows), size)
        if self.mode == "IDF":
            counts = (counts > 0) * known.weights
        elif self.mode == "TFIDF":
            counts = counts * known.weights
        return counts.astype(np.float32, copy=False).reshape(*x.shape[:-1], size)

    def _cells(self, rows: Array, known: _Pool) -> Array:
        """Returns the cells of all occurrences of n-grams, row by row of the result."""
        given = rows.reshape(-1).tolist()
        tokens: Array = np.fromiter(map(known.words.get, given, repeat(-1)), np.int64, len(given)).reshape(rows.shape)
        size = len(known.weights)
        cells = []
        for n, apart in self._spans(tokens.shape[1]):
            windows = tokens.shape[1] - (n - 1) * apart
            if windows <= 0 or not len(known.grams[n - 1].places):
                continue
            picked = [tokens[:, k * apart : k * apart + windows] for k in range(n)]
            column = known.grams[n - 1].coordinates(picked)
            row, start = np.nonzero(column >= 0)
            cells.append(row * size + column[row, start])
        return np.concatenate(cells) if cells else np.zeros(0, np.int64)

    def _cells_of_few(self, rows: Array, known: _Pool) -> Iterator[int]:
        """Yields the same cells, looked up one by one."""
        for row, words in enumerate(rows.tolist()):
            first = row * len(known.weights)
            for n, apart in self._spans(len(words)):
                shifted: list[list[int | str]] = [words[k * apart :] for k in range(n)]
                found = map(known.places[n - 1].get, zip(*shifted, strict=False))
                yield from (first + place for place in found if place is not None)

    def _spans(self, length: int) -> Iterator[tuple[int, int]]:
        """Yields lengths of n-grams and the distances of their tokens, for those that fit into a row."""
        for n in range(self.min_gram_length, self.max_gram_length + 1):
            most = min(self.max_skip_count + 1, (length - 1) // (n - 1)) if n > 1 else 1
            for apart in range(1, most + 1):
                yield n, apart


class _Grams(NamedTuple):
    """The n-grams of one length of a pool: rows of numbers of words, which are looked up word by word.

    Each prefix of an n-gram has a number; the step of a word takes the pair of the number of the prefix before and the word's.
    """

    steps: tuple[Array, ...]  # of each word after the first: ascending pairs, whose places number the longer prefixes
    words: int
    places: Array  # the coordinate of each whole n-gram

    def coordinates(self, picked: Sequence[Array]) -> Array:
        """Returns the coordinates of n-grams [..], given as one array of numbers for each word; -1 for those not in the pool."""
        at = picked[0]
        for pairs, word in zip(self.steps, picked[1:], strict=True):
            wanted = np.where((at >= 0) & (word >= 0), at * self.words + word, -1)
            found = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
            at = np.where(pairs[found] == wanted, found, -1)
        return np.where(at >= 0, self.places[at], -1)


class _Pool(NamedTuple):
    """The pool of a `TfIdfVectorizer`."""

    words: dict[int | str, int]  # a number for each word
    grams: list[_Grams]  # of each length
    places: list[dict[tuple[int | str, ...], int]]  # the coordinates of the n-grams of each length
    weights: Array  # of each coordinate


@lru_cache(maxsize=32)
def _pool_of(op: TfIdfVectorizer) -> _Pool:
    pool = op.pool_int64s or op.pool_strings
    words: dict[int | str, int] = {}
    for word in pool:
        words.setdefault(word, len(words))
    ends = [*op.ngram_counts, len(pool)]
    coordinates = iter(op.ngram_indexes)
    grams: list[_Grams] = []
    all_places: list[dict[tuple[int | str, ...], int]] = []
    for n, (a, b) in enumerate(pairwise(ends), 1):
        rows = np.array([words[w] for w in pool[a:b]], np.int64).reshape(-1, n)
        own = np.fromiter(coordinates, np.int64, len(rows))
        prefix, steps, count = rows[:, 0], [], len(words)
        for word in rows.T[1:]:
            pairs, prefix = np.unique(prefix * len(words) + word, return_inverse=True)
            steps.append(pairs)
            count = len(pairs)
        places = np.full(count if len(rows) else 0, -1, np.int64)
        places[prefix] = own  # the last of equal n-grams applies
        grams.append(_Grams(tuple(steps), len(words), places))
        all_places.append(dict(zip(zip(*[iter(pool[a:b])] * n, strict=True), own.tolist(), strict=True)))
    weights = np.ones(max(op.ngram_indexes) + 1, np.float32)
    if op.weights:
        weights[list(op.ngram_indexes)] = np.asarray(op.weights, np.float32)
    return _Pool(words, grams, all_places, weights)


def words_of(x: Array) -> list[str]:
    """Returns the elements of a tensor of strings as str."""
    words: list[Any] = x.reshape(-1).tolist()
    return words if set(map(type, words)) <= {str} else list(map(str, words))


def padded(rows: list[list[str]], pad: str) -> Array:
    """Returns lists of strings as a matrix, each filled up to the longest."""
    columns = list(zip_longest(*rows, fillvalue=pad))
    out = np.empty((len(rows), len(columns)), object)
    for n, column in enumerate(columns):
        out[:, n] = column
    return out


def _check_strings(x: Shape) -> None:
    if x.dtype is not dt.string:
        raise ShapeError(f"strings are required, got {x}")
