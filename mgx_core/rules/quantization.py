"""Moves quantization across data movement and pooling, cancels it with its inverse, and removes redundant clips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.activation import Relu
from ..ops.broadcast import Broadcast, Multibroadcast
from ..ops.concat import Concat
from ..ops.elementwise import Pointwise
from ..ops.movement import Transpose
from ..ops.operation import Operation
from ..ops.pointwise import Clip
from ..ops.pooling import Pooling
from ..ops.quantized import Dequantizelinear, Quantizelinear
from ..ops.resize import Resize
from ..ops.slice import Slice
from ..ops.window import sides
from ..types.dim import bounds
from .constants import aligned, finite, is_constant, same_constant, uniform
from .engine import Builder, Rules
from .matching import one_user, op_as
from .outline import is_view
from .views import kept_axis

__all__ = ["QUANTIZATION", "Quantized", "dequantized"]

QUANTIZATION: Final = Rules("rewrite-quantization")


class Quantized(NamedTuple):
    """The operands of `dequantizelinear` or `quantizelinear`: values, scale, zero point."""

    op: Dequantizelinear | Quantizelinear
    values: Instruction
    scale: Instruction
    zero_point: Instruction | None

    @property
    def by_tensor(self) -> bool:
        """True for per-tensor quantization: one scale for all elements."""
        return _one(self.scale) and (self.zero_point is None or _one(self.zero_point)) and not self.op.block_size

    @property
    def parameters(self) -> tuple[Instruction, ...]:
        return (self.scale,) if self.zero_point is None else (self.scale, self.zero_point)


def quantization(i: Instruction) -> Quantized:
    """Returns the operands of a `quantizelinear` or `dequantizelinear`."""
    zero = i.inputs[2] if len(i.inputs) > 2 and not i.inputs[2].is_absent else None
    assert isinstance(i.op, (Dequantizelinear, Quantizelinear))
    return Quantized(i.op, i.inputs[0], i.inputs[1], zero)


def dequantized(i: Instruction) -> Quantized | None:
    """Returns the operands of a `dequantizelinear`; None for other ops."""
    return quantization(i) if isinstance(i.op, Dequantizelinear) else None


def _one(x: Instruction) -> bool:
    return x.shape.ranked and all(d == 1 for d in x.shape.dims)


def _same_quantization(x: Quantized, y: Quantized) -> bool:
    """Returns True if two tensors have the same scale and zero point, one of each."""
    return (
        x.by_tensor
        and y.by_tensor
        and x.values.shape.dtype is y.values.shape.dtype
        and same_constant(x.scale, y.scale)
        and same_constant(x.zero_point, y.zero_point)
    )


# inverses -------------------------------------------------------------------------------------------------------------


@QUANTIZATION.on(Quantizelinear, reads=Dequantizelinear)
def quantize_what_was_quantized(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(dequantizelinear(q, s, z), s, z) -> q for 8 bits and fewer."""
    wide = i.inputs[0]
    given = dequantized(wide)
    if given is None:
        return None
    q = given.values
    if q.result != i.result or not q.shape.dtype.is_integer or q.shape.dtype.bits > 8 or wide.shape.dtype.bits < 32:
        return No("the types differ, or represent numbers that would be rounded")
    mine = quantization(i)
    if mine.op.block_size != given.op.block_size or (mine.op.axis != given.op.axis and mine.scale.shape.rank > 0):
        return No("the scales are along different axes")
    if not same_constant(mine.scale, given.scale) or not same_constant(mine.zero_point, given.zero_point):
        return No("the scales or zero points differ")
    scale = aligned(mine.scale)
    if scale is None or not finite(scale) or not scale.size or float(np.abs(scale.astype(np.float64)).min()) < 1e-30:
        return No("the scale is not a constant far enough from 0")
    return q


