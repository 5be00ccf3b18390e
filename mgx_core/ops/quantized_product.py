"""Products of quantized tensors: matrix products and convolutions of narrow operands with wide results."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, broadcast, may_equal
from ..types.dtype import DType, bfloat16, float16, float32, int32, of
from ..types.shape import Shape
from .broadcast import Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .convolution import Windowed, convolve
from .declaration import op
from .operation import Operation
from .pointwise import Add, Mul, Sub
from .reduce import ReduceSum
from .scalar import widen

__all__ = ["QuantConvolution", "QuantDot"]


def _product_type(a: DType, b: DType) -> DType:
    """Returns the type of sums of products.  Errors: ShapeError for operands that are not narrow."""
    if a.is_integer and b.is_integer and a.bits <= 8 and b.bits <= 8:
        return int32
    if a.is_float and b.is_float and a.bits <= 8 and b.bits <= 8:
        return float32
    raise ShapeError(f"operands must be integers of at most 8 bits or floats of at most 8 bits, got {a} and {b}")


def _dot_type(a: DType, b: DType) -> DType:
    return float32 if a is b and a in (float16, bfloat16) else _product_type(a, b)


def _zero(zero_point: Shape | None, x: Shape, name: str) -> None:
    if zero_point is not None and zero_point.dtype is not x.dtype:
        raise ShapeError(f"{name} must have the dtype {x.dtype} of its operand, got {zero_point.dtype}")


def _shifted(x: Array, zero_point: Array | None) -> Array:
    wide = widen(x).astype(np.float64)
    if zero_point is None:
        return wide
    moved = wide - widen(zero_point).astype(np.float64)
    if moved.shape != x.shape:
        raise ShapeError(f"a zero point of dims {list(zero_point.shape)} does not broadcast to {list(x.shape)}")
    return np.asarray(moved)


def _product(wide: Array, to: DType) -> Array:
    """Converts exact float64 sums to the result type; int32 wraps around."""
    return wide.astype(np.int64).astype(np.int32) if to is int32 else wide.astype(np.float32)


@op("quant_dot", product="matrix", linear=(0, 1))
class QuantDot(Operation):
    """Matrix product of narrow operands minus their zero points, with a wide result.

    a [.., m, k], b [.., k, n] of at most 8 bits, or both float16 or bfloat16 -> int32 (integers) or float32 (floats)
    [.., m, n]; batch dims broadcast.  a_zero_point: a scalar or [.., m, 1]; b_zero_point: a scalar or [.., 1, n] (or dims that
    broadcast).
    Errors: ShapeError for ranks under 2, inner extents that differ, other dtypes.  Source: ONNX MatMulInteger-10.
    """

    def infer(self, a: Shape, b: Shape, a_zero_point: Shape | None = None, b_zero_point: Shape | None = None) -> Shape:
        to = _dot_type(a.dtype, b.dtype)
        _zero(a_zero_point, a, "a_zero_point")
        _zero(b_zero_point, b, "b_zero_point")
        if a.rank < 2 or b.rank < 2:
            raise ShapeError(f"operands need a rank of at least 2, got {a} and {b}")
        if not may_equal(a.dims[-1], b.dims[-2]):
            raise ShapeError(f"inner extents must be equal, got {a.dims[-1]} and {b.dims[-2]}")
        for zero, x in ((a_zero_point, a), (b_zero_point, b)):
            if zero is not None:
                _fits_in(zero, x)
        rank = max(a.rank, b.rank) - 2
        left = (1,) * (rank - a.rank + 2) + a.dims[:-2]
        right = (1,) * (rank - b.rank + 2) + b.dims[:-2]
        return Shape.of(to, (*(broadcast(p, q) for p, q in zip(left, right, strict=True)), a.dims[-2], b.dims[-1]))

    def compute(
        self, a: Array, b: Array, a_zero_point: Array | None = None, b_zero_point: Array | None = None
    ) -> Array:
        to = _dot_type(of(a.dtype), of(b.dtype))
        return _product(np.matmul(_shifted(a, a_zero_point), _shifted(b, b_zero_point)), to)

    def decompose(
        self,
        b: Builder,
        left: Operand,
        right: Operand,
        a_zero_point: Operand | None = None,
        b_zero_point: Operand | None = None,
    ) -> Operand | None:
        """Decomposes into the product without zero points and correction terms: (a - p)(b - q) = a b - p 1 b - a 1 q + k p q."""
        if (a_zero_point is None and b_zero_point is None) or left.shape.dtype.is_float:
            return None
        if (a_zero_point is not None and a_zero_point.shape.rank and a_zero_point.shape.dims[-1] != 1) or (
            b_zero_point is not None and b_zero_point.shape.rank > 1 and b_zero_point.shape.dims[-2] != 1
        ):
            return None  # the identity does not hold for zero points that vary along the inner axis
        out: Operand = b.add(QuantDot(), left, right)
        dims, depth = out.shape.dims, left.shape.dims[-1]

        def wide(x: Operand) -> Operand:
            made: Operand = b.add(Multibroadcast(out_lens=dims), b.add(Convert(target_type=int32), x))
            return made

        def summed(x: Operand, axis: int) -> Operand:
            made: Operand = b.add(ReduceSum(axes=(x.shape.rank + axis,)), b.add(Convert(target_type=int32), x))
            return b.add(Multibroadcast(out_lens=dims), made)

        if a_zero_point is not None:
            out = b.add(Sub(), out, b.add(Mul(), wide(a_zero_point), summed(right, -2)))
        if b_zero_point is not None:
            out = b.add(Sub(), out, b.add(Mul(), summed(left, -1), wide(b_zero_point)))
        if a_zero_point is not None and b_zero_point is not None:
            k = b.add(Multibroadcast(out_lens=dims), b.literal(np.array(int(depth), np.int32)))
            out = b.add(Add(), out, b.add(Mul(), k, b.add(Mul(), wide(a_zero_point), wide(b_zero_point))))
        return out


def _fits_in(zero: Shape, x: Shape) -> None:
    if zero.rank > x.rank:
        raise ShapeError(f"a zero point of dims {list(zero.dims)} does not broadcast to {list(x.dims)}")
    for n, d in zip(x.dims[x.rank - zero.rank :], zero.dims, strict=True):
        if not may_equal(d, 1) and not may_equal(d, n):
            raise ShapeError(f"a zero point of dims {list(zero.dims)} does not broadcast to {list(x.dims)}")


@op("quant_convolution", product="window", linear=(0, 1))
class QuantConvolution(Windowed):
    """Convolution of narrow operands minus their zero points, with a wide result; padding is the zero point.

    x [n, c, *s], w [m, c/group, *k] of at most 8 bits -> int32 (integers) or float32 (floats) [n, m, *o].
    x_zero_point: a scalar; w_zero_point: a scalar or [m].  Attributes as of `convolution`: empty
    `padding` is 0 on every side, empty `stride` and `dilation` are 1 on every axis.
    Errors: ShapeError if ranks, channels, dtypes or attributes do not fit.  Source: ONNX ConvInteger-10.
    """

    def infer(self, x: Shape, w: Shape, x_zero_point: Shape | None = None, w_zero_point: Shape | None = None) -> Shape:
        to = _product_type(x.dtype, w.dtype)
        _zero(x_zero_point, x, "x_zero_point")
        _zero(w_zero_point, w, "w_zero_point")
        out = self.convolved(x, w.with_dtype(x.dtype))
        if x_zero_point is not None and any(d != 1 for d in x_zero_point.dims):
            raise ShapeError(f"x_zero_point must be one value, got {x_zero_point}")
        if w_zero_point is not None and not _one_a_kernel(w_zero_point, w.dims[0]):
            raise ShapeError(f"w_zero_point must be one value or one per filter ({w.dims[0]}), got {w_zero_point}")
        return Shape.of(to, (x.dims[0], w.dims[0], *out))

    def compute(
        self, x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None
    ) -> Array:
        to = _product_type(of(x.dtype), of(w.dtype))
        if not x.size:
            return self.empty_result(x, w.astype(x.dtype), to)
        if x_zero_point is not None:
            x_zero_point = x_zero_point.reshape(())
        if w_zero_point is not None and w_zero_point.size != 1:
            if w_zero_point.size != len(w):
                raise ShapeError(
                    f"w_zero_point must be one value or one per filter ({len(w)}), got {w_zero_point.size}"
                )
            w_zero_point = w_zero_point.reshape(-1, *(1,) * (w.ndim - 1))
        elif w_zero_point is not None:
            w_zero_point = w_zero_point.reshape(())
        stride, dilation, begins, ends = self.sliding(x.shape[2:], w.shape[2:])
        wide = convolve(
            _shifted(x, x_zero_point), _shifted(w, w_zero_point), stride, (*begins, *ends), dilation, self.group
        )
        return _product(wide, to)


def _one_a_kernel(zero_point: Shape, kernels: Dim) -> bool:
    return all(d == 1 for d in zero_point.dims) or (zero_point.rank == 1 and may_equal(zero_point.dims[0], kernels))
