"""Views by strides of memory as torch lays it out."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array

from ..converter import converts
from ..node import Node
from .movement import moves

__all__: list[str] = []


class Memory(NamedTuple):
    """A tensor's elements in the order of its memory, the order of its axes there, and the places that a view takes."""

    flat: Instruction
    order: list[int]
    places: Array


def memory(n: Node, x: Instruction, size: Any, stride: Any, offset: Any) -> Memory:
    """Errors: UnsupportedError for memory that is not dense, symbolic extents, and places outside it."""
    given = n.given(0)
    steps, base = [int(s) for s in given.stride()], int(given.storage_offset())
    order = sorted(range(given.dim()), key=lambda a: (-steps[a], a))
    dims = [n.static(x.shape.dims[a], "an extent under as_strided") for a in order]
    dense, expected = True, 1
    for a, d in zip(reversed(order), reversed(dims), strict=True):
        dense = dense and (d == 1 or steps[a] == expected)
        expected *= d
    if not dense:
        n.unsupported("as_strided on a tensor whose memory is not dense")
    places = np.asarray(0 if offset is None else int(offset) - base)
    for d, s in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n.static(d, "an extent under as_strided")) * int(s)
    if places.size and (places.min() < 0 or places.max() >= expected):
        n.unsupported("as_strided reads memory outside its operand")
    return Memory(n.reshape(n.transpose(x, order), (expected,)), order, places)


@moves("as_strided", "as_strided_copy")
def as_strided(n: Node, x: Instruction, size: Any, stride: Any, offset: Any = None) -> Instruction:
    flat, _, places = memory(n, x, size, stride, offset)
    if places.size == flat.shape.dims[0] and np.array_equal(places.reshape(-1), np.arange(places.size)):
        return n.reshape(flat, n.result_dims())
    return n.add("gather", flat, n.literal(places, dt.int64), axis=0)


@converts("as_strided_scatter")
def as_strided_scatter(
    n: Node, x: Instruction, source: Instruction, size: Any, stride: Any, offset: Any = None
) -> Instruction:
    flat, order, places = memory(n, x, size, stride, offset)
    put = n.reshape(source, (places.size,))
    flat = n.add("scatter_none", flat, n.literal(places.reshape(-1), dt.int64), put, axis=0)
    laid = n.reshape(flat, [x.shape.dims[a] for a in order])
    return n.transpose(laid, [order.index(a) for a in range(len(order))])
