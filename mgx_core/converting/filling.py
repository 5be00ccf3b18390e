"""Ops whose result extents come from an operand: fill, range, scatter, one-hot, sampling, segment reductions."""

from __future__ import annotations

from typing import Literal

from ..errors import ParseError
from ..ir.instruction import Instruction
from ..types import dtype as dt
from ..types.dim import Dim, maximum, product
from .builder import InstructionBuilder

__all__ = [
    "broadcast_extents", "count_up", "drawn", "filled", "one_hot", "places_along", "places_of_true", "repeated_places",
    "scattered", "unsorted_segments",
]  # fmt: skip


def filled(n: InstructionBuilder, dims: Instruction, value: Instruction) -> Instruction:
    """Returns a tensor of extents `dims` filled with `value`.  Errors: ParseError for negative extents."""
    known = n.dims(dims)
    if known is not None:
        if any(isinstance(d, int) and d < 0 for d in known):
            raise ParseError(f"extents must not be negative, got {list(known)}")
        return n.broadcast_to(value, known)
    return n.add("broadcast_with_dims", value, n.convert(dims, dt.int64))


def count_up(n: InstructionBuilder, count: Instruction, length: Dim | None = None) -> Instruction:
    """Returns arange(count) as int64; length: its extent, if known."""
    known = n.dims(count)
    length = maximum(known[0], 0) if known is not None and len(known) == 1 else length
    if isinstance(length, int):
        return n.literal(range(length), dt.int64)
    args = n.literal(0, dt.int64), n.reshape(n.convert(count, dt.int64), ()), n.literal(1, dt.int64)
    return n.add("dynamic_range", *args, length=length)


def places_along(n: InstructionBuilder, x: Instruction, axis: int) -> Instruction:
    """Returns the int64 indices along an axis of x."""
    return count_up(n, n.add("dimensions_of", x, start=axis, end=axis + 1), x.shape.dims[axis])


def places_of_true(n: InstructionBuilder, x: Instruction) -> Instruction:
    """Returns the indices of nonzero elements, one row each."""
    if x.shape.dtype is not dt.bool_:
        x = n.pointwise("not_equal", x, n.literal(0, x.shape.dtype))
    return n.transpose(n.add("nonzero", x), (1, 0))


def scattered(n: InstructionBuilder, indices: Instruction, updates: Instruction, dims: Instruction) -> Instruction:
    """Returns zeros of extents `dims` with `updates` added at their indices."""
    base = filled(n, dims, n.literal(0, updates.shape.dtype))
    return n.add("scatternd_add", base, n.indices(indices), updates)


def drawn(n: InstructionBuilder, seed: Instruction, logits: Instruction, count: Instruction) -> Instruction:
    """Returns `count` class indices (int64) sampled for each row of logits."""
    number = n.whole(count, "the number of samples")[0]
    total = n.add("prefix_scan_sum", n.pointwise("exp", n.add("logsoftmax", logits, axis=1)), axis=1)
    zeros = n.broadcast_to(n.literal(0.0, logits.shape.dtype), (logits.shape.dims[0], number))
    draw = n.add("random_uniform", seed, zeros)
    below = n.pointwise("less_or_equal", n.unsqueeze(total, [1]), n.unsqueeze(draw, [2]))
    places = n.squeeze(n.add("reduce_sum", n.convert(below, dt.int64), axes=(2,)), [2])
    classes = logits.shape.dims[1]
    if isinstance(classes, int):  # the rounded total may be below the random number
        places = n.pointwise("min", places, n.literal(classes - 1, dt.int64))
    return places


