"""Indexing: gather, scatter, segments, one-hot, bincount."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import bucketized
from mgx_core.converting.filling import filled, places_of_true, scattered, unsorted_segments
from mgx_core.converting.rearranged import gather_in_batches
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


@converts("GatherV2")
def gather_v2(n: Node, x: Instruction, indices: Instruction, axis: Instruction) -> Instruction:
    return gather_in_batches(n, x, indices, n.whole(axis, "the axis")[0], n.int("batch_dims", 0))


@converts("Gather")
def gather(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    return n.add("gather", x, n.indices(indices), axis=0)


@converts("GatherNd")
def gather_nd(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    if indices.shape.dims[-1] == 0:
        return n.broadcast_to(x, (*indices.shape.dims[:-1], *x.shape.dims))
    return n.add("gathernd", x, n.indices(indices))


@converts("ScatterNd")
def scatter_nd(n: Node, indices: Instruction, updates: Instruction, shape: Instruction) -> Instruction:
    return scattered(n, indices, updates, shape)


SCATTERS = {
    "TensorScatterUpdate": "none", "TensorScatterAdd": "add", "TensorScatterMax": "max", "TensorScatterMin": "min",
    "ScatterNdNonAliasingAdd": "add",
}  # fmt: skip


@converts(*SCATTERS, "TensorScatterSub")
def tensor_scatter(n: Node, x: Instruction, indices: Instruction, updates: Instruction) -> Instruction:
    if n.op_type == "TensorScatterSub":
        return n.add("scatternd_add", x, n.indices(indices), n.pointwise("neg", updates))
    return n.add(f"scatternd_{SCATTERS[n.op_type]}", x, n.indices(indices), updates)


@converts("Where")
def where(n: Node, x: Instruction) -> Instruction:
    return places_of_true(n, x)


@converts("DynamicStitch", "ParallelDynamicStitch")
def dynamic_stitch(n: Node, *args: Instruction) -> Instruction:
    half = len(args) // 2
    indices, data = args[:half], args[half:]
    if not half or len(args) % 2:
        n.fail("as many indices as data are required")
    rest = data[0].shape.dims[indices[0].shape.rank :]
    flat = n.concat([n.reshape(i, (product(i.shape.dims),)) for i in indices], 0)
    rows = n.concat([n.reshape(d, (product(i.shape.dims), *rest)) for i, d in zip(indices, data, strict=True)], 0)
    known = n.constant(flat)
    if known is None:
        return n.add("tf_dynamic_stitch", flat, rows)
    count = int(known.max()) + 1 if known.size else 0
    order = np.zeros(count, np.int64)
    order[known.astype(np.int64)] = np.arange(known.size)
    return n.add("gather", rows, n.literal(order), axis=0)


@converts("DynamicPartition")
def dynamic_partition(n: Node, x: Instruction, partitions: Instruction) -> Any:
    count = n.int("num_partitions")
    if not 0 < count <= 1 << 16:
        n.fail(f"num_partitions must be at least 1, got {count}")
    rank = partitions.shape.rank
    rows = n.reshape(x, (product(x.shape.dims[:rank]), *x.shape.dims[rank:]))
    flat = n.reshape(partitions, (product(partitions.shape.dims),))
    kinds = [n.pointwise("equal", flat, n.literal(k, flat.shape.dtype)) for k in range(count)]
    return tuple(n.add("compress", rows, kind, axis=0) for kind in kinds)


@converts("Unique", "UniqueV2", "UniqueWithCounts", "UniqueWithCountsV2")
def unique(n: Node, x: Instruction, axis: Instruction | None = None) -> Any:
    along: dict[str, Any] = {}
    if axis is not None and n.constant(axis) is not None and n.whole(axis, "the axis"):
        along = {"axis": n.whole(axis, "the axis")[0]}
    values, _, inverse, counts = n.items(n.add("unique", x, sorted=False, **along))
    kind = n.dtype("out_idx", dt.int32)
    return values, n.convert(inverse, kind), n.convert(counts, kind)


@converts("ListDiff")
def list_diff(n: Node, x: Instruction, y: Instruction) -> Any:
    given, without = n.constant(x), n.constant(y)
    if given is not None and without is not None:  # axis lists from which the graph builds permutations
        rest = np.flatnonzero(~np.isin(given, without))
        return n.literal(given[rest], x.shape.dtype), n.literal(rest, n.dtype("out_idx", dt.int32))
    pairs = n.pointwise("equal", n.unsqueeze(x, [1]), n.unsqueeze(y, [0]))
    kept = n.pointwise("not", n.squeeze(n.add("reduce_any", pairs, axes=(1,)), [1]))
    places = n.convert(n.squeeze(n.add("nonzero", kept), [0]), n.dtype("out_idx", dt.int32))
    return n.add("compress", x, kept, axis=0), places


UNSORTED: dict[str, Literal["add", "mul", "max", "min"]] = {
    "UnsortedSegmentSum": "add", "UnsortedSegmentProd": "mul", "UnsortedSegmentMax": "max", "UnsortedSegmentMin": "min",
}  # fmt: skip


@converts(*UNSORTED)
def unsorted_segment(n: Node, x: Instruction, segments: Instruction, count: Instruction) -> Instruction:
    return unsorted_segments(n, UNSORTED[n.op_type], x, segments, count)


@converts("SegmentSum", "SegmentMean", "SegmentMax", "SegmentMin", "SegmentProd")
def segment(n: Node, x: Instruction, segments: Instruction) -> Instruction:
    return n.add("tf_segment", x, n.indices(segments), how=n.op_type.removeprefix("Segment").lower())


@converts("SegmentSumV2", "SegmentMaxV2", "SegmentMinV2", "SegmentProdV2")
def segment_v2(n: Node, x: Instruction, segments: Instruction, count: Instruction) -> Instruction:
    how = n.op_type.removeprefix("Segment").removesuffix("V2").lower()
    return _padded_segments(n, n.add("tf_segment", x, n.indices(segments), how=how), count)


def _padded_segments(n: Node, made: Instruction, count: Instruction) -> Instruction:
    """Returns the segments zero-padded to `count` of them."""
    rows = n.add("dimensions_of", made, start=0, end=1)
    total = n.reshape(n.convert(count, dt.int64), (1,))
    none = [n.literal([0], dt.int64)] * made.shape.rank
    more = n.concat([*none, n.pointwise("max", n.pointwise("sub", total, rows), none[0]), *none[1:]], 0)
    wide = n.add("slice", n.add("pad", made, more), none[0], total, axes=(0,))
    known = n.dims(count)
    return wide if known is None else n.reshape(wide, (known[0], *made.shape.dims[1:]))


SPARSE_SEGMENTS = ("SparseSegmentSum", "SparseSegmentMean", "SparseSegmentSqrtN")


@converts(*SPARSE_SEGMENTS, *(f"{name}WithNumSegments" for name in SPARSE_SEGMENTS))
def sparse_segment(
    n: Node, x: Instruction, indices: Instruction, segments: Instruction, count: Instruction | None = None
) -> Instruction:
    rows = n.add("gather", x, n.indices(indices), axis=0)
    how = n.op_type.removeprefix("SparseSegment").removesuffix("WithNumSegments").lower()
    made = n.add("tf_segment", rows, n.indices(segments), how=how)
    return made if count is None else _padded_segments(n, made, count)


@converts("SparseToDense")
def sparse_to_dense(
    n: Node, indices: Instruction, shape: Instruction, values: Instruction, default: Instruction
) -> Instruction:
    base = filled(n, shape, default)
    if indices.shape.rank == 0:
        indices = n.reshape(indices, (1, 1))
    elif indices.shape.rank == 1:
        indices = n.unsqueeze(indices, [1])
    return n.add("scatternd_none", base, n.indices(indices), n.broadcast_to(values, indices.shape.dims[:1]))


@converts("LowerBound", "UpperBound")
def bound(n: Node, sorted_: Instruction, values: Instruction) -> Instruction:
    wide = n.unsqueeze(sorted_, [1])
    against = n.unsqueeze(values, [2])
    below = n.pointwise("less" if n.op_type != "UpperBound" else "less_or_equal", wide, against)
    kind = n.dtype("out_type", dt.int32)
    return n.squeeze(n.add("reduce_sum", n.convert(below, kind), axes=(2,)), [2])


@converts("Bucketize")
def bucketize(n: Node, x: Instruction) -> Instruction:
    return bucketized(n, x, np.asarray(n.floats("boundaries"), np.float32))


@converts("HistogramFixedWidth")
def histogram(n: Node, x: Instruction, span: Instruction, bins: Instruction) -> Instruction:
    low, high = (float(v) for v in n.require(span, "the range").reshape(-1))
    count = n.whole(bins, "the number of bins")[0]
    flat = n.reshape(x, (product(x.shape.dims),))
    step = n.literal(np.asarray((high - low) / count), flat.shape.dtype)
    place = n.pointwise("floor", n.pointwise("div", n.pointwise("sub", flat, n.literal(low, flat.shape.dtype)), step))
    inside = n.pointwise("clip", place, n.literal(0, flat.shape.dtype), n.literal(count - 1, flat.shape.dtype))
    at = n.convert(inside, dt.int64)
    kind = n.dtype("dtype", dt.int32)
    ones = n.broadcast_to(n.literal(1, kind), flat.shape.dims)
    return n.add("scatternd_add", n.literal([0] * count, kind), n.unsqueeze(at, [1]), ones)
