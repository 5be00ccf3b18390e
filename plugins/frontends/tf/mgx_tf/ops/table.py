"""Hash table lookup."""

from __future__ import annotations

from mgx_core import Shape
from mgx_core.converting.tables import looked_up
from mgx_core.errors import ShapeError
from mgx_core.ops.declaration import op
from mgx_core.ops.operation import Operation
from mgx_core.types.argument import Array

__all__: list[str] = []


@op("tf_table_find", exact=True)
class TableFind(Operation):
    """Values of a hash table by key; a default for missing keys.

    x: any [..], keys: [n] of the type of x, values: any [n, *e], default: one element of that type, or [*e] -> [.., *e].
    Errors: ShapeError if types or numbers differ.  Source: TensorFlow LookupTableFindV2.
    """

    def infer(self, x: Shape, keys: Shape, values: Shape, default: Shape) -> Shape:
        if keys.dtype is not x.dtype or values.dtype is not default.dtype:
            raise ShapeError(
                f"keys must have the type of x and values that of the default, got {keys} for {x}, {values} for {default}"
            )
        return values.with_dims((*x.dims, *values.dims[1:]))

    def compute(self, x: Array, keys: Array, values: Array, default: Array) -> Array:
        return looked_up(x, keys, values, default)
