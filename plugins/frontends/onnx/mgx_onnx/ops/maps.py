"""Ops on maps from labels to values.

At run time, a map is a Python dict from int or str to float, int or str.  Its type is that of the tuple (keys [k], values [k]);
a batch of maps is a sequence of it.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any, Literal, TypeAlias

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.ops.scores import check_labels, label_dtype
from mgx_core.types.argument import Array
from mgx_core.types.dim import fresh, may_equal
from mgx_core.types.dtype import DType
from mgx_core.types.shape import AnyShape, SequenceShape, Shape, TupleShape

__all__ = ["Map", "map_shape", "map_types"]

Map: TypeAlias = "dict[Any, Any]"


def map_shape(key: DType, value: DType) -> TupleShape:
    """Returns the type of maps with given key and value types."""
    entries = fresh("entries")
    return TupleShape([Shape.of(key, (entries,)), Shape.of(value, (entries,))])


def map_types(x: AnyShape) -> tuple[DType, DType]:
    """Returns the key and value types of a map.  Errors: ShapeError if it is not a map."""
    if isinstance(x, TupleShape) and len(x.items) == 2:
        key, value = x.items
        if isinstance(key, Shape) and isinstance(value, Shape) and key.dtype in (dt.int64, dt.string):
            return key.dtype, value.dtype
    raise ShapeError(f"a map is required, got {x}")


@op("zip_map", exact=True)
class ZipMap(Operation):
    """Converts each row to a map from labels to the row's values.

    x: float32 [n, e] or [e] -> sequence of n (or 1) maps.
    Errors: ParameterError unless one list of labels is given, ShapeError for another number of columns.
    Source: ONNX-ML ZipMap-1.
    """

    labels_ints: tuple[int, ...] = ()
    labels_strings: tuple[str, ...] = ()

    def check(self) -> None:
        check_labels(self.labels_ints, self.labels_strings)

    def infer(self, x: Shape) -> SequenceShape:
        labels = len(self.labels_ints or self.labels_strings)
        if not x.dtype.is_float or x.rank not in (1, 2) or not may_equal(x.dims[-1], labels):
            raise ShapeError(f"scores must be float [n, {labels}], one column per label, got {x}")
        return SequenceShape(
            TupleShape([Shape.of(label_dtype(self.labels_strings), (labels,)), Shape.of(x.dtype, (labels,))])
        )

    def compute(self, x: Array) -> list[Map]:
        labels = self.labels_strings or self.labels_ints
        if x.shape[-1] != len(labels):
            raise ShapeError(f"scores must have {len(labels)} columns, one per label, got {list(x.shape)}")
        rows = np.atleast_2d(x if x.dtype.itemsize > 2 else x.astype(np.float32)).tolist()
        return list(map(dict, map(zip, repeat(labels), rows)))


@op("cast_map", exact=True)
class CastMap(Operation):
    """Converts a map to a row, in ascending order of the keys (DENSE) or indexed by key (SPARSE).

    x: map from int64 to string or float -> dtype [1, entries] or [1, max_map].
    Errors: ParameterError for a key outside 0..max_map-1 (SPARSE) or a string that is not a number.
    Source: ONNX-ML CastMap-1.
    """

    cast_to: DType = dt.float32
    map_form: Literal["DENSE", "SPARSE"] = "DENSE"
    max_map: int = 1

    def check(self) -> None:
        if self.cast_to not in (dt.float32, dt.int64, dt.string):
            raise ParameterError(f"cast_to must be float32, int64 or string, got {self.cast_to}")
        if self.map_form == "SPARSE" and not 0 < self.max_map < 1 << 28:
            raise ParameterError(f"max_map must lie in [1, {1 << 28}), got {self.max_map}")

    def infer(self, x: AnyShape) -> Shape:
        key, _ = map_types(x)
        if key is not dt.int64:
            raise ShapeError(f"the keys must be int64, got {key}")
        return Shape.of(self.cast_to, (1, self.max_map if self.map_form == "SPARSE" else fresh("entries")))

    def compute(self, x: Map) -> Array:
        try:
            items = [(int(k), self._cast(v)) for k, v in sorted(x.items())]
        except (ValueError, OverflowError) as error:
            raise ParameterError(f"a value cannot be cast to {self.cast_to}: {error}") from None
        if self.map_form == "DENSE":
            return np.array([v for _, v in items], self.cast_to.numpy).reshape(1, -1)
        out = np.full((1, self.max_map), "" if self.cast_to is dt.string else 0, self.cast_to.numpy)
        for k, v in items:
            if not 0 <= k < self.max_map:
                raise ParameterError(f"keys must lie in [0, {self.max_map - 1}], got {k}")
            out[0, k] = v
        return out

    def _cast(self, value: Any) -> Any:
        if self.cast_to is dt.string:
            return value if isinstance(value, str) else f"{float(value):g}"
        return float(value) if self.cast_to is dt.float32 else int(float(value))


@op("dict_vectorizer", exact=True)
class DictVectorizer(Operation):
    """Converts a map to a row indexed by the vocabulary; missing keys are 0 (or empty).

    x: map from int64 or string to values of type dtype -> dtype [1, vocabulary].
    Errors: ParameterError unless one vocabulary is given, or for an unknown key.  Source: ONNX-ML DictVectorizer-1.
    """

    dtype: DType = dt.float32
    int64_vocabulary: tuple[int, ...] = ()
    string_vocabulary: tuple[str, ...] = ()

    def check(self) -> None:
        if bool(self.int64_vocabulary) == bool(self.string_vocabulary):
            raise ParameterError("exactly one of int64_vocabulary and string_vocabulary must be given")

    def infer(self, x: AnyShape) -> Shape:
        key, value = map_types(x)
        if key is not label_dtype(self.string_vocabulary):
            raise ShapeError(f"the vocabulary must have the type of the map's keys, {key}")
        if value is not self.dtype:
            raise ShapeError(f"the map's values must be {self.dtype}, got {value}")
        return Shape.of(value, (1, len(self.int64_vocabulary or self.string_vocabulary)))

    def compute(self, x: Map) -> Array:
        index: dict[Any, int] = {w: i for i, w in enumerate(self.int64_vocabulary or self.string_vocabulary)}
        out = np.full((1, len(index)), "" if self.dtype is dt.string else 0, self.dtype.numpy)
        for k, v in x.items():
            at = index.get(k)
            if at is None:
                raise ParameterError(f"the vocabulary does not contain the key {k!r}")
            out[0, at] = v
        return out
