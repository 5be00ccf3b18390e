"""Indexing: gather, scatter, advanced indexing, masks, bucketize."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..complex_parts import by_parts
from ..converter import converts
from ..node import Node, Scalar
from .casts import cast
from .placing import placed

__all__: list[str] = []


def advanced(n: Node, indices: Sequence[Instruction | None]) -> tuple[list[int], list[Instruction]]:
    """Returns axes and broadcast integer indices; masks become the indices of their true elements."""
    axes: list[int] = []
    found: list[Instruction] = []
    axis = 0
    for index in indices:
        if index is None:
            axis += 1
        elif index.shape.dtype in (dt.bool_, dt.uint8):
            for place in places(n, index)[: index.shape.rank]:
                found.append(place)
                axes.append(axis)
                axis += 1
        else:
            found.append(n.indices(index))
            axes.append(axis)
            axis += 1
    kind = dt.int64 if any(f.shape.dtype is dt.int64 for f in found) else dt.int32
    return axes, n.broadcast(*(n.convert(f, kind) for f in found))


def _together(axes: Sequence[int]) -> bool:
    return list(axes) == list(range(axes[0], axes[0] + len(axes)))


@by_parts("index.Tensor", "index", "_unsafe_index")
def index(n: Node, x: Instruction, indices: Sequence[Instruction | None], *_: Any) -> Instruction:
    if all(i is None for i in indices):
        return x
    axes, found = advanced(n, indices)
    rank = found[0].shape.rank
    if len(axes) == 1:
        return n.add("gather", x, found[0], axis=axes[0])
    rest = [a for a in range(x.shape.rank) if a not in axes]
    lead = n.transpose(x, [*axes, *rest])
    out = n.add("gathernd", lead, n.add("concat", *(n.unsqueeze(f, [rank]) for f in found), axis=rank))
    if not _together(axes):
        return out
    before = axes[0]
    return n.transpose(out, [*range(rank, rank + before), *range(rank), *range(rank + before, out.shape.rank)])


@by_parts("index_put", "_unsafe_index_put")
def index_put(
    n: Node, x: Instruction, indices: Sequence[Instruction | None], values: Instruction, accumulate: bool = False
) -> Instruction:
    given = [i for i in indices if i is not None]
    values = n.convert(values, x.shape.dtype)
    if len(given) == 1 and given[0].shape.dtype in (dt.bool_, dt.uint8):
        before = next(p for p, i in enumerate(indices) if i is not None)
        return _masked_put(n, x, cast(n, given[0], dt.bool_), values, before, accumulate)
    axes, found = advanced(n, indices)
    rank = found[0].shape.rank
    rest = [a for a in range(x.shape.rank) if a not in axes]
    order = [*axes, *rest]
    shape, dims = found[0].shape.dims, x.shape.dims
    before = axes[0] if _together(axes) else 0
    full = [*(dims[a] for a in rest[:before]), *shape, *(dims[a] for a in rest[before:])]
    values = n.broadcast_to(values, full)
    values = n.transpose(values, [*range(before, before + rank), *range(before), *range(before + rank, len(full))])
    places = n.add("concat", *(n.unsqueeze(f, [rank]) for f in found), axis=rank)
    out = n.add("scatternd_add" if accumulate else "scatternd_none", n.transpose(x, order), places, values)
    return n.transpose(out, [order.index(a) for a in range(len(order))])


def _masked_put(
    n: Node, x: Instruction, mask: Instruction, values: Instruction, before: int, accumulate: bool
) -> Instruction:
    """Returns x with its k-th masked element replaced by the k-th value, or all by a single value.

    before: the number of axes before the mask's.
    """
    rank, masked = x.shape.rank, range(before, before + mask.shape.rank)
    order = [*masked, *(a for a in range(rank) if a not in masked)]
    lead = n.transpose(x, order)
    rest = lead.shape.dims[len(masked) :]
    count = n.size(mask, range(len(masked)))
    values = n.unsqueeze(values, range(1 + len(rest) - values.shape.rank))
    values = n.transpose(values, [before, *(a for a in range(1 + len(rest)) if a != before)])
    available = values.shape.dims[0]
    values = n.broadcast_to(values, [available, *rest])
    flat = n.reshape(mask, (count,))
    if available == 1:
        picked = values
    else:  # an extra row, never read, since x may be empty
        spare = n.filled([1, *rest], 0, values.shape.dtype)
        running = n.add("prefix_scan_sum", n.convert(flat, dt.int64), axis=0)
        last = n.graph.scalar(n, available - 1)
        place = n.pointwise("min", n.pointwise("sub", running, n.literal(1, dt.int64)), last)
        place = n.pointwise("max", place, n.literal(0, dt.int64))
        picked = n.add("gather", n.add("concat", values, spare, axis=0), place, axis=0)
    old = n.reshape(lead, [count, *rest])
    if accumulate:
        picked = n.pointwise("add", old, picked)
    chosen = n.add("where", *n.broadcast(n.unsqueeze(flat, range(1, 1 + len(rest))), picked, old))
    return n.transpose(n.reshape(chosen, lead.shape.dims), [order.index(a) for a in range(rank)])


@by_parts("gather")
def gather(n: Node, x: Instruction, dim: int, index: Instruction, **given: Any) -> Instruction:
    if not x.shape.rank:
        return n.broadcast_to(n.reshape(x, (1,) * index.shape.rank), index.shape.dims)
    if not index.shape.rank:
        return n.squeeze(n.add("gather_elements", x, n.unsqueeze(n.indices(index), [0]), axis=0), [0])
    if index.shape.rank != x.shape.rank:
        return n.filled(n.result_dims(), 0, x.shape.dtype)  # accepted by torch if the index is empty
    return n.add("gather_elements", x, n.indices(index), axis=n.axis(dim, x.shape.rank))


@by_parts("index_select", "index_select_copy")
def index_select(n: Node, x: Instruction, dim: int, index: Instruction) -> Instruction:
    if not x.shape.rank:
        return x
    flat = n.reshape(index, (n.size(index, range(index.shape.rank)),))
    return n.add("gather", x, n.indices(flat), axis=n.axis(dim, x.shape.rank))


@by_parts("take")
def take(n: Node, x: Instruction, index: Instruction) -> Instruction:
    return n.add("gather", n.reshape(x, (n.size(x, range(x.shape.rank)),)), n.indices(index), axis=0)


@converts("embedding")
def embedding(n: Node, weight: Instruction, indices: Instruction, *_: Any) -> Instruction:
    return n.add("gather", weight, n.indices(indices), axis=0)


def scattered(n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction, how: str) -> Instruction:
    if not x.shape.rank:
        x1, i1 = n.unsqueeze(x, [0]), n.reshape(index, (1,))
        return n.squeeze(scattered(n, x1, 0, i1, n.reshape(source, (1,)), how), [0])
    if not index.shape.rank:
        index, source = n.unsqueeze(index, [0]), n.reshape(source, (1,))
    dims = index.shape.dims
    if source.shape.dims != dims:
        axes = range(len(dims))
        source = n.slice(source, list(axes), [0] * len(dims), list(dims))
    values = n.convert(source, x.shape.dtype)
    return n.add(f"scatter_{how}", x, n.indices(index), values, axis=n.axis(dim, x.shape.rank))


@by_parts("scatter.src", "scatter")
def scatter(n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction) -> Instruction:
    return scattered(n, x, dim, index, source, "none")


HOW = {"add": "add", "multiply": "mul", "sum": "add", "prod": "mul", "amax": "max", "amin": "min"}


@by_parts("scatter.value")
def scatter_value(n: Node, x: Instruction, dim: int, index: Instruction, value: Scalar) -> Instruction:
    return scattered(n, x, dim, index, n.filled(index.shape.dims, value, x.shape.dtype), "none")


@converts("scatter.reduce")
def scatter_reduced(
    n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction, reduce: str
) -> Instruction:
    return scattered(n, x, dim, index, source, HOW[reduce])


@converts("scatter.value_reduce")
def scatter_value_reduced(
    n: Node, x: Instruction, dim: int, index: Instruction, value: Scalar, reduce: str
) -> Instruction:
    return scattered(n, x, dim, index, n.filled(index.shape.dims, value, x.shape.dtype), HOW[reduce])


@by_parts("scatter_add")
def scatter_add(n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction) -> Instruction:
    return scattered(n, x, dim, index, source, "add")


@converts("scatter_reduce")
def scatter_reduce(
    n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction, reduce: str, include_self: bool = True
) -> Instruction:
    dtype = x.shape.dtype
    start = x
    if not include_self:
        neutral = {"prod": 1, "amax": dtype.lowest, "amin": dtype.highest}.get(reduce, 0)
        if dtype.is_float and reduce in ("amax", "amin"):
            neutral = float("-inf") if reduce == "amax" else float("inf")
        start = scattered(n, x, dim, index, n.filled(index.shape.dims, neutral, dtype), "none")
    if reduce != "mean":
        return scattered(n, start, dim, index, source, HOW[reduce])
    total = scattered(n, start, dim, index, source, "add")
    ones = n.filled(index.shape.dims, 1, dtype)
    counts = n.full_like(x, 1)
    if not include_self:
        counts = scattered(n, counts, dim, index, n.filled(index.shape.dims, 0, dtype), "none")
    counts = scattered(n, counts, dim, index, ones, "add")
    counts = n.add("max", counts, n.full_like(counts, 1))
    if dtype.is_float:
        return n.add("div", total, counts)
    from .pointwise import floor_divided

    return floor_divided(n, total, counts)


@by_parts("index_copy")
def index_copy(n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction) -> Instruction:
    if not x.shape.rank:
        return n.reshape(source, ())
    return placed(
        n, x, n.reshape(n.indices(index), (n.size(index, range(index.shape.rank)),)), source, n.axis(dim, x.shape.rank)
    )


@by_parts("index_add")
def index_add(
    n: Node, x: Instruction, dim: int, index: Instruction, source: Instruction, alpha: Any = 1
) -> Instruction:
    source = n.convert(source, x.shape.dtype)
    if alpha != 1:
        source = n.pointwise("mul", source, n.tensor(alpha, x.shape.dtype))
    if not x.shape.rank:
        return n.add("add", x, n.reshape(source, ()))
    axis = n.axis(dim, x.shape.rank)
    order = [axis, *(a for a in range(x.shape.rank) if a != axis)]
    places = n.unsqueeze(n.reshape(n.indices(index), (n.size(index, range(index.shape.rank)),)), [1])
    out = n.add("scatternd_add", n.transpose(x, order), places, n.transpose(source, order))
    return n.transpose(out, [order.index(a) for a in range(len(order))])


@by_parts("masked_scatter")
def masked_scatter(n: Node, x: Instruction, mask: Instruction, source: Instruction) -> Instruction:
    """Replaces the k-th true element by the source's k-th element."""
    dims = n.result_dims()
    x, mask = n.broadcast_to(x, dims), n.broadcast_to(mask, dims)
    count = n.size(mask, range(mask.shape.rank))
    flat = n.convert(n.reshape(mask, (count,)), dt.int64)
    running = n.add("prefix_scan_sum", flat, axis=0)
    order = n.add("sub", running, n.full_like(running, 1))
    available = n.size(source, range(source.shape.rank))
    order = n.pointwise("max", n.pointwise("min", order, n.graph.scalar(n, available - 1)), n.literal(0, dt.int64))
    picked = n.add("gather", n.reshape(n.convert(source, x.shape.dtype), (available,)), order, axis=0)
    return n.add("where", mask, n.reshape(picked, dims), x)


