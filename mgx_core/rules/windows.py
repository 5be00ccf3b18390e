"""Finds overlapping windows in gathers and in padded rows that are shifted against each other; they are views of memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.index import Gather
from ..ops.movement import Transpose
from ..ops.pad import Pad
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..ops.slice import Slice, SlidingWindows
from ..types.argument import Array
from ..types.dim import Dim, compare
from .constants import LARGEST
from .engine import Builder, Rules
from .matching import op_as
from .pads import widths
from .slices import cut, ranges

__all__ = ["WINDOWS"]

WINDOWS: Final = Rules("find-windows")

LONGEST: Final = 8  # the most instructions between the slice and the rows


class _Windows(NamedTuple):
    """Positions first + step i + j of an axis, for i < number and j < size."""

    first: int
    step: int
    number: int
    size: int

    @property
    def end(self) -> int:
        return self.first + self.step * (self.number - 1) + self.size


def _windows(positions: Array) -> _Windows | None:
    """Returns a matrix of positions as windows if it is one."""
    if positions.ndim != 2 or min(positions.shape) < 2 or positions.size > LARGEST:
        return None
    count, size = positions.shape
    first, step = int(positions[0, 0]), int(positions[1, 0]) - int(positions[0, 0])
    if (
        first < 0
        or step < 1
        or not np.array_equal(positions, first + step * np.arange(count)[:, None] + np.arange(size))
    ):
        return None
    return _Windows(first, step, count, size)


def _cut_windows(b: Builder, x: Instruction, axis: int, found: _Windows) -> Instruction:
    """Returns the windows of an axis as two axes."""
    part = cut(b, x, {axis: (found.first, found.end, 1)})
    if found.step == found.size:
        dims = x.shape.dims
        return b.add(Reshape(dims=(*dims[:axis], found.number, found.size, *dims[axis + 1 :])), part)
    return b.add(SlidingWindows(axis=axis, size=found.size, step=found.step), part)


@WINDOWS.on(Gather)
def gather_of_windows(i: Instruction, b: Builder) -> Instruction | No | None:
    """gather(x, [[0, 1, 2], [2, 3, 4], ..]) -> windows of x; transposed, if each column of the indices is a window."""
    x, indices = i.inputs
    if indices.literal is None or not x.shape.ranked or indices.shape.rank != 2:
        return None
    positions = np.asarray(indices.literal.value).astype(np.int64)
    rows = _windows(positions)
    found = rows or _windows(positions.T)
    if found is None:
        return None
    axis = op_as(i, Gather).axis % x.shape.rank
    if not compare(x.shape.dims[axis], ">=", found.end):
        return No("the positions may lie outside")
    windows = _cut_windows(b, x, axis, found)
    if rows is not None:
        return windows
    order = [*range(axis), axis + 1, axis, *range(axis + 2, x.shape.rank + 1)]
    return b.add(Transpose(permutation=tuple(order)), windows)


@WINDOWS.on(Slice)
def shifted_rows(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(reshape(pad(rows))) that shifts each row by one more position, and shows no padding -> windows of the flat rows.

    Relative positions of attention are made absolute in this way (halo attention, Transformer-XL).
    """
    chain = _padded(i)
    if chain is None:
        return None
    x = chain[-1].inputs[0]
    lead = _untouched(chain)
    inner = [d for d in x.shape.dims[lead:] if isinstance(d, int)]
    if len(inner) < x.shape.rank - lead or not 0 < prod(inner) <= LARGEST:
        return No("the rows are long, or their extents are symbolic")
    positions = np.arange(prod(inner)).reshape(inner)
    for ins in reversed(chain):
        made = [d for d in ins.shape.dims[lead:] if isinstance(d, int)]
        if len(made) < ins.shape.rank - lead:
            return No("an extent of the padded rows is symbolic")
        if prod(made) > LARGEST:
            return No("the padded rows are long")
        if ins.op.reshapes and prod(made) != positions.size:  # possible only where a leading axis has no elements
            return No("a reshape changes the number of elements behind the leading axes")
        positions = _followed(ins, positions, lead)
    found = _windows(positions.reshape([n for n in positions.shape if n != 1]))
    if found is None:
        return No("the elements are not windows of the rows, or some are padding")
    flat = x if len(inner) == 1 else b.add(Reshape(dims=(*x.shape.dims[:lead], prod(inner))), x)
    windows = _cut_windows(b, flat, lead, found)
    return windows if windows.shape.dims == i.shape.dims else b.add(Reshape(dims=i.shape.dims), windows)


def _padded(i: Instruction) -> list[Instruction] | None:
    """Returns a slice and what leads to it, down to the first pad, last first; None if that is anything but views and pads."""
    chain, pads, at = [i], 0, i.inputs[0]
    if ranges(i) is None:
        return None
    while len(chain) < LONGEST and len(at.users) == 1:
        if isinstance(at.op, Pad):
            found = widths(at)
            if found is None or at.op.mode != "constant" or min(min(p) for p in found) < 0:
                return None
            pads = len(chain) + 1
        elif isinstance(at.op, Slice):
            if ranges(at) is None:
                break
        elif not isinstance(at.op, (Reshape, Squeeze, Unsqueeze)) or len(at.inputs) > 1:
            break
        chain.append(at)
        at = at.inputs[0]
    shapes = [c.inputs[0].shape for c in chain[:pads]] + [c.shape for c in chain[:pads]]
    return chain[:pads] if pads and all(s.ranked for s in shapes) else None


def _untouched(chain: Sequence[Instruction]) -> int:
    """Returns the number of leading axes that no instruction changes."""
    shapes: list[Sequence[Dim]] = [chain[-1].inputs[0].shape.dims, *(c.shape.dims for c in chain)]
    lead = 0
    while all(lead < len(s) and s[lead] == shapes[0][lead] for s in shapes):
        lead += 1
    for ins in chain:
        for axis in ranges(ins) or {}:
            lead = min(lead, axis)
        for axis, pair in enumerate(widths(ins) or ()):
            lead = min(lead, axis) if pair != (0, 0) else lead
    return lead


def _followed(ins: Instruction, positions: Array, lead: int) -> Array:
    """Returns the positions of an instruction's result, -1 for padding."""
    found = widths(ins)
    if found is not None:
        return np.pad(positions, found[lead:], constant_values=-1)
    cuts = ranges(ins)
    if cuts is None:
        return positions.reshape([d for d in ins.shape.dims[lead:] if isinstance(d, int)])
    whole = (0, None, 1)
    return positions[tuple(slice(*cuts.get(axis + lead, whole)) for axis in range(positions.ndim))]
