"""Linear quantization and products of quantized tensors."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import ceil_div, may_equal
from ..types.dtype import DType, float8_e8m0fnu, float32, int32, int64, of, uint8
from ..types.shape import Shape
from .axes import normalize
from .broadcast import Broadcast, Multibroadcast
from .builder import Builder, Operand
from .convert import Convert
from .declaration import op
from .index import Gather
from .operation import Operation
from .pointwise import Add, Clip, Div, Mul, Nearbyint, Sub
from .reshape import Reshape
from .scalar import convert, widen
from .slice import Slice

__all__ = ["QUANTIZERS", "ByteMap", "Capture", "Dequantizelinear", "Quantizelinear", "saturated"]


def granularity(x: Shape, scale: Shape, axis: int, block_size: int) -> None:
    """Checks that a scale fits x: one value, one per index of `axis`, one per block along it, or dims that broadcast."""
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
    """Returns a scale or zero point with one value for each element of x, or dims that broadcast to x's."""
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


def spread_parts(b: Builder, v: Operand, x: Shape, axis: int, block_size: int, to: DType = float32) -> Operand:
    """Returns `spread` as instructions: a scale or zero point in another type with x's extents."""
    v = b.add(Convert(target_type=to), v)
    dims, rank = v.shape.dims, x.rank
    out: Operand
    if all(d == 1 for d in dims) and not (block_size and len(dims) == rank):
        out = b.add(Multibroadcast(out_lens=x.dims), b.add(Reshape(dims=()), v) if dims else v)
    elif len(dims) == 1 and not (block_size and rank == 1):
        out = b.add(Broadcast(axis=0 if rank == 1 else normalize(axis, rank), out_lens=x.dims), v)
    elif block_size:
        at = normalize(axis, rank)
        inner = (*dims[: at + 1], 1, *dims[at + 1 :])
        lens = (*x.dims[:at], dims[at], block_size, *x.dims[at + 1 :])
        repeated = b.add(Multibroadcast(out_lens=lens), b.add(Reshape(dims=inner), v))
        whole = b.add(Reshape(dims=(*x.dims[:at], dims[at] * block_size, *x.dims[at + 1 :])), repeated)
        out = b.add(Slice(axes=(at,), starts=(0,), ends=(x.dims[at],)), whole)
    else:
        out = b.add(Multibroadcast(out_lens=x.dims), v)
    return out


def saturated(wide: Array, to: DType, saturate: bool = True) -> Array:
    """Converts floats to `to`: to integers, rounds to even and clips; to floats, clips to the finite range if `saturate`."""
    if to.is_integer:
        if to.bits > 16:
            wide = wide.astype(np.float64)
        rounded: Array = np.clip(
            np.nan_to_num(np.rint(wide), nan=0.0, posinf=np.inf, neginf=-np.inf), to.lowest, to.highest
        )
        return rounded.astype(np.int8 if to.bits < 8 and to.kind == "i" else to.accumulate).astype(to.numpy)
    if to.bits < 8 or (to.bits == 8 and saturate):  # the narrowest floats have no infinity
        wide = np.clip(wide, to.lowest, to.highest)
    return convert(wide, to)


@op("quantizelinear")
class Quantizelinear(Operation):
    """Quantizes: saturate(round(x / scale) + zero_point).

    x [*d]; scale and zero_point: a scalar, [d_axis], [.., ceil(d_axis / block_size), ..] or dims that broadcast to x's.
    out_type: the result's dtype, else the zero point's, else uint8; saturate: for 8-bit floats, clip instead of
    overflowing; precision: dtype of the quotient, else the scale's.  NaN becomes the integer 0 (in onnxruntime the lowest; ONNX
    leaves it open).
    Errors: ShapeError for a scale that does not fit, dtypes that cannot be quantized.  Source: ONNX QuantizeLinear-28.
    """

    axis: int = 1
    block_size: int = 0
    out_type: DType | None = None
    saturate: bool = True
    precision: DType | None = None

    def target(self, zero_point: DType | None) -> DType:
        """Returns the result's dtype."""
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
        if precision.bits == 64:
            quotient: Array = x.astype(np.float64) / wide.astype(np.float64)
        else:
            quotient = widen((widen(x).astype(np.float32) / wide.astype(np.float32)).astype(precision.numpy))
        if to.is_integer:
            quotient = np.rint(quotient)
        if zero_point is not None:
            zero = widen(spread(zero_point, x, self.axis, self.block_size))
            sums = np.float64 if to.bits > 16 else quotient.dtype
            quotient = quotient.astype(sums) + zero.astype(sums)
        return saturated(quotient, to, self.saturate)

    def decompose(self, b: Builder, x: Operand, scale: Operand, zero_point: Operand | None = None) -> Any:
        to = self.target(None if zero_point is None else zero_point.shape.dtype)
        precision = self.precision or scale.shape.dtype
        if precision is not float32 or to.bits > 16 or (to.is_float and to.bits > 8):
            return None
        wide = b.add(Convert(target_type=float32), x)
        out = b.add(Div(), wide, spread_parts(b, scale, x.shape, self.axis, self.block_size))
        if to.is_integer:
            out = b.add(Nearbyint(), out)
        if zero_point is not None:
            out = b.add(Add(), out, spread_parts(b, zero_point, x.shape, self.axis, self.block_size))
        if to.is_integer or self.saturate:
            low, high = (b.literal(np.array(v, np.float32)) for v in (to.lowest, to.highest))
            low, high = (b.add(Multibroadcast(out_lens=x.shape.dims), v) for v in (low, high))
            out = b.add(Clip(), out, low, high)
        return b.add(Convert(target_type=to, saturate=to.is_integer or self.saturate), out)


