"""Tensors of extents that an operand gives: filled, broadcast, drawn, collected by positions and segments."""

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
    """`value` in every place of a tensor of extents `dims`.  Errors: ParseError for negative ones."""
    known = n.dims(dims)
    if known is not None:
        if any(isinstance(d, int) and d < 0 for d in known):
            raise ParseError(f"extents must not be negative, got {list(known)}")
        return n.broadcast_to(value, known)
    return n.add("broadcast_with_dims", value, n.convert(dims, dt.int64))


def count_up(n: InstructionBuilder, count: Instruction, length: Dim | None = None) -> Instruction:
    """Returns 0, 1, ... below a number, in int64; length: what else is known of that number."""
    known = n.dims(count)
    length = maximum(known[0], 0) if known is not None and len(known) == 1 else length
    if isinstance(length, int):
        return n.literal(range(length), dt.int64)
    args = n.literal(0, dt.int64), n.reshape(n.convert(count, dt.int64), ()), n.literal(1, dt.int64)
    return n.add("dynamic_range", *args, length=length)


def places_along(n: InstructionBuilder, x: Instruction, axis: int) -> Instruction:
    """Returns 0, 1, ... along an axis of x, in int64."""
    return count_up(n, n.add("dimensions_of", x, start=axis, end=axis + 1), x.shape.dims[axis])


def places_of_true(n: InstructionBuilder, x: Instruction) -> Instruction:
    """Returns the positions of what is true or not zero, one a row."""
    if x.shape.dtype is not dt.bool_:
        x = n.pointwise("not_equal", x, n.literal(0, x.shape.dtype))
    return n.transpose(n.add("nonzero", x), (1, 0))


def scattered(n: InstructionBuilder, indices: Instruction, updates: Instruction, dims: Instruction) -> Instruction:
    """Returns zeros of extents `dims` with updates added at their positions."""
    base = filled(n, dims, n.literal(0, updates.shape.dtype))
    return n.add("scatternd_add", base, n.indices(indices), updates)


def drawn(n: InstructionBuilder, seed: Instruction, logits: Instruction, count: Instruction) -> Instruction:
    """Returns so many classes for each row of logits, drawn by their probabilities, in int64."""
    number = n.whole(count, "the number of samples")[0]
    total = n.add("prefix_scan_sum", n.pointwise("exp", n.add("logsoftmax", logits, axis=1)), axis=1)
    zeros = n.broadcast_to(n.literal(0.0, logits.shape.dtype), (logits.shape.dims[0], number))
    draw = n.add("random_uniform", seed, zeros)
    below = n.pointwise("less_or_equal", n.unsqueeze(total, [1]), n.unsqueeze(draw, [2]))
    places = n.squeeze(n.add("reduce_sum", n.convert(below, dt.int64), axes=(2,)), [2])
    classes = logits.shape.dims[1]
    if isinstance(classes, int):  # the sum of all is rounded, and may be below what is drawn
        places = n.pointwise("min", places, n.literal(classes - 1, dt.int64))
    return places


def repeated_places(n: InstructionBuilder, counts: Instruction) -> Instruction:
    """Returns 0 as often as the first count says, 1 as often as the second and so on, in int64; counts below 0 are 0.

    Each place is how many runs of equal numbers have ended before it.
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
    """Returns `on` at each index along a new axis of an extent that an operand gives, `off` elsewhere.

    Errors: ParseError for an extent below 0.
    """
    rank = indices.shape.rank
    (at,) = n.axes([axis], rank + 1)
    known = n.constant(depth)
    if known is not None and known.reshape(-1)[0] < 0:
        n.fail(f"the depth must not be negative, got {known}")
    if indices.shape.dtype.bits < 32:  # bytes do not count beyond 255
        indices = n.convert(indices, dt.int64)
    own = n.convert(count_up(n, depth), indices.shape.dtype)
    own = n.unsqueeze(own, [k for k in range(rank + 1) if k != at])
    return n.pointwise("where", n.pointwise("equal", n.unsqueeze(indices, [at]), own), on, off)


def broadcast_extents(n: InstructionBuilder, a: Instruction, b: Instruction) -> Instruction:
    """Returns the extents to which tensors of two extents are broadcast.  Errors: UnsupportedError if they are not known."""
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
    """Returns rows of x combined by their segments, of which there are `count`; rows of negative segments are left out."""
    dtype = x.shape.dtype
    start = {"add": 0, "mul": 1, "max": dtype.lowest, "min": dtype.highest}[how]
    rank = segments.shape.rank
    rows = n.reshape(x, (product(x.shape.dims[:rank]), *x.shape.dims[rank:]))
    flat = n.reshape(n.indices(segments), (product(segments.shape.dims),))
    total = n.reshape(n.convert(count, flat.shape.dtype), ())
    more = n.reshape(n.pointwise("add", n.convert(count, dt.int64), n.literal(1, dt.int64)), (1,))
    rest = n.add("dimensions_of", rows, start=1)
    # the row after the last takes what has a negative number
    base = filled(n, n.add("concat", more, rest, axis=0), n.literal(start, dtype))
    low = n.pointwise("less", flat, n.literal(0, flat.shape.dtype))
    made = n.add(f"scatternd_{how}", base, n.unsqueeze(n.pointwise("where", low, total, flat), [1]), rows)
    return n.slice(made, [0], [0], [made.shape.dims[0] - 1])
