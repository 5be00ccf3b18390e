"""Tables of keys and values."""

from __future__ import annotations

import numpy as np

from mgx_core import Shape
from mgx_core.errors import ShapeError
from mgx_core.ops.operation import Operation, op
from mgx_core.types.argument import Array

__all__: list[str] = []


@op("tf_table_find", exact=True)
class TableFind(Operation):
    """The value of each key, a default for keys that a table lacks.

    x: any [..], keys: [n] of the type of x, values: any [n, *e], default: one element of that type, or [*e] -> [.., *e].
    Errors: ShapeError if types or numbers differ.  Source: TensorFlow LookupTableFindV2.
    """

    def infer(self, x: Shape, keys: Shape, values: Shape, default: Shape) -> Shape:
        if keys.dtype is not x.dtype or values.dtype is not default.dtype:
            raise ShapeError(
                f"keys and values must be of the types asked for, got {keys} for {x}, {values} for {default}"
            )
        return values.with_dims((*x.dims, *values.dims[1:]))

    def compute(self, x: Array, keys: Array, values: Array, default: Array) -> Array:
        out = np.empty((*x.shape, *values.shape[1:]), values.dtype)
        if keys.dtype == object:
            known = {k: n for n, k in enumerate(keys.tolist())}
            found = np.array([known.get(k, -1) for k in x.reshape(-1).tolist()], np.int64).reshape(x.shape)
        else:
            order = np.argsort(keys, kind="stable")
            place = np.searchsorted(keys[order], x)
            place = np.minimum(place, max(len(keys) - 1, 0))
            hit = keys[order][place] == x if len(keys) else np.zeros(x.shape, bool)
            found = np.where(hit, order[place] if len(keys) else 0, -1)
        out[...] = default
        out[found >= 0] = values[found[found >= 0]]
        return out