@op("dequantizelinear", widens=True)
class Dequantizelinear(Operation):
    """Dequantizes: (x - zero_point) * scale.

    x [*d]; scale and zero_point: a scalar, [d_axis], [.., ceil(d_axis / block_size), ..] or dims that broadcast to x's.
    out_type: the result's dtype, else the scale's (float32 for float8_e8m0fnu).
    Errors: ShapeError for a scale that does not fit.  Source: ONNX DequantizeLinear-28.
    """

    axis: int = 1
    block_size: int = 0
    out_type: DType | None = None

    def target(self, scale: DType) -> DType:
        """Returns the result's dtype."""
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
        return convert(wide.astype(to.accumulate) * factor.astype(to.accumulate), to)

    def decompose(self, b: Builder, x: Operand, scale: Operand, zero_point: Operand | None = None) -> Any:
        to = self.target(scale.shape.dtype)
        if to.bits > 32:
            return None
        # float32 represents 16-bit differences exactly; wider integers are subtracted before rounding
        exact = zero_point is not None and x.shape.dtype.is_integer and x.shape.dtype.bits > 16
        wide = b.add(Convert(target_type=int64 if exact else float32), x)
        if zero_point is not None:
            zero = spread_parts(b, zero_point, x.shape, self.axis, self.block_size, wide.shape.dtype)
            wide = b.add(Sub(), wide, zero)
        wide = b.add(Convert(target_type=float32), wide) if exact else wide
        out = b.add(Mul(), wide, spread_parts(b, scale, x.shape, self.axis, self.block_size))
        return b.add(Convert(target_type=to), out)


QUANTIZERS: Final = frozenset({Quantizelinear, Dequantizelinear})


@op("byte_map", exact=True)
class ByteMap(Operation):
    """Looks up bytes in a table: table[x - lowest], where lowest is the minimum of x's type.

    x: int8 or uint8 [*d]; table: [256] of an integer of 8 bits -> [*d] of the table's dtype.
    Errors: ShapeError for other dtypes or another table.
    """

    def infer(self, x: Shape, table: Shape) -> Shape:
        for name, given in (("x", x), ("table", table)):
            if not given.dtype.is_integer or given.dtype.bits != 8:
                raise ShapeError(f"{name} must be of an integer type of 8 bits, got {given}")
        if table.rank != 1 or not may_equal(table.dims[0], 256):
            raise ShapeError(f"the table must have 256 numbers, got {table}")
        return x.with_dtype(table.dtype)

    def compute(self, x: Array, table: Array) -> Array:
        return np.asarray(table[x.astype(np.int64) - int(of(x.dtype).lowest)])

    def decompose(self, b: Builder, x: Operand, table: Operand) -> Any:
        place = b.add(Convert(target_type=int32), x)
        if x.shape.dtype is not uint8:
            low = b.literal(np.array(x.shape.dtype.lowest, np.int32))
            place = b.add(Sub(), place, b.add(Multibroadcast(out_lens=x.shape.dims), low))
        return b.add(Gather(axis=0), table, place)


def _same(scale: Shape, zero_point: Shape | None) -> None:
    if zero_point is None or not zero_point.ranked:
        return
    one = zero_point.rank <= 1 and scale.rank <= 1 and all(d == 1 for d in (*scale.dims, *zero_point.dims))
    fits = zero_point.rank == scale.rank and all(map(may_equal, scale.dims, zero_point.dims))
    if not (one or fits):
        raise ShapeError(f"zero_point must have scale's dims {list(scale.dims)}, got {list(zero_point.dims)}")


@op("capture", exact=True)
class Capture(Operation):
    """Returns its input; calibration observes the tensor here.

    ins_index: the index of the observation.
    """

    ins_index: int = 0

    def infer(self, x: Shape) -> Shape:
        return x.as_standard()

    def compute(self, x: Array) -> Any:
        return x
