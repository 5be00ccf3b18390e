"""Compile-time values of small integer vectors that hold extents (shape arithmetic)."""

from __future__ import annotations

import operator
from functools import reduce
from typing import Any, Final

import numpy as np

from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.fill import DimensionsOf
from ..ops.index import Gather
from ..ops.pointwise import Add, Max, Min, Mul, Sub
from ..ops.reduce import ReduceMax, ReduceMin
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..types import dtype as dt
from ..types.dim import Dim, Sym, maximum, minimum
from ..types.shape import Shape

__all__ = ["extents", "given", "ints"]

LONGEST: Final = 16  # the most elements of a vector of extents
DEEPEST: Final = 12  # the longest chain of ops to follow
_ELEMENTWISE: Final = {Add: operator.add, Sub: operator.sub, Mul: operator.mul, Min: minimum, Max: maximum}
_COMBINED: Final = {ReduceMin: minimum, ReduceMax: maximum}
FOLLOWED: Final = (Gather, Slice, Concat, Squeeze, Unsqueeze, Reshape, Multibroadcast, *_ELEMENTWISE, *_COMBINED)


def extents(ins: Instruction, depth: int = DEEPEST) -> tuple[Dim, ...] | None:
    """Returns the elements of a small integer vector or scalar as static or symbolic extents, or None if unknown."""
    shape = ins.result
    if not isinstance(shape, Shape) or not shape.ranked or shape.rank > 1 or shape.dtype not in (dt.int64, dt.int32):
        return None
    if ins.literal is not None:
        value = ins.literal.value
        return tuple(int(v) for v in np.asarray(value).reshape(-1)) if np.size(value) <= LONGEST else None
    if depth == 0 or not ins.inputs:
        return None
    if isinstance(ins.op, DimensionsOf):
        x = ins.inputs[0].result
        return x.dims[ins.op.start : ins.op.end] if isinstance(x, Shape) and x.ranked else None
    if not isinstance(ins.op, FOLLOWED):
        return None
    known = [extents(x, depth - 1) for x in ins.inputs]
    parts = [p for p in known if p is not None]
    if len(parts) < len(known):
        return None
    return _followed(ins, parts)


def _followed(ins: Instruction, parts: list[tuple[Dim, ...]]) -> tuple[Dim, ...] | None:
    x = parts[0]
    match ins.op:
        case Gather():
            at = parts[1]
            good = all(isinstance(n, int) and -len(x) <= n < len(x) for n in at)
            return tuple(x[n] for n in at if isinstance(n, int)) if good else None
        case Slice() if len(parts) == 1:
            op: Slice = ins.op
            if len(op.starts) != 1 or isinstance(op.starts[0], Sym) or isinstance(op.ends[0], Sym):
                return None
            return x[op.starts[0] : op.ends[0] : op.steps[0] if op.steps else 1]
        case Concat():
            return tuple(d for p in parts for d in p)
        case Squeeze() | Unsqueeze() | Reshape():
            return x
        case Multibroadcast() if len(parts) == 1 and len(x) == 1 and not ins.shape.dynamic():
            return x * ins.shape.elements() if ins.shape.elements() <= LONGEST else None
        case Add() | Sub() | Mul() | Min() | Max() if len(parts[0]) == len(parts[1]):
            do: Any = _ELEMENTWISE[type(ins.op)]
            return tuple(do(p, q) for p, q in zip(*parts, strict=True))
        case ReduceMin() | ReduceMax() if (
            len(parts) == 1 and x and not ins.shape.dynamic() and ins.shape.elements() == 1
        ):
            return (reduce(_COMBINED[type(ins.op)], x),)
    return None


def given(i: Instruction, *which: int) -> list[tuple[Dim, ...] | None] | None:
    """Returns operands as extents, None for absent ones; None if one is unknown."""
    out: list[tuple[Dim, ...] | None] = []
    for n in which:
        if n >= len(i.inputs) or i.inputs[n].is_absent:
            out.append(None)
            continue
        found = extents(i.inputs[n])
        if found is None:
            return None
        out.append(found)
    return out


def ints(values: tuple[Dim, ...] | None) -> tuple[int, ...] | None:
    """Returns the extents if all are static."""
    if values is None:
        return None
    fixed = tuple(v for v in values if isinstance(v, int))
    return fixed if len(fixed) == len(values) else None
