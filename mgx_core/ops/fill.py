"""Tensors that do not depend on data: extents, constants, ranges, uninitialized memory."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from ..errors import ShapeError, UnsupportedError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dim import Dim, fresh
from ..types.dtype import DType
from ..types.memory_limit import require_memory
from ..types.shape import AnyShape, Shape
from .declaration import op
from .extents import scalar_operand, unknown, vector_length, whole
from .operation import Operation
from .scalar import convert, widen

__all__ = ["Allocate", "DimensionsOf", "DynamicRange", "EyeLike", "Fill", "Unknown"]


@op("dimensions_of", exact=True)
class DimensionsOf(Operation):
    """The extents of x from axis `start` to `end` (exclusive, clipped, negative ones from the end) as a vector.

    x: any [..] -> int64 [axes].  Errors: none.  Source: MIGraphX dimensions_of, ONNX Shape-15.
    """

    start: int = 0
    end: int | None = None

    def infer(self, x: Shape) -> Shape:
        if not x.ranked:
            return Shape.of(dt.int64, (fresh("rank"),))
        return Shape.of(dt.int64, (len(range(x.rank)[self.start : self.end]),))

    def compute(self, x: Array) -> Array:
        return np.array(x.shape[self.start : self.end], np.int64)


@op("fill", exact=True)
class Fill(Operation):
    """A tensor with the extents of another, filled with one value.

    value: any, one element; like: any [..] -> [..] of the type of value.
    Errors: ShapeError if value has more elements.  Source: MIGraphX fill.
    """

    def infer(self, value: Shape, like: Shape) -> Shape:
        return like.with_dtype(scalar_operand(value, "value").dtype)

    def compute(self, value: Array, like: Array) -> Array:
        return np.broadcast_to(value.reshape(()), like.shape)

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        lens = inputs[1].lens()
        return 0, Shape(inputs[0].dtype, lens, [0] * len(lens))


@op("dynamic_range")
class DynamicRange(Operation):
    """start, start + delta, ... up to limit (exclusive); float16 and bfloat16 are computed in float32.

    start, limit, delta: number, one element each, of one type -> [max(0, ceil((limit - start) / delta))], of which
    `length` may state the (symbolic) value at compile time.
    Errors: ShapeError for differing types or a delta of 0.  Source: ONNX Range-27.
    """

    length: Dim | None = None

    def infer(self, start: Shape, limit: Shape, delta: Shape) -> Shape:
        for x, what in ((start, "start"), (limit, "limit"), (delta, "delta")):
            if scalar_operand(x, what).dtype is not start.dtype or not x.dtype.is_number:
                raise ShapeError(f"start, limit and delta must share one number type, got {start}, {limit} and {delta}")
        return Shape.of(start.dtype, (fresh("range") if self.length is None else self.length,))

    def compute(self, start: Array, limit: Array, delta: Array) -> Array:
        dtype = dt.of(start.dtype)
        first, stop, step = (widen(v).reshape(-1)[0].item() for v in (start, limit, delta))
        if step == 0:
            raise ShapeError("delta must not be 0")
        span = (stop - first) / step if dtype.is_float else 0
        if span != span or span > 1 << 40:
            raise ShapeError(f"a range from {first} to {stop} by {step} has no end")
        count = max(0, -int(-span // 1)) if dtype.is_float else len(range(first, stop, step))
        if self.length is not None and count != int(self.length):
            raise ShapeError(f"a range from {first} to {stop} by {step} has {count} elements, not {self.length}")
        require_memory([count], 8)
        if dtype in (dt.int32, dt.int64):
            return np.arange(first, stop, step, dtype=dtype.numpy)
        wide = dtype.accumulate
        places = np.arange(count, dtype=np.int64).astype(wide) * np.asarray(step, wide)
        return convert(np.asarray(np.asarray(first, wide) + places), dtype)


@op("eye_like", exact=True)
class EyeLike(Operation):
    """A matrix with the extents of another, with ones on the k-th diagonal above the main one and zeros elsewhere.

    x: any [m, n] -> [m, n] of `dtype`, or of the type of x.  Errors: ShapeError for another rank.  Source: ONNX
    EyeLike-22.
    """

    dtype: DType | None = None
    k: int = 0

    def infer(self, x: Shape) -> Shape:
        if x.rank != 2:
            raise ShapeError(f"x must be a matrix, got {x}")
        return x.with_dtype(self.dtype or x.dtype)

    def compute(self, x: Array) -> Array:
        rows, columns = x.shape
        k = max(-rows - 1, min(columns + 1, self.k))
        return convert(np.eye(rows, columns, k, np.int8), self.dtype or dt.of(x.dtype))


@op("allocate", exact=True)
class Allocate(Operation):
    """Memory with undefined contents.

    dims: int [rank], unless `shape` is given -> shape, or dims of type `buf_type`.
    Errors: ShapeError if neither states the extents.  Source: MIGraphX allocate.
    """

    shape: Shape | None = None
    buf_type: DType | None = None

    def infer(self, dims: Shape | None = None) -> Shape:
        if dims is None:
            if self.shape is None:
                raise ShapeError("extents are needed, as the attribute shape or as the input dims")
            return self.shape.as_standard()
        return unknown(Shape.of(self._type(), ()), vector_length(dims, "dims"))

    def _type(self) -> DType:
        return self.buf_type or (self.shape.dtype if self.shape is not None else dt.float32)

    def compute(self, dims: Array | None = None) -> Array:
        lens = self.shape.lens() if dims is None and self.shape is not None else whole(np.array(dims))
        if any(n < 0 for n in lens):
            raise ShapeError(f"extents must not be negative, got {lens}")
        require_memory(lens, 8)
        dtype = self._type() if dims is not None or self.shape is None else self.shape.dtype
        return np.zeros(lens, dtype.numpy)


@op("unknown")
class Unknown(Operation):
    """A placeholder for an op that a frontend skipped by option; it can be printed, but not run.

    xs: any -> the type of the first, or a float32 scalar.  Errors: UnsupportedError when run.  Source: MIGraphX
    unknown.
    """

    op: str

    def infer(self, *xs: AnyShape) -> AnyShape:
        return xs[0] if xs else Shape.of(dt.float32, ())

    def compute(self, *xs: Array) -> NoReturn:
        raise UnsupportedError(f"{self.op!r} was skipped when the model was read")
