"""Moves reshapes, transposes and broadcasts below their users."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.convert import Convert
from ..ops.elementwise import Pointwise
from ..ops.index import Gather
from ..ops.movement import Transpose
from ..ops.norm import LayerNorm, RmsNorm
from ..ops.pointwise import Mul
from ..ops.reduce import Reduce, ReduceMax, ReduceMean, ReduceMin
from ..ops.reshape import Reshape
from ..ops.softmax import Logsoftmax, Softmax
from ..types.argument import Array
from ..types.dim import Dim, Sym, product
from ..types.shape import Shape
from .constants import aligned, is_constant, scalar_of
from .engine import ROUNDING, Builder, Rules
from .matching import either, one_user, op_as
from .outline import through_views
from .view_chain import ViewChain
from .views import GROUPING

__all__ = ["VIEWS_BELOW"]

VIEWS_BELOW: Final = Rules("simplify-reshapes")

ALONG: Final = (Reduce, Softmax, Logsoftmax, LayerNorm, RmsNorm)


def order_of(ins: Instruction) -> tuple[int, ...]:
    """Returns the permutation of a transpose."""
    return op_as(ins, Transpose).order(ins.shape.rank)


def sole(ins: Instruction, reader: Instruction) -> bool:
    """Returns True if `reader` is the only user of an instruction."""
    return ins.users == (reader,)


def reduced(ins: Instruction) -> bool:
    """Returns True if a reduction reads an instruction: the two can be fused, but not across a view."""
    return any(isinstance(u.op, ALONG) for u in ins.users)


@VIEWS_BELOW.on(Pointwise, reads=Transpose)
def transpose_below_pointwise(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(transpose(x), transpose(y), constant) -> transpose(f(x, y, constant))."""
    first = next((x for x in i.inputs if isinstance(x.op, Transpose)), None)
    if first is None:
        return None
    rank = i.shape.rank
    order = order_of(first)
    turned = [x for x in i.inputs if isinstance(x.op, Transpose) and order_of(x) == order]
    others = [x for x in i.inputs if x not in turned]
    if not all(is_constant(x) for x in others) or all(is_constant(x) for x in turned):
        return No("an operand is neither constant nor transposed in the same way") if others else None
    if not all(sole(x, i) for x in turned):
        return No("the transposed operand has other users")
    gain = len(set(turned)) > 1 or any(isinstance(u.op, Transpose) for u in i.users)
    above = turned[0].inputs[0]
    if not gain and not (one_user(above) and (isinstance(above.op, Pointwise) or above.op.product)):
        return No("no operations would become fusible")
    if reduced(i) and not gain:
        return No("a reduction reads the result")
    back = [order.index(a) for a in range(rank)]
    dims = turned[0].inputs[0].shape.dims
    operands = []
    for x in i.inputs:
        if x in turned:
            operands.append(x.inputs[0])
            continue
        value = aligned(x)
        if value is None:
            return No("a constant cannot be transposed")
        whole = value.reshape((1,) * (rank - value.ndim) + value.shape)
        made = b.literal(value.reshape(()) if value.size == 1 else whole.transpose(back))
        operands.append(made if made.shape.dims == dims else b.add(Multibroadcast(out_lens=dims), made))
    return b.add(Transpose(permutation=order), b.add(i.op, *operands))


