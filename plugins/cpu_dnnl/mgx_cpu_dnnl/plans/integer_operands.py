"""Operands of int8 products in the forms that oneDNN supports: signed weights, int32 zero points."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, Final

import numpy as np

from mgx_core import Shape
from mgx_core import dtype as dt
from mgx_core.errors import Refused
from mgx_core.ops.quantized_product import QuantConvolution
from mgx_core.targets.values import Value

from ..emitter import CpuEmitter
from .byte_maps import map_bytes

__all__ = ["known_bug", "operands_of", "int32_zero_point"]

LANES: Final = 8  # int32 lanes of AVX2
MAX_UNSATURATED: Final = 64  # weights up to this magnitude do not saturate int16 in the sum of two products with uint8


def operands_of(e: CpuEmitter, args: Sequence[Value | None]) -> tuple[Value, Value, Value | None, Value | None]:
    """Returns the operands and their zero points (None: absent).

    Errors: Refused for operands that oneDNN does not support.
    """
    x, w, x_zero, w_zero = (*args, None, None)[:4]
    assert x is not None and w is not None
    if 0 in x.lens or 0 in w.lens:
        raise Refused("an extent is 0")
    if not accumulates_int32() and (w.shape.dtype is not dt.int8 or saturates(e, w)):
        raise Refused("these weights may overflow the int16 pair sums of this processor, which has no VNNI")
    if w.shape.dtype is dt.uint8:
        w, w_zero = as_signed(e, w, w_zero)
    if w.shape.dtype is not dt.int8:
        raise Refused(f"oneDNN requires int8 weights, got {w.shape.dtype}")
    return x, w, x_zero, w_zero


def as_signed(e: CpuEmitter, w: Value, zero: Value | None) -> tuple[Value, Value]:
    """Subtracts 128 from non-constant uint8 weights, which become int8, and from their zero point."""
    if e.is_constant(w):
        raise Refused("constant uint8 weights are not supported")
    point = np.zeros(1, np.uint8) if zero is None else e.constant(zero)
    if point is None or point.size != 1:
        raise Refused("the weights' zero point is not a constant scalar")
    table = e.literal((np.arange(256) - 128).astype(np.int8))
    return map_bytes(e, w, table), e.literal(point.reshape(1).astype(np.int32) - 128)


def accumulates_int32() -> bool:
    """Returns True if oneDNN accumulates byte products in int32 (VNNI or AMX, unless ONEDNN_MAX_CPU_ISA disables them)."""
    from ..native_library import native

    return bool(native().onednn_sums_bytes())


def known_bug(op: Any, args: Sequence[Value | None]) -> str:
    """Returns a description of a product that oneDNN 3.12 computes incorrectly on AVX2-VNNI; "" if it is correct.

    Known bugs: depthwise convolutions with a bias if 8 does not divide the channels, or if 8 divides the taps; matrix products
    with a zero point of the right operand (every fourteenth row); convolutions with a zero point and asymmetric padding if
    rows of results fill the registers.
    """
    from ..native_library import native

    if not native().onednn_sums_bytes_by_avx2():
        return ""
    x, w, x_zero, w_zero = (*args, None, None)[:4]
    assert x is not None and w is not None
    if not isinstance(op, QuantConvolution):
        return "matrix products with a zero point of the right operand" if w_zero is not None else ""
    if op.group > 1 and w.lens[1] == 1 and (w.lens[0] % LANES or prod(w.lens[2:]) % LANES == 0):
        return f"depthwise convolutions of {w.lens[0]} channels with {prod(w.lens[2:])} taps"
    _, _, begin, end = op.sliding(x.lens[2:], w.lens[2:])
    uneven = x_zero is not None and list(begin) != list(end)
    return "convolutions with a zero point and asymmetric padding" if uneven else ""


def saturates(e: CpuEmitter, w: Value) -> bool:
    """Returns True if int16 sums of two products may saturate, or if the weights are not constant."""
    array = e.constant(w)
    return array is None or bool(np.abs(array.astype(np.int16)).max(initial=0) > MAX_UNSATURATED)


def int32_zero_point(e: CpuEmitter, zero: Value) -> Value:
    """Returns a zero point as int32 [1], as oneDNN requires.  Errors: Refused for more than one."""
    if prod(zero.lens) != 1:
        raise Refused("an operand has more than one zero point")
    plain = zero.view_at(0, Shape(zero.shape.dtype, [1]))
    array = e.constant(plain)
    if array is not None:
        return e.literal(array.astype(np.int32))
    wide = e.allocate(dt.int32, [1])
    e.copy_into(plain, wide)
    return wide
