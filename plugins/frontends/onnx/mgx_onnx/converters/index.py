"""Indexing: Gather and Scatter families, OneHot, Trilu."""

from __future__ import annotations

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node

SMALL = 1 << 20  # largest mask, in elements, that is stored as a constant


def _inside(n: Node, indices: Instruction, length: object) -> None:
    """Errors: ParseError if an index is known to be out of range."""
    known = n.constant(indices) if isinstance(length, int) else None
    if known is not None and known.size and known.dtype.kind in "iu" and isinstance(length, int):
        low, high = int(known.min()), int(known.max())
        if low < -length or high >= length:
            n.fail(f"indices must lie in [{-length}, {length - 1}], got {low if low < -length else high}")


@converts("Gather")
def gather(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    (axis,) = n.axes([n.attr("axis", 0)], x.shape.rank)
    _inside(n, indices, x.shape.dims[axis])
    return n.add("gather", x, indices, axis=axis)


@converts("GatherElements", since=11)
def gather_elements(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    (axis,) = n.axes([n.attr("axis", 0)], x.shape.rank)
    _inside(n, indices, x.shape.dims[axis])
    return n.add("gather_elements", x, indices, axis=axis)


@converts("GatherND", since=11)
@converts("GatherND", domain="com.microsoft")
def gather_nd(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    return n.add("gathernd", x, indices, batch_dims=n.attr("batch_dims", 0))


def _reduction(n: Node) -> str:
    allowed = ("none", "add", "mul", "max", "min")  # some models use them before opsets 16 and 18, which define them
    found: str = n.attr("reduction", "none")
    if found not in allowed:
        n.fail(f"reduction must be one of {', '.join(allowed)}, got {found!r}")
    return found


@converts("Scatter", "ScatterElements", since=9)
def scatter_elements(n: Node, data: Instruction, indices: Instruction, updates: Instruction) -> Instruction:
    (axis,) = n.axes([n.attr("axis", 0)], data.shape.rank)
    _inside(n, indices, data.shape.dims[axis])
    return n.add("scatter_" + _reduction(n), data, indices, updates, axis=axis)


@converts("ScatterND", since=11)
def scatter_nd(n: Node, data: Instruction, indices: Instruction, updates: Instruction) -> Instruction:
    return n.add("scatternd_" + _reduction(n), data, indices, updates)


@converts("TensorScatter", since=24)
def tensor_scatter(
    n: Node, cache: Instruction, update: Instruction, write_indices: Instruction | None = None
) -> Instruction:
    mode, axis = n.attr("mode", "linear"), n.attr("axis", -2)
    return n.add("tensor_scatter", cache, update, write_indices, mode=mode, axis=axis)


@converts("OneHot", since=9)
def one_hot(n: Node, indices: Instruction, depth: Instruction, values: Instruction) -> Instruction:
    axis = n.attr("axis", -1)
    if indices.shape.dtype.is_float:
        indices = n.convert(indices, dt.int64)
    known = n.constant(depth)
    extents = n.dims(depth)
    if known is not None:
        if known.size != 1 or int(known.reshape(-1)[0]) < 0:
            n.fail(f"depth must be one number of at least 0, got {known.tolist()}")
        return n.add("onehot", indices, None, values, axis=axis, depth=int(known.reshape(-1)[0]))
    if extents is not None and len(extents) == 1:
        return n.add("onehot", indices, None, values, axis=axis, depth=extents[0])
    return n.add("onehot", indices, depth, values, axis=axis)


@converts("Trilu", since=14)
@converts("Trilu", domain="com.microsoft")
def trilu(n: Node, x: Instruction, k: Instruction | None = None) -> Instruction:
    upper = bool(n.attr("upper", 1))
    if x.shape.rank < 2:
        n.fail(f"the input must have a rank of at least 2, got {x.shape}")
    if k is None:
        diagonal = 0
    else:
        known = n.constant(k)
        if known is None or known.size != 1:
            return n.add("trilu", x, k, upper=upper)
        diagonal = int(known.reshape(-1)[0])
    rows, columns = x.shape.dims[-2:]
    diagonal = max(-(1 << 40), min(1 << 40, diagonal))
    if (
        not (isinstance(rows, int) and isinstance(columns, int) and rows * columns <= SMALL)
        or x.shape.dtype.kind == "s"
    ):
        return n.add("trilu", x, upper=upper, k=diagonal)
    above = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    keep = n.literal(above >= diagonal if upper else above <= diagonal)
    return n.add("where", n.broadcast_to(keep, x.shape.dims), x, n.full_like(x, 0))