@VIEWS_BELOW.on(Pointwise, reads=GROUPING)
def reshape_below_pointwise(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(reshape(x), reshape(y), constant) -> reshape(f(x, y, constant)) if x is pointwise too."""
    reshaped = [x for x in i.inputs if isinstance(x.op, GROUPING) and len(x.inputs) == 1 and not is_constant(x)]
    if not reshaped:
        return None
    if not isinstance(reshaped[0].inputs[0].result, Shape) or not reshaped[0].inputs[0].result.ranked:
        return None
    dims = reshaped[0].inputs[0].shape.dims
    if any(x.inputs[0].shape.dims != dims or not sole(x, i) for x in reshaped):
        return No("the operands are reshaped from different extents, or have other users")
    above = [x.inputs[0] for x in reshaped]
    if not any(isinstance(x.op, Pointwise) and one_user(x) for x in above) or reduced(i):
        return No("no operations would become fusible")
    operands = []
    for x in i.inputs:
        if x in reshaped:
            operands.append(x.inputs[0])
            continue
        moved = _reshaped_constant(b, x, i.shape.dims, dims)
        if moved is None:
            return No("an operand is neither reshaped in the same way nor a constant that can be")
        operands.append(moved)
    made = b.add(i.op, *operands)
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), made)


@VIEWS_BELOW.on(Convert, reads=(*GROUPING, Transpose, Mul))
def views_below_narrowing(i: Instruction, b: Builder) -> Instruction | No | None:
    """convert(reshape(transpose(x))) to a narrower type -> reshape(transpose(convert(x))) if x is pointwise or a product.

    The views then move less, and the conversion joins the computation of x.  The views may be scaled before the conversion.
    One view alone: see the rules above.
    """
    chain, x = [], i.inputs[0]
    scaled = _scaled(x) if one_user(x) else None
    if scaled is not None:
        x = scaled[0]
    while isinstance(x.op, (*GROUPING, Transpose)) and len(x.inputs) == 1 and one_user(x):
        chain.append(x)
        x = x.inputs[0]
    if len(chain) < 2 or i.shape.dtype.bits >= x.shape.dtype.bits:
        return None
    if not ((isinstance(x.op, Pointwise) or x.op.product) and one_user(x)) or reduced(i):
        return No("no operations would become fusible")
    made = x
    if scaled is not None:
        factor = b.literal(scaled[1])
        made = b.add(Mul(), x, b.add(Multibroadcast(out_lens=x.shape.dims), factor))
    made = b.add(i.op, made)
    for ins in reversed(chain):
        made = b.add(ins.op, made)
    return made


def _scaled(ins: Instruction) -> tuple[Instruction, Array] | None:
    """Returns x and the number of a product x * number; None for anything else."""
    if not isinstance(ins.op, Mul):
        return None
    for x, factor in either(ins):
        source = through_views(factor)
        if scalar_of(factor) is not None and source.literal is not None:
            return x, np.asarray(source.literal.value).reshape(())  # as a float, an integer might be rounded
    return None


def _reshaped_constant(b: Builder, x: Instruction, old: tuple[Dim, ...], new: tuple[Dim, ...]) -> Instruction | None:
    """Reshapes a constant from `old` extents to `new`: uniform, varying along an unchanged last axis, or full."""
    value = aligned(x)
    if value is None:
        return None
    if value.size == 1:
        value = value.reshape(())
    elif value.shape == old and not any(isinstance(d, Sym) for d in new):
        value = value.reshape([int(d) for d in new])
    elif value.shape[-1] == value.size and new and old[-1] == new[-1]:
        value = value.reshape(-1)
    else:
        return None
    made = b.literal(value)
    return made if made.shape.dims == new else b.add(Multibroadcast(out_lens=new), made)


@VIEWS_BELOW.on(Pointwise, reads=Multibroadcast)
def broadcast_below_pointwise(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(multibroadcast(x), multibroadcast(y)) -> multibroadcast(f(x, y)) if that is smaller than the result."""
    if not all(isinstance(x.op, Multibroadcast) and len(x.inputs) == 1 for x in i.inputs):
        return None
    inner = [x.inputs[0] for x in i.inputs]
    if all(is_constant(x) for x in inner):
        return None
    full = i.shape.dims
    rank = max(x.shape.rank for x in inner)
    small: list[Dim] = []
    for axis in range(1, rank + 1):
        own = {x.shape.dims[-axis] for x in inner if x.shape.rank >= axis}
        small.insert(0, full[-axis] if full[-axis] in own else 1)
        if not own <= {1, full[-axis]}:
            return No("whether an axis is broadcast is known only at run time")
    dims = tuple(small)
    if dims == full or product(dims) == product(full):
        return None
    operands = [x if x.shape.dims == dims else b.add(Multibroadcast(out_lens=dims), x) for x in inner]
    return b.add(Multibroadcast(out_lens=full), b.add(i.op, *operands))


@VIEWS_BELOW.on(Reduce)
def drop_reduction_of_units(i: Instruction, b: Builder) -> Instruction | No | None:
    """A sum, mean, product, maximum or minimum over axes of extent 1 -> x."""
    if len(i.inputs) > 1 or not i.inputs[0].shape.ranked or not i.op.combine:
        return None
    x = i.inputs[0]
    return x if all(x.shape.dims[a] == 1 for a in i.op.reduced_axes(x.shape.rank)) else None


def _reduction(i: Instruction) -> tuple[Instruction, tuple[int, ...]] | None:
    if len(i.inputs) > 1 or not i.inputs[0].shape.ranked:
        return None
    x = i.inputs[0]
    return x, i.op.reduced_axes(x.shape.rank)


@VIEWS_BELOW.on(Reduce, reads=Reduce, changes=ROUNDING)
def join_reductions(i: Instruction, b: Builder) -> Instruction | No | None:
    """sum(sum(x)) -> sum(x) over all axes; also means, products, maxima, minima."""
    found = _reduction(i)
    if found is None or type(found[0].op) is not type(i.op):
        return None
    inner, axes = found
    below = _reduction(inner)
    if below is None or len(inner.users) > 1:
        return None
    if isinstance(i.op, ReduceMean) and i.shape.dtype.is_integer:
        return No("means of integers are rounded at each step")
    return b.add(i.op.replace(axes=tuple(sorted({*axes, *below[1]}))), below[0])


def _transposed_reduction(i: Instruction, b: Builder) -> Instruction | No | None:
    found = _reduction(i)
    if found is None or not isinstance(found[0].op, Transpose):
        return None
    turned, axes = found
    if len(turned.users) > 1:
        return No("the transposed tensor has other users")
    order = order_of(turned)
    made = b.add(i.op.replace(axes=tuple(sorted(order[a] for a in axes))), turned.inputs[0])
    return b.add(Transpose(permutation=order), made)


@VIEWS_BELOW.on(ReduceMax, ReduceMin, reads=Transpose)
def transpose_below_extreme(i: Instruction, b: Builder) -> Instruction | No | None:
    """max(transpose(x)) -> transpose(max(x)); also min."""
    return _transposed_reduction(i, b)


@VIEWS_BELOW.on(Reduce, reads=Transpose, changes=ROUNDING)
def transpose_below_reduction(i: Instruction, b: Builder) -> Instruction | No | None:
    """sum(transpose(x)) -> transpose(sum(x)); also other reductions."""
    return None if isinstance(i.op, (ReduceMax, ReduceMin)) else _transposed_reduction(i, b)


@VIEWS_BELOW.on(Reduce, reads=GROUPING)
def reshape_below_reduction(i: Instruction, b: Builder) -> Instruction | No | None:
    """sum(reshape(x)) -> reshape(sum(x)) if the reduced axes are whole axes of x; also other reductions."""
    found = _reduction(i)
    if found is None or not isinstance(found[0].op, GROUPING) or len(found[0].inputs) > 1:
        return None
    shaped, axes = found
    x = shaped.inputs[0]
    if (
        not isinstance(x.result, Shape)
        or not x.result.ranked
        or any(d == 0 for d in (*x.shape.dims, *shaped.shape.dims))
    ):
        return None
    views = ViewChain(x.shape.dims)
    if not views.follow(shaped.op, shaped.shape.dims):
        return No("the reshaped axes are not factors of those of x")
    removed = {id(p) for a in axes for p in views.axes[a]}
    own = [n for n, parts in enumerate(views.source) if parts and all(id(p) in removed for p in parts)]
    whole = {id(p) for n in own for p in views.source[n]}
    if whole != removed or not own:
        return No("the reduced axes are parts of axes of x")
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), b.add(i.op.replace(axes=tuple(own)), x))


