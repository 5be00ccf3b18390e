"""Feature crosses: combinations of one value per column, row by row, as hashes or joined strings."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import islice, product
from math import prod
from typing import Any, TypeVar

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_memory
from mgx_core.types.strings import encoded

from .fingerprint import fingerprint
from .ragged import splits_of
from .siphash import keyed_hash

__all__: list[str] = []

WORD = (1 << 64) - 1
LOW = (1 << 32) - 1
T = TypeVar("T")


class _Crosses(Operation):
    """Operands and results of crosses."""

    def infer(self, count: Shape, *columns: Shape) -> TupleShape:
        values, rows = columns[::2], columns[1::2]
        if not columns or len(values) != len(rows) or any(c.rank != 1 for c in (count, *columns)):
            raise ShapeError(
                "the number of rows and, for each column, vectors of values and of their rows are required"
            )
        if any(r.dtype is not dt.int64 for r in (count, *rows)) or any(
            v.dtype not in (dt.int64, dt.string) for v in values
        ):
            raise ShapeError("columns of int64 or strings, with rows of int64, are required")
        total = count.dims[0]
        if total != 1:
            raise ShapeError(f"one number of rows is required, got {count}")
        return TupleShape([Shape.of(self.kind, (fresh("crosses"),)), Shape.of(dt.int64, (fresh("rows") + 1,))])

    @property
    def kind(self) -> DType:
        """The type of the crosses."""
        raise NotImplementedError


@op("tf_cross", exact=True)
class Cross(_Crosses):
    """Hashes of all combinations of one value per column, row by row.

    count: int64 [1], the number of rows; then for each column values, int64 or string [k], and their rows, int64 [k], ascending.
    -> int64 [crosses], splits of rows int64 [count + 1]; the last column varies fastest.
    buckets: number of hash buckets, 0 for all 63 bits; start: the initial fingerprint, none for that of the first column.
    hashed: columns of which integers are hashed, too, by their low 32 bits; key: two 64-bit numbers for keyed hashes, none for
    fingerprints.
    Errors: ShapeError for rows out of range.  Source: TensorFlow SparseCross, SparseCrossHashed, RaggedCross.
    """

    buckets: int
    start: tuple[int, ...] = ()
    hashed: tuple[int, ...] = ()
    key: tuple[int, ...] = ()

    @property
    def kind(self) -> DType:
        return dt.int64

    def compute(self, count: Array, *columns: Array) -> tuple[Array, Array]:
        pairs = zip(columns[::2], columns[1::2], strict=True)
        hashes = [([self._number(v, k) for v in values.tolist()], at) for k, (values, at) in enumerate(pairs)]
        limit = self.buckets or (1 << 63) - 1
        found, splits = _combined(count, hashes)
        made = [reduce(joined, (*(n & WORD for n in self.start), *parts)) % limit for parts in found]
        return np.array(made, np.int64), splits

    def _number(self, value: Any, column: int) -> int:
        if isinstance(value, str):
            data = encoded(value)
        elif column in self.hashed:
            data = (value & LOW).to_bytes(4, "little")
        else:
            return int(value) & WORD
        return keyed_hash(data, *(k & WORD for k in self.key)) if self.key else fingerprint(data)


@op("tf_cross_words", exact=True)
class CrossWords(_Crosses):
    """All combinations of one value per column, row by row, as strings joined by a separator.

    Operands and results: see `tf_cross`; the crosses are strings.  Source: TensorFlow SparseCrossV2, RaggedCross.
    """

    separator: str

    @property
    def kind(self) -> DType:
        return dt.string

    def compute(self, count: Array, *columns: Array) -> tuple[Array, Array]:
        pairs = zip(columns[::2], columns[1::2], strict=True)
        found, splits = _combined(count, [([str(v) for v in values.tolist()], at) for values, at in pairs])
        out = np.empty(len(found), object)
        out[:] = [self.separator.join(words) for words in found]
        return out, splits


def _combined(count: Array, columns: Sequence[tuple[list[T], Array]]) -> tuple[list[tuple[T, ...]], Array]:
    """Returns the combinations of one value per column, row by row, and the splits of rows.  columns: values and their rows."""
    rows = int(count.item())
    if rows < 0 or any(len(at) != len(values) or ((at < 0) | (at >= rows)).any() for values, at in columns):
        raise ShapeError(f"each value of a column must have a row, less than {rows}")
    require_memory((rows, len(columns)), 8)
    sizes = [np.bincount(at, minlength=rows).tolist() for _, at in columns]
    totals = [prod(each) for each in zip(*sizes, strict=True)]
    require_memory((sum(totals), len(columns)), 8)
    given = [iter(values) for values, _ in columns]
    found: list[tuple[T, ...]] = []
    for each in zip(*sizes, strict=True):
        found += product(*(list(islice(values, size)) for values, size in zip(given, each, strict=True)))
    return found, splits_of(totals)


def joined(first: int, second: int) -> int:
    """Combines two fingerprints.  Source: TensorFlow FingerprintCat64."""
    scale = 0xC6A4A7935BD1E995

    def mixed(v: int) -> int:
        return v ^ (v >> 47)

    found = ((first ^ scale ^ (mixed(second * scale & WORD) * scale & WORD)) * scale) & WORD
    return mixed(mixed(found) * scale & WORD)
