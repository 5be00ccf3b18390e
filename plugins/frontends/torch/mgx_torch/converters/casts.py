"""Conversions between element types."""

from __future__ import annotations

from typing import Any, Final

from mgx_core import DType, Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node, Scalar
from ..weights import only_in_products

__all__ = ["cast"]

# types in which torch overflows to infinity or NaN; float8_e4m3fn saturates
OVERFLOWING: Final = (dt.float8_e4m3fnuz, dt.float8_e5m2, dt.float8_e5m2fnuz)


def cast(n: Node, x: Instruction, dtype: DType) -> Instruction:
    """Returns x converted as in torch; for bool, nonzero is true."""
    if dtype is dt.bool_ and x.shape.dtype is not dt.bool_:
        return n.add("not_equal", x, n.full_like(x, 0))
    if dtype is dt.float8_e8m0fnu and x.shape.dtype is not dtype:
        return _power_of_two(n, n.convert(x, dt.float32))
    if dtype in OVERFLOWING and x.shape.dtype is not dtype:
        return n.add("convert", x, target_type=dtype, saturate=False)
    return n.convert(x, dtype)


def _power_of_two(n: Node, x: Instruction) -> Instruction:
    """Returns the nearest power of two of |x|: the smallest for zero, NaN above the largest."""
    size = n.add("abs", x)
    least, normal = (n.full_like(x, 2.0**p) for p in (-127, -126))  # between these two torch rounds up
    small = n.add("where", n.add("greater", size, least), normal, least)
    known = n.add("where", n.add("less", size, normal), small, size)
    return n.add("convert", known, target_type=dt.float8_e8m0fnu, saturate=False, round_mode="nearest")


@converts("_to_copy", "to", "type_as")
def to(n: Node, x: Scalar, *_: Any) -> Instruction:
    x = n.tensor(x)  # torch.vmap converts numbers
    if x.shape.dtype in (dt.int8, dt.uint8) and n.dtype is dt.float32 and only_in_products(n.fx):
        # bytes, which matrix products with few rows read directly
        return n.add("dequantizelinear", x, n.literal(1, dt.float32))
    return cast(n, x, n.dtype)


@converts("convert_element_type", domain="prims")
def convert_element_type(n: Node, x: Scalar, _dtype: Any = None) -> Instruction:
    return cast(n, n.tensor(x), n.dtype)
