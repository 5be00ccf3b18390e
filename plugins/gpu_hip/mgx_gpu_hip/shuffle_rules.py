"""Pointwise work in front of reshapes that copy: pixel shuffles, merged windows."""

from __future__ import annotations

from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.convolution import Convolution
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.movement import Transpose
from mgx_core.ops.reshape import Reshape
from mgx_core.rules.constants import is_constant, scalar_of
from mgx_core.rules.engine import Builder, Rules

__all__ = ["SHUFFLES"]

SHUFFLES: Final = Rules("pixel-shuffles")


@SHUFFLES.on(Pointwise, reads=Reshape)
def pointwise_before_shuffle(i: Instruction, b: Builder) -> Instruction | No | None:
    """f(reshape(transpose(x)), number) -> reshape(f(transpose(x), number)): f joins the copy that the reshape needs.

    Behind a product or pointwise work, f moves in front of the transpose, too, and joins that, unless its results are wider.
    """
    shuffled = [x for x in i.inputs if isinstance(x.op, Reshape) and len(x.inputs) == 1 and not is_constant(x)]
    if len(shuffled) != 1 or i.result.dynamic() or not isinstance(shuffled[0].inputs[0].op, (Transpose, Pointwise)):
        return None
    merged = shuffled[0]
    source, chain = merged.inputs[0], [merged]
    if merged.users != (i,) or source.users != (merged,):
        return No("the shuffled values have other users")
    if any(x is not merged and scalar_of(x) is None for x in i.inputs):
        return No("an operand is no number")
    if any(u.op.combine for u in i.users):
        return No("a reduction reads the result, and computes it as it reads")
    wider = i.shape.dtype.bits > source.shape.dtype.bits
    if wider and not _of_convolution(source):
        return No("rows would be moved in a wider type; the channels of an image are adjacent already")
    if isinstance(source.op, Transpose) and not wider:
        found = _in_front(source)
        chain, source = ([merged, *found], found[-1].inputs[0]) if found else (chain, source)
    made = b.add(i.op, *(source if x is merged else _number(x, source, b) for x in i.inputs))
    for view in reversed(chain):
        made = b.add(view.op, made)
    return made


def _in_front(turned: Instruction) -> list[Instruction]:
    """Returns a transpose and the reshapes between it and the product or pointwise work that it reads; empty if there is none."""
    chain, source = [turned], turned.inputs[0]
    while isinstance(source.op, Reshape) and len(source.users) == len(source.inputs) == 1:
        chain.append(source)
        source = source.inputs[0]
    works = isinstance(source.op, Pointwise) or source.op.product
    return chain if works and len(source.users) == 1 else []


def _of_convolution(value: Instruction) -> bool:
    """Returns True if views and pointwise work lead from a convolution to a value."""
    while isinstance(value.op, (Pointwise, Reshape, Transpose)):
        value = value.inputs[0]
    return isinstance(value.op, Convolution)


def _number(x: Instruction, like: Instruction, b: Builder) -> Instruction:
    """Returns a number broadcast to the extents of a value."""
    while x.inputs:
        x = x.inputs[0]
    small = x if x.shape.rank == 0 else b.add(Reshape(dims=()), x)
    return b.add(Multibroadcast(out_lens=like.shape.dims), small)
