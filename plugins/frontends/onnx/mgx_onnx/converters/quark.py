"""Operators of com.amd.quark: the quantizations of AMD's Quark to types that QuantizeLinear lacked in the opset of the file."""

from __future__ import annotations

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from .quantized import dequantize_linear, quantize_linear

__all__: list[str] = []

QUARK = "com.amd.quark"
VITIS = "com.vai.quantize"  # its name before, with operators named VitisQuantizeLinear and VitisDequantizeLinear


def _per_channel(n: Node, v: Instruction, x: Instruction) -> Instruction:
    """Returns a scale or zero point in float32, as a scalar or with extents that broadcast to x's."""
    if v.shape.rank == 1 and v.shape.dims[0] == 1:
        return n.reshape(n.convert(v, dt.float32), ())
    if v.shape.rank != 1:
        return n.convert(v, dt.float32)
    (axis,) = n.axes([n.attr("axis", 1)], x.shape.rank)
    return n.unsqueeze(n.convert(v, dt.float32), range(1, x.shape.rank - axis))


@converts("ExtendedQuantizeLinear", domain=QUARK)
@converts("VitisQuantizeLinear", domain=VITIS)
def extended_quantize_linear(
    n: Node, x: Instruction, scale: Instruction, zero_point: Instruction | None = None
) -> Instruction:
    """QuantizeLinear that also rounds to bfloat16 and float16: x / scale + zero_point."""
    if zero_point is None or not zero_point.shape.dtype.is_float or zero_point.shape.dtype.bits < 16:
        return quantize_linear(n, x, scale, zero_point)
    wide = n.pointwise("div", n.convert(x, dt.float32), _per_channel(n, scale, x))
    return n.convert(n.pointwise("add", wide, _per_channel(n, zero_point, x)), zero_point.shape.dtype)


@converts("ExtendedDequantizeLinear", domain=QUARK)
@converts("VitisDequantizeLinear", domain=VITIS)
def extended_dequantize_linear(
    n: Node, x: Instruction, scale: Instruction, zero_point: Instruction | None = None
) -> Instruction:
    if not x.shape.dtype.is_float or x.shape.dtype.bits < 16:
        return dequantize_linear(n, x, scale, zero_point)
    wide = n.convert(x, dt.float32)
    if zero_point is not None:
        wide = n.pointwise("sub", wide, _per_channel(n, zero_point, x))
    return n.convert(n.pointwise("mul", wide, _per_channel(n, scale, x)), scale.shape.dtype)
