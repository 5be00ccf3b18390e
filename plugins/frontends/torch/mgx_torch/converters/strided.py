"""Views by strides of memory as torch lays it out."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import torch

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array

from ..complex_parts import by_parts
from ..converter import converts
from ..node import Node

__all__: list[str] = []


class Memory(NamedTuple):
    """A tensor's elements in the order of its memory, the order of its axes there, and the places that a view takes."""

    flat: Instruction
    order: list[int]
    places: Array


def ordered(given: torch.Tensor) -> list[int]:
    """The axes of a tensor in the order of its memory."""
    steps = [int(s) for s in given.stride()]
    return sorted(range(given.dim()), key=lambda a: (-steps[a], a))


def flattened(n: Node, x: Instruction) -> tuple[Instruction, list[int]]:
    """The elements of the first argument in the order of its memory, and that of its axes there.

    Errors: UnsupportedError for memory that is not dense, and for symbolic extents.
    """
    given = n.given(0)
    order = ordered(given)
    expected = 1
    for a in reversed(order):
        d = n.static(x.shape.dims[a], "an extent of a tensor that is read by its memory")
        if d != 1 and int(given.stride(a)) != expected:
            n.unsupported("its operand's memory is not dense")
        expected *= d
    return n.reshape(n.transpose(x, order), (expected,)), order


def memory(n: Node, x: Instruction, size: Any, stride: Any, offset: Any) -> Memory:
    """Errors: UnsupportedError for memory that is not dense, symbolic extents, and places outside it."""
    flat, order = flattened(n, x)
    places = np.asarray(0 if offset is None else int(offset) - int(n.given(0).storage_offset()))
    for d, s in zip(size, stride, strict=True):
        places = places[..., None] + np.arange(n.static(d, "an extent under as_strided")) * int(s)
    if places.size and (places.min() < 0 or places.max() >= flat.shape.dims[0]):
        n.unsupported("as_strided reads memory outside its operand")
    return Memory(flat, order, places)


@by_parts("as_strided", "as_strided_copy")
def as_strided(n: Node, x: Instruction, size: Any, stride: Any, offset: Any = None) -> Instruction:
    flat, _, places = memory(n, x, size, stride, offset)
    if places.size == flat.shape.dims[0] and np.array_equal(places.reshape(-1), np.arange(places.size)):
        return n.reshape(flat, n.result_dims())
    return n.add("gather", flat, n.literal(places, dt.int64), axis=0)


@converts("resize", "resize_")
def resize(n: Node, x: Instruction, size: Any, *_: Any) -> Instruction:
    """A tensor's memory under other extents; elements beyond it, which torch does not define, are zero."""
    flat, _order = flattened(n, x)
    dims = [n.static(d, "an extent under resize_") for d in size]
    have, count = n.static(flat.shape.dims[0], "the extent of memory"), math.prod(dims)
    if count > have:
        flat = n.add("concat", flat, n.filled((count - have,), 0, x.shape.dtype), axis=0)
    elif count < have:
        flat = n.slice(flat, [0], [0], [count])
    order = ordered(n.result())
    laid = n.reshape(flat, [dims[a] for a in order])
    return n.transpose(laid, [order.index(a) for a in range(len(order))])


@by_parts("as_strided_scatter")
def as_strided_scatter(
    n: Node, x: Instruction, source: Instruction, size: Any, stride: Any, offset: Any = None
) -> Instruction:
    flat, order, places = memory(n, x, size, stride, offset)
    put = n.reshape(source, (places.size,))
    flat = n.add("scatter_none", flat, n.literal(places.reshape(-1), dt.int64), put, axis=0)
    laid = n.reshape(flat, [x.shape.dims[a] for a in order])
    return n.transpose(laid, [order.index(a) for a in range(len(order))])
