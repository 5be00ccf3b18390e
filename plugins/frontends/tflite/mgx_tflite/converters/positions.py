"""Indexing: gather, scatter, segments, diagonals, one-hot."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import bucketized
from mgx_core.converting.filling import filled, one_hot, places_of_true, scattered, unsorted_segments
from mgx_core.converting.rearranged import gather_in_batches
from mgx_core.types.dim import product

from ..converter import converts
from ..node import Node


@converts("GATHER")
def gather(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    return gather_in_batches(n, x, n.indices(indices), n.option("Axis", 0), n.option("BatchDims", 0))


@converts("EMBEDDING_LOOKUP")
def embedding_lookup(n: Node, indices: Instruction, x: Instruction) -> Instruction:
    return n.add("gather", x, n.indices(indices), axis=0)


@converts("GATHER_ND")
def gather_nd(n: Node, x: Instruction, indices: Instruction) -> Instruction:
    return n.add("gathernd", x, n.indices(indices))


@converts("SCATTER_ND")
def scatter_nd(n: Node, indices: Instruction, updates: Instruction, shape: Instruction) -> Instruction:
    return scattered(n, indices, updates, shape)


@converts("ONE_HOT")
def hot(n: Node, indices: Instruction, depth: Instruction, on: Instruction, off: Instruction) -> Instruction:
    return one_hot(n, indices, depth, on, off, n.option("Axis", -1))


@converts("WHERE")
def where(n: Node, x: Instruction) -> Instruction:
    return places_of_true(n, x)


@converts("SPARSE_TO_DENSE")
def sparse_to_dense(
    n: Node, indices: Instruction, shape: Instruction, values: Instruction, default: Instruction
) -> Instruction:
    base = filled(n, shape, default)
    if indices.shape.rank < 2:
        indices = n.reshape(indices, (product(indices.shape.dims), 1))
    return n.add("scatternd_none", base, n.indices(indices), n.broadcast_to(values, indices.shape.dims[:1]))


SEGMENTS: dict[str, Literal["add", "mul", "max", "min"]] = {
    "UNSORTED_SEGMENT_SUM": "add", "UNSORTED_SEGMENT_PROD": "mul", "UNSORTED_SEGMENT_MAX": "max", "UNSORTED_SEGMENT_MIN": "min",
}  # fmt: skip


@converts(*SEGMENTS)
def unsorted_segment(n: Node, x: Instruction, segments: Instruction, count: Instruction) -> Instruction:
    return unsorted_segments(n, SEGMENTS[n.op_type], x, segments, count)


@converts("SEGMENT_SUM")
def segment_sum(n: Node, x: Instruction, segments: Instruction) -> Instruction:
    """Converts SEGMENT_SUM: segment ids are sorted, so the last one determines the count."""
    known = n.constant(segments)
    if known is not None:
        count = n.literal(int(known.max(initial=-1)) + 1, dt.int64)
    else:
        last = n.add("reduce_max", n.convert(segments, dt.int64), axes=(0,))
        count = n.pointwise("add", n.reshape(last, ()), n.literal(1, dt.int64))
    return unsorted_segments(n, "add", x, segments, count)


@converts("UNIQUE")
def unique(n: Node, x: Instruction) -> Any:
    values, _, inverse, _ = n.items(n.add("unique", x, sorted=False))
    return values, n.convert(inverse, n.kind(1))


@converts("BUCKETIZE")
def bucketize(n: Node, x: Instruction) -> Instruction:
    return bucketized(n, x, np.asarray(n.option("BoundariesAsNumpy", ()), np.float32))


@converts("MATRIX_DIAG")
def matrix_diag(n: Node, x: Instruction) -> Instruction:
    count = x.shape.dims[-1]
    if not isinstance(count, int):
        n.unsupported("a diagonal of unknown length")
    row = n.unsqueeze(x, [x.shape.rank - 1])
    return n.pointwise("where", n.literal(np.eye(count, dtype=bool)), row, n.literal(0, x.shape.dtype))


@converts("MATRIX_SET_DIAG")
def set_diag(n: Node, x: Instruction, diagonal: Instruction) -> Instruction:
    rows, columns = x.shape.dims[-2:]
    if not isinstance(rows, int) or not isinstance(columns, int):
        n.unsupported("a matrix of unknown extents")
    rank = x.shape.rank
    if rows < columns:
        diagonal = n.padded(diagonal, [*((0, 0),) * (rank - 2), (0, columns - rows)])
    return n.pointwise("where", n.literal(np.eye(rows, columns, dtype=bool)), n.unsqueeze(diagonal, [rank - 2]), x)
