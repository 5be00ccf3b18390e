"""Quantisation that is undone at once."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.quantized import Dequantizelinear, Quantizelinear
from .constants import aligned, finite, uniform
from .engine import Builder, Rules
from .matching import op_as

__all__ = ["QUANTIZATION"]

QUANTIZATION: Final = Rules("rewrite-quantization")


@QUANTIZATION.on(Quantizelinear)
def quantize_what_was_quantized(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(dequantizelinear(q, s, z), s, z) -> q for 8 bits and fewer."""
    wide = i.inputs[0]
    if not isinstance(wide.op, Dequantizelinear):
        return None
    q = wide.inputs[0]
    if q.result != i.result or not q.shape.dtype.is_integer or q.shape.dtype.bits > 8 or wide.shape.dtype.bits < 32:
        return No("the types differ, or hold numbers that would be rounded")
    one = op_as(i, Quantizelinear)
    other = wide.op
    if one.block_size != other.block_size or (one.axis != other.axis and i.inputs[1].shape.rank > 0):
        return No("the scales lie along different axes")
    if not all(_same(x, y) for x, y in zip(_operands(i), _operands(wide), strict=True)):
        return No("the scales or zero points differ")
    scale = aligned(i.inputs[1])
    if scale is None or not finite(scale) or not scale.size or float(np.abs(scale.astype(np.float64)).min()) < 1e-30:
        return No("the scale is not a constant far enough from 0")
    return q


def _operands(ins: Instruction) -> tuple[Instruction | None, Instruction | None]:
    """Scale and zero point."""
    zero = ins.inputs[2] if len(ins.inputs) > 2 and not ins.inputs[2].is_absent else None
    return ins.inputs[1], zero


def _same(x: Instruction | None, y: Instruction | None) -> bool:
    if x is y:
        return True
    if x is None or y is None:
        return False
    one, other = aligned(x), aligned(y)
    return one is not None and other is not None and one.dtype == other.dtype and np.array_equal(one, other)


@QUANTIZATION.on(Quantizelinear, Dequantizelinear)
def drop_zero_point_of_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(x, s, 0) -> quantizelinear(x, s); dequantizelinear likewise."""
    zero = _operands(i)[1]
    if zero is None or not zero.shape.dtype.is_integer or uniform(zero) != 0:
        return None
    op = i.op.replace(out_type=i.shape.dtype) if isinstance(i.op, Quantizelinear) else i.op
    return b.add(op, *i.inputs[:2])