@converts("nonzero")
def nonzero(n: Node, x: Instruction) -> Instruction:
    found = n.add("nonzero", cast(n, x, dt.bool_))
    if not x.shape.rank:
        return n.slice(n.transpose(found, [1, 0]), [1], [0], [0])
    return n.transpose(found, [1, 0])


@converts("where.default", "nonzero_numpy")
def places(n: Node, x: Instruction) -> list[Instruction]:
    """Returns the indices of nonzero elements, one tensor per axis."""
    x = x if x.shape.rank else n.unsqueeze(x, [0])
    found = n.add("nonzero", cast(n, x, dt.bool_))
    return [n.squeeze(n.slice(found, [0], [i], [i + 1]), [0]) for i in range(x.shape.rank)]


@by_parts("masked_select")
def masked_select(n: Node, x: Instruction, mask: Instruction) -> Instruction:
    x, mask = n.broadcast(x, mask)
    count = n.size(x, range(x.shape.rank))
    return n.add("compress", n.reshape(x, (count,)), n.reshape(mask, (count,)), axis=0)


@converts("one_hot")
def one_hot(n: Node, x: Instruction, classes: int = -1) -> Instruction:
    return n.add("onehot", x, None, n.literal([0, 1], dt.int64), depth=n.result_dims()[-1])


@converts("bucketize.Tensor", "bucketize")
def bucketize(n: Node, x: Scalar, boundaries: Instruction, out_int32: bool = False, right: bool = False) -> Instruction:
    """Returns the number of boundaries before each element; NaN sorts last."""
    kind = n.common_dtype(0, 1)
    elements = n.tensor(x, kind)
    rank = elements.shape.rank
    sought, limits = n.broadcast(n.unsqueeze(elements, [rank]), n.convert(boundaries, kind))
    before = n.add("not", n.add("greater" if right else "greater_or_equal", limits, sought))
    return n.convert(n.reduce("reduce_sum", n.convert(before, dt.int64), [rank], False), n.dtype)