@QUANTIZATION.on(Quantizelinear, Dequantizelinear)
def drop_zero_point_of_zero(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(x, s, 0) -> quantizelinear(x, s); dequantizelinear likewise."""
    zero = quantization(i).zero_point
    if zero is None or not zero.shape.dtype.is_integer or uniform(zero) != 0:
        return None
    op = i.op.replace(out_type=i.shape.dtype) if isinstance(i.op, Quantizelinear) else i.op
    return b.add(op, *i.inputs[:2])


@QUANTIZATION.on(Quantizelinear, reads=(Relu, Clip))
def drop_bounds_before_quantization(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(clip(x, low, high), s, z) -> quantizelinear(x, s, z) if quantization saturates earlier; relu too."""
    work = i.inputs[0]
    if not isinstance(work.op, (Relu, Clip)):
        return None
    low, high = (0.0, np.inf) if isinstance(work.op, Relu) else (uniform(x) for x in work.inputs[1:3])
    mine = quantization(i)
    scale = uniform(mine.scale)
    zero = 0.0 if mine.zero_point is None else uniform(mine.zero_point)
    if low is None or high is None or scale is None or zero is None:
        return No("the bounds, the scale or the zero point are not one constant each")
    to = i.shape.dtype
    if not to.is_integer or not np.isfinite(scale) or scale <= 0:
        return No("the result is not an integer, or the scale not a positive number")
    if low > (to.lowest - zero) * scale or high < (to.highest - zero) * scale:
        return No("the bounds are narrower than the range of the quantized type")
    return b.add(i.op, work.inputs[0], *i.inputs[1:])


# data movement --------------------------------------------------------------------------------------------------------


@QUANTIZATION.on(Operation, reads=Dequantizelinear)
def move_narrow_values(i: Instruction, b: Builder) -> Instruction | No | None:
    """move(dequantizelinear(q, s, z)) -> dequantizelinear(move(q), s, z) for data movement ops: fewer bytes are moved."""
    if not i.op.moves or not i.inputs:
        return None
    given = dequantized(i.inputs[0])
    if given is None or not i.inputs[0].shape.ranked:
        return None
    if given.values.shape.dtype.bits > 8:
        return No(f"{given.values.shape.dtype} is not narrow")
    if isinstance(i.op, (Broadcast, Multibroadcast)) and _moved_constant(given.values) and _for_elements(i):
        return No("the broadcast constant is an operand of pointwise ops and is folded in its wide form")
    if given.by_tensor:
        return b.add(given.op, b.add(i.op, given.values, *i.inputs[1:]), *given.parameters)
    if isinstance(i.op, Transpose):
        return _transposed(i.op.order(i.shape.rank), given, b)
    axis = given.op.axis % i.inputs[0].shape.rank
    at = None if given.op.block_size or given.scale.shape.rank != 1 else _place(i, axis)
    if at is None:
        return No("the scale varies along an axis that is not kept")
    return b.add(given.op.replace(axis=at), b.add(i.op, given.values, *i.inputs[1:]), *given.parameters)


def _moved_constant(ins: Instruction) -> bool:
    """Returns True for a constant, possibly through data movement that has not been folded yet."""
    while ins.op.moves and len(ins.inputs) == 1:
        ins = ins.inputs[0]
    return is_constant(ins)


def _for_elements(ins: Instruction) -> bool:
    """Returns True if all users of an instruction, or of its views, are pointwise."""
    return all(isinstance(u.op, Pointwise) or (is_view(u) and _for_elements(u)) for u in ins.users)


def _transposed(order: Sequence[int], given: Quantized, b: Builder) -> Instruction:
    """Transposes a dequantization with one scale per index of an axis, or per block."""
    axis = order.index(given.op.axis % len(order))
    turn = Transpose(permutation=tuple(order))
    whole = given.scale.shape.rank == len(order) and len(order) > 1
    parameters = [b.add(turn, p) if whole else p for p in given.parameters]
    return b.add(given.op.replace(axis=axis), b.add(turn, given.values), *parameters)


def _place(i: Instruction, axis: int) -> int | None:
    """Returns the axis of the result that corresponds to an axis of the operand, if it was neither sliced nor broadcast."""
    old, new = i.inputs[0].shape.dims, i.shape.dims
    if i.op.reshapes:
        found = [a for a in range(len(new)) if kept_axis(old, new, a) == axis]
        return found[0] if len(found) == 1 and old[axis] != 1 else None
    if isinstance(i.op, Multibroadcast):
        at = axis + len(new) - len(old)
        return at if old[axis] == new[at] and old[axis] != 1 else None
    if i.op.view is not None and len(i.inputs) == 1 and not i.op.aligns:
        backwards = isinstance(i.op, Slice) and any(s < 0 for s in i.op.steps)
        return axis if len(old) == len(new) and old[axis] == new[axis] and not backwards else None
    return None


@QUANTIZATION.on(Quantizelinear)
def quantize_before_movement(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(move(x), s, z) -> move(quantizelinear(x, s, z)) if all elements are used: fewer bytes are moved."""
    moved = i.inputs[0]
    whole = moved.op.reshapes or isinstance(moved.op, Transpose) or _enlarges(moved)
    if not whole or not moved.inputs[0].shape.ranked:
        return None
    mine = quantization(i)
    if not mine.by_tensor or i.shape.dtype.bits > 8:
        return No("the scale is not per tensor, or the result is not narrow")
    if not one_user(moved):
        return No("the moved tensor has other users")
    return b.add(moved.op, b.add(mine.op, moved.inputs[0], *mine.parameters), *moved.inputs[1:])


def _enlarges(ins: Instruction) -> bool:
    """Returns True for nearest-neighbor resampling that uses every element."""
    if not isinstance(ins.op, Resize) or not ins.op.moves:
        return False
    pairs = zip(ins.inputs[0].shape.dims, ins.shape.dims, strict=True)
    return all(a == b or bounds(b)[0] >= bounds(a)[1] for a, b in pairs)


@QUANTIZATION.on(Quantizelinear, reads=Pooling)
def quantize_before_pooling(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(max-pooling(x), s, z) -> max-pooling(quantizelinear(x, s, z)), s > 0, since quantization is monotonic."""
    pooled = i.inputs[0]
    if not isinstance(pooled.op, Pooling) or pooled.op.mode != "max":
        return None
    mine = quantization(i)
    scale = aligned(mine.scale)
    if not mine.by_tensor or scale is None or not finite(scale) or float(scale.reshape(-1)[0]) <= 0:
        return No("the scale is not one positive constant")
    if i.shape.dtype.bits != 8:
        return No(f"windows of {i.shape.dtype}")
    if i.shape.dtype.is_float and not op_as(i, Quantizelinear).saturate:
        return No("numbers below the range become NaN, which is greater than others")
    if not _all_have_elements(pooled):
        return No("a window may have no elements")
    if not one_user(pooled):
        return No("the pooling has other users")
    return b.add(pooled.op, b.add(mine.op, pooled.inputs[0], *mine.parameters))


def _all_have_elements(pooled: Instruction) -> bool:
    """Returns True if no window has only padding: the maximum of no elements is minus infinity, which not all types have."""
    op, dims = op_as(pooled, Pooling), pooled.inputs[0].shape.dims[2:]
    if op.dyn_global:
        return all(bounds(n)[0] >= 1 for n in dims)
    lengths, _, dilation = op.numbers(len(dims))
    begins, ends = sides(op.padding, len(dims))
    padded = [op.padding_mode != "default" or b > 0 or e > 0 for b, e in zip(begins, ends, strict=True)]
    return all(
        not pad or (bounds(n)[0] >= (d if k > 1 else 1) and max(b, e) <= (k - 1) * d)
        for n, k, d, b, e, pad in zip(dims, lengths, dilation, begins, ends, padded, strict=True)
    )


@QUANTIZATION.on(Concat, reads=Dequantizelinear)
def concat_narrow_values(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(dequantizelinear(p, s, z), dequantizelinear(q, s, z), ..) -> dequantizelinear(concat(p, q, ..), s, z)."""
    given = [found for x in i.inputs if (found := dequantized(x)) is not None]
    if not given:
        return None
    if len(given) < len(i.inputs):
        return No("not all parts are quantized")
    first = given[0]
    if not all(_same_quantization(first, other) and other.op == first.op for other in given):
        return No("the scales or zero points differ")
    return b.add(first.op, b.add(i.op, *(x.values for x in given)), *first.parameters)


@QUANTIZATION.on(Quantizelinear, reads=Concat)
def quantize_before_concat(i: Instruction, b: Builder) -> Instruction | No | None:
    """quantizelinear(concat(x, y, ..), s, z) -> concat(quantizelinear(x, s, z), ..): fewer bytes are moved."""
    joined = i.inputs[0]
    if not isinstance(joined.op, Concat):
        return None
    mine = quantization(i)
    if not mine.by_tensor or i.shape.dtype.bits > 8:
        return No("the scale is not per tensor, or the result is not narrow")
    if not one_user(joined):
        return No("the concatenation has other users")
    return b.add(joined.op, *(b.add(mine.op, x, *mine.parameters) for x in joined.inputs))


@QUANTIZATION.on(Pooling, reads=Dequantizelinear)
def pool_narrow_values(i: Instruction, b: Builder) -> Instruction | No | None:
    """max-pooling(dequantizelinear(q, s, z)) -> dequantizelinear(max-pooling(q), s, z), s > 0."""
    given = dequantized(i.inputs[0])
    if given is None or op_as(i, Pooling).mode != "max":
        return None
    scale = aligned(given.scale)
    if not given.by_tensor or scale is None or not finite(scale) or float(scale.reshape(-1)[0]) <= 0:
        return No("the scale is not one positive constant")
    if given.values.shape.dtype.bits != 8:
        return No(f"windows of {given.values.shape.dtype}")
    if not _all_have_elements(i):
        return No("a window may have no elements")
    return b.add(given.op, b.add(i.op, given.values), *given.parameters)
