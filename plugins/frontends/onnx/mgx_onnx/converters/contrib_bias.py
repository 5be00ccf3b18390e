"""Relative position biases and biased softmax of com.microsoft."""

from __future__ import annotations

import math

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt

from ..converter import converts
from ..node import Node
from .attention import split_heads
from .contrib_quant import MS

__all__: list[str] = []


@converts("RelativePositionBias", domain=MS)
def relative_position_bias(n: Node, table: Instruction, queries: Instruction, keys: Instruction) -> Instruction:
    """T5's bias: a number of the table for each distance between query and key, in buckets that widen with the distance.

    bias_table: dims [buckets, heads], elements in the order of [heads, buckets], as ONNX Runtime's optimizer writes it.
    """
    bidirectional, furthest = bool(n.attr("is_bidirectional", 0)), n.attr("max_distance")
    if table.shape.rank != 2 or not isinstance(table.shape.dims[0], int):
        n.fail(f"bias_table must be [buckets, heads] with a static number of buckets, got {table.shape}")
    (rows,), (columns,) = (n.extents(n.reshape(v, (1,)), "the lengths") for v in (queries, keys))
    buckets = table.shape.dims[0] // 2 if bidirectional else table.shape.dims[0]
    if buckets < 2 or furthest <= buckets // 2:
        n.fail(f"max_distance must exceed half of the {buckets} buckets, got {furthest}")

    def line(length: Instruction) -> Instruction:
        zero, one = n.literal(0, dt.int64), n.literal(1, dt.int64)
        return n.add(
            "dynamic_range",
            zero,
            n.reshape(n.convert(length, dt.int64), ()),
            one,
            length=n.known.count(zero, length, one),
        )

    at, to = n.unsqueeze(line(queries), [1]), n.unsqueeze(line(keys), [0])
    distance = n.pointwise("sub", to, at)
    exact = buckets // 2

    def bucket(d: np.ndarray) -> np.ndarray:
        base = np.where(d > 0, buckets, 0) if bidirectional else np.zeros_like(d)
        away = np.abs(d) if bidirectional else np.maximum(-d, 0)
        with np.errstate(divide="ignore"):
            wide = np.log(away.astype(np.float32) / np.float32(exact)) / np.float32(math.log(furthest / exact))
        far = exact + np.where(away < exact, 0, wide * np.float32(buckets - exact)).astype(np.int64)
        return base + np.where(away < exact, away, np.minimum(far, buckets - 1))

    span = np.arange(-furthest, furthest + 1)
    places = n.add(
        "clip", distance, *(n.broadcast_to(n.literal(v, dt.int64), distance.shape.dims) for v in (-furthest, furthest))
    )
    index = n.add(
        "gather", n.literal(bucket(span), dt.int64), n.pointwise("add", places, n.literal(furthest, dt.int64)), axis=0
    )
    count, heads = table.shape.dims
    bias = n.add("gather", n.reshape(table, (heads, count)), index, axis=1)
    return n.reshape(bias, (1, heads, rows, columns))


@converts("GatedRelativePositionBias", domain=MS)
def gated_relative_position_bias(
    n: Node,
    query: Instruction,
    query_bias: Instruction,
    position: Instruction,
    weight: Instruction,
    bias: Instruction,
    eco_a: Instruction,
    offsets: Instruction | None = None,
) -> Instruction:
    """WavLM's bias: the relative position bias times a gate computed from the queries."""
    if offsets is not None:
        n.unsupported("token_offset (inputs without padding)")
    heads = n.attr("num_heads")
    q = split_heads(n, n.pointwise("add", query, query_bias), heads)
    gates = n.pointwise("add", n.add("dot", q, n.broadcast_to(weight, (*q.shape.dims[:2], *weight.shape.dims))), bias)
    b, _, s, d = gates.shape.dims
    if isinstance(d, int) and d % 2:
        n.fail(f"the weight must have an even number of columns, got {weight.shape}")
    opened = n.add(
        "sigmoid", n.squeeze(n.add("reduce_sum", n.reshape(gates, (b, heads, s, 2, d // 2)), axes=(4,)), [4])
    )
    update, reset = (n.slice(opened, [3], [k], [k + 1]) for k in range(2))
    one, two = (n.literal(v, query.shape.dtype) for v in (1.0, 2.0))
    inner = n.pointwise("sub", n.pointwise("mul", reset, eco_a), one)
    return n.pointwise("mul", n.pointwise("add", n.pointwise("mul", update, inner), two), position)


@converts("BiasSoftmax", domain=MS)
def bias_softmax(n: Node, x: Instruction, bias: Instruction) -> Instruction:
    """softmax(x + bias) over the axes from `axis` on; the bias lacks repeated axes before it, or has extent 1 there."""
    rank = x.shape.rank
    (axis,) = n.axes([n.attr("axis", 1)], rank)
    if bias.shape.rank < rank and n.attr("is_inner_broadcast"):
        lead = bias.shape.rank - (rank - axis)
        bias = n.unsqueeze(bias, range(lead, lead + rank - bias.shape.rank))
    total = n.pointwise("add", n.convert(x, dt.float32), n.convert(bias, dt.float32))
    if axis == rank - 1:
        return n.convert(n.add("softmax", total, axis=-1), x.shape.dtype)
    dims = x.shape.dims
    flat = n.add("softmax", n.reshape(total, (*dims[:axis], -1)), axis=-1)
    return n.convert(n.reshape(flat, dims), x.shape.dtype)
