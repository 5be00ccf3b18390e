"""Keeps constant quantized weights of products with a float operand in their packed form (weight-only quantization)."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.coded_product import DequantDot
from ..ops.linear import Dot
from ..ops.scalar import widen
from ..types.argument import Array
from ..types.dim import product
from ..types.dtype import float32, int4, int8, uint4, uint8
from .constants import aligned
from .engine import ROUNDING, Builder, Rules
from .quantization import dequantized

__all__ = ["CODED_WEIGHTS", "packed_codes"]

CODED_WEIGHTS: Final = Rules("coded-weights")

BITS: Final = {int4: 4, uint4: 4, int8: 8, uint8: 8}
FEW: Final = 16  # up to this number of rows, reading the weights dominates the time


@CODED_WEIGHTS.on(Dot, changes=ROUNDING)
def weights_as_codes(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x, dequantizelinear(constant, s, z)) -> dequant_dot(x, codes, s, z) with a scale per column, or per block of one."""
    x, wide = i.inputs
    given = dequantized(_before_repeats(wide))
    values = None if given is None else aligned(given.values)
    if given is None or values is None or x.is_literal:
        return None
    scale = _repeated(given.scale, given.op.block_size)
    zero = None if given.zero_point is None else _repeated(given.zero_point, given.op.block_size)
    if scale is None or (given.zero_point is not None and zero is None):
        return No("the weights' scale or zero point is not constant")
    if wide.shape.dtype is not float32:
        return No("the product is not one of float32 matrices")
    k, n = values.shape[-2:] if values.ndim > 1 else (1, 1)
    if wide.shape.dims[-2:] != (k, n) or values.size != k * n:
        return No("the weights are not one constant matrix for all batches")
    if x.shape.dims[-1] != k:
        # rows of codes may be longer than the row of x, so a mismatch would not be detected later
        return No(f"the rows are {x.shape.dims[-1]} long, which is not known before a run to be {k}")
    bits = BITS.get(given.values.shape.dtype)
    if bits is None:
        return No(f"weights of {given.values.shape.dtype} are not codes of 4 or 8 bits")
    rows = product(x.shape.dims[:-1])
    if bits == 8 and isinstance(rows, int) and rows > FEW:
        return No(f"with {rows} rows a float product is faster")
    rank = given.values.shape.rank
    block, axis = given.op.block_size, given.op.axis % rank - (rank - 2)
    if block and axis != 0:
        return No("the blocks of the weights lie along the columns")
    if not block and scale.size > 1 and (scale.ndim != 1 or axis != 1):
        return No("the scale does not vary along the columns alone")
    if bits == 4 and block % 2:
        return No(f"blocks of {block} codes of 4 bits do not begin at whole bytes")
    size = block or k
    if bits == 4 and not block:
        size = k + k % 2
    scales = _by_column(scale.astype(np.float32), n, block)
    points = None if zero is None else _by_column(zero, n, block)
    codes, points = packed_codes(values.reshape(k, n).T, points, bits, size)
    literals = [codes, scales] + ([] if points is None else [points])
    made = [b.literal(v) for v in literals]
    return b.add(DequantDot(bits=4 if bits == 4 else 8, block_size=size), x, *made)


def _repeated(ins: Instruction, block: int) -> Array | None:
    """Returns the value of a constant scale or zero point, with one element per block even if it is uniform."""
    value = aligned(ins)
    return np.broadcast_to(value, [int(d) for d in ins.shape.dims]) if value is not None and block else value


def _by_column(numbers: Array, columns: int, block: int) -> Array:
    """Returns scales or zero points as [columns of the weights, blocks]."""
    if block:
        return numbers.reshape(numbers.shape[-2:]).T
    return np.broadcast_to(numbers.reshape(-1, 1), (columns, 1))


def _before_repeats(ins: Instruction) -> Instruction:
    """Returns the operand of a broadcast over batches, else the instruction."""
    while isinstance(ins.op, Multibroadcast) and ins.inputs[0].shape.dims[-2:] == ins.shape.dims[-2:]:
        ins = ins.inputs[0]
    return ins


def packed_codes(values: Array, points: Array | None, bits: int, block: int) -> tuple[Array, Array | None]:
    """Packs 4- or 8-bit numbers [n, k] into bytes of unsigned codes; returns these and the unsigned zero points.

    Signed numbers are shifted by half the range.  If all zero points equal half the range, the default, they are omitted.
    Rows of 4 bits are padded to whole blocks.
    """
    wide = widen(values).astype(np.int16)
    signed = np.dtype(values.dtype).name in ("int4", "int8")
    half = 1 << (bits - 1)
    if signed:
        wide = wide + half
    zero: Array | None = None
    if points is not None:
        zero = (widen(points).astype(np.int16) + (half if signed else 0)).astype(np.uint8)
    elif not signed:
        zero = np.zeros((len(wide), -(-wide.shape[1] // block)), np.uint8)
    if zero is not None and (zero == half).all():
        zero = None
    codes: Array = wide.astype(np.uint8)
    if bits == 4:
        missing = -codes.shape[1] % block
        codes = np.pad(codes, ((0, 0), (0, missing)))
        codes = codes[:, 0::2] | codes[:, 1::2] << 4
    return codes, zero
