"""Moves slices above products and broadcasts, so that only the used part is computed."""

from __future__ import annotations

from typing import Final

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.convolution import Convolution, Windowed
from ..ops.elementwise import Pointwise
from ..ops.linear import Dot
from ..ops.quantized_product import QuantConvolution, QuantDot
from ..ops.slice import Slice
from ..ops.window import per_axis, sides
from ..types.dim import Symbol, symbols_of
from .constants import is_constant
from .engine import Builder, Rules
from .matching import op_as
from .slices import ranges

__all__ = ["PRODUCT_SLICES"]

PRODUCT_SLICES: Final = Rules("simplify-algebra")


def rows_of(anchor: Instruction, axis: int) -> int | None:
    """Returns index of the only operand of a dot or convolution that determines positions along an axis of the result."""
    rank = anchor.shape.rank
    if any(not x.is_absent and x.shape.elements() != 1 for x in anchor.inputs[2:]):
        return None  # zero points along an axis
    if isinstance(anchor.op, (Dot, QuantDot)):
        return {rank - 2: 0, rank - 1: 1}.get(axis)
    if isinstance(anchor.op, (Convolution, QuantConvolution)):
        return 0 if axis == 0 else 1 if axis == 1 and anchor.op.group == 1 else None
    return None


@PRODUCT_SLICES.on(Slice, reads=(Dot, QuantDot, Convolution, QuantConvolution))
def slice_of_product(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(dot(x, y)) -> dot(slice(x), y) for rows, dot(x, slice(y)) for columns; convolutions by image and by channel."""
    product = i.inputs[0]
    if not isinstance(product.op, (Dot, QuantDot, Convolution, QuantConvolution)) or len(i.inputs) > 1:
        return None
    if len(product.users) > 1:
        return No("the whole product or other parts have users")
    op = op_as(i, Slice)
    if len(op.axes) != 1 or product in (product.parent.outputs if product.parent else ()):
        return No("several axes are sliced")
    at = rows_of(product, op.axes[0])
    if at is None:
        return No(f"positions along axis {op.axes[0]} depend on both operands")
    operands = list(product.inputs)
    own = 0
    if isinstance(product.op, (Dot, QuantDot)):  # operands may lack batch axes of the result
        own = op.axes[0] - product.shape.rank + operands[at].shape.rank
    operands[at] = b.add(op.replace(axes=(own,)), operands[at])
    return b.add(product.op, *operands)


def padding_left(windows: Instruction, cut: Instruction) -> tuple[int, ...] | No:
    """Returns the padding of a convolution with which it computes a slice of its result along spatial axes."""
    op, wanted = windows.op, ranges(cut)
    if not isinstance(op, Windowed) or wanted is None or min(wanted) < 2 or op.padding_mode != "default":
        return No("the slice is not of positions of windows")
    rank = windows.shape.rank - 2
    stride, (begins, ends) = per_axis(op.stride, rank, "stride"), map(list, sides(op.padding, rank))
    for axis, (start, end, step) in wanted.items():
        after = windows.shape.dims[axis] - end
        if step != 1 or not isinstance(start, int) or not isinstance(after, int):
            return No("the slice has steps, or its ends are not known from those of the convolution")
        begins[axis - 2] -= start * stride[axis - 2]
        ends[axis - 2] -= after * stride[axis - 2]
    if min(*begins, *ends) < 0:
        return No("the slice leaves out more than windows that begin or end in the padding")
    return (*begins, *ends)


@PRODUCT_SLICES.on(Slice, reads=(Convolution, QuantConvolution))
def slice_of_windows(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(convolution(x, w)) along spatial axes -> convolution(x, w) with less padding, as in causal convolutions."""
    product = i.inputs[0]
    if not isinstance(product.op, (Convolution, QuantConvolution)) or len(i.inputs) > 1:
        return None
    if len(product.users) > 1 or product in (product.parent.outputs if product.parent else ()):
        return No("the whole result has other users")
    padding = padding_left(product, i)
    return padding if isinstance(padding, No) else b.add(product.op.replace(padding=padding), *product.inputs)


def cut_from(x: Instruction) -> Instruction:
    """Returns the operand of a slice with static bounds; else the instruction itself."""
    return x.inputs[0] if isinstance(x.op, Slice) and len(x.inputs) == 1 else x


@PRODUCT_SLICES.on(Slice, reads=Pointwise)
def slice_before_epilogue(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(f(product, constants)) -> f(slice(product), slice(constants)) if the product has no other users."""
    last = i.inputs[0]
    if not isinstance(last.op, Pointwise) or len(i.inputs) > 1 or len(last.users) > 1:
        return None
    at = last
    for _ in range(8):
        if isinstance(at.op, (Dot, Convolution)):
            break
        if isinstance(at.op, Slice) and at is not last:
            return No("a slice in between could not move above its own product")
        varying = [x for x in at.inputs if not is_constant(cut_from(x))]
        if not isinstance(at.op, Pointwise) or len(varying) != 1 or len(at.users) > 1:
            return None
        at = varying[0]
    op = op_as(i, Slice)
    if not isinstance(at.op, (Dot, Convolution)) or len(at.users) > 1 or len(op.axes) != 1:
        return None
    if rows_of(at, op.axes[0]) is None and isinstance(padding_left(at, i), No):
        return No("positions along the axis depend on both operands of the product")
    return b.add(last.op, *(b.add(op, x) for x in last.inputs))


@PRODUCT_SLICES.on(Slice, reads=Multibroadcast)
def slice_of_repeated(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(multibroadcast(x)) -> multibroadcast(slice(x)), or multibroadcast(x) if only broadcast axes are sliced."""
    wide = i.inputs[0]
    if not isinstance(wide.op, Multibroadcast) or len(wide.inputs) > 1 or len(i.inputs) > 1:
        return None
    known = set[Symbol]().union(*(symbols_of(d) for d in wide.shape.dims))
    if any(symbols_of(d) - known for d in i.shape.dims):
        return No("an extent of the result is data-dependent")
    x = wide.inputs[0]
    op = op_as(i, Slice)
    offset = wide.shape.rank - x.shape.rank
    steps = op.steps or (1,) * len(op.axes)
    kept = [
        (a - offset, s, e, t)
        for a, s, e, t in zip(op.axes, op.starts, op.ends, steps, strict=True)
        if a >= offset and x.shape.dims[a - offset] == wide.shape.dims[a]
    ]
    if len(kept) < len(op.axes) and any(
        a >= offset and x.shape.dims[a - offset] not in (1, wide.shape.dims[a]) for a in op.axes
    ):
        return No("whether the sliced axis is repeated is known only at run time")
    if kept:
        axes, starts, ends, strides = zip(*kept, strict=True)
        cut = Slice(axes=axes, starts=starts, ends=ends, steps=strides if any(t != 1 for t in strides) else ())
        x = b.add(cut, x)
    return x if x.shape.dims == i.shape.dims else b.add(Multibroadcast(out_lens=i.shape.dims), x)
