"""Distinct elements and their counts."""

from __future__ import annotations

from typing import Any

from mgx_core import Instruction
from mgx_core import dtype as dt
from mgx_core.types.dim import Dim

from ..converter import converts
from ..node import Node

__all__: list[str] = []


@converts("_unique2")
def unique(
    n: Node, x: Instruction, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False
) -> tuple[Instruction, ...]:
    """Returns the distinct elements in ascending order (torch leaves the order open without `sorted`), places and counts.

    A NaN equals no other.
    """
    values, _, places, counts = n.items(n.add("unique", _flat(n, x), equal_nan=False))
    return values, n.reshape(places, x.shape.dims), counts


@converts("unique_dim")
def unique_slices(
    n: Node,
    x: Instruction,
    dim: int,
    sorted: bool = True,
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[Instruction, ...]:
    """Returns the distinct slices along an axis in lexicographic order, places and counts."""
    values, _, places, counts = n.items(n.add("unique", x, axis=n.axis(dim, x.shape.rank)))
    return values, places, counts


@converts("unique_consecutive", "unique_dim_consecutive")
def unique_consecutive(n: Node, x: Instruction, *options: Any) -> tuple[Instruction, ...]:
    """Returns the first element (or slice) of each run of equal ones, the number of each element's run, and lengths of runs.

    options: whether places and counts are wanted, and the axis; the overload of one axis has the axis first.
    """
    axes = [v for v in options if isinstance(v, int) and not isinstance(v, bool)]
    rows, axis = (x, n.axis(axes[0], x.shape.rank)) if axes else (_flat(n, x), 0)
    length = rows.shape.dims[axis]
    order = _counted(n, n.filled((length,), True, dt.bool_))
    before = n.pointwise("max", n.add("sub", order, n.full_like(order, 1)), n.literal(0, dt.int64))
    same = n.add("equal", rows, n.add("gather", rows, before, axis=axis))
    others = [a for a in range(rows.shape.rank) if a != axis]
    starts = n.pointwise("not", n.reduce("reduce_all", same, others, keep=False))
    places = _counted(n, n.pointwise("logical_or", starts, n.pointwise("equal", order, n.literal(0, dt.int64))))
    _, first, _, counts = n.items(n.add("unique", places))
    return n.add("gather", rows, first, axis=axis), places if axes else n.reshape(places, x.shape.dims), counts


def _flat(n: Node, x: Instruction) -> Instruction:
    return n.reshape(x, (n.size(x, range(x.shape.rank)),))


def _counted(n: Node, marks: Instruction) -> Instruction:
    """Returns the number of true elements up to and including each element, minus one."""
    found = n.add("prefix_scan_sum", n.convert(marks, dt.int64), axis=0)
    return n.add("sub", found, n.full_like(found, 1))


def _without_negative(n: Node, x: Instruction, numbers: Instruction, what: str) -> Instruction:
    """Returns x, which requires that no element of a vector is negative."""
    zero = n.filled((1,), 0, dt.int64)
    numbers = n.add("concat", numbers, zero, axis=0)  # so that there is a least one if there are no numbers
    least = n.reduce("reduce_min", numbers, [0], keep=False)
    known = n.add("less", n.literal(-1, dt.int64), least)
    return n.add("require", x, known, message=f"{what} must be at least 0, got a negative one")


@converts("bincount")
def bincount(n: Node, x: Instruction, weights: Instruction | None = None, minlength: Dim = 0) -> Instruction:
    """Returns how often each number occurs, or the sum of its weights; at least `minlength` elements."""
    if isinstance(minlength, int) and minlength < 0:
        n.fail(f"minlength must be at least 0, got {minlength}")
    numbers = n.convert(x, dt.int64)
    # with one more number of minlength - 1, the largest exists if x is empty, too
    least = n.filled((1,), minlength - 1, dt.int64)
    largest = n.reduce("reduce_max", n.add("concat", numbers, least, axis=0), [0], keep=False)
    largest = _without_negative(n, largest, numbers, "the numbers to be counted")
    length = n.add("add", largest, n.literal(1, dt.int64))
    bins = n.add("dynamic_range", n.literal(0, dt.int64), length, n.literal(1, dt.int64))
    kind = n.dtype
    given = n.filled(x.shape.dims, 1, kind) if weights is None else n.convert(weights, kind)
    zeros = n.convert(n.add("sub", bins, bins), kind)
    return n.add("scatternd_add", zeros, n.unsqueeze(numbers, [1]), given)


@converts("repeat_interleave.Tensor")
def repeated_places(n: Node, repeats: Instruction, output_size: Any = None) -> Instruction:
    """Returns each place of a vector as often as its element says: the places of `repeat_interleave`."""
    counts = n.convert(repeats, dt.int64)
    total = _without_negative(n, n.reduce("reduce_sum", counts, [0], keep=False), counts, "repeats")
    if output_size is not None:
        wanted = n.tensor(output_size, dt.int64)
        same = n.add("equal", total, wanted)
        total = n.add("require", total, same, message="the sum of repeats must be output_size, got another sum")
    one = n.literal(1, dt.int64)
    places = n.add("dynamic_range", n.literal(0, dt.int64), total, one)
    # one mark more, for elements that end at the last place: the number of elements that ended before a place is its element
    marks = n.add("concat", n.add("sub", places, places), n.filled((1,), 0, dt.int64), axis=0)
    ends = n.add("prefix_scan_sum", counts, axis=0)
    marks = n.add("scatternd_add", marks, n.unsqueeze(ends, [1]), n.full_like(ends, 1))
    found = n.slice(n.add("prefix_scan_sum", marks, axis=0), [0], [0], places.shape.dims)
    return n.convert(n.reshape(found, n.result_dims()) if isinstance(output_size, int) else found, n.dtype)
