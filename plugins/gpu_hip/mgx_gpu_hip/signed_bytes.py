"""Rewrites products of uint8 and of zero points to products of int8, which libraries and matrix units support."""

from __future__ import annotations

from typing import Final

import numpy as np

from mgx_core import Instruction, No
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convert import Convert
from mgx_core.ops.pointwise import Add, Mul, Sub
from mgx_core.ops.quantized import Dequantizelinear, Quantizelinear
from mgx_core.ops.quantized_product import QuantDot
from mgx_core.rules.constants import aligned, along, spread, uniform
from mgx_core.rules.engine import ROUNDING, Builder, Rules
from mgx_core.types.argument import Array
from mgx_core.types.dtype import float32, int8, int32, uint8

__all__ = ["SIGNED"]

SIGNED: Final = Rules("signed-bytes")
HALF: Final = 128  # offset between a uint8 and its int8 counterpart


@SIGNED.on(Convert, changes=ROUNDING)
def signed_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(quant_dot(x, w, z)) -> convert(quant_dot(x - 128, w)) + (128 - z) * sum(w) for unsigned x and constant weights.

    Signed x is unchanged.  NaN quantizes to byte 0, which then represents another number.
    """
    product = i.inputs[0]
    if not isinstance(product.op, QuantDot) or i.shape.dtype is not float32 or len(product.users) > 1:
        return None
    x, w, *zeros = product.inputs
    unsigned = x.shape.dtype is uint8
    zero = 0.0 if not zeros or zeros[0].is_absent else uniform(zeros[0])
    if not unsigned and (x.shape.dtype is not int8 or zero == 0):
        return None
    weights = aligned(w)
    if weights is None or weights.ndim != 2 or w.shape.dtype is not int8:
        return No("the right operand must be a constant int8 matrix")
    if zero is None or any(not z.is_absent for z in zeros[1:]):
        return No("the zero point is not a single number of the left operand")
    added = (HALF if unsigned else 0) - int(zero)
    wide = b.add(i.op, b.add(QuantDot(), _signed(x, b) if unsigned else x, w))
    if not added:
        return wide
    return b.add(Add(), wide, spread(b, added * weights.sum(0, np.int64), i.shape.dims, i))


@SIGNED.on(Mul, changes=ROUNDING)
def row_behind_factor(i: Instruction, b: Builder) -> Instruction | No | None:
    """(convert(quant_dot) + row) * s -> convert(quant_dot) * s + row * s for constants: library epilogues multiply first."""
    for at, other in (i.inputs, i.inputs[::-1]):
        row, factor = _added(at), _row(other)
        if row is not None and factor is not None and _is_converted(at.inputs[0]):
            return b.add(Add(), b.add(Mul(), at.inputs[0], other), spread(b, row * factor, i.shape.dims, i))
    return None


@SIGNED.on(Add, changes=ROUNDING)
def one_row(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(quant_dot * s + row) + bias -> convert(quant_dot * s + (row + bias)) for constants; also without the convert."""
    for x, other in (i.inputs, i.inputs[::-1]):
        at = x.inputs[0] if isinstance(x.op, Convert) and len(x.users) == 1 else x
        row, bias = _added(at), _row(other)
        if row is None or bias is None or not isinstance(at.inputs[0].op, Mul):
            continue
        if any(map(_is_converted, at.inputs[0].inputs)) and at.shape.dtype is float32:
            whole = b.add(Add(), at.inputs[0], spread(b, row + bias.astype(np.float32), i.shape.dims))
            return whole if at is x else b.add(x.op, whole)
    return None


def _added(ins: Instruction) -> Array | None:
    """Returns the constant row added to a product by a sum without other uses."""
    return _row(ins.inputs[1]) if isinstance(ins.op, Add) and len(ins.users) == 1 else None


def _row(ins: Instruction) -> Array | None:
    return along(aligned(ins), ins.shape.rank, ins.shape.rank - 1)


def _is_converted(ins: Instruction) -> bool:
    return isinstance(ins.op, Convert) and isinstance(ins.inputs[0].op, QuantDot) and len(ins.users) == 1


@SIGNED.on(Dequantizelinear, changes=ROUNDING)
def read_signed(i: Instruction, b: Builder) -> Instruction | No | None:
    """dequantizelinear(quantizelinear(x, s, z), s, z) of uint8 -> the same of int8, so that it shares a product's operand."""
    made = i.inputs[0]
    while made.op.moves and len(made.inputs) == 1:
        made = made.inputs[0]
    if not isinstance(made.op, Quantizelinear) or made.shape.dtype is not uint8:
        return None
    signed = made.op.replace(out_type=int8)
    if not any(u.op == signed and u.inputs[1] is made.inputs[1] for u in made.inputs[0].users):
        return None
    zero = _zero(i, b)
    if zero is None:
        return No("the zero point is not constant")
    return b.add(i.op, _signed(i.inputs[0], b), i.inputs[1], *zero)


def _signed(x: Instruction, b: Builder) -> Instruction:
    """Returns uint8 values less 128, computed in the quantizer."""
    if isinstance(x.op, Quantizelinear) and (zero := _zero(x, b)) is not None:
        return b.add(x.op.replace(out_type=int8), *x.inputs[:2], *zero)
    if x.op.moves and len(x.inputs) == 1:
        return b.add(x.op, _signed(x.inputs[0], b))
    half = b.add(Multibroadcast(out_lens=x.shape.dims), b.literal(np.asarray(HALF, np.int32)))
    return b.add(Convert(target_type=int8), b.add(Sub(), b.add(Convert(target_type=int32), x), half))


def _zero(i: Instruction, b: Builder) -> list[Instruction] | None:
    """Returns the zero point less 128 in the shape of its scale, omitted if it is 0; None if it is not constant."""
    given = i.inputs[2] if len(i.inputs) > 2 and not i.inputs[2].is_absent else None
    zero = 0.0 if given is None else uniform(given)
    if zero is None or not i.inputs[1].shape.ranked or i.inputs[1].shape.dynamic():
        return None
    return [b.literal(np.full(i.inputs[1].shape.lens(), int(zero) - HALF, np.int8))] if zero != HALF else []