@VIEWS_BELOW.on(Concat, reads=Transpose)
def transpose_below_concat(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(transpose(x), transpose(y)) -> transpose(concat(x, y))."""
    if not all(isinstance(x.op, Transpose) and one_user(x) for x in i.inputs) or len(i.inputs) < 2:
        return None
    order = order_of(i.inputs[0])
    if any(order_of(x) != order for x in i.inputs):
        return No("the operands are transposed differently")
    axis: int = op_as(i, Concat).axis
    axis = axis + i.shape.rank if axis < 0 else axis
    return b.add(Transpose(permutation=order), b.add(Concat(axis=order[axis]), *(x.inputs[0] for x in i.inputs)))


@VIEWS_BELOW.on(Gather, reads=Transpose)
def transpose_below_gather(i: Instruction, b: Builder) -> Instruction | No | None:
    """gather(transpose(x), vector) -> transpose(gather(x, vector)): fewer elements are moved."""
    turned, indices = i.inputs
    if not isinstance(turned.op, Transpose) or indices.shape.rank != 1:
        return None
    if is_constant(turned.inputs[0]) or not all(isinstance(u.op, Gather) for u in turned.users):
        return No("the transposed tensor has other users than gathers, or is constant")
    order = order_of(turned)
    axis: int = op_as(i, Gather).axis
    axis = axis + len(order) if axis < 0 else axis
    return b.add(Transpose(permutation=order), b.add(Gather(axis=order[axis]), turned.inputs[0], indices))


@VIEWS_BELOW.on(Concat, reads=Multibroadcast)
def broadcast_below_concat(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(multibroadcast(x), multibroadcast(y)) -> multibroadcast(concat(x, y)) if both broadcast over the same axes."""
    if len(i.inputs) < 2 or not all(isinstance(x.op, Multibroadcast) and len(x.inputs) == 1 for x in i.inputs):
        return None
    axis: int = op_as(i, Concat).axis
    rank = i.shape.rank
    axis = axis + rank if axis < 0 else axis
    inner = [x.inputs[0] for x in i.inputs]
    own = inner[0].shape.rank
    at = axis - (rank - own)
    if any(x.shape.rank != own for x in inner) or at < 0:
        return None
    if any(x.shape.dims[at] != w.shape.dims[axis] for x, w in zip(inner, i.inputs, strict=True)):
        return None
    around = {(x.shape.dims[:at], x.shape.dims[at + 1 :]) for x in inner}
    if len(around) > 1:
        return No("the operands broadcast over different axes")
    return b.add(Multibroadcast(out_lens=i.shape.dims), b.add(Concat(axis=at), *inner))
