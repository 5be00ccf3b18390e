"""The op that maps labels to numbers and back."""

from __future__ import annotations

from functools import lru_cache
from itertools import repeat
from typing import Any, Final

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.compare import Equal, Isnan
from mgx_core.ops.convert import Convert
from mgx_core.ops.declaration import op
from mgx_core.ops.index import Gather
from mgx_core.ops.operation import Operation
from mgx_core.ops.pointwise import Add, Clip, Sub, Where
from mgx_core.types.argument import Array
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape

from .score_parts import spread

__all__: list[str] = []

FEW: Final = 512  # integers up to which looking them up one by one is faster than with arrays
MOST_COMPARED: Final = 16  # maximum number of keys that are compared one by one
MOST_ENTRIES: Final = 65536  # maximum size of an integer lookup table


@op("label_encoder", exact=True)
class LabelEncoder(Operation):
    """Maps each element by a table of keys and values; unknown elements become the default.

    x: string, integer or float [..] -> dtype [..].  One list of keys and one of values are required, of the kinds of
    x and of `dtype`; the last of equal keys applies; NaN matches NaN.
    Errors: ParameterError for lists that do not fit; ShapeError if x is of another kind than the keys.
    Source: ONNX-ML LabelEncoder-4.
    """

    dtype: DType
    keys_floats: tuple[float, ...] = ()
    keys_int64s: tuple[int, ...] = ()
    keys_strings: tuple[str, ...] = ()
    values_floats: tuple[float, ...] = ()
    values_int64s: tuple[int, ...] = ()
    values_strings: tuple[str, ...] = ()
    default_float: float = -0.0
    default_int64: int = -1
    default_string: str = "_Unused"

    def check(self) -> None:
        keys = [k for k in (self.keys_floats, self.keys_int64s, self.keys_strings) if k]
        values = [v for v in (self.values_floats, self.values_int64s, self.values_strings) if v]
        if len(keys) != 1 or len(values) != 1 or len(keys[0]) != len(values[0]):
            raise ParameterError(
                f"one list of keys and one of values of the same length are required, got keys of lengths "
                f"{[len(k) for k in keys]} and values of lengths {[len(v) for v in values]}"
            )
        if self._kind(self.dtype) != ("float" if self.values_floats else "int64" if self.values_int64s else "string"):
            raise ParameterError(f"the values do not match the result's type {self.dtype}")

    @property
    def default(self) -> Any:
        """The value for unknown elements, of the kind of `dtype`."""
        if self.dtype is dt.string:
            return self.default_string
        return self.default_float if self.dtype.is_float else self.default_int64

    def _kind(self, dtype: DType) -> str:
        return "string" if dtype is dt.string else "float" if dtype.is_float else "int64"

    def infer(self, x: Shape) -> Shape:
        wanted = "float" if self.keys_floats else "int64" if self.keys_int64s else "string"
        if self._kind(x.dtype) != wanted or x.dtype.kind in "bc":
            raise ShapeError(f"keys are of kind {wanted}, the data is {x.dtype}")
        return x.with_dtype(self.dtype)

    def compute(self, x: Array) -> Array:
        if self.keys_strings or (self.keys_int64s and x.size <= FEW):
            table, missing = _table_of(self)
            words = x.reshape(-1).tolist()
            if self.dtype is dt.string:
                return np.array([table.get(w, missing) for w in words], object).reshape(x.shape)
            return np.fromiter(map(table.get, words, repeat(missing)), self.dtype.numpy, len(words)).reshape(x.shape)
        values = np.array(self.values_floats or self.values_int64s or self.values_strings, self.dtype.numpy)
        default = self.default
        keys = np.array(self.keys_floats or self.keys_int64s)
        keys = keys.astype(x.dtype if keys.dtype.kind == "f" else np.int64)
        order = np.argsort(keys, kind="stable")
        ordered = keys[order]
        wide = x if keys.dtype.kind == "f" else x.astype(np.int64)
        at = np.searchsorted(ordered, wide, side="right") - 1  # the last of equal keys; NaN sorts after all numbers
        hit = ordered[at] == wide
        if keys.dtype.kind == "f":
            hit |= np.isnan(ordered[at]) & np.isnan(wide)
        found = np.where(hit & (at >= 0), order[at], -1)
        out = np.full(x.shape, default, self.dtype.numpy)
        out[found >= 0] = values[found[found >= 0]]
        return out

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        """Looks dense integer keys up in a table, and compares with a few others one by one."""
        keys, signed = self.keys_int64s, x.shape.dtype is not dt.uint64
        if self.values_strings or self.keys_strings or not signed:
            return None
        if not keys or max(keys) - min(keys) >= MOST_ENTRIES:
            return self._compared(b, x)
        least, most = min(keys), max(keys)
        table = np.full(most - least + 1, self.default, self.dtype.numpy)
        for key, value in zip(keys, self.values_floats or self.values_int64s, strict=True):
            table[key - least] = value
        wide = b.add(Convert(target_type=dt.int64), x)
        low, high = (spread(b, n, wide) for n in (least, most))
        at = b.add(Sub(), b.add(Clip(), wide, low, high), low)
        found = b.add(Gather(axis=0), b.literal(table), at)
        inside = b.add(Equal(), b.add(Add(), at, low), wide)
        return b.add(Where(), inside, found, spread(b, self.default, found))

    def _compared(self, b: Builder, x: Operand) -> Operand | None:
        """Compares with each key; None if there are many."""
        keys, values = self.keys_floats or self.keys_int64s, self.values_floats or self.values_int64s
        if len(keys) > MOST_COMPARED:
            return None
        wide = x if self.keys_floats else b.add(Convert(target_type=dt.int64), x)

        def number(value: float) -> Operand:
            made = b.literal(np.asarray(value).astype(self.dtype.numpy))
            return b.add(Multibroadcast(out_lens=x.shape.dims), made)

        out = number(self.default)
        for key, value in zip(keys, values, strict=True):  # the last of equal keys applies
            same = b.add(Isnan(), wide) if key != key else b.add(Equal(), wide, spread(b, key, wide))
            out = b.add(Where(), same, number(value), out)
        return out


@lru_cache(maxsize=32)
def _table_of(op: LabelEncoder) -> tuple[dict[str | int, Any], Any]:
    """Returns the values by key of an encoder of strings or integers, and the default, rounded to its element type."""
    keys = op.keys_strings or op.keys_int64s
    values = op.values_floats or op.values_int64s or op.values_strings
    if op.dtype is dt.string:
        return dict(zip(keys, values, strict=True)), op.default
    *rounded, default = np.array([*values, op.default]).astype(op.dtype.numpy).tolist()
    return dict(zip(keys, rounded, strict=True)), default
