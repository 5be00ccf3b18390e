"""Reductions, cumulative sums, ArgMax, constants, shapes, random numbers, Fourier transforms."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.converting.arithmetic import reduced
from mgx_core.converting.filling import broadcast_extents, drawn, filled
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
from mgx_core.types.dim import ceil_div, maximum

from ..converter import converts
from ..node import Node

REDUCTIONS: dict[str, type[Reduce]] = {
    "SUM": ReduceSum, "MEAN": ReduceMean, "REDUCE_PROD": ReduceProd, "REDUCE_MAX": ReduceMax, "REDUCE_MIN": ReduceMin,
    "REDUCE_ALL": ReduceAll, "REDUCE_ANY": ReduceAny,
}  # fmt: skip


def _reduction(op: type[Reduce]) -> Callable[..., Instruction]:
    def convert(n: Node, x: Instruction, axes: Instruction) -> Instruction:
        return reduced(
            n, op, x, sorted(set(n.axes(n.whole(axes, "the axes"), x.shape.rank))), n.option("KeepDims", False)
        )

    return convert


for _name, _op in REDUCTIONS.items():
    converts(_name)(_reduction(_op))


@converts("CUMSUM")
def cumsum(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    return n.add(
        "prefix_scan_sum", x, axis=at, exclusive=n.option("Exclusive", False), reverse=n.option("Reverse", False)
    )


@converts("ARG_MAX", "ARG_MIN")
def position(n: Node, x: Instruction, axis: Instruction) -> Instruction:
    (at,) = n.axes(n.whole(axis, "the axis")[:1], x.shape.rank)
    made = n.add("argmax" if n.op_type == "ARG_MAX" else "argmin", x, axis=at)
    return n.convert(n.squeeze(made, [at]), n.kind())


@converts("TOPK_V2")
def top_k(n: Node, x: Instruction, k: Instruction) -> Any:
    known = n.dims(k)
    if known is None:
        made = n.add("topk", x, n.reshape(n.convert(k, dt.int64), (1,)), axis=-1)
    else:
        made = n.add("topk", x, k=known[0], axis=x.shape.rank - 1)
    values, indices = n.items(made)
    return values, n.convert(indices, n.kind(1))


@converts("SHAPE")
def shape(n: Node, x: Instruction) -> Instruction:
    if not x.shape.dynamic():
        return n.literal(np.array(x.shape.lens(), np.int64), n.kind())
    return n.convert(n.add("dimensions_of", x), n.kind())


@converts("RANK")
def rank(n: Node, x: Instruction) -> Instruction:
    return n.literal(x.shape.rank, dt.int32)


@converts("FILL")
def fill(n: Node, dims: Instruction, value: Instruction) -> Instruction:
    return filled(n, dims, value)


@converts("BROADCAST_TO")
def broadcast_to(n: Node, x: Instruction, dims: Instruction) -> Instruction:
    return filled(n, dims, x)


@converts("BROADCAST_ARGS")
def broadcast_args(n: Node, a: Instruction, b: Instruction) -> Instruction:
    return broadcast_extents(n, a, b)


@converts("ZEROS_LIKE")
def zeros_like(n: Node, x: Instruction) -> Instruction:
    return n.full_like(x, 0)


@converts("RANGE")
def range_(n: Node, start: Instruction, limit: Instruction, delta: Instruction) -> Instruction:
    args = [n.reshape(v, ()) for v in (start, limit, delta)]
    values = [n.constant(v) for v in args]
    if all(v is not None for v in values):
        first, stop, step = (v[()] for v in values if v is not None)
        if step == 0 or abs(float(stop - first) / float(step)) > 1 << 26:
            n.fail(f"a range from {first} to {stop} by {step} is invalid or too large")
        return n.literal(np.arange(first.item(), stop.item(), step.item()), start.shape.dtype)
    if start.shape.dtype.is_integer:
        found = [n.dims(v) for v in args]
        if all(f is not None for f in found):
            (first_,), (stop_,), (step_,) = (f for f in found if f is not None)
            if isinstance(step_, int) and step_ > 0:
                return n.add("dynamic_range", *args, length=maximum(ceil_div(stop_ - first_, step_), 0))
    return n.add("dynamic_range", *args)


@converts("RANDOM_UNIFORM", "RANDOM_STANDARD_NORMAL")
def random(n: Node, dims: Instruction) -> Instruction:
    like = n.broadcast_to(n.literal(0, n.kind()), n.extents(dims, "the extents"))
    seeds = n.option("Seed", 0), n.option("Seed2", 0)
    seed = n.add("random_seed") if seeds == (0, 0) else n.literal([seeds[0] * 1_000_003 + seeds[1]], dt.int64)
    return n.add("random_uniform" if n.op_type == "RANDOM_UNIFORM" else "random_normal", seed, like)


@converts("MULTINOMIAL")
def multinomial(n: Node, logits: Instruction, count: Instruction) -> Instruction:
    return n.convert(drawn(n, n.add("random_seed"), logits, count), n.kind())
