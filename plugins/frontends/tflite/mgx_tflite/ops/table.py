"""String comparison and hash table lookup."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.converting.tables import looked_up
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array

__all__: list[str] = []


@op("tflite_string_equal", exact=True)
class StringEqual(Operation):
    """Compares strings elementwise.  x, y: string [..] -> bool [..].  Source: TFLite EQUAL."""

    def infer(self, x: Shape, y: Shape) -> Shape:
        return x.with_dtype(dt.bool_)

    def compute(self, x: Array, y: Array) -> Array:
        return np.asarray(x == y, bool)


@op("tflite_table_find", exact=True)
class TableFind(Operation):
    """Looks keys up in a table; missing keys return a default.

    x: any [..], keys, values: [n], default: one element -> [..] of the type of values.
    Errors: ShapeError if types differ.  Source: TFLite HASHTABLE_FIND.
    """

    def infer(self, x: Shape, keys: Shape, values: Shape, default: Shape) -> Shape:
        if keys.dtype is not x.dtype or values.dtype is not default.dtype:
            raise ShapeError(
                f"keys must have the type of x and values that of the default, got {keys} for {x}, {values} for {default}"
            )
        return x.with_dtype(values.dtype)

    def compute(self, x: Array, keys: Array, values: Array, default: Array) -> Array:
        return looked_up(x, keys.reshape(-1), values.reshape(-1), default.reshape(-1)[0])
