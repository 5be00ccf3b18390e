"""Splits along one axis, into equal parts or by sizes, one of which may be -1 for the remainder."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.instruction import Instruction
from ..types import dtype as dt
from ..types.dim import Dim
from .builder import InstructionBuilder

__all__ = ["edges_of_parts", "equal_parts", "sizes_of_parts"]


def equal_parts(n: InstructionBuilder, x: Instruction, count: int) -> list[Instruction]:
    """Returns `count` equal parts of the last axis."""
    axis = x.shape.rank - 1
    size = x.shape.dims[axis] // count
    return [n.slice(x, [axis], [i * size], [(i + 1) * size]) for i in range(count)]


def edges_of_parts(n: InstructionBuilder, x: Instruction, axis: int, sizes: Sequence[Dim], count: int) -> list[Dim]:
    """Returns the boundaries of parts of known sizes: len(sizes) + 1 offsets.

    Errors: ParseError if there are not `count` sizes, or if they are negative or do not sum to the axis' extent.
    """
    length = x.shape.dims[axis]
    rest = [i for i, s in enumerate(sizes) if s == -1]
    listed = list(sizes)
    if len(listed) != count:
        n.fail(f"{count} sizes are required, got {listed}")
    if len(rest) > 1:
        n.fail(f"at most one size may be -1, got {listed}")
    if rest:
        total: Dim = 0
        for i, s in enumerate(listed):
            total = total if i in rest else total + s
        listed[rest[0]] = length - total
    edges: list[Dim] = [0]
    for s in listed:
        edges.append(edges[-1] + s)
    negative = any(isinstance(s, int) and s < 0 for s in listed)
    if negative or (isinstance(edges[-1], int) and isinstance(length, int) and edges[-1] != length):
        n.fail(f"sizes {list(sizes)} must not be negative and add up to the extent {length} of axis {axis}")
    return edges


def sizes_of_parts(n: InstructionBuilder, x: Instruction, axis: int, sizes: Instruction) -> Instruction:
    """Returns sizes known only at run time, with -1 replaced by the remainder."""
    sizes = n.convert(sizes, dt.int64)
    free = n.pointwise("equal", sizes, n.literal(-1, dt.int64))
    stated = n.pointwise("where", free, n.literal(0, dt.int64), sizes)
    length = n.add("dimensions_of", x, start=axis, end=axis + 1)
    left = n.pointwise("sub", length, n.add("reduce_sum", stated, axes=(0,)))
    return n.pointwise("where", free, left, stated)