def repeated_places(n: InstructionBuilder, counts: Instruction) -> Instruction:
    """Returns repeat(arange(len(counts)), counts) in int64; negative counts are 0.

    Computed as the number of runs that end at or before each position.
    """
    counts = n.pointwise("max", n.convert(counts, dt.int64), n.literal(0, dt.int64))
    ends = n.add("prefix_scan_sum", counts, axis=0)
    total = n.add("reduce_sum", counts, axes=(0,))
    (length,) = count_up(n, total).shape.dims
    zeros = n.broadcast_to(n.literal(0, dt.int64), (length + 1,))
    ended = n.add("scatter_add", zeros, ends, n.full_like(ends, 1), axis=0)
    return n.slice(n.add("prefix_scan_sum", ended, axis=0), [0], [0], [length])


def one_hot(
    n: InstructionBuilder, indices: Instruction, depth: Instruction, on: Instruction, off: Instruction, axis: int
) -> Instruction:
    """Returns a one-hot encoding along a new axis whose extent is an operand.

    Errors: ParseError for an extent below 0.
    """
    rank = indices.shape.rank
    (at,) = n.axes([axis], rank + 1)
    known = n.constant(depth)
    if known is not None and known.reshape(-1)[0] < 0:
        n.fail(f"the depth must not be negative, got {known}")
    if indices.shape.dtype.bits < 32:  # uint8 would overflow
        indices = n.convert(indices, dt.int64)
    own = n.convert(count_up(n, depth), indices.shape.dtype)
    own = n.unsqueeze(own, [k for k in range(rank + 1) if k != at])
    return n.pointwise("where", n.pointwise("equal", n.unsqueeze(indices, [at]), own), on, off)


def broadcast_extents(n: InstructionBuilder, a: Instruction, b: Instruction) -> Instruction:
    """Returns the broadcast of two shape operands.  Errors: UnsupportedError if they are not known at parse time."""
    first, second = n.dims(a), n.dims(b)
    if first is None or second is None:
        n.unsupported("extents to be broadcast that are known only at run time")
    count = max(len(first), len(second))
    pairs = zip((1,) * (count - len(first)) + first, (1,) * (count - len(second)) + second, strict=True)
    out: list[Dim] = [q if isinstance(p, int) and p == 1 else p for p, q in pairs]
    parts = [_entry(n, d, a, b, k - count) for k, d in enumerate(out)]
    return n.add("concat", *(n.convert(p, a.shape.dtype) for p in parts), axis=0) if parts else a


def _entry(n: InstructionBuilder, d: Dim, a: Instruction, b: Instruction, at: int) -> Instruction:
    if isinstance(d, int):
        return n.literal([d], dt.int64)
    for x in (a, b):
        known = n.dims(x)
        if known is not None and -at <= len(known) and known[at] == d:
            return n.slice(x, [0], [len(known) + at], [len(known) + at + 1])
    return n.fail(f"no operand has the extent {d}")


def unsorted_segments(
    n: InstructionBuilder,
    how: Literal["add", "mul", "max", "min"],
    x: Instruction,
    segments: Instruction,
    count: Instruction,
) -> Instruction:
    """Returns x reduced over its rows into `count` segments; rows with a negative segment are dropped."""
    dtype = x.shape.dtype
    start = {"add": 0, "mul": 1, "max": dtype.lowest, "min": dtype.highest}[how]
    rank = segments.shape.rank
    rows = n.reshape(x, (product(x.shape.dims[:rank]), *x.shape.dims[rank:]))
    flat = n.reshape(n.indices(segments), (product(segments.shape.dims),))
    total = n.reshape(n.convert(count, flat.shape.dtype), ())
    more = n.reshape(n.pointwise("add", n.convert(count, dt.int64), n.literal(1, dt.int64)), (1,))
    rest = n.add("dimensions_of", rows, start=1)
    # negative segments are reduced into an extra last row
    base = filled(n, n.add("concat", more, rest, axis=0), n.literal(start, dtype))
    low = n.pointwise("less", flat, n.literal(0, flat.shape.dtype))
    made = n.add(f"scatternd_{how}", base, n.unsqueeze(n.pointwise("where", low, total, flat), [1]), rows)
    return n.slice(made, [0], [0], [made.shape.dims[0] - 1])
