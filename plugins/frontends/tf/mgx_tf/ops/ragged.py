"""Ragged tensors: rows of unequal length stored in one vector of values."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

import numpy as np

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, fresh
from mgx_core.types.memory_limit import require_memory

__all__ = ["splits_of"]


def splits_of(sizes: Iterable[int]) -> Array:
    """Returns the positions at which rows of these sizes begin, and the end of the last."""
    return np.array([0, *accumulate(sizes)], np.int64)


@op("tf_ragged_to_tensor", exact=True)
class RaggedToTensor(Operation):
    """A ragged tensor converted to a dense one, padded with the default.

    values: any [k, *e]; default: one element or [*e]; then a row partition for each axis, in the form stated by `kinds`:
    FIRST_DIM_SIZE, VALUE_ROWIDS or ROW_SPLITS -> [rows, .., *e]; dims: the result's extents, -1 for the longest row.
    Errors: ShapeError for invalid row partitions.  Source: TensorFlow RaggedTensorToTensor.
    """

    kinds: tuple[str, ...]
    dims: tuple[Dim, ...]

    def infer(self, values: Shape, default: Shape, *rows: Shape) -> Shape:
        if len(rows) != len(self.kinds):
            raise ShapeError(f"{len(self.kinds)} row partitions are required, got {len(rows)}")
        count = len(self.kinds) - (1 if self.kinds and self.kinds[0] == "FIRST_DIM_SIZE" else 0) + 1
        inner = values.dims[1:]
        out: list[Dim] = []
        for k in range(count):
            d: Dim = self.dims[k] if k < len(self.dims) else -1
            out.append(fresh("ragged") if isinstance(d, int) and d < 0 else d)
        return values.with_dims((*out, *inner))

    def compute(self, values: Array, default: Array, *rows: Array) -> Array:
        lengths = self._lengths(values, rows)
        count = len(lengths) + 1
        wanted = [int(d) for d in self.dims[:count]] + [-1] * (count - len(self.dims))
        extents = [wanted[0] if wanted[0] >= 0 else len(lengths[0])]
        for level, sizes in enumerate(lengths, 1):
            extents.append(wanted[level] if wanted[level] >= 0 else int(max(sizes, default=0)))
        require_memory((*extents, *values.shape[1:]), values.itemsize)
        out = np.empty((*extents, *values.shape[1:]), values.dtype)
        out[...] = default
        places: list[tuple[int, ...]] = [(k,) for k in range(len(lengths[0]))]
        for sizes in lengths:
            places = [(*place, k) for place, size in zip(places, sizes, strict=True) for k in range(int(size))]
        for place, value in zip(places, values, strict=False):
            if all(p < e for p, e in zip(place, extents, strict=True)):
                out[place] = value
        return out

    def _lengths(self, values: Array, rows: tuple[Array, ...]) -> list[Array]:
        """Returns the row lengths of each axis, outermost first."""
        first = None
        given = list(zip(self.kinds, rows, strict=True))
        if given and given[0][0] == "FIRST_DIM_SIZE":
            first = int(given.pop(0)[1].reshape(-1)[0])
        out: list[Array] = []
        for kind, row in given:
            if kind == "ROW_SPLITS":
                sizes = np.diff(row)
            elif kind == "VALUE_ROWIDS":
                total = int(out[-1].sum()) if out else first
                if total is None:
                    raise ShapeError("VALUE_ROWIDS requires a FIRST_DIM_SIZE or another row partition before it")
                if row.size and (int(row.min()) < 0 or int(row.max()) >= total):
                    raise ShapeError(f"row ids must be in 0..{total - 1}, got {int(row.min())} to {int(row.max())}")
                sizes = np.bincount(row, minlength=total)
            else:
                raise ShapeError(f"row partition {kind} is not supported")
            if (sizes < 0).any():
                raise ShapeError("row splits must not descend")
            out.append(sizes)
        return out


@op("tf_ragged_range", exact=True)
class RaggedRange(Operation):
    """A range for each start, concatenated.

    starts, limits, deltas: number [n] -> row splits int64 [n + 1], values [total].
    Errors: ShapeError for a delta of 0.  Source: TensorFlow RaggedRange.
    """

    def infer(self, starts: Shape, limits: Shape, deltas: Shape) -> TupleShape:
        rows = starts.dims[0] if starts.rank else 1
        return TupleShape([Shape.of(dt.int64, (rows + 1,)), starts.with_dims((fresh("range"),))])

    def compute(self, starts: Array, limits: Array, deltas: Array) -> tuple[Array, Array]:
        parts = []
        for a, b, d in zip(starts.reshape(-1), limits.reshape(-1), deltas.reshape(-1), strict=True):
            if d == 0:
                raise ShapeError("the step of a range must not be 0")
            require_memory([max(0, int((b - a) / d))], 8)
            parts.append(np.arange(a, b, d).astype(starts.dtype))
        splits = splits_of(map(len, parts))
        return splits, np.concatenate(parts) if parts else np.zeros(0, starts.dtype)


@op("tf_ragged_gather", exact=True)
class RaggedGather(Operation):
    """Rows of a ragged tensor by index.

    splits: int64 [rows + 1], values: any [k, *e], indices: int64 [n] -> int64 [n + 1], [picked, *e].
    Errors: ShapeError for an index out of range.  Source: TensorFlow RaggedGather.
    """

    def infer(self, splits: Shape, values: Shape, indices: Shape) -> TupleShape:
        if indices.rank != 1:
            raise ShapeError(f"a vector of row indices is required, got {indices}")
        rows = Shape.of(dt.int64, (indices.dims[0] + 1,))
        return TupleShape([rows, values.with_dims((fresh("picked"), *values.dims[1:]))])

    def compute(self, splits: Array, values: Array, indices: Array) -> tuple[Array, Array]:
        if indices.size and (int(indices.min()) < 0 or int(indices.max()) >= len(splits) - 1):
            raise ShapeError(f"row indices must be in 0..{len(splits) - 2}, got {indices.tolist()}")
        parts = [values[splits[i] : splits[i + 1]] for i in indices]
        made = splits_of(map(len, parts))
        return made, np.concatenate(parts) if parts else values[:0]
