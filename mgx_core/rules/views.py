"""Moves slices above transposes and reshapes, and reshapes below concatenations and products."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.convolution import Convolution
from ..ops.linear import Dot
from ..ops.movement import Transpose
from ..ops.reshape import Flatten, Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..ops.softmax import Softmax
from ..types.dim import Dim, product
from ..types.shape import Shape
from .constants import is_constant
from .engine import ROUNDING, Builder, Rules
from .matching import last_two_swapped, one_user, op_as
from .slices import Range, cut, ranges

__all__ = ["VIEWS"]

VIEWS: Final = Rules("simplify-views")

GROUPING: Final = (Reshape, Squeeze, Unsqueeze, Flatten)


def regrouped(ins: Instruction) -> bool:
    """Returns True if an instruction reshapes one tensor of known rank."""
    if not isinstance(ins.op, GROUPING) or len(ins.inputs) > 1:
        return False
    x = ins.inputs[0].result
    return isinstance(x, Shape) and x.ranked and ins.shape.ranked


def kept_axis(old: tuple[Dim, ...], new: tuple[Dim, ...], axis: int) -> int | None:
    """Returns the axis of `old` that is also one of `new`, with equal products of the extents before it."""
    lead = product(new[:axis])
    return next((a for a in range(len(old)) if old[a] == new[axis] and product(old[:a]) == lead), None)


@VIEWS.on(Slice, reads=Transpose)
def slice_of_transpose(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(transpose(x)) -> transpose(slice(x)): fewer elements are moved."""
    turned = i.inputs[0]
    own = ranges(i)
    if not isinstance(turned.op, Transpose) or own is None:
        return None
    if len(turned.users) > 1 or is_constant(turned.inputs[0]):
        return No("the transposed tensor has other users, or is constant")
    order = turned.op.order(i.shape.rank)
    return b.add(turned.op, cut(b, turned.inputs[0], {order[a]: r for a, r in own.items()}))


@VIEWS.on(Slice, reads=GROUPING)
def slice_of_reshape(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(reshape(x)) -> reshape(slice(x)) if x can absorb the slice: a product, a concatenation, another slice."""
    shaped = i.inputs[0]
    own = ranges(i)
    if own is None or not regrouped(shaped):
        return None
    x = shaped.inputs[0]
    if not isinstance(x.op, (Dot, Convolution, Concat, Slice)) or len(x.users) > 1 or len(shaped.users) > 1:
        return No("x cannot absorb the slice, or has other users")
    moved: dict[int, Range] = {}
    for axis, found in own.items():
        at = kept_axis(x.shape.dims, shaped.shape.dims, axis)
        if at is None or at in moved:
            return No("the sliced axis is not an axis of x")
        moved[at] = found
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), cut(b, x, moved))


@VIEWS.on(Concat, reads=GROUPING)
def reshape_below_concat(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(reshape(x), reshape(y)) -> reshape(concat(x, y)) along an unchanged axis, if the concat can then merge."""
    if len(i.inputs) < 2 or not all(regrouped(x) for x in i.inputs):
        return None
    if any(len(x.users) > 1 for x in i.inputs):
        return No("an operand has other users")
    axis: int = op_as(i, Concat).axis % i.shape.rank
    inner = [x.inputs[0] for x in i.inputs]
    places = {kept_axis(x.shape.dims, v.shape.dims, axis) for x, v in zip(inner, i.inputs, strict=True)}
    at = places.pop()
    if at is None or places or len({(x.shape.dims[:at], x.shape.dims[at + 1 :]) for x in inner}) > 1:
        return No("the axis is not a single axis of all operands, or their other extents differ")
    if not any(isinstance(x.op, (Concat, Slice)) for x in inner) and not all(
        isinstance(u.op, GROUPING) for u in i.users
    ):
        return No("no operations would become fusible")
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), b.add(Concat(axis=at), *inner))


@VIEWS.on(Dot, reads=GROUPING, changes=ROUNDING)
def reshape_below_dot(i: Instruction, b: Builder) -> Instruction | No | None:
    """reshape(dot(reshape(x), w)) -> dot(x, w) if the reshapes only merge the batch axes and split them again."""
    shaped, w = i.inputs
    if not regrouped(shaped) or not one_user(i) or not regrouped(i.users[0]):
        return None
    x = shaped.inputs[0]
    if len(shaped.users) > 1 or x.shape.rank < 2 or x.shape.dims[-1] != shaped.shape.dims[-1]:
        return No("the operand has other users, or its last axis is reshaped")
    matrix = w.inputs[0] if isinstance(w.op, Multibroadcast) and len(w.inputs) == 1 else w
    if matrix.shape.rank != 2 or matrix.shape.dims != w.shape.dims[-2:]:
        return No("the right operand is not one matrix for all batches")
    lead = x.shape.dims[:-1]
    if i.users[0].shape.dims != (*lead, w.shape.dims[-1]):
        return No("the result is not reshaped to the original batch axes")
    dims = (*lead[:-1], *matrix.shape.dims)
    made = b.add(Dot(), x, matrix if len(dims) == 2 else b.add(Multibroadcast(out_lens=dims), matrix))
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), made)


@VIEWS.on(Dot, reads=Transpose, changes=ROUNDING)
def weights_on_the_left(i: Instruction, b: Builder) -> Instruction | No | None:
    """dot(v, transpose(softmax(s))) -> transpose(dot(softmax(s), transpose(v))): the form of attention."""
    left, turned = i.inputs
    if not last_two_swapped(turned) or not isinstance(turned.inputs[0].op, Softmax):
        return None
    if len(turned.users) > 1 or len(turned.inputs[0].users) > 1:
        return No("the weights have other users")
    swap = turned.op
    return b.add(swap, b.add(Dot(), turned.inputs[0], b.add(swap, left)))
