"""Several narrow elements in one byte: packing and unpacking of 4-bit and other sub-byte values."""

from __future__ import annotations

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import ceil_div, compare
from ..types.dtype import DType, float4_e2m1fn, float8_e4m3fn, int4, int8, of, uint4, uint8
from ..types.shape import Shape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .quantized import saturated
from .scalar import convert, widen

__all__ = ["PackFp4", "PackInt4", "UnpackBits", "UnpackFp4", "UnpackInt4"]


def _halved(x: Shape, axis: int, dtype: DType) -> Shape:
    at = normalize(axis, x.rank)
    odd = x.dims[at] % 2
    if compare(odd, "==", 1):
        raise ShapeError(f"axis {at} must have an even extent to be packed in pairs, got {x.dims[at]}")
    return Shape.of(dtype, (ceil_div(d, 2) if i == at else d for i, d in enumerate(x.dims)))


def _doubled(x: Shape, axis: int, dtype: DType) -> Shape:
    at = normalize(axis, x.rank)
    return Shape.of(dtype, (d * 2 if i == at else d for i, d in enumerate(x.dims)))


def _pairs(nibbles: Array, axis: int) -> Array:
    """Packs pairs of 4-bit codes along an axis into bytes; the earlier one in the low half."""
    moved = np.moveaxis(nibbles.astype(np.uint8) & 15, axis, -1)
    if moved.shape[-1] % 2:
        raise ShapeError(f"axis {axis} must have an even extent to be packed in pairs, got {moved.shape[-1]}")
    return np.moveaxis(moved[..., 0::2] | (moved[..., 1::2] << 4), -1, axis)


def _nibbles(packed: Array, axis: int) -> Array:
    """Unpacks bytes along an axis into 4-bit codes; the low half first."""
    moved = np.moveaxis(packed.view(np.uint8), axis, -1)
    both = np.stack([moved & 15, moved >> 4], axis=-1).reshape(*moved.shape[:-1], 2 * moved.shape[-1])
    return np.ascontiguousarray(np.moveaxis(both, -1, axis))


@op("pack_int4", exact=True)
class PackInt4(Operation):
    """Packs pairs of 4-bit integers along an axis into bytes, the earlier one in the low half.

    x integer [.., 2n, ..] -> [.., n, ..], int8 for signed x, else uint8; of wider x the low 4 bits are kept.
    Errors: ShapeError for an odd extent.
    """

    axis: int = -1

    def infer(self, x: Shape) -> Shape:
        if x.dtype not in (int8, uint8, int4, uint4):
            raise ShapeError(f"x must be int4, uint4, int8 or uint8, got {x.dtype}")
        return _halved(x, self.axis, int8 if x.dtype.is_signed else uint8)

    def compute(self, x: Array) -> Array:
        packed = _pairs(widen(x), normalize(self.axis, x.ndim))
        return packed.view(np.int8) if of(x.dtype).is_signed else packed


@op("unpack_int4", exact=True)
class UnpackInt4(Operation):
    """Unpacks bytes into 4-bit integers, the low half first.

    x int8 or uint8 [.., n, ..] -> the same dtype [.., 2n, ..]; halves of int8 are sign-extended.
    Errors: ShapeError for other dtypes.
    """

    axis: int = -1

    def infer(self, x: Shape) -> Shape:
        if x.dtype not in (int8, uint8):
            raise ShapeError(f"x must be int8 or uint8, got {x.dtype}")
        return _doubled(x, self.axis, x.dtype)

    def compute(self, x: Array) -> Array:
        codes = _nibbles(x, normalize(self.axis, x.ndim))
        return codes if x.dtype == np.uint8 else ((codes ^ 8).astype(np.int8) - 8).astype(np.int8)


@op("pack_fp4", exact=True)
class PackFp4(Operation):
    """Rounds floats to float4_e2m1fn and packs pairs into bytes; the earlier one in the low half.

    x float [.., 2n, ..] -> uint8 [.., n, ..].  Errors: ShapeError for an odd extent.
    """

    axis: int = -1

    def infer(self, x: Shape) -> Shape:
        if not x.dtype.is_float:
            raise ShapeError(f"x must be a float, got {x.dtype}")
        return _halved(x, self.axis, uint8)

    def compute(self, x: Array) -> Array:
        codes = np.ascontiguousarray(saturated(widen(x), float4_e2m1fn)).view(np.uint8)
        return _pairs(codes, normalize(self.axis, x.ndim))


@op("unpack_fp4", exact=True)
class UnpackFp4(Operation):
    """Unpacks bytes into float4_e2m1fn values, the low half first, as a wider float.

    x uint8 [.., n, ..] -> out_type [.., 2n, ..].  Errors: ShapeError for other dtypes.
    """

    axis: int = -1
    out_type: DType = float8_e4m3fn

    def infer(self, x: Shape) -> Shape:
        if x.dtype is not uint8 or not self.out_type.is_float:
            raise ShapeError(f"x must be uint8 and out_type a float, got {x.dtype} and {self.out_type}")
        return _doubled(x, self.axis, self.out_type)

    def compute(self, x: Array) -> Array:
        codes = _nibbles(x, normalize(self.axis, x.ndim))
        return convert(codes.view(float4_e2m1fn.numpy), self.out_type)


@op("unpack_bits", exact=True)
class UnpackBits(Operation):
    """Unpacks bytes along the last axis into unsigned codes of `bits` bits, low bits first.

    x uint8 [.., n] -> uint8 [.., n * 8 / bits].  Errors: ParameterError unless bits is 1, 2, 4 or 8.
    """

    bits: int

    def check(self) -> None:
        if self.bits not in (1, 2, 4, 8):
            raise ParameterError(f"bits must be 1, 2, 4 or 8, got {self.bits}")

    def infer(self, x: Shape) -> Shape:
        if x.dtype is not uint8 or not x.rank:
            raise ShapeError(f"x must be uint8 with at least one axis, got {x}")
        return x.with_dims((*x.dims[:-1], x.dims[-1] * (8 // self.bits)))

    def compute(self, x: Array) -> Array:
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        codes: Array = (x[..., None] >> shifts) & np.uint8((1 << self.bits) - 1)
        return codes.reshape(*x.shape[:-1], -1) if x.size else codes.reshape(*x.shape[:-1], x.shape[-1] * len(shifts))
