"""Recognizes dequantization of weights written as arithmetic, (convert(weights) - zero point) * scale, as `dequantizelinear`."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.broadcast import Multibroadcast
from ..ops.convert import Convert
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.operation import Operation
from ..ops.pointwise import Mul, Sub
from ..ops.quantized import Dequantizelinear
from ..types.argument import Array
from ..types.dtype import DType, float32
from .constants import aligned
from .engine import Builder, Rules

__all__ = ["WEIGHT_ARITHMETIC"]

WEIGHT_ARITHMETIC: Final = Rules("weight-arithmetic")


class _Weights(NamedTuple):
    """Narrow constants with their zero points and scales, as arrays of their rank."""

    codes: Array
    dtype: DType
    point: Array
    scale: Array


@WEIGHT_ARITHMETIC.on(Dot)
def weights_that_arithmetic_widens(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(x, (convert(constant) - z) * s) -> dot(x, dequantizelinear(constant, s, z)), also in blocks that a reshape merges."""
    x, wide = i.inputs
    moves: list[Operation] = []
    while isinstance(wide.op, (Transpose, Multibroadcast)):
        moves.append(wide.op)
        wide = wide.inputs[0]
    joined = wide.op.reshapes and len(wide.inputs) == 1
    found = _weights(wide.inputs[0] if joined else wide)
    if found is None or not wide.shape.ranked or wide.shape.rank != 2:
        return None
    lens = tuple(int(d) for d in wide.shape.dims)
    points = found.point.astype(found.dtype.numpy)
    if not np.array_equal(points.astype(np.float32), found.point):
        return No(f"the zero points are not all representable in {found.dtype}")
    form = _blocks(found, lens) if found.codes.ndim == 3 else _lines(found, lens)
    if form is None:
        return No("the scale or zero point varies along more than one axis, or within blocks")
    attributes, dims = form
    parameters = [
        b.literal(np.ascontiguousarray(np.broadcast_to(p, dims[0]).reshape(dims[1]))) for p in (found.scale, points)
    ]
    made = b.add(Dequantizelinear(**attributes), b.literal(found.codes.reshape(lens)), *parameters)
    for op in reversed(moves):
        made = b.add(op, made)
    return b.add(i.op, x, made)


def _weights(ins: Instruction) -> _Weights | None:
    """Returns the parts of arithmetic on narrow integer constants; None for anything else."""
    scale: Array | None = np.ones((), np.float32)
    point: Array | None = np.zeros((), np.float32)
    if isinstance(ins.op, Mul):
        ins, other = ins.inputs if isinstance(ins.inputs[0].op, (Sub, Convert)) else ins.inputs[::-1]
        scale = aligned(other)
    if isinstance(ins.op, Sub):
        point = aligned(ins.inputs[1])
        ins = ins.inputs[0]
    if not isinstance(ins.op, Convert) or ins.shape.dtype is not float32 or scale is None or point is None:
        return None
    codes = _constant(ins.inputs[0])
    dtype = ins.inputs[0].shape.dtype
    if codes is None or not dtype.is_integer or dtype.bits > 8 or codes.ndim not in (2, 3):
        return None
    return _Weights(codes, dtype, _of_rank(point, codes.ndim), _of_rank(scale, codes.ndim))


def _of_rank(value: Array, rank: int) -> Array:
    return value.reshape((1,) * (rank - value.ndim) + value.shape)


def _constant(ins: Instruction) -> Array | None:
    """Returns the value of a literal, possibly through data movement."""
    if ins.literal is not None:
        return np.asarray(ins.literal.value)
    if len(ins.inputs) != 1 or not ins.op.moves or isinstance(ins.op, Multibroadcast):
        return None
    inner = _constant(ins.inputs[0])
    return None if inner is None else np.asarray(ins.op.evaluate([inner]))


_Form = tuple[dict[str, Any], tuple[tuple[int, ...], tuple[int, ...]]]


def _lines(found: _Weights, lens: tuple[int, ...]) -> _Form | None:
    """Returns the axis along which a matrix's scales and zero points vary, and the extents to repeat and to keep."""
    if found.codes.shape != lens:
        return None
    varies = [a for a in range(2) if max(found.scale.shape[a], found.point.shape[a]) > 1]
    if len(varies) > 1:
        return None
    if not varies:
        return {}, ((1, 1), ())
    axis = varies[0]
    dims = (lens[0], 1) if axis == 0 else (1, lens[1])
    return {"axis": axis}, (dims, (lens[axis],))


def _blocks(found: _Weights, lens: tuple[int, ...]) -> _Form | None:
    """The same for a matrix with one axis for the blocks and the next for the elements of a block."""
    first, middle, last = found.codes.shape
    if lens == (first, middle * last) and found.scale.shape[2] == found.point.shape[2] == 1:
        return {"axis": 1, "block_size": last}, ((first, middle, 1), (first, middle))
    if lens == (first * middle, last) and found.scale.shape[1] == found.point.shape[1] == 1:
        return {"axis": 0, "block_size": middle}, ((first, 1, last), (first, last))
    return None
