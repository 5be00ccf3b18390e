"""Folds pads into convolutions, pooling and transforms, joins them, and removes empty ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.activation import Relu, Sigmoid
from ..ops.columns import Im2col
from ..ops.convolution import Convolution, Windowed
from ..ops.movement import Transpose
from ..ops.pad import Pad
from ..ops.pointwise import Clip
from ..ops.pooling import Pooling
from ..ops.quantized_product import QuantConvolution
from ..ops.reshape import Unsqueeze
from ..ops.window import sides
from .constants import scalar_of
from .engine import Builder, Rules
from .matching import op_as

if TYPE_CHECKING:
    from ..ops.fourier import Dft

__all__ = ["PADS"]

PADS: Final = Rules("eliminate-pad")


def widths(pad: Instruction) -> list[tuple[int, int]] | None:
    """Returns begin and end of each axis of a pad with fixed widths."""
    if not isinstance(pad.op, Pad) or any(not x.is_absent for x in (*pad.inputs[1:2], *pad.inputs[3:])):
        return None
    pads = pad.op.pads
    rank = len(pads) // 2
    pairs = [(b, e) for b, e in zip(pads[:rank], pads[rank:], strict=True) if isinstance(b, int) and isinstance(e, int)]
    return pairs if len(pairs) == rank else None


def border(pad: Instruction) -> float | None:
    """Returns the constant value of a pad's border."""
    if not isinstance(pad.op, Pad) or pad.op.mode != "constant":
        return None
    if len(pad.inputs) > 2 and not pad.inputs[2].is_absent:
        return scalar_of(pad.inputs[2])
    return pad.op.value


@PADS.on(Pad)
def drop_pad_of_nothing(i: Instruction, b: Builder) -> Instruction | No | None:
    """pad(x) with widths of 0 -> x."""
    found = widths(i)
    return i.inputs[0] if found is not None and all(p == (0, 0) for p in found) else None


@PADS.on(Pad)
def join_pads(i: Instruction, b: Builder) -> Instruction | No | None:
    """pad(pad(x)) -> pad(x) for one constant value."""
    inner = i.inputs[0]
    if not isinstance(inner.op, Pad):
        return None
    outer, below = widths(i), widths(inner)
    value = border(i)
    if outer is None or below is None or value is None or border(inner) != value or len(inner.users) > 1:
        return No("the borders differ, are not constant, or the inner one has other users")
    if min(min(p) for p in (*outer, *below)) < 0:
        return No("a width is negative")
    both = [(p[0] + q[0], p[1] + q[1]) for p, q in zip(outer, below, strict=True)]
    pads = (*(p[0] for p in both), *(p[1] for p in both))
    return b.add(Pad(pads=pads, value=value), inner.inputs[0])


