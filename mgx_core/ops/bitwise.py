"""Elementwise operations on the bits of integers, and the reinterpretation of bits."""

from __future__ import annotations

import numpy as np

from ..errors import ShapeError
from ..types import dtype as dt
from ..types.argument import Array
from ..types.dtype import DType
from ..types.shape import Shape
from .declaration import op
from .elementwise import Pointwise
from .operation import Operation
from .scalar import call, x0, x1

__all__ = ["BitCast", "BitShiftLeft", "BitShiftRight", "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor"]


@op("bitwise_and", scalar=call("bitwise_and", x0, x1), accepts="biu")
class BitwiseAnd(Pointwise):
    """Bits set in both.  Source: ONNX BitwiseAnd-18."""


@op("bitwise_or", scalar=call("bitwise_or", x0, x1), accepts="biu")
class BitwiseOr(Pointwise):
    """Bits set in either.  Source: ONNX BitwiseOr-18."""


@op("bitwise_xor", scalar=call("bitwise_xor", x0, x1), accepts="biu")
class BitwiseXor(Pointwise):
    """Bits set in exactly one.  Source: ONNX BitwiseXor-18."""


@op("bitwise_not", scalar=call("bitwise_not", x0), accepts="biu")
class BitwiseNot(Pointwise):
    """Bits flipped.  Source: ONNX BitwiseNot-18."""


@op("bit_shift_left", scalar=call("shift_left", x0, x1), accepts="iu")
class BitShiftLeft(Pointwise):
    """x0 << x1; 0 for shift amounts outside the width.  Source: ONNX BitShift-28, LEFT."""


@op("bit_shift_right", scalar=call("shift_right", x0, x1), accepts="iu")
class BitShiftRight(Pointwise):
    """x0 >> x1, filled with the sign; 0 or -1 for shift amounts outside the width.  Source: ONNX BitShift-28, RIGHT."""


@op("bit_cast", exact=True)
class BitCast(Operation):
    """The same bits read as another type of the same width.

    x: any but string -> `target_type`, same dims.
    Errors: ShapeError if the widths differ.  Source: ONNX BitCast-26.
    """

    target_type: DType

    def infer(self, x: Shape) -> Shape:
        if "s" in (x.dtype.kind, self.target_type.kind) or x.dtype.bits != self.target_type.bits:
            raise ShapeError(f"the bits of {x.dtype} cannot be read as {self.target_type}")
        return x.with_dtype(self.target_type)

    def compute(self, x: Array) -> Array:
        to = self.target_type
        raw: Array = np.ascontiguousarray(x).reshape(x.shape)
        if to is dt.bool_:
            return np.asarray(raw.view(np.uint8) != 0)
        if to.bits < 8:  # host arrays hold the value in the low bits of a byte
            raw = raw.view(np.uint8) & np.uint8((1 << to.bits) - 1)
        return raw.view(to.numpy)
