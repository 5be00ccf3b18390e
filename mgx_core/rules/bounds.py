"""Minimum, maximum, clip and where."""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.activation import Relu
from ..ops.compare import Equal, Not, NotEqual
from ..ops.pointwise import Clip, Max, Min, Where
from .constants import aligned, bound, decided, split, spread, uniform
from .engine import Builder, Rules
from .matching import certain, one_user

__all__ = ["BOUNDS"]

BOUNDS: Final = Rules("simplify-bounds")


@BOUNDS.on(Max, Min)
def join_bounds(i: Instruction, b: Builder) -> Instruction | No | None:
    """max(max(x, c), d) -> max(x, max(c, d)), min likewise; max(x, x) -> x."""
    if i.inputs[0] is i.inputs[1]:
        return i.inputs[0]
    found = split(i)
    if found is None or type(found[0].op) is not type(i.op):
        return None
    parts = split(found[0])
    if parts is None or len(found[0].users) > 1:
        return None
    c, d = aligned(parts[1]), aligned(found[1])
    if c is None or d is None:
        return None
    op: Any = i.op
    return b.add(i.op, parts[0], spread(b, np.asarray(op.compute(c, d)), i.shape.dims, i))


@BOUNDS.on(Max)
def relu_from_max(i: Instruction, b: Builder) -> Instruction | No | None:
    """max(x, 0) -> relu(x)."""
    found = split(i)
    return b.add(Relu(), found[0]) if found and i.shape.dtype.kind in "if" and uniform(found[1]) == 0 else None


@BOUNDS.on(Max, Min)
def clip_from_bounds(i: Instruction, b: Builder) -> Instruction | No | None:
    """min(max(x, low), high), max(min(x, high), low) -> clip(x, low, high), low <= high."""
    found = split(i)
    if found is None or i.shape.dtype.kind not in "iuf":
        return None
    inner, outer = found
    least = isinstance(i.op, Min)
    low: float | None
    if isinstance(inner.op, Relu) and least:
        x, low, high = inner.inputs[0], 0.0, bound(outer)
        floor = spread(b, np.zeros(()), i.shape.dims, i)
    else:
        if not isinstance(inner.op, Max if least else Min):
            return None
        parts = split(inner)
        if parts is None:
            return None
        x, floor = parts[0], parts[1] if least else outer
        low, high = bound(parts[1]), bound(outer)
        if not least:
            low, high, outer = high, low, parts[1]
    if low is None or high is None or not low <= high or len(inner.users) > 1:
        return None
    return b.add(Clip(), x, floor, outer)


@BOUNDS.on(Clip)
def join_clips(i: Instruction, b: Builder) -> Instruction | No | None:
    """clip(clip(x, a, b), c, d), clip(relu(x), c, d) -> one clip."""
    inner = i.inputs[0]
    if not isinstance(inner.op, (Clip, Relu)) or len(inner.users) > 1:
        return None
    bounds = [bound(v) for v in (*i.inputs[1:], *(inner.inputs[1:] if isinstance(inner.op, Clip) else ()))]
    known = [v for v in bounds if v is not None]
    if len(known) < len(bounds):
        return No("the bounds are not known")
    low, high, first, last = (*known, 0.0, math.inf)[:4] if len(known) == 2 else known
    if not (low <= high and first <= last):
        return No("the bounds cross")
    dims = i.shape.dims
    lower, upper = (min(max(v, low), high) for v in (first, last))
    made = [spread(b, np.asarray(v), dims, i) for v in (lower, upper)]
    return b.add(Clip(), inner.inputs[0], *made)


@BOUNDS.on(Relu)
def relu_of_clip(i: Instruction, b: Builder) -> Instruction | No | None:
    """relu(clip(x, low, high)) -> clip(x, max(low, 0), max(high, 0))."""
    inner = i.inputs[0]
    if not isinstance(inner.op, Clip):
        return None
    low, high = (bound(v) for v in inner.inputs[1:])
    if low is None or high is None:
        return No("the bounds are not known")
    if 0 <= low <= high:
        return inner
    if len(inner.users) > 1 or not low <= high:
        return No("the clip has other users, or its bounds cross")
    made = [spread(b, np.asarray(max(v, 0)), i.shape.dims, i) for v in (low, high)]
    return b.add(Clip(), inner.inputs[0], *made)


# where ----------------------------------------------------------------------------------------------------------------


@BOUNDS.on(Where)
def known_choice(i: Instruction, b: Builder) -> Instruction | No | None:
    """where(true, x, y) -> x; where(false, x, y) -> y; where(c, x, x) -> x."""
    c, x, y = i.inputs
    answer = decided(c)
    if answer is None and x is not y:
        return None
    kept, dropped = (y, x) if answer is False else (x, y)
    if any(v.shape.dims != i.shape.dims for v in i.inputs) or not all(
        certain(v) for v in (c, dropped) if v is not kept
    ):
        return No("whether the operands' extents fit is known only at run time")
    return kept


@BOUNDS.on(Where)
def choice_by_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """where(not c, x, y) -> where(c, y, x)."""
    c, x, y = i.inputs
    return b.add(Where(), c.inputs[0], y, x) if isinstance(c.op, Not) else None


@BOUNDS.on(Not)
def push_negation(i: Instruction, b: Builder) -> Instruction | No | None:
    """not not x -> x; not (x == y) -> x != y."""
    inner = i.inputs[0]
    if isinstance(inner.op, Not):
        return inner.inputs[0]
    if isinstance(inner.op, Equal) and one_user(inner) and inner.inputs[0].shape.dtype.kind != "s":
        return b.add(NotEqual(), *inner.inputs)
    return None