@PADS.on(Convolution, Im2col)
def pad_into_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(pad(x, 0), w) -> convolution(x, w) with more padding; im2col likewise."""
    at = 0 if isinstance(i.op, Convolution) else next((n for n, x in enumerate(i.inputs) if isinstance(x.op, Pad)), 0)
    pad = i.inputs[at]
    if not isinstance(pad.op, Pad):
        return None
    if isinstance(i.op, Convolution) and i.op.padding_mode != "default":
        return No("the convolution's padding follows from the extents")
    if border(pad) != 0:
        return No("the border is not 0")
    padding = _more(i.op.padding if isinstance(i.op, Convolution) else op_as(i, Im2col).padding, pad)
    if isinstance(padding, No):
        return padding
    operands = list(i.inputs)
    operands[at] = pad.inputs[0]
    return b.add(i.op.replace(padding=padding), *operands)


@PADS.on(Convolution, QuantConvolution)
def moved_pad_into_convolution(i: Instruction, b: Builder) -> Instruction | No | None:
    """convolution(transpose(pad(x, 0)), w) -> convolution(transpose(x), w) with more padding.

    Also quant_convolution, whose zero point is the border value, and without a transpose.
    """
    op, turned = op_as(i, Windowed), i.inputs[0]
    order = list(turned.op.permutation) if isinstance(turned.op, Transpose) else []
    pad = turned.inputs[0] if order else turned
    if not isinstance(pad.op, Pad) or (not order and isinstance(i.op, Convolution)):
        return None
    zero: float | None = 0.0
    if isinstance(i.op, QuantConvolution) and len(i.inputs) > 2 and not i.inputs[2].is_absent:
        zero = scalar_of(i.inputs[2])
    if zero is None or border(pad) != zero:
        return No("the border is not the zero point")
    if op.padding_mode != "default":
        return No("the convolution's padding follows from the extents")
    if order and len(turned.users) > 1:
        return No("the padded tensor has other users")
    padding = _more(op.padding, pad, order)
    if isinstance(padding, No):
        return padding
    x = pad.inputs[0] if not order else b.add(turned.op, pad.inputs[0])
    return b.add(op.replace(padding=padding), x, *i.inputs[1:])


@PADS.on(Pooling)
def pad_into_pooling(i: Instruction, b: Builder) -> Instruction | No | None:
    """max pooling of pad(x, -infinity), average pooling of pad(x, 0) -> the same of x with more padding.

    For max pooling the border may be any lower bound of x, such as 0 after a relu.
    """
    pad = i.inputs[0]
    if not isinstance(pad.op, Pad):
        return None
    op = op_as(i, Pooling)
    if op.padding_mode != "default" or op.ceil_mode or op.dyn_global:
        return No("the windows follow from the extents")
    value, own = border(pad), any(op.padding)
    lowest = i.shape.dtype.lowest if i.shape.dtype.is_integer else -math.inf
    if op.mode == "max":
        if value is None or value > max(lowest, _least(pad.inputs[0])):
            return No("the border could be a maximum")
    elif value != 0 or (op.mode == "average" and own and not op.count_include_pad):
        return No("the border is not 0, or is excluded from the average")
    padding = _more(op.padding, pad)
    if isinstance(padding, No):
        return padding
    spread = any(d != 1 for d in op.dilations) or any(p >= n for p, n in zip(padding, op.lengths * 2, strict=True))
    if op.mode == "max" and value is not None and value > lowest and spread:
        return No("a window could cover only padding")
    changes = {"padding": padding}
    if op.mode == "average":
        return b.add(op.replace(**changes, count_include_pad=True), pad.inputs[0])
    return b.add(op.replace(**changes), pad.inputs[0])


@PADS.on("mgx_core.ops.fourier:Dft", reads=Pad)
def pad_into_transform(i: Instruction, b: Builder) -> Instruction | No | None:
    """dft(pad(x, 0)) with zeros after the signal or spectrum -> dft(x) of the same length; also if unsqueezed in between."""
    views, at = [], i.inputs[0]
    while isinstance(at.op, Unsqueeze):
        views.append(at.op)
        at = at.inputs[0]
    if not isinstance(at.op, Pad) or len(i.inputs) > 1:
        return None
    op = cast("Dft", i.op)
    found, rank = widths(at), i.shape.rank
    axis = op.along(rank, op.axis)
    length = op.dft_length or (i if op.inverse else i.inputs[0]).shape.dims[axis]
    if found is None or border(at) != 0 or len(views) > 1 or any(v.axes not in ((-1,), (rank - 1,)) for v in views):
        return No("the border is not of zeros of known width")
    others = [p for a, p in enumerate(found) if a != axis]
    if found[axis][0] or found[axis][1] < 0 or any(p != (0, 0) for p in others):
        return No("the zeros are not only after the signal")
    x = at.inputs[0]
    for view in views:
        x = b.add(view, x)
    return b.add(op.replace(dft_length=length), x)


def _least(x: Instruction) -> float:
    """Returns a lower bound of all elements of x, derived from its op."""
    match x.op:
        case Relu() | Sigmoid():
            return 0.0
        case Clip():
            low = scalar_of(x.inputs[1])
            return -math.inf if low is None else low
    return -math.inf


def _more(padding: Sequence[int], pad: Instruction, order: Sequence[int] = ()) -> tuple[int, ...] | No:
    """Returns a window op's padding plus that of a pad before it; order: the permutation of the axes between the two."""
    found = widths(pad)
    if found is None:
        return No("the widths are known only at run time")
    found = [found[a] for a in order] or found
    if len(pad.users) > 1:
        return No("the padded tensor has other users")
    if any(p != (0, 0) for p in found[:2]) or min(min(p) for p in found) < 0:
        return No("batch or channels are padded, or an axis is cropped")
    begins, ends = sides(padding, len(found) - 2)
    before = [p[0] + q for p, q in zip(found[2:], begins, strict=True)]
    after = [p[1] + q for p, q in zip(found[2:], ends, strict=True)]
    return (*before, *after)
