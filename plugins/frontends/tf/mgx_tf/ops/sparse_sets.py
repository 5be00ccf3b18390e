"""Sparse rows as sets: set operations, counts, edit distance; ragged-to-sparse conversion."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.memory_limit import require_memory

from .sparse import flat_places, whole
from .sparse_arithmetic import sparse_shapes

__all__: list[str] = []


@op("tf_set_operation", exact=True)
class SetOperation(Operation):
    """A set operation on the last axes of two tensors, as a sparse tensor of sorted sets.

    Of each operand values [.., n] if it is dense, else indices, values, extents -> indices, values, extents.
    dense: whether each operand is dense; how: intersection, union, a-b, b-a.
    Errors: ShapeError for operands of other extents.  Source: TensorFlow DenseToDenseSetOperation, SparseToSparseSetOperation ...
    """

    how: str
    dense: tuple[bool, ...]

    def infer(self, *parts: Shape) -> TupleShape:
        if self.how not in ("intersection", "union", "a-b", "b-a"):
            raise ShapeError(f"unknown set operation {self.how!r}")
        at = 0
        for dense in self.dense:
            if at + (1 if dense else 3) > len(parts):
                raise ShapeError("two tensors are required, dense or sparse")
            if not dense:
                whole(parts[at], parts[at + 2])
            at += 1 if dense else 3
        kind, rank = (parts[0].dtype, parts[0].rank) if self.dense[0] else (parts[1].dtype, parts[2].dims[0])
        return TupleShape(sparse_shapes(kind, rank))

    def compute(self, *parts: Array) -> tuple[Array, ...]:
        a, dims, rest = self._sets(self.dense[0], parts)
        b, others, _ = self._sets(self.dense[1], rest)
        if dims[:-1] != others[:-1]:
            raise ShapeError(f"sets of equal extents are required, got {dims} and {others}")
        places, values, most = [], [], 0
        for row in sorted(a.keys() | b.keys()):
            p, q = a.get(row, set()), b.get(row, set())
            made = {"intersection": p & q, "union": p | q, "a-b": p - q, "b-a": q - p}[self.how]
            places += [(*row, k) for k in range(len(made))]
            values += sorted(made)
            most = max(most, len(made))
        kind = (parts[0] if self.dense[0] else parts[1]).dtype
        indices = np.array(places, np.int64).reshape(-1, len(dims))
        return indices, np.array(values, kind), np.array([*dims[:-1], most], np.int64)

    def _sets(self, dense: bool, parts: Any) -> tuple[dict[tuple[int, ...], set[Any]], list[int], Any]:
        """Returns sets by row, the extents, and the remaining operands."""
        found: dict[tuple[int, ...], set[Any]] = {}
        if dense:
            for row in np.ndindex(*parts[0].shape[:-1]):
                found[row] = set(parts[0][row].tolist())
            return found, list(parts[0].shape), parts[1:]
        flat_places(parts[0], parts[2].tolist())
        for place, value in zip(parts[0].tolist(), parts[1].tolist(), strict=True):
            found.setdefault(tuple(place[:-1]), set()).add(value)
        return found, parts[2].tolist(), parts[3:]


@op("tf_count", exact=True)
class Count(Operation):
    """A histogram of each row, as a sparse tensor of the values that occur.

    rows: int64 [n], ascending, x: int64 [n], count: int64, one element, weights: number [n] or [0]
    -> indices int64 [k, 2] (or [k, 1] for one row), values [k], extents.
    least: minimum of the result's last extent (minlength); most: the last extent, larger values are not counted (maxlength);
    -1: no limit; marks: 1 for values that occur, instead of counts.
    Errors: ShapeError for negative values.  Source: TensorFlow DenseCountSparseOutput, SparseCountSparseOutput ...
    """

    least: int = -1
    most: int = -1
    marks: bool = False
    single: bool = False

    def infer(self, rows: Shape, x: Shape, count: Shape, weights: Shape) -> TupleShape:
        whole(rows, x)
        return TupleShape(sparse_shapes(weights.dtype, 1 if self.single else 2))

    def compute(self, rows: Array, x: Array, count: Array, weights: Array) -> tuple[Array, ...]:
        if x.size and int(x.min()) < 0:
            raise ShapeError("values must not be negative")
        given = weights if weights.size else np.ones(x.size, weights.dtype)
        kept = x < self.most if self.most >= 0 else np.ones(x.size, bool)
        largest = int(x[kept].max()) + 1 if kept.any() else 0
        width = self.most if self.most >= 0 else max(largest, self.least)
        flat = rows[kept] * max(width, 1) + x[kept]
        places, back = np.unique(flat, return_inverse=True)
        made = np.zeros(len(places), weights.dtype)
        np.add.at(made, back, given[kept])
        if self.marks:
            made[:] = 1
        both = np.stack([places // max(width, 1), places % max(width, 1)], -1)
        total = int(np.asarray(count).reshape(-1)[0])
        return (both[:, 1:], made, np.array([width])) if self.single else (both, made, np.array([total, width]))


@op("tf_edit_distance")
class EditDistance(Operation):
    """The Levenshtein distance of sequences.

    Of both operands: indices int64 [k, r], values [k], extents int64 [r] -> float32 of the extents without the last one, the
    maximum of both operands'.  normalize: divides by the length of the second.  Source: TensorFlow EditDistance.
    """

    normalize: bool = True

    def infer(self, *parts: Shape) -> Shape:
        rank = parts[2].dims[0]
        if len(parts) != 6 or not isinstance(rank, int):
            raise ShapeError("two sparse tensors of known rank are required")
        whole(parts[0], parts[2], parts[3], parts[5])
        return Shape.of(dt.float32, [fresh("sequences") for _ in range(rank - 1)])

    def compute(self, *parts: Array) -> Array:
        pair: list[dict[tuple[int, ...], list[Any]]] = [{}, {}]
        for held, (places, values, dims) in zip(pair, (parts[:3], parts[3:]), strict=True):
            flat_places(places, dims.tolist())
            for place, value in zip(places.tolist(), values.tolist(), strict=True):
                held.setdefault(tuple(place[:-1]), []).append(value)
        extents = np.maximum(parts[2], parts[5])[:-1].tolist()
        require_memory(extents, 4)
        out = np.zeros(extents, np.float32)
        for row in pair[0].keys() | pair[1].keys():  # two empty sequences are equal
            a, b = (held.get(row, []) for held in pair)
            out[row] = self._distance(a, b)
        return out

    def _distance(self, a: list[Any], b: list[Any]) -> float:
        line = list(range(len(b) + 1))
        for i, left in enumerate(a, 1):
            diagonal, line[0] = line[0], i
            for j, right in enumerate(b, 1):
                diagonal, line[j] = line[j], min(line[j] + 1, line[j - 1] + 1, diagonal + (left != right))
        if not self.normalize:
            return float(line[-1])
        return line[-1] / len(b) if b else float("inf") if a else 0.0


@op("tf_ragged_places", exact=True)
class RaggedPlaces(Operation):
    """The indices of a ragged tensor's values, and the extents of the equivalent sparse tensor.

    splits: int64 [rows + 1], outermost first -> int64 [values, axes + 1], int64 [axes + 1].
    Errors: ShapeError for descending or mismatched splits.  Source: TensorFlow RaggedTensorToSparse.
    """

    def infer(self, *splits: Shape) -> TupleShape:
        whole(*splits)
        rank = len(splits) + 1
        return TupleShape([Shape.of(dt.int64, (fresh("values"), rank)), Shape.of(dt.int64, (rank,))])

    def compute(self, *splits: Array) -> tuple[Array, Array]:
        places = np.arange(len(splits[0]) - 1, dtype=np.int64)[:, None]
        extents = [len(places)]
        for row in splits:
            sizes = np.diff(row)
            if (sizes < 0).any() or len(sizes) != len(places):
                raise ShapeError("row splits must not descend, and must match the outer rows")
            within = np.concatenate([np.arange(s) for s in sizes]) if len(sizes) else np.zeros(0, np.int64)
            places = np.concatenate([np.repeat(places, sizes, 0), within[:, None]], 1).astype(np.int64)
            extents.append(int(sizes.max(initial=0)))
        return places, np.array(extents, np.int64)
