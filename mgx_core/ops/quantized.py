"""Linear quantisation and products of quantised tensors."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..argument import Array
from ..dim import Dim, broadcast, ceil_div, may_equal
from ..dtype import DType, float4_e2m1fn, float8_e8m0fnu, float32, int32, of, uint8
from ..errors import ShapeError
from ..operation import Operation, op
from ..scalar import convert, widen
from ..shape import Shape
from .axes import normalize
from .convolution import convolve, spatial
from .window import explicit_padding, extent, per_axis, sides

__all__ = ["Capture", "Dequantizelinear", "QuantConvolution", "QuantDot", "Quantizelinear", "saturated"]


def granularity(x: Shape, scale: Shape, axis: int, block_size: int) -> None:
    """Check that a scale fits x: one value, one an index of `axis`, one a block along it, or dims that broadcast."""
    if block_size < 0:
        raise ShapeError(f"block_size must be at least 0, got {block_size}")
    if scale.rank == 0 or (scale.rank == 1 and scale.dims[0] == 1 and not block_size):
        return
    if scale.rank == 1 and not (block_size and x.rank == 1):
        if block_size:
            raise ShapeError(f"blocks of {block_size} need a scale of rank {x.rank}, got {scale}")
        if x.rank == 1 and may_equal(scale.dims[0], x.dims[0]):
            return
        at = normalize(axis, x.rank)
        if not may_equal(scale.dims[0], x.dims[at]):
            raise ShapeError(f"a scale of {scale.dims[0]} values does not fit axis {at} of {x}")
        return
    if scale.rank != x.rank:
        raise ShapeError(f"scale must be a scalar, a vector or of rank {x.rank}, got {scale}")
    at = normalize(axis, x.rank) if block_size else -1
    for i, (n, s) in enumerate(zip(x.dims, scale.dims, strict=True)):
        if not may_equal(s, ceil_div(n, block_size) if i == at else n) and not (may_equal(s, 1) and i != at):
            wanted = f"{n} in blocks of {block_size}" if i == at else f"{n}"
            raise ShapeError(f"scale has extent {s} on axis {i}, required is {wanted}")


def spread(scale: Array, x: Array, axis: int, block_size: int) -> Array:
    """A scale or zero point with one value for each element of x, or dims that broadcast to x's."""
    if scale.size == 1 and not (block_size and scale.ndim == x.ndim):
        return scale.reshape((1,) * x.ndim)
    if scale.ndim == 1 and not (block_size and x.ndim == 1):
        at = 0 if x.ndim == 1 else normalize(axis, x.ndim)
        return scale.reshape([-1 if i == at else 1 for i in range(x.ndim)])
    if block_size and x.ndim:
        at = normalize(axis, x.ndim)
        repeated = np.repeat(scale, block_size, axis=at)
        return repeated[(slice(None),) * at + (slice(0, x.shape[at]),)]
    return scale


def saturated(wide: Array, to: DType, saturate: bool = True) -> Array:
    """Float values as `to`: integers rounded to even and clipped; floats clipped to the finite range if `saturate`."""
    if to.is_integer:
        if to.bits > 16:
            wide = wide.astype(np.float64)
        rounded: Array = np.clip(
            np.nan_to_num(np.rint(wide), nan=0.0, posinf=np.inf, neginf=-np.inf), to.lowest, to.highest
        )
        return rounded.astype(np.int8 if to.bits < 8 and to.kind == "i" else to.accumulate).astype(to.numpy)
    if to.bits <= 8 and (saturate or to is float4_e2m1fn):
        wide = np.clip(wide, to.lowest, to.highest)
    return convert(wide, to)


