"""Feature preprocessing of classical ML: scaling, imputation, selection and concatenation of columns."""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import repeat
from typing import Any, Literal

import numpy as np

from mgx_core import dtype as dt
from mgx_core.errors import ParameterError, ShapeError
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.builder import Builder, Operand
from mgx_core.ops.compare import Equal, Greater, Isnan, Less
from mgx_core.ops.concat import Concat
from mgx_core.ops.convert import Convert
from mgx_core.ops.declaration import op
from mgx_core.ops.index import Gather
from mgx_core.ops.operation import Operation
from mgx_core.ops.pad import Pad
from mgx_core.ops.pointwise import Abs, Div, Mul, Sqrt, Sub, Where
from mgx_core.ops.reduce import ReduceMax, ReduceSum
from mgx_core.ops.reshape import Reshape
from mgx_core.ops.scores import rows_of
from mgx_core.ops.slice import Slice
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, may_equal
from mgx_core.types.dtype import DType
from mgx_core.types.shape import Shape

from .score_parts import spread

__all__: list[str] = []


@op("array_feature_extractor", exact=True)
class ArrayFeatureExtractor(Operation):
    """Selects columns of the last axis by index.

    x: any [.., f], y: int64 of k elements in any dims -> [.., k]; x [f] -> [1, k].
    Errors: ShapeError for an index outside 0..f-1.  Source: ONNX-ML ArrayFeatureExtractor-1.
    """

    def infer(self, x: Shape, y: Shape) -> Shape:
        if y.dtype is not dt.int64:
            raise ShapeError(f"indices must be int64, got {y}")
        if x.rank < 1:
            raise ShapeError("data must have one axis or more")
        return x.with_dims([*(x.dims[:-1] or (1,)), y.sym_elements()])

    def compute(self, x: Array, y: Array) -> Array:
        indices = y.reshape(-1)
        bad = indices[(indices < 0) | (indices >= x.shape[-1])]
        if bad.size:
            raise ShapeError(f"indices must lie in [0, {x.shape[-1] - 1}], got {bad[0]}")
        return np.atleast_2d(x[..., indices])

    def decompose(self, b: Builder, x: Operand, y: Operand) -> Operand:
        flat = b.add(Reshape(dims=(y.shape.sym_elements(),)), y)
        # unlike gather, negative indices are out of range
        known = b.add(Where(), b.add(Less(), flat, spread(b, 0, flat)), spread(b, 2**31 - 1, flat), flat)
        out = b.add(Gather(axis=x.shape.rank - 1), x, known)
        return out if x.shape.rank > 1 else b.add(Reshape(dims=(1, *out.shape.dims)), out)


@op("binarizer", exact=True)
class Binarizer(Operation):
    """1 where x exceeds `threshold`, else 0, in the type of x.

    x: number [..] -> same shape.  Source: ONNX-ML Binarizer-1.
    """

    threshold: float = 0.0

    def infer(self, x: Shape) -> Shape:
        _check_number(x)
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        return (x > np.asarray(self.threshold, x.dtype if x.dtype.kind == "f" else np.float64)).astype(x.dtype)

    def decompose(self, b: Builder, x: Operand) -> Operand:
        wide = x if x.shape.dtype.is_float else b.add(Convert(target_type=dt.float64), x)
        return b.add(Convert(target_type=x.shape.dtype), b.add(Greater(), wide, spread(b, self.threshold, wide)))


