"""Ops on strings: joining, splitting, cleaning, matching, counting n-grams.

String tensors are object arrays of `str`.
"""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Final, Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import broadcast, fresh, may_equal
from mgx_core.types.memory_limit import require_room
from mgx_core.types.shape import Shape, TupleShape

from .regex import compile_pattern

__all__: list[str] = []

MAX_COORDINATES: Final = 1 << 28  # limit of an n-gram vector's elements


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
        require_room((sum(longest), *np.broadcast_shapes(x.shape, y.shape)), 1)
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
        parts = [str(s).split(self.delimiter or None, limit) for s in x.reshape(-1)]
        counts = np.array([len(p) for p in parts], np.int64)
        most = int(counts.max(initial=0))
        out = np.full((len(parts), most), "", object)
        for row, found in zip(out, parts, strict=True):
            row[: len(found)] = found
        return out.reshape(*x.shape, most), counts.reshape(x.shape)


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
        words = [str(s) for s in x.reshape(-1)]
        if self.is_case_sensitive:
            words = [w for w in words if w not in set(self.stopwords)]
        elif self.stopwords:
            stop = {w.lower() for w in self.stopwords}
            words = [w for w in words if w.lower() not in stop]
        if self.case_change_action == "LOWER":
            words = [w.lower() for w in words]
        elif self.case_change_action == "UPPER":
            words = [w.upper() for w in words]
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
        pattern = compile_pattern(self.pattern)
        return np.array([pattern.fullmatch(str(s)) for s in x.reshape(-1)], np.bool_).reshape(x.shape)


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
        pool = self._pool()
        words: dict[int | str, int] = {}
        for word in pool:
            words.setdefault(word, len(words))
        rows = x.reshape(-1, x.shape[-1]) if x.size else x.reshape(x.shape[0] if x.ndim == 2 else 1, 0)
        tokens = np.array([words.get(t, -1) for t in rows.reshape(-1).tolist()], np.int64).reshape(rows.shape)
        size = max(self.ngram_indexes) + 1
        counts = np.zeros((len(rows), size), np.float32)
        ends = [*self.ngram_counts, len(pool)]
        first_gram = [0, *accumulate((b - a) // n for n, (a, b) in enumerate(pairwise(ends), 1))]
        weights = np.ones(size, np.float32)
        if self.weights:
            weights[list(self.ngram_indexes)] = np.asarray(self.weights, np.float32)
        for n in range(self.min_gram_length, self.max_gram_length + 1):
            grams: dict[tuple[int, ...], int] = {}
            for i, at in enumerate(range(ends[n - 1], ends[n], n)):
                grams[tuple(words[w] for w in pool[at : at + n])] = self.ngram_indexes[first_gram[n - 1] + i]
            for apart in range(1, self.max_skip_count + 2 if n > 1 else 2):
                windows = tokens.shape[1] - (n - 1) * apart
                if windows <= 0 or not grams:
                    break
                picked = np.stack([tokens[:, k * apart : k * apart + windows] for k in range(n)], axis=-1)
                row, start = np.nonzero((picked >= 0).all(axis=-1))
                found = [grams.get(tuple(g), -1) for g in picked[row, start].tolist()]
                column = np.array(found, np.int64)
                np.add.at(counts, (row[column >= 0], column[column >= 0]), 1)
        if self.mode == "IDF":
            counts = (counts > 0) * weights
        elif self.mode == "TFIDF":
            counts = counts * weights
        return counts.astype(np.float32).reshape(*x.shape[:-1], size)


def _check_strings(x: Shape) -> None:
    if x.dtype is not dt.string:
        raise ShapeError(f"strings are required, got {x}")
