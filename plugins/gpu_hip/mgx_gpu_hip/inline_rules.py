"""Cheap pointwise work computed by its readers: moved behind the broadcasts and slices that read it."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

from mgx_core import Instruction, No
from mgx_core.ops.broadcast import Multibroadcast
from mgx_core.ops.compare import Predicate
from mgx_core.ops.convert import Convert
from mgx_core.ops.elementwise import Pointwise
from mgx_core.ops.pointwise import Abs, Add, Ceil, Floor, Max, Min, Mul, Neg, Sub, Trunc
from mgx_core.ops.reshape import Reshape, Squeeze, Unsqueeze
from mgx_core.ops.slice import Slice
from mgx_core.rules.constants import is_constant
from mgx_core.rules.engine import Builder, Rules

from .softmax_products import before_softmax

__all__ = ["INLINED"]

INLINED: Final = Rules("inline-cheap")
CHEAP: Final = (Abs, Add, Ceil, Convert, Floor, Max, Min, Mul, Neg, Predicate, Sub, Trunc)
VIEWS: Final = (Slice, Squeeze, Unsqueeze, Reshape)
FAR: Final = 8  # pointwise ops behind a product that may be its epilogue


@INLINED.on(Multibroadcast)
def broadcast_above_cheap(i: Instruction, b: Builder) -> Instruction | No | None:
    """multibroadcast(f(x, y)) -> f(multibroadcast(x), multibroadcast(y)) for a cheap f that only broadcasts read.

    f then joins the pointwise work or the reduction that reads the broadcast; alone it was a launch, and its result was written
    and read again.
    """
    work, lifted = i.inputs[0], None
    if isinstance(work.op, Unsqueeze):
        work, lifted = work.inputs[0], work.op
    if len(i.inputs) > 1 or not isinstance(work.op, CHEAP) or is_constant(work):
        return None
    if not _static(i, work) or _elements(i) == _elements(work):
        return None
    broadcasts = [u for user in work.users for u in (user.users if isinstance(user.op, Unsqueeze) else (user,))]
    if not all(isinstance(u.op, Multibroadcast) for u in broadcasts):
        return No("others than broadcasts read the result")
    refused = _refused(i, work)
    if refused is not None:
        return refused
    operands = []
    for x in work.inputs:
        source = x.inputs[0] if isinstance(x.op, Multibroadcast) and len(x.inputs) == 1 else x
        if _static(source) and _elements(source) == 1:
            x = source if source.shape.rank <= 1 else b.add(Reshape(dims=()), source)
        elif lifted is not None:
            x = b.add(lifted, x)
        operands.append(b.add(Multibroadcast(out_lens=i.shape.dims), x))
    return b.add(work.op, *operands)


@INLINED.on(Slice)
def slice_above_cheap(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(f(x, y)) -> f(slice(x), slice(y)) for a cheap f that only disjoint slices read."""
    work = i.inputs[0]
    if len(i.inputs) > 1 or not isinstance(work.op, CHEAP) or is_constant(work) or not _static(i, work):
        return None
    if not all(isinstance(u.op, Slice) and len(u.inputs) == 1 for u in work.users):
        return No("others than slices read the result")
    if sum(_elements(u) for u in work.users) > _elements(work):
        return No("the slices overlap")
    refused = _refused(i, work)
    return refused or b.add(work.op, *(b.add(i.op, x) for x in work.inputs))


@INLINED.on(Squeeze)
def squeeze_above_cheap(i: Instruction, b: Builder) -> Instruction | No | None:
    """squeeze(f(slice(x), y)) -> f(squeeze(slice(x)), squeeze(y)) for a cheap f that nothing else reads."""
    work = i.inputs[0]
    if len(i.inputs) > 1 or not isinstance(work.op, CHEAP) or len(work.users) > 1 or not _static(i, work):
        return None
    if not any(isinstance(x.op, Slice) for x in work.inputs):
        return None
    refused = _refused(i, work)
    return refused or b.add(work.op, *(b.add(i.op, x) for x in work.inputs))


def _refused(view: Instruction, work: Instruction) -> No | None:
    """Returns why the readers of a view had better not compute the work that it reads."""
    readers = _readers(view)
    if not readers or not all(isinstance(r.op, Pointwise) or r.op.combine for r in readers):
        return No("other work than pointwise one and reductions reads the view")
    if any(before_softmax(r) for r in readers):
        return No("attention reads the view")
    if _ends_product(work) or any(_ends_product(x) for r in readers for x in r.inputs if not _reads(x, view)):
        return No("a product ends with the work, or with that of its readers")
    return None


def _static(*of: Instruction) -> bool:
    return all(not i.result.dynamic() for i in of)


def _elements(ins: Instruction) -> int:
    return prod(int(n) for n in ins.shape.dims)


def _readers(view: Instruction) -> Sequence[Instruction]:
    """Returns the readers of a view, also through slices and reshapes."""
    return [r for u in view.users for r in (_readers(u) if isinstance(u.op, VIEWS) else (u,))]


def _reads(value: Instruction, view: Instruction) -> bool:
    """Returns True if a value is a view, sliced or reshaped."""
    while value is not view and isinstance(value.op, VIEWS):
        value = value.inputs[0]
    return value is view


def _ends_product(value: Instruction, steps: int = FAR) -> bool:
    """Returns True if a product or its epilogue may compute a value."""
    while value.op.view is not None and value.inputs:
        value = value.inputs[0]
    if not isinstance(value.op, Pointwise):
        return bool(value.op.product)
    return not steps or any(_ends_product(x, steps - 1) for x in value.inputs)
