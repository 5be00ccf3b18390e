"""Gives slices at a loop's iteration number, ``x[t : t + 1]``, known extents."""

from __future__ import annotations

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module, nested
from ..ir.symbols import found_extents
from ..ops.broadcast import Multibroadcast
from ..ops.index import Gather
from ..ops.pointwise import Add, Sub
from ..ops.slice import Slice
from ..rules.constants import whole
from ..rules.outline import through_views
from ..types.dim import Dim, compare

__all__ = ["with_known_extents"]


def with_known_extents(body: Module, trips: Dim | None) -> Module:
    """Replaces slices at the iteration number by gathers in a loop's body; returns the body.

    The extents of a slice between run-time positions depend on data, and those of everything computed from it.  They are known
    if both positions are the iteration number plus constants, and within the tensor in every iteration.
    body: (iteration: int64, ..) -> ..; trips: the largest number of iterations; None: unknown, the body stays as it is.
    """
    if trips is None:
        return body
    iteration = next(iter(body.parameters.values()))
    for inner in list(nested(body)):
        for ins in list(inner):
            found = _gathered(inner, ins, iteration, trips)
            if found is not None:
                old = ins.result
                body.substitute(found_extents(old, found.result))
                inner.replace(ins, found)
                inner.remove(ins)
    return body


def _gathered(inner: Module, ins: Instruction, iteration: Instruction, trips: Dim) -> Instruction | None:
    """Returns the gather that equals a slice at the iteration number; None for others, and where it could be clipped."""
    op = ins.op
    if not isinstance(op, Slice) or len(ins.inputs) != 3 or len(op.axes) != 1 or op.steps not in ((), (1,)):
        return None
    x, *ends = ins.inputs
    if not x.shape.ranked or any(e.is_absent or not e.shape.ranked or e.shape.dims != (1,) for e in ends):
        return None
    first, end = (_after(e, iteration) for e in ends)
    axis = op.axes[0] % x.shape.rank
    if first is None or end is None or not 0 <= first < end:
        return None
    if compare(trips + (end - 1), "<=", x.shape.dims[axis]) is not True:
        return None
    at = ends[0]
    if end - first > 1:
        count = np.arange(end - first, dtype=at.shape.dtype.numpy)
        wide = inner.add(Multibroadcast(out_lens=count.shape), at, before=ins, sources=ins.sources)
        at = inner.add(Add(), wide, inner.add_literal(count, before=ins), before=ins, sources=ins.sources)
    return inner.add(Gather(axis=axis), x, at, before=ins, sources=ins.sources)


def _after(position: Instruction, iteration: Instruction) -> int | None:
    """Returns c of a position that is the iteration number plus c."""
    source = through_views(position)
    if source is iteration:
        return 0
    if not isinstance(source.op, (Add, Sub)):
        return None
    first, second = source.inputs
    if isinstance(source.op, Add) and whole(first) is not None:
        first, second = second, first
    before, more = _after(first, iteration), whole(second)
    if before is None or more is None:
        return None
    return before + more if isinstance(source.op, Add) else before - more
