"""Slice and select scatter: tensors written into parts of others."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dim as dims_
from mgx_core import dtype as dt

from ..complex_parts import by_parts
from ..node import Node
from .casts import cast
from .movement import bounded, from_start

__all__ = ["placed"]


@by_parts("copy")
def copy(n: Node, x: Instruction, source: Instruction, *_: Any) -> Instruction:
    return n.broadcast_to(cast(n, source, x.shape.dtype), x.shape.dims)


@by_parts("slice_scatter")
def slice_scatter(
    n: Node, x: Instruction, source: Instruction, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Instruction:
    axis = n.axis(dim, x.shape.rank)
    length = x.shape.dims[axis]
    low, high = bounded(start, length, 0), bounded(end, length, length)
    if step == 1:
        high = dims_.maximum(low, high)
        dims = list(x.shape.dims)
        dims[axis] = high - low
        source = n.broadcast_to(n.convert(source, x.shape.dtype), dims)
        pieces = [source]
        if low != 0:
            pieces.insert(0, n.slice(x, [axis], [0], [low]))
        if high != length:
            pieces.append(n.slice(x, [axis], [high], [length]))
        return n.add("concat", *pieces, axis=axis) if len(pieces) > 1 else source
    if isinstance(low, int) and isinstance(high, int):
        return placed(n, x, n.literal(np.arange(low, high, step), dt.int64), source, axis)
    count = dims_.ceil_div(dims_.maximum(high - low, 0), step)
    limits = [n.tensor(v, dt.int64) for v in (low, low + count * step, step)]
    return placed(n, x, n.add("dynamic_range", *limits, length=count), source, axis)


def placed(n: Node, x: Instruction, positions: Instruction, source: Instruction, axis: int) -> Instruction:
    """Returns x with slices replaced along an axis."""
    order = [axis, *(a for a in range(x.shape.rank) if a != axis)]
    back = [order.index(a) for a in range(len(order))]
    lead, put = n.transpose(x, order), n.transpose(n.convert(source, x.shape.dtype), order)
    return n.transpose(n.add("scatternd_none", lead, n.unsqueeze(positions, [1]), put), back)


@by_parts("select_scatter")
def select_scatter(n: Node, x: Instruction, source: Instruction, dim: int, index: Any) -> Instruction:
    axis = n.axis(dim, x.shape.rank)
    source = n.unsqueeze(n.convert(source, x.shape.dtype), [axis])
    if isinstance(index, Instruction):
        return placed(n, x, n.reshape(index, (1,)), source, axis)
    length = x.shape.dims[axis]
    at = from_start(index, length)
    pieces = [source]
    if at != 0:
        pieces.insert(0, n.slice(x, [axis], [0], [at]))
    if at + 1 != length:
        pieces.append(n.slice(x, [axis], [at + 1], [length]))
    return n.add("concat", *pieces, axis=axis) if len(pieces) > 1 else source