@op("feature_vectorizer")
class FeatureVectorizer(Operation):
    """Concatenates features.

    xs: number [n, ..] or [f] (one row) each -> float32 [n, sum of features].  `inputdimensions` gives the width
    of each input: narrower ones are zero-padded, wider ones truncated.
    Errors: ShapeError for different numbers of rows.  Source: ONNX-ML FeatureVectorizer-1.
    """

    inputdimensions: tuple[int, ...] = ()

    def check(self) -> None:
        if any(not 0 <= d < 1 << 31 for d in self.inputdimensions):
            raise ParameterError(f"inputdimensions must not be negative or too large, got {list(self.inputdimensions)}")

    def infer(self, *xs: Shape) -> Shape:
        if not xs or (self.inputdimensions and len(self.inputdimensions) != len(xs)):
            raise ShapeError(
                f"there must be an input for each of the {len(self.inputdimensions)} inputdimensions, got {len(xs)}"
            )
        width: Dim = 0
        rows = None
        for i, x in enumerate(xs):
            _check_number(x)
            n, *features = x.dims if x.rank > 1 else (1, *x.dims)
            rows = n if rows is None else rows
            if not may_equal(n, rows):
                raise ShapeError(f"inputs must have equal numbers of rows, got {rows} and {n} (input {i})")
            if self.inputdimensions:
                width = width + self.inputdimensions[i]
            else:
                size: Dim = 1
                for d in features:
                    size = size * d
                width = width + size
        return Shape.of(dt.float32, (1 if rows is None else rows, width))

    def compute(self, *xs: Array) -> Array:
        columns = []
        for i, x in enumerate(xs):
            rows = x.reshape(len(x), x.size // max(1, len(x))) if x.ndim > 1 else x.reshape(1, -1)
            rows = rows.astype(np.float32)
            if self.inputdimensions:
                width = self.inputdimensions[i]
                rows = np.pad(rows[:, :width], ((0, 0), (0, max(0, width - rows.shape[1]))))
            columns.append(rows)
        return np.concatenate(columns, axis=1)

    def decompose(self, b: Builder, *xs: Operand) -> Operand | None:
        columns = []
        for i, x in enumerate(xs):
            n, *features = x.shape.dims if x.shape.rank > 1 else (1, *x.shape.dims)
            sizes = [d for d in features if isinstance(d, int)]
            if len(sizes) < len(features):
                return None
            size = math.prod(sizes)
            rows = b.add(Convert(target_type=dt.float32), x)
            rows = rows if x.shape.rank == 2 else b.add(Reshape(dims=(n, size)), rows)
            width = self.inputdimensions[i] if self.inputdimensions else size
            if width < size:
                rows = b.add(Slice(axes=(1,), starts=(0,), ends=(width,)), rows)
            elif width > size:
                rows = b.add(Pad(pads=(0, 0, 0, width - size)), rows)
            columns.append(rows)
        return b.add(Concat(axis=1), *columns)


@op("imputer", exact=True)
class Imputer(Operation):
    """Replaces a value (or NaN) in x by an imputed value, one for all or one per feature.

    x: float or integer [.., f] -> same shape.  Floats use the `_float` attributes, integers the `_int64` ones.
    Errors: ParameterError without imputed values or with two kinds, ShapeError for a number of them that is not 1 or f.
    Source: ONNX-ML Imputer-1.
    """

    imputed_value_floats: tuple[float, ...] = ()
    imputed_value_int64s: tuple[int, ...] = ()
    replaced_value_float: float = 0.0
    replaced_value_int64: int = 0

    def check(self) -> None:
        if bool(self.imputed_value_floats) == bool(self.imputed_value_int64s):
            raise ParameterError("exactly one of imputed_value_floats and imputed_value_int64s must be given")

    def infer(self, x: Shape) -> Shape:
        _check_number(x)
        values = self.imputed_value_floats if x.dtype.is_float else self.imputed_value_int64s
        if not values:
            raise ShapeError(f"the imputed values must be of the data's kind, {x.dtype}")
        if len(values) != 1 and (not x.rank or not may_equal(x.dims[-1], len(values))):
            raise ShapeError(f"there must be 1 imputed value or one per feature, got {len(values)} for {x}")
        return x.as_standard()

    def compute(self, x: Array) -> Array:
        try:
            if x.dtype.kind in "iu":
                wanted = x == self.replaced_value_int64
                values = np.array(self.imputed_value_int64s, x.dtype)
            else:
                old = np.asarray(self.replaced_value_float, x.dtype)
                wanted = np.isnan(x) if np.isnan(old) else x == old
                values = np.array(self.imputed_value_floats, x.dtype)
        except OverflowError:
            raise ParameterError(f"an imputed value is out of range for {x.dtype}") from None
        return np.where(wanted, values, x)

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        if not x.shape.dtype.is_float:  # values out of the type's range are rejected
            return None
        values = self.imputed_value_floats
        old = self.replaced_value_float
        wanted = b.add(Isnan(), x) if np.isnan(old) else b.add(Equal(), x, spread(b, old, x))
        return b.add(Where(), wanted, spread(b, np.array(values if len(values) > 1 else values[0]), x), x)


@op("normalizer")
class Normalizer(Operation):
    """Divides each row by its maximum (MAX), L1 norm or L2 norm; rows whose norm is 0 are unchanged.

    x: number [n, f] or [f] -> float32 of the same dims.  Source: ONNX-ML Normalizer-1.
    """

    norm: Literal["MAX", "L1", "L2"] = "MAX"

    def infer(self, x: Shape) -> Shape:
        rows_of(x)
        return x.with_dtype(dt.float32)

    def compute(self, x: Array) -> Array:
        rows = x.astype(np.float64)
        if not rows.size:
            return rows.astype(np.float32)
        match self.norm:
            case "MAX":
                size = rows.max(axis=-1, keepdims=True)
            case "L1":
                size = np.abs(rows).sum(axis=-1, keepdims=True)
            case _:
                size = np.sqrt((rows * rows).sum(axis=-1, keepdims=True))
        return np.asarray(np.divide(rows, size, out=rows.copy(), where=size != 0), np.float32)

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        if x.shape.dims[-1] == 0:
            return None
        rows, last = b.add(Convert(target_type=dt.float64), x), (x.shape.rank - 1,)
        match self.norm:
            case "MAX":
                size = b.add(ReduceMax(axes=last), rows)
            case "L1":
                size = b.add(ReduceSum(axes=last), b.add(Abs(), rows))
            case _:
                size = b.add(Sqrt(), b.add(ReduceSum(axes=last), b.add(Mul(), rows, rows)))
        size = b.add(Multibroadcast(out_lens=x.shape.dims), size)
        out = b.add(Where(), b.add(Equal(), size, spread(b, 0.0, size)), rows, b.add(Div(), rows, size))
        return b.add(Convert(target_type=dt.float32), out)


@op("one_hot_encoder", exact=True)
class OneHotEncoder(Operation):
    """One-hot encodes each element by its category.

    x: string (cats_strings) or number (cats_int64s; floats are truncated) [..] -> float32 [.., categories].
    Errors: ParameterError unless one list is given; at run time, for an unknown category if `zeros` is false.
    Source: ONNX-ML OneHotEncoder-1.
    """

    cats_int64s: tuple[int, ...] = ()
    cats_strings: tuple[str, ...] = ()
    zeros: bool = True

    def check(self) -> None:
        if bool(self.cats_int64s) == bool(self.cats_strings):
            raise ParameterError("exactly one of cats_int64s and cats_strings must be given")

    def infer(self, x: Shape) -> Shape:
        if (x.dtype is dt.string) != bool(self.cats_strings):
            raise ShapeError(
                f"the categories are {'strings' if self.cats_strings else 'integers'}, the data is {x.dtype}"
            )
        return Shape.of(dt.float32, [*x.dims, len(self.cats_strings or self.cats_int64s)])

    def compute(self, x: Array) -> Array:
        cats = _places_of(self.cats_strings or self.cats_int64s)
        given: list[Any] = x.reshape(-1).tolist()
        if given and isinstance(given[0], float):
            given = [int(v) if math.isfinite(v) else None for v in given]
        at = np.fromiter(map(cats.get, given, repeat(-1)), np.int64, len(given))
        known = np.flatnonzero(at >= 0)
        if not self.zeros and len(known) < len(given):
            raise ParameterError(f"{given[int(np.argmax(at < 0))]!r} is not one of the categories")
        out = np.zeros((x.size, len(self.cats_strings or self.cats_int64s)), np.float32)
        out[known, at[known]] = 1
        return out.reshape(*x.shape, out.shape[-1])

    def decompose(self, b: Builder, x: Operand) -> Operand | None:
        cats = self.cats_int64s
        signed = x.shape.dtype.is_integer and x.shape.dtype is not dt.uint64
        if not (signed and self.zeros and len(set(cats)) == len(cats)):
            return None
        dims = (*x.shape.dims, len(cats))
        wide = b.add(Reshape(dims=(*x.shape.dims, 1)), b.add(Convert(target_type=dt.int64), x))
        known = b.add(Multibroadcast(out_lens=dims), b.literal(np.array(cats, np.int64)))
        return b.add(Convert(target_type=dt.float32), b.add(Equal(), b.add(Multibroadcast(out_lens=dims), wide), known))


@lru_cache(maxsize=32)
def _places_of(categories: tuple[Any, ...]) -> dict[Any, int]:
    return {c: i for i, c in enumerate(categories)}


@op("scaler")
class Scaler(Operation):
    """Computes (x - offset) * scale, each with one value or one per feature, and optional.

    x: number [.., f] -> float32 of the same dims.
    Errors: ShapeError for a number of values that is not 1 or f.  Source: ONNX-ML Scaler-1.
    """

    offset: tuple[float, ...] = ()
    scale: tuple[float, ...] = ()

    def infer(self, x: Shape) -> Shape:
        _check_number(x)
        for name, values in (("offset", self.offset), ("scale", self.scale)):
            if len(values) > 1 and (not x.rank or not may_equal(x.dims[-1], len(values))):
                raise ShapeError(f"{name} must have 1 value or one per feature, got {len(values)} for {x}")
        return x.with_dtype(dt.float32)

    def compute(self, x: Array) -> Array:
        out = x.astype(_scaled_as(dt.of(x.dtype)).numpy)
        if self.offset:
            out = out - np.array(self.offset, out.dtype)
        if self.scale:
            out = out * np.array(self.scale, out.dtype)
        return out.astype(np.float32)

    def decompose(self, b: Builder, x: Operand) -> Operand:
        wide = _scaled_as(x.shape.dtype)
        out = b.add(Convert(target_type=wide), x)
        for step, values in ((Sub(), self.offset), (Mul(), self.scale)):
            if values:
                number = b.literal(np.array(values if len(values) > 1 else values[0], wide.numpy))
                out = b.add(step, out, b.add(Multibroadcast(out_lens=x.shape.dims), number))
        return b.add(Convert(target_type=dt.float32), out)


def _scaled_as(dtype: DType) -> DType:
    """Returns the type used for scaling."""
    return dt.float32 if dtype is dt.float32 or dtype.size < 4 else dt.float64


def _check_number(x: Shape) -> None:
    if not (x.dtype.is_float or x.dtype.is_integer):
        raise ShapeError(f"numbers are required, got {x}")
