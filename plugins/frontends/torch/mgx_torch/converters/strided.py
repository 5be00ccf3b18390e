"""as_strided and other views of torch's memory layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.argument import Array
from mgx_core.types.dim import Dim, Sym

from ..axis_order import hint
from ..complex_parts import by_parts
from ..converter import converts
from ..node import Node

__all__: list[str] = []


class Memory(NamedTuple):
    """A tensor's elements in memory order, the memory order of its axes, and the offsets that a view reads."""

    flat: Instruction
    order: list[int]
    places: Array


def ordered(given: torch.Tensor) -> list[int]:
    """Returns a tensor's axes in memory order."""
    steps = [hint(s) for s in given.stride()]
    return sorted(range(given.dim()), key=lambda a: (-steps[a], a))


def flattened(n: Node, x: Instruction) -> tuple[Instruction, list[int]]:
    """Returns the first argument's elements in memory order, and the memory order of its axes.

    Errors: UnsupportedError for memory that is not dense.
    """
    given = n.given(0)
    order = ordered(given)
    expected: Dim = 1
    for a in reversed(order):
        d = x.shape.dims[a]
        if d != 1 and n.graph.extents.of(given.stride(a)) != expected:
            n.unsupported("its operand's memory is not dense")
        expected = expected * d
    return n.reshape(n.transpose(x, order), (expected,)), order


def first_place(n: Node, offset: Any) -> int:
    """Returns a view's storage offset relative to its operand."""
    skipped = 0 if offset is None else offset - n.graph.extents.of(n.given(0).storage_offset())
    return n.static(skipped, "the storage offset of as_strided")


def spread(n: Node, first: int, size: Sequence[Any], stride: Sequence[Any], extent: Dim) -> Array:
    """Returns the offsets of a static view.  Errors: UnsupportedError for symbolic extents, or offsets out of range."""
    places = np.asarray(first)
    for d, s in zip(size, stride, strict=True):
        count, step = n.static(d, "an extent of as_strided"), n.static(s, "a stride of as_strided")
        places = places[..., None] + np.arange(count) * step
    if places.size and (places.min() < 0 or places.max() >= n.static(extent, "the extent of memory")):
        n.unsupported("as_strided reads memory outside its operand")
    return places


def memory(n: Node, x: Instruction, size: Any, stride: Any, offset: Any) -> Memory:
    """Returns the memory that a view reads.

    Errors: UnsupportedError for non-dense memory, symbolic extents, or offsets out of range.
    """
    flat, order = flattened(n, x)
    return Memory(flat, order, spread(n, first_place(n, offset), size, stride, flat.shape.dims[0]))


def taken(n: Node, x: Instruction, places: Array, axis: int) -> Instruction:
    """Gathers the elements of an axis at offsets, whose axes replace it."""
    extent = x.shape.dims[axis]
    if isinstance(extent, int) and np.array_equal(places, np.arange(extent)):
        return x
    return n.add("gather", x, n.literal(places, dt.int64), axis=axis)


def across(n: Node, x: Instruction, size: Any, stride: Any, offset: Any) -> Instruction:
    """Returns a view with adjacent symbolic extents that covers all memory blocks of a static size.

    Memory is viewed as three axes: outside of the symbolic extents, these merged, and a block. The view's static extents address
    either the outermost axis or the block.
    Errors: UnsupportedError for other symbolic extents, and as `memory`.
    """
    flat, _ = flattened(n, x)
    symbolic = [i for i, d in enumerate(size) if isinstance(d, Sym)]
    middle = range(symbolic[0], symbolic[-1] + 1)
    block = n.static(stride[middle[-1]], "the stride of a symbolic extent of as_strided")
    whole: Dim = block
    for i in reversed(middle):
        if stride[i] != whole:
            n.unsupported(f"symbolic extents of as_strided must be dense, got {size} with strides {stride}")
        whole = whole * size[i]
    total = flat.shape.dims[0]
    if total % whole != 0:
        n.unsupported(f"symbolic extents of as_strided must cover all {total} elements, got {size}")
    outside: list[int] = []
    inside: list[int] = []
    steps = list(stride)
    for i in (i for i in range(len(size)) if i not in middle):
        if isinstance(steps[i], Sym) and steps[i] % whole == 0:
            outside.append(i)
            steps[i] = steps[i] // whole
        else:
            inside.append(i)
    outer = spread(n, 0, [size[i] for i in outside], [steps[i] for i in outside], total // whole)
    inner = spread(n, first_place(n, offset), [size[i] for i in inside], [steps[i] for i in inside], block)
    y = n.reshape(flat, (total // whole, whole // block, block))
    y = taken(n, taken(n, y, inner, 2), outer, 0)
    axes = [*outside, *middle, *inside]
    return n.transpose(n.reshape(y, [size[i] for i in axes]), [axes.index(i) for i in range(len(size))])


@by_parts("as_strided", "as_strided_copy")
def as_strided(n: Node, x: Instruction, size: Any, stride: Any, offset: Any = None) -> Instruction:
    if any(isinstance(d, Sym) for d in size):
        return across(n, x, size, stride, offset)
    flat, _, places = memory(n, x, size, stride, offset)
    if places.size == flat.shape.dims[0] and np.array_equal(places.reshape(-1), np.arange(places.size)):
        return n.reshape(flat, n.result_dims())
    return n.add("gather", flat, n.literal(places, dt.int64), axis=0)


@converts("resize", "resize_")
def resize(n: Node, x: Instruction, size: Any, *_: Any) -> Instruction:
    """Returns a tensor's memory with other extents; elements beyond it, undefined in torch, are zero."""
    flat, _order = flattened(n, x)
    dims = [n.static(d, "an extent of resize_") for d in size]
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
