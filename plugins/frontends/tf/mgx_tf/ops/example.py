"""Parses TensorFlow's `Example` messages (records of named features)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import prod
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError

from mgx_core import Shape, TupleShape
from mgx_core import dtype as dt
from mgx_core.errors import ShapeError, counted
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh
from mgx_core.types.dtype import DType
from mgx_core.types.memory_limit import require_memory
from mgx_core.types.strings import decoded, encoded

from ..wire.messages import message
from .ragged import splits_of

__all__ = ["array_of", "message_of", "parted", "values_of"]

FIELDS = {"int64": "int64_list", "float32": "float_list", "string": "bytes_list"}


@op("tf_parse_example", exact=True)
class ParseExample(Operation):
    """Features of serialized examples, batched.

    serialized: string [n]; then a default for each dense feature, empty if the feature is required.
    -> for each sparse feature indices int64 [k, 2], values [k], extents int64 [2]; for each dense one [n, *dims]; for each
    ragged one values [k], splits int64 [n + 1].
    sparse, dense, ragged: names of features; sparse_types, dense_types, ragged_types: their types; dims: the concatenated extents
    of the dense features; ranks: the number of extents of each.
    Errors: ShapeError for corrupt examples, features of another type or extent, missing ones, defaults of another size.
    Source: TensorFlow ParseExampleV2.
    """

    sparse: tuple[str, ...] = ()
    sparse_types: tuple[DType, ...] = ()
    dense: tuple[str, ...] = ()
    dense_types: tuple[DType, ...] = ()
    dims: tuple[int, ...] = ()
    ranks: tuple[int, ...] = ()
    ragged: tuple[str, ...] = ()
    ragged_types: tuple[DType, ...] = ()

    def infer(self, serialized: Shape, *defaults: Shape) -> TupleShape:
        if serialized.rank != 1 or len(defaults) != len(self.dense):
            raise ShapeError(f"a vector of examples and {len(self.dense)} defaults are required, got {serialized}")
        for name, dims, default in zip(self.dense, parted(self.dims, self.ranks), defaults, strict=True):
            if all(isinstance(d, int) for d in default.dims):
                _check_default(name, prod(dims), prod(int(d) for d in default.dims))
        count, out = serialized.dims[0], []
        for kind in self.sparse_types:
            entries = fresh("entries")
            out += [Shape.of(dt.int64, (entries, 2)), Shape.of(kind, (entries,)), Shape.of(dt.int64, (2,))]
        out += [
            Shape.of(k, (count, *dims)) for k, dims in zip(self.dense_types, parted(self.dims, self.ranks), strict=True)
        ]
        for kind in self.ragged_types:
            out += [Shape.of(kind, (fresh("values"),)), Shape.of(dt.int64, (count + 1,))]
        return TupleShape(out)

    def compute(self, serialized: Array, *defaults: Array) -> tuple[Array, ...]:
        rows = [message_of(word, "Example", "an example").features.feature for word in serialized.tolist()]
        out: list[Array] = []
        for name, kind in zip(self.sparse, self.sparse_types, strict=True):
            found = [_values(row, name, kind) for row in rows]
            places = [(k, j) for k, row in enumerate(found) for j in range(len(row))]
            most = max(map(len, found), default=0)
            extents = np.array([len(rows), most], np.int64)
            out += [np.array(places, np.int64).reshape(-1, 2), array_of([v for r in found for v in r], kind), extents]
        for name, kind, dims, default in zip(
            self.dense, self.dense_types, parted(self.dims, self.ranks), defaults, strict=True
        ):
            out.append(self._dense(rows, name, kind, dims, default))
        for name, kind in zip(self.ragged, self.ragged_types, strict=True):
            found = [_values(row, name, kind) for row in rows]
            out += [array_of([v for r in found for v in r], kind), splits_of(map(len, found))]
        return tuple(out)

    def _dense(self, rows: list[Any], name: str, kind: DType, dims: tuple[int, ...], default: Array) -> Array:
        size = prod(dims)
        _check_default(name, size, default.size)
        require_memory((len(rows), size), 8)
        made: list[Any] = []
        for place, row in enumerate(rows):
            found = _values(row, name, kind)
            if not _present(row, name):
                if not default.size and size:
                    raise ShapeError(f"example {place} lacks feature {name!r}, which has no default")
                found = default.reshape(-1).tolist()
            if len(found) != size:
                raise ShapeError(
                    f"feature {name!r} of example {place} must have {counted(size, 'value')}, got {len(found)}"
                )
            made += found
        return array_of(made, kind).reshape(len(rows), *dims)


def parted(dims: Sequence[int], ranks: Sequence[int]) -> list[tuple[int, ...]]:
    """Returns the extents of each feature, given those of all in a row and the number of each."""
    ends = list(accumulate(ranks))
    return [tuple(dims[end - rank : end]) for end, rank in zip(ends, ranks, strict=True)]


def message_of(word: str, kind: str, title: str) -> Any:
    """Returns a serialized message; title: its name in errors.  Errors: ShapeError if it is corrupt."""
    found = message(kind)()
    try:
        found.ParseFromString(encoded(word))
    except (DecodeError, ValueError) as error:
        raise ShapeError(f"{title} is damaged: {error}") from None
    return found


def _check_default(name: str, size: int, given: int) -> None:
    """Errors: ShapeError unless a default is empty or has the size of its feature."""
    if given not in (0, size):
        raise ShapeError(f"the default of feature {name!r} must have {counted(size, 'value')}, or none, got {given}")


def _present(row: Any, name: str) -> bool:
    """True if an example contains values of a feature; a feature without a value list counts as missing."""
    return name in row and row[name].WhichOneof("kind") is not None


def _values(row: Any, name: str, kind: DType) -> list[Any]:
    return values_of(row[name], name, kind) if name in row else []


def values_of(feature: Any, name: str, kind: DType) -> list[Any]:
    """Returns the values of a feature; none if it has no value list.  Errors: ShapeError for values of another type."""
    held = feature.WhichOneof("kind")
    if held is None:
        return []
    if held != FIELDS[kind.name]:
        raise ShapeError(f"feature {name!r} must be of type {kind}, got {held}")
    values = list(getattr(feature, held).value)
    return [decoded(v) for v in values] if held == "bytes_list" else values


def array_of(values: Sequence[Any], kind: DType) -> Array:
    """Returns values as a vector."""
    if kind.kind != "s":
        return np.array(values, kind.numpy)
    out = np.empty(len(values), object)
    out[:] = values
    return out