@op("quantizelinear")
class Quantizelinear(Operation):
    """Narrow values from wide ones: saturate(round(x / scale) + zero_point).

    x [*d]; scale and zero_point: a scalar, [d_axis], [.., ceil(d_axis / block_size), ..] or dims that broadcast to x's.
    out_type: the result's dtype, else the zero point's, else uint8; saturate: for 8-bit floats, clip instead of
    overflowing; precision: dtype of the quotient, else the scale's.
    Errors: ShapeError for a scale that does not fit, dtypes that cannot be quantised.  Source: ONNX QuantizeLinear-28.
    """

    axis: int = 1
    block_size: int = 0
    out_type: DType | None = None
    saturate: bool = True
    precision: DType | None = None

    def target(self, zero_point: DType | None) -> DType:
        """The result's dtype."""
        if self.out_type is not None:
            return self.out_type
        return uint8 if zero_point is None else zero_point

    def infer(self, x: Shape, scale: Shape, zero_point: Shape | None = None) -> Shape:
        if not (x.dtype.is_float or x.dtype is int32) or not (scale.dtype.is_float or scale.dtype is int32):
            raise ShapeError(f"x and scale must be floats or int32, got {x.dtype} and {scale.dtype}")
        to = self.target(None if zero_point is None else zero_point.dtype)
        if not (to.is_integer or to.is_float):
            raise ShapeError(f"the result must be an integer or a float, got {to}")
        if not (x.ranked and scale.ranked):
            return x.with_dtype(to)
        granularity(x, scale, self.axis, self.block_size)
        _same(scale, zero_point)
        return Shape.of(to, x.dims)

    def compute(self, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
        to = self.target(None if zero_point is None else of(zero_point.dtype))
        precision = self.precision or of(scale.dtype)
        if not precision.is_float or precision is float8_e8m0fnu:
            precision = float32
        wide = widen(spread(scale, x, self.axis, self.block_size))
        with np.errstate(all="ignore"):
            if precision.bits == 64:
                quotient: Array = x.astype(np.float64) / wide.astype(np.float64)
            else:
                quotient = widen((widen(x).astype(np.float32) / wide.astype(np.float32)).astype(precision.numpy))
            if to.is_integer:
                quotient = np.rint(quotient)
            if zero_point is not None:
                zero = widen(spread(zero_point, x, self.axis, self.block_size))
                quotient = quotient.astype(np.float64 if to.bits > 16 else quotient.dtype) + zero.astype(quotient.dtype)
            return saturated(quotient, to, self.saturate)


@op("dequantizelinear")
class Dequantizelinear(Operation):
    """Wide values from narrow ones: (x - zero_point) * scale.

    x [*d]; scale and zero_point: a scalar, [d_axis], [.., ceil(d_axis / block_size), ..] or dims that broadcast to x's.
    out_type: the result's dtype, else the scale's (float32 for float8_e8m0fnu).
    Errors: ShapeError for a scale that does not fit.  Source: ONNX DequantizeLinear-28.
    """

    axis: int = 1
    block_size: int = 0
    out_type: DType | None = None

    def target(self, scale: DType) -> DType:
        """The result's dtype."""
        return self.out_type or (float32 if scale is float8_e8m0fnu else scale)

    def infer(self, x: Shape, scale: Shape, zero_point: Shape | None = None) -> Shape:
        if not x.dtype.is_number or x.dtype.kind == "c" or not scale.dtype.is_float:
            raise ShapeError(f"x must be an integer or float and scale a float, got {x.dtype} and {scale.dtype}")
        to = self.target(scale.dtype)
        if not to.is_float:
            raise ShapeError(f"the result must be a float, got {to}")
        if not (x.ranked and scale.ranked):
            return x.with_dtype(to)
        granularity(x, scale, self.axis, self.block_size)
        _same(scale, zero_point)
        if zero_point is not None and zero_point.dtype is not x.dtype:
            raise ShapeError(f"zero_point must have x's dtype {x.dtype}, got {zero_point.dtype}")
        return Shape.of(to, x.dims)

    def compute(self, x: Array, scale: Array, zero_point: Array | None = None) -> Array:
        to = self.target(of(scale.dtype))
        wide: Array = widen(x)
        if zero_point is not None:
            zero = widen(spread(zero_point, x, self.axis, self.block_size))
            if wide.dtype.kind in "iu":
                wide = wide.astype(np.int64) - zero.astype(np.int64)
            else:
                wide = wide - zero
        factor = widen(spread(scale, x, self.axis, self.block_size))
        with np.errstate(all="ignore"):
            return convert(wide.astype(to.accumulate) * factor.astype(to.accumulate), to)


def _same(scale: Shape, zero_point: Shape | None) -> None:
    if zero_point is None or not zero_point.ranked:
        return
    one = zero_point.rank <= 1 and scale.rank <= 1 and all(d == 1 for d in (*scale.dims, *zero_point.dims))
    fits = zero_point.rank == scale.rank and all(map(may_equal, scale.dims, zero_point.dims))
    if not (one or fits):
        raise ShapeError(f"zero_point must have scale's dims {list(scale.dims)}, got {list(zero_point.dims)}")


def _product_type(a: DType, b: DType) -> DType:
    if a.is_integer and b.is_integer and a.bits <= 8 and b.bits <= 8:
        return int32
    if a.is_float and b.is_float and a.bits <= 8 and b.bits <= 8:
        return float32
    raise ShapeError(f"operands must be integers of at most 8 bits or floats of at most 8 bits, got {a} and {b}")


def _zero(zero_point: Shape | None, x: Shape, name: str) -> None:
    if zero_point is not None and zero_point.dtype is not x.dtype:
        raise ShapeError(f"{name} must have the dtype {x.dtype} of its operand, got {zero_point.dtype}")


def _shifted(x: Array, zero_point: Array | None) -> Array:
    wide = widen(x).astype(np.float64)
    return wide if zero_point is None else wide - widen(zero_point).astype(np.float64)


def _product(wide: Array, to: DType) -> Array:
    """Exact sums in float64 as the result: int32 wraps around."""
    return wide.astype(np.int64).astype(np.int32) if to is int32 else wide.astype(np.float32)


@op("quant_dot")
class QuantDot(Operation):
    """Matrix product of narrow operands less their zero points, with a wide result.

    a [.., m, k], b [.., k, n] of at most 8 bits -> int32 (integers) or float32 (floats) [.., m, n]; batch dims
    broadcast.  a_zero_point: a scalar or [.., m, 1]; b_zero_point: a scalar or [.., 1, n] (or dims that broadcast).
    Errors: ShapeError for ranks under 2, inner extents that differ, other dtypes.  Source: ONNX MatMulInteger-10.
    """

    def infer(self, a: Shape, b: Shape, a_zero_point: Shape | None = None, b_zero_point: Shape | None = None) -> Shape:
        to = _product_type(a.dtype, b.dtype)
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
        to = _product_type(of(a.dtype), of(b.dtype))
        return _product(np.matmul(_shifted(a, a_zero_point), _shifted(b, b_zero_point)), to)


def _fits_in(zero: Shape, x: Shape) -> None:
    if zero.rank > x.rank:
        raise ShapeError(f"a zero point of dims {list(zero.dims)} does not broadcast to {list(x.dims)}")
    for n, d in zip(x.dims[x.rank - zero.rank :], zero.dims, strict=True):
        if not may_equal(d, 1) and not may_equal(d, n):
            raise ShapeError(f"a zero point of dims {list(zero.dims)} does not broadcast to {list(x.dims)}")


@op("quant_convolution")
class QuantConvolution(Operation):
    """Convolution of narrow operands less their zero points, with a wide result; padding counts as the zero point.

    x [n, c, *s], w [m, c/group, *k] of at most 8 bits -> int32 (integers) or float32 (floats) [n, m, *o].
    x_zero_point: a scalar; w_zero_point: a scalar or [m].  Attributes as of `convolution`.
    Errors: ShapeError if ranks, channels, dtypes or attributes do not fit.  Source: ONNX ConvInteger-10.
    """

    padding: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    dilation: tuple[int, ...] = ()
    group: int = 1
    padding_mode: Literal["default", "same_lower", "same_upper"] = "default"

    def infer(self, x: Shape, w: Shape, x_zero_point: Shape | None = None, w_zero_point: Shape | None = None) -> Shape:
        to = _product_type(x.dtype, w.dtype)
        _zero(x_zero_point, x, "x_zero_point")
        _zero(w_zero_point, w, "w_zero_point")
        rank = spatial(x, w.with_dtype(x.dtype), self.group, w.dims[1] * self.group)
        if x_zero_point is not None and any(d != 1 for d in x_zero_point.dims):
            raise ShapeError(f"x_zero_point must be one value, got {x_zero_point}")
        if w_zero_point is not None and not _one_a_kernel(w_zero_point, w.dims[0]):
            raise ShapeError(f"w_zero_point must be one value or one a kernel ({w.dims[0]}), got {w_zero_point}")
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        begins, ends = sides(self.padding, rank)
        out: list[Dim] = []
        for n, k, s, d, b, e in zip(x.dims[2:], w.dims[2:], stride, dilation, begins, ends, strict=True):
            out.append(ceil_div(n, s) if self.padding_mode != "default" else extent(n, k, s, d, b + e))
        return Shape.of(to, (x.dims[0], w.dims[0], *out))

    def compute(
        self, x: Array, w: Array, x_zero_point: Array | None = None, w_zero_point: Array | None = None
    ) -> Array:
        to = _product_type(of(x.dtype), of(w.dtype))
        rank = x.ndim - 2
        if x_zero_point is not None:
            x_zero_point = x_zero_point.reshape(())
        if w_zero_point is not None and w_zero_point.size != 1:
            w_zero_point = w_zero_point.reshape(-1, *(1,) * (w.ndim - 1))
        elif w_zero_point is not None:
            w_zero_point = w_zero_point.reshape(())
        stride, dilation = per_axis(self.stride, rank, "stride"), per_axis(self.dilation, rank, "dilation")
        begins, ends = explicit_padding(x.shape[2:], w.shape[2:], stride, dilation, self.padding, self.padding_mode)
        wide = convolve(
            _shifted(x, x_zero_point), _shifted(w, w_zero_point), stride, (*begins, *ends), dilation, self.group
        )
        return _product(wide, to)


def _one_a_kernel(zero_point: Shape, kernels: Dim) -> bool:
    return all(d == 1 for d in zero_point.dims) or (zero_point.rank == 1 and may_equal(zero_point.dims[0], kernels))


@op("capture")
class Capture(Operation):
    """Its input unchanged: the place where calibration looks at a tensor.

    ins_index: which observation this is.
    """

    ins_index: int = 0

    def infer(self, x: Shape) -> Shape:
        return x.as_standard()

    def compute(self, x: Array) -> Any:
        return x
