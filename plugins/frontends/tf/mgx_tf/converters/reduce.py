"""Reductions, cumulative reductions, argmax and argmin, sorting."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import reduced
from mgx_core.ops.reduce import (
    Reduce,
    ReduceAll,
    ReduceAny,
    ReduceMax,
    ReduceMean,
    ReduceMin,
    ReduceProd,
    ReduceSum,
)
from mgx_core.types.dim import minimum

from ..converter import converts
from ..node import Node

REDUCTIONS = {
    "Sum": ReduceSum, "Mean": ReduceMean, "Prod": ReduceProd, "Max": ReduceMax, "Min": ReduceMin,
    "All": ReduceAll, "Any": ReduceAny,
}  # fmt: skip


def _reduction(op: type[Reduce]) -> Callable[..., Instruction]:
    def convert(n: Node, x: Instruction, axes: Instruction) -> Instruction:
        known = n.constant(axes)
        if known is None and axes.shape.rank == 1 and axes.shape.dims[0] == x.shape.rank:
            every = list(range(x.shape.rank))
        else:
            every = n.whole(axes, "the axes")
        return reduced(n, op, x, every, n.flag("keep_dims"))

    return convert


for _name, _op in REDUCTIONS.items():
    converts(_name)(_reduction(_op))


@converts("EuclideanNorm")
def euclidean_norm(n: Node, x: Instruction, axes: Instruction) -> Instruction:
    total = reduced(n, ReduceSum, n.pointwise("mul", x, x), n.whole(axes, "the axes"), n.flag("keep_dims"))
    return n.pointwise("sqrt", total)


@converts("L2Loss")
def l2_loss(n: Node, x: Instruction) -> Instruction:
    total = reduced(n, ReduceSum, n.pointwise("mul", x, x), range(x.shape.rank), False)
    return n.pointwise("div", total, n.literal(2, x.shape.dtype))


@converts("ArgMax", "ArgMin")
def position(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    made = n.add("argmax" if n.op_type == "ArgMax" else "argmin", x, axis=at)
    return n.convert(n.squeeze(made, [at]), n.dtype("output_type", dt.int64))


@converts("Cumsum", "Cumprod")
def running(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    op = "prefix_scan_sum" if n.op_type == "Cumsum" else "prefix_scan_prod"
    return n.add(op, x, axis=at, exclusive=n.flag("exclusive"), reverse=n.flag("reverse"))


@converts("CumulativeLogsumexp")
def running_log(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    top = n.add("reduce_max", x, axes=(at,))
    power = n.pointwise("exp", n.pointwise("sub", x, top))
    total = n.add("prefix_scan_sum", power, axis=at, exclusive=n.flag("exclusive"), reverse=n.flag("reverse"))
    return n.pointwise("add", n.pointwise("log", total), top)


@converts("TopKV2", "TopK")
def top_k(n: Node, x: Instruction, k: Instruction | None = None) -> Any:
    if k is None:
        count: Any = n.int("k")
    else:
        known = n.dims(k)
        if known is None or len(known) != 1:
            made = n.add("topk", x, n.reshape(n.convert(k, dt.int64), (1,)), axis=-1)
            values, indices = n.items(made)
            return values, n.convert(indices, n.dtype("index_type", dt.int32))
        count = known[0]
    values, indices = n.items(n.add("topk", x, k=count, axis=x.shape.rank - 1, sorted=n.flag("sorted", True)))
    return values, n.convert(indices, n.dtype("index_type", dt.int32))


@converts("ApproxTopK")
def approximate_top_k(n: Node, x: Instruction) -> Any:
    """Returns the exact result, which the operator permits."""
    (axis,) = n.axes([n.int("reduction_dimension", -1)], x.shape.rank)
    made = n.items(n.add("topk", x, k=n.int("k"), axis=axis, largest=n.flag("is_max_k", True)))
    return made[0], n.convert(made[1], dt.int32)


@converts("InTopKV2", "InTopK")
def in_top_k(n: Node, predictions: Instruction, targets: Instruction, k: Instruction | None = None) -> Instruction:
    count = n.int("k") if k is None else n.whole(k, "k")[0]
    own = n.add("gather_elements", predictions, n.unsqueeze(n.convert(targets, dt.int64), [1]), axis=1)
    above = n.convert(n.pointwise("greater", predictions, own), dt.int32)
    total = n.squeeze(n.add("reduce_sum", above, axes=(1,)), [1])
    return n.pointwise("less", total, n.literal(count, dt.int32))


@converts("NthElement")
def nth_element(n: Node, x: Instruction, k: Instruction) -> Instruction:
    place = n.whole(k, "n")[0]
    axis = x.shape.rank - 1
    sorted_ = n.get(n.add("topk", x, k=minimum(x.shape.dims[axis], place + 1), axis=axis, largest=n.flag("reverse")), 0)
    return n.squeeze(n.slice(sorted_, [axis], [place], [place + 1]), [axis])


@converts("RaggedBincount")
def ragged_bincount(
    n: Node, splits: Instruction, x: Instruction, size: Instruction, weights: Instruction
) -> Instruction:
    given = n.convert(splits, dt.int64), n.convert(x, dt.int64), n.convert(size, dt.int64), weights
    return n.add("tf_ragged_bincount", *given, marks=n.flag("binary_output"))


@converts("Bincount", "DenseBincount")
def bincount(n: Node, x: Instruction, size: Instruction, weights: Instruction) -> Instruction:
    known, kind, marks = n.constant(size), weights.shape.dtype, n.flag("binary_output")
    if known is None or x.shape.rank != 1 or marks:
        return n.add("tf_bincount", n.convert(x, dt.int64), n.convert(size, dt.int64), weights, marks=marks)
    count = int(known.reshape(-1)[0])
    bins = n.literal([0] * count, kind)
    if 0 in weights.shape.dims:
        given = n.broadcast_to(n.literal(1, kind), x.shape.dims)
    else:
        given = weights
    inside = n.pointwise("less", x, n.literal(count, x.shape.dtype))
    given = n.pointwise("where", inside, given, n.literal(0, kind))
    at = n.pointwise("where", inside, x, n.literal(0, x.shape.dtype))
    return n.add("scatternd_add", bins, n.unsqueeze(n.convert(at, dt.int64), [1]), given)
