"""Concatenation, stacking, splitting and slicing."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.splitting import edges_of_parts, sizes_of_parts
from mgx_core.converting.strided import Masks, slice_of_size, strided_slice
from mgx_core.types.dim import Dim, product

from ..converter import converts
from ..node import Node


@converts("Pack")
def pack(n: Node, *xs: Instruction) -> Instruction:
    if not xs:
        n.fail("at least one input is required")
    (axis,) = n.axes([n.int("axis", 0)], xs[0].shape.rank + 1)
    return n.concat([n.unsqueeze(x, [axis]) for x in xs], axis)


@converts("ParallelConcat")
def parallel_concat(n: Node, *xs: Instruction) -> Instruction:
    return n.concat(list(xs), 0)


@converts("Unpack")
def unpack(n: Node, x: Instruction) -> Any:
    (axis,) = n.axes([n.int("axis", 0)], x.shape.rank)
    count = n.int("num")
    length = x.shape.dims[axis]
    if isinstance(length, int) and length != count:
        n.fail(f"axis {axis} of extent {length} cannot be unstacked into {count} tensors")
    return tuple(n.squeeze(n.slice(x, [axis], [k], [k + 1]), [axis]) for k in range(count))


@converts("ConcatV2")
def concat_v2(n: Node, *xs: Instruction) -> Instruction:
    if len(xs) < 2:
        n.fail("values and an axis are required")
    return n.concat(list(xs[:-1]), n.whole(xs[-1], "the axis")[0])


@converts("Concat")
def concat(n: Node, axis: Instruction, *xs: Instruction) -> Instruction:
    return n.concat(list(xs), n.whole(axis, "the axis")[0])


@converts("ConcatOffset")
def concat_offset(n: Node, axis: Instruction, *shapes: Instruction) -> Any:
    at = n.whole(axis, "the axis")[0]
    known = [n.whole(s, "a shape") for s in shapes]
    ends = np.cumsum([0, *(k[at] for k in known)])
    return tuple(
        n.literal([int(ends[i]) if j == at % len(k) else 0 for j in range(len(k))], dt.int32)
        for i, k in enumerate(known)
    )


@converts("Split")
def split(n: Node, axis: Instruction, x: Instruction) -> Any:
    count = n.int("num_split")
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    length = x.shape.dims[at]
    if count < 1 or count > 1 << 16 or (isinstance(length, int) and length % count):
        n.fail(f"axis {at} of extent {length} cannot be split into {count} equal parts")
    chunk = length // count
    return _parts(n, x, at, [chunk * i for i in range(count)] + [length])


@converts("SplitV")
def split_v(n: Node, x: Instruction, sizes: Instruction, axis: Instruction) -> Any:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    known = n.dims(sizes)
    if known is None:
        return n.items(n.add("split", x, sizes_of_parts(n, x, at, sizes), axis=at, count=n.int("num_split")))
    edges = edges_of_parts(n, x, at, known, n.int("num_split", len(known)))
    return _parts(n, x, at, edges)


def _parts(n: Node, x: Instruction, axis: int, edges: list[Dim]) -> tuple[Instruction, ...]:
    inner = n.unmoved(x)
    if inner is None:
        return tuple(x if len(edges) == 2 else n.slice(x, [axis], [a], [b]) for a, b in pairwise(edges))
    order = (0, *range(2, x.shape.rank), 1)
    return tuple(n.channels_last(n.slice(inner, [order[axis]], [a], [b])) for a, b in pairwise(edges))


@converts("Slice")
def slice_(n: Node, x: Instruction, begin: Instruction, size: Instruction) -> Instruction:
    return slice_of_size(n, x, begin, size)


@converts("StridedSlice")
def strided(n: Node, x: Instruction, begin: Instruction, end: Instruction, strides: Instruction) -> Instruction:
    return strided_parts(n, x, begin, end, strides)


def strided_parts(n: Node, x: Instruction, begin: Instruction, end: Instruction, strides: Instruction) -> Instruction:
    """Returns the strided slice of x with the node's masks."""
    words = ("begin_mask", "end_mask", "ellipsis_mask", "new_axis_mask", "shrink_axis_mask")
    return strided_slice(n, x, begin, end, strides, Masks(*(n.int(w, 0) for w in words)))


@converts("TensorStridedSliceUpdate")
def slice_replaced(
    n: Node, x: Instruction, begin: Instruction, end: Instruction, strides: Instruction, value: Instruction
) -> Instruction:
    """Returns x with a strided slice replaced; begin and end may be run-time values."""
    at = strided_parts(n, places(n, x.shape.dims), begin, end, strides)
    return _scattered(n, "scatternd_none", x, at, n.broadcast_to(value, at.shape.dims))


@converts("StridedSliceGrad")
def of_strided_slice(
    n: Node, shape: Instruction, begin: Instruction, end: Instruction, strides: Instruction, dy: Instruction
) -> Instruction:
    dims = n.extents(shape, "the extents")
    at = strided_parts(n, places(n, dims), begin, end, strides)
    zeros = n.broadcast_to(n.literal(0, dy.shape.dtype), dims)
    return _scattered(n, "scatternd_add", zeros, at, n.reshape(dy, at.shape.dims))


def places(n: Node, dims: Sequence[Dim]) -> Instruction:
    """Returns the linear index of each element of a tensor, whose extents may be symbolic."""
    total = product(dims)
    if isinstance(total, int):
        return n.literal(np.arange(total, dtype=np.int64).reshape([int(d) for d in dims]))
    ones = n.broadcast_to(n.literal(1, dt.int64), (total,))
    return n.reshape(n.add("prefix_scan_sum", ones, axis=0, exclusive=True), dims)


def _scattered(n: Node, how: str, x: Instruction, at: Instruction, values: Instruction) -> Instruction:
    """Returns x with values stored at, or added to, the elements with linear indices `at`."""
    count = product(at.shape.dims)
    made = n.add(how, n.reshape(x, (product(x.shape.dims),)), n.reshape(at, (count, 1)), n.reshape(values, (count,)))
    return n.reshape(made, x.shape.dims)
