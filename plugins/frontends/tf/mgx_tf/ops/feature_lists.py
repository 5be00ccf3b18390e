"""Parses the feature lists of TensorFlow's `SequenceExample` messages (named sequences of features)."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError, counted
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_memory

from .example import array_of, message_of, parted, values_of
from .ragged import splits_of

__all__: list[str] = []


@op("tf_parse_feature_lists", exact=True)
class ParseFeatureLists(Operation):
    """Feature lists of serialized sequence examples, batched.

    serialized: string [n] -> for each sparse list indices int64 [k, 3], values [k], extents int64 [3]; for each dense one
    [n, t, *dims], zero after the last step of a row, and the rows' numbers of steps int64 [n]; for each ragged one values [k],
    splits of rows into steps int64 [n + 1], splits of steps into values int64 [m + 1].
    sparse, dense, ragged: names of lists; sparse_types, dense_types, ragged_types: their types; dims: the concatenated extents of
    a step of the dense lists; ranks: the number of extents of each; optional: the dense lists that a row may lack.
    Errors: ShapeError for corrupt examples, features of another type or extent, missing lists.
    Source: TensorFlow ParseSequenceExampleV2.
    """

    sparse: tuple[str, ...] = ()
    sparse_types: tuple[DType, ...] = ()
    dense: tuple[str, ...] = ()
    dense_types: tuple[DType, ...] = ()
    dims: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    optional: tuple[str, ...] = ()
    ragged: tuple[str, ...] = ()
    ragged_types: tuple[DType, ...] = ()

    def infer(self, serialized: Shape) -> TupleShape:
        if serialized.rank != 1:
            raise ShapeError(f"a vector of examples is required, got {serialized}")
        count, out = serialized.dims[0], []
        for kind in self.sparse_types:
            entries = fresh("entries")
            out += [Shape.of(dt.int64, (entries, 3)), Shape.of(kind, (entries,)), Shape.of(dt.int64, (3,))]
        for kind, dims in zip(self.dense_types, parted(self.dims, self.ranks), strict=True):
            out += [Shape.of(kind, (count, fresh("steps"), *dims)), Shape.of(dt.int64, (count,))]
        for kind in self.ragged_types:
            steps = Shape.of(dt.int64, (fresh("steps") + 1,))
            out += [Shape.of(kind, (fresh("values"),)), Shape.of(dt.int64, (count + 1,)), steps]
        return TupleShape(out)

    def compute(self, serialized: Array) -> tuple[Array, ...]:
        messages = [message_of(word, "SequenceExample", "a sequence example") for word in serialized.tolist()]
        rows = [m.feature_lists.feature_list for m in messages]
        out: list[Array] = []
        for name, kind in zip(self.sparse, self.sparse_types, strict=True):
            found = _values(rows, name, kind)
            places = [(r, t, j) for r, row in enumerate(found) for t, step in enumerate(row) for j in range(len(step))]
            longest = max(map(len, found), default=0), max((len(step) for row in found for step in row), default=0)
            out += [
                np.array(places, np.int64).reshape(-1, 3),
                _flat(found, kind),
                np.array([len(rows), *longest], np.int64),
            ]
        for name, kind, dims in zip(self.dense, self.dense_types, parted(self.dims, self.ranks), strict=True):
            out += self._dense(rows, name, kind, dims)
        for name, kind in zip(self.ragged, self.ragged_types, strict=True):
            found = _values(rows, name, kind)
            sizes = [len(step) for row in found for step in row]
            out += [_flat(found, kind), splits_of(map(len, found)), splits_of(sizes)]
        return tuple(out)

    def _dense(self, rows: list[Any], name: str, kind: DType, dims: tuple[int, ...]) -> tuple[Array, Array]:
        for place, row in enumerate(rows):
            if name not in row and name not in self.optional:
                raise ShapeError(f"example {place} lacks the feature list {name!r}")
        found, size = _values(rows, name, kind), prod(dims)
        lengths = [len(row) for row in found]
        longest = max(lengths, default=0)
        require_memory((len(rows), longest, size), 8)
        padding = ["" if kind.kind == "s" else 0] * size
        made: list[Any] = []
        for place, row in enumerate(found):
            for step in row:
                if len(step) != size:
                    raise ShapeError(
                        f"a step of feature list {name!r} of example {place} must have {counted(size, 'value')}, got {len(step)}"
                    )
                made += step
            made += padding * (longest - len(row))
        return array_of(made, kind).reshape(len(rows), longest, *dims), np.array(lengths, np.int64)


def _values(rows: list[Any], name: str, kind: DType) -> list[list[list[Any]]]:
    """Returns the values of each step of each row."""
    return [[values_of(f, name, kind) for f in row[name].feature] if name in row else [] for row in rows]


def _flat(found: list[list[list[Any]]], kind: DType) -> Array:
    return array_of([v for row in found for step in row for v in step], kind)
