"""Products with quantized, packed weights (weight-only quantization)."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types.argument import Array
from ..types.dim import Dim, ceil_div, compare, may_equal
from ..types.dtype import of, uint8
from ..types.shape import Shape
from .builder import Builder, Operand
from .convert import Convert
from .declaration import op
from .linear import Dot
from .movement import Transpose
from .operation import Operation
from .packing import UnpackInt4
from .quantized import Dequantizelinear
from .reshape import Reshape
from .scalar import convert, widen
from .slice import Slice

__all__ = ["DequantDot"]


@op("dequant_dot")
class DequantDot(Operation):
    """Multiplies by the transpose of a matrix of unsigned codes, each of which represents (code - zero_point) * scale.

    a float [.., m, k]; codes uint8 [n, bytes], rows of at least k codes, of 4 bits two in a byte with the earlier one in the low
    half; scale float and zero_point uint8 [n, ceil(k / block_size)]; without zero_point it is half the range of the codes.
    activation_bits: 8 allows a target to quantize each block of a to int8, symmetrically.
    Result [.., m, n] of a's dtype.  Errors: ShapeError for other ranks, dtypes or extents.  Source: com.microsoft MatMulNBits-1.
    """

    bits: Literal[4, 8] = 4
    block_size: int = 32
    activation_bits: Literal[0, 8] = 0

    def check(self) -> None:
        if self.block_size < 1 or (self.bits == 4 and self.block_size % 2):
            raise ParameterError(f"block_size must be positive, and even for 4 bits, got {self.block_size}")

    def infer(self, a: Shape, codes: Shape, scale: Shape, zero_point: Shape | None = None) -> Shape:
        if a.rank < 2 or not a.dtype.is_float or not scale.dtype.is_float:
            raise ShapeError(f"a must be a float of rank 2 or more and scale a float, got {a} and {scale}")
        if codes.dtype is not uint8 or codes.rank != 2:
            raise ShapeError(f"codes must be uint8 [n, bytes], got {codes}")
        n, k = codes.dims[0], a.dims[-1]
        needed = ceil_div(k * self.bits, 8)
        if compare(codes.dims[1], "<", needed):
            raise ShapeError(f"rows of {k} codes of {self.bits} bits take {needed} bytes, got {codes}")
        for given in (scale, zero_point):
            if given is None:
                continue
            if given.rank != 2 or not may_equal(given.dims[0], n) or not may_equal(given.dims[1], self.blocks(k)):
                raise ShapeError(f"scale and zero_point must be [{n}, {self.blocks(k)}], got {given}")
        if zero_point is not None and zero_point.dtype is not uint8:
            raise ShapeError(f"zero_point must be uint8, got {zero_point}")
        return a.with_dims((*a.dims[:-1], n))

    def blocks(self, k: Any) -> Any:
        """Returns the number of blocks in a row of k codes."""
        return ceil_div(k, self.block_size)

    def compute(self, a: Array, codes: Array, scale: Array, zero_point: Array | None = None) -> Array:
        k = a.shape[-1]
        whole = codes if self.bits == 8 else UnpackInt4(axis=1).compute(codes)
        points = np.full(scale.shape, 1 << (self.bits - 1), np.uint8) if zero_point is None else zero_point
        form = Dequantizelinear(axis=1, block_size=self.block_size)
        weights = form.compute(np.ascontiguousarray(whole[:, :k]), widen(scale).astype(np.float32), points)
        return convert(np.asarray(np.matmul(widen(a), widen(weights).T)), of(a.dtype))

    def decompose(
        self, b: Builder, a: Operand, codes: Operand, scale: Operand, zero_point: Operand | None = None
    ) -> Operand | None:
        k = a.shape.dims[-1]
        if not isinstance(k, int):
            return None
        whole = codes if self.bits == 8 else b.add(UnpackInt4(axis=1), codes)
        whole = b.add(Slice(axes=(1,), starts=(0,), ends=(k,)), whole)
        if zero_point is None:
            zero_point = b.literal(np.full([int(d) for d in scale.shape.dims], 1 << (self.bits - 1), np.uint8))
        weights = b.add(Dequantizelinear(axis=1, block_size=self.block_size), whole, scale, zero_point)
        if weights.shape.dtype is not a.shape.dtype:
            weights = b.add(Convert(target_type=a.shape.dtype), weights)
        right = b.add(Transpose(permutation=(1, 0)), weights)
        rows: Dim = 1
        for d in a.shape.dims[:-1]:
            rows = rows * d
        flat = a if a.shape.rank == 2 else b.add(Reshape(dims=(rows, k)), a)
        out = b.add(Dot(), flat, right)
        return out if a.shape.rank == 2 else b.add(Reshape(dims=(*a.shape.dims[:-1], codes.shape.dims[0])), out)
