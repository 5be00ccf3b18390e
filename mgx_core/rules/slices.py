"""Slices, concatenations and gathers: joined, cancelled, replaced by views."""

from __future__ import annotations

from typing import Final

import numpy as np

from ..errors import No
from ..ir.instruction import Instruction
from ..ops.broadcast import Multibroadcast
from ..ops.concat import Concat
from ..ops.index import Gather
from ..ops.reshape import Reshape, Squeeze
from ..ops.slice import Slice, Step
from ..types.dim import Dim, compare
from .constants import aligned, is_constant
from .engine import Builder, Rules
from .matching import one_user, op_as

__all__ = ["SLICES"]

SLICES: Final = Rules("simplify-slices")

Range = tuple[Dim, Dim, int]


def ranges(ins: Instruction) -> dict[int, Range] | None:
    """Start, end and step of a slice by axis, where all are attributes, the steps positive and the bounds within the extent."""
    if not isinstance(ins.op, Slice) or len(ins.inputs) > 1 or not ins.inputs[0].shape.ranked:
        return None
    op: Slice = ins.op
    dims = ins.inputs[0].shape.dims
    axes = op.axes or range(len(op.starts))
    steps = op.steps or (1,) * len(op.starts)
    out: dict[int, Range] = {}
    for axis, start, end, step in zip(axes, op.starts, op.ends, steps, strict=True):
        axis = axis + len(dims) if axis < 0 else axis
        if (
            step < 1
            or not compare(start, ">=", 0)
            or not compare(end, "<=", dims[axis])
            or not compare(start, "<=", end)
        ):
            return None
        out[axis] = (start, end, step)
    return out


def cut(b: Builder, x: Instruction, wanted: dict[int, Range]) -> Instruction:
    """Returns a slice of x over these ranges, or x itself if they cover it."""
    dims = x.shape.dims
    real = {a: r for a, r in sorted(wanted.items()) if r != (0, dims[a], 1)}
    if not real:
        return x
    starts, ends, steps = zip(*real.values(), strict=True)
    return b.add(
        Slice(axes=tuple(real), starts=starts, ends=ends, steps=steps if any(s != 1 for s in steps) else ()), x
    )


# slices ---------------------------------------------------------------------------------------------------------------


@SLICES.on(Slice)
def drop_whole_slice(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(x) of all elements -> x."""
    if i.inputs[0].result != i.result:
        return None
    found = ranges(i)
    return i.inputs[0] if found is not None and all(s == 0 and t == 1 for s, _, t in found.values()) else None


@SLICES.on(Slice, reads=Slice)
def join_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(slice(x)) -> slice(x)."""
    inner = i.inputs[0]
    if not isinstance(inner.op, Slice):
        return None
    outer, below = ranges(i), ranges(inner)
    if outer is None or below is None:
        return No("a bound is known only at run time, or a step is negative")
    out = dict(below)
    for axis, (start, end, step) in outer.items():
        first, last, stride = below.get(axis, (0, inner.inputs[0].shape.dims[axis], 1))
        if stride == 1:
            out[axis] = (first + start, first + end, step)
        elif compare(start, ">=", end):
            out[axis] = (first, first, 1)
        elif isinstance(last, int) and isinstance(end, int):
            stop = first + (end - 1) * stride + 1
            out[axis] = (first + start * stride, stop if compare(stop, "<=", last) else last, stride * step)
        else:
            return No("a slice with steps has symbolic bounds")
    return cut(b, inner.inputs[0], out)


@SLICES.on(Slice, reads=Concat)
def slice_of_concat(i: Instruction, b: Builder) -> Instruction | No | None:
    """slice(concat(x, y, ..)) -> the used operands, sliced, if one of them is unused."""
    whole = i.inputs[0]
    if not isinstance(whole.op, Concat):
        return None
    found = ranges(i)
    axis = whole.op.axis % whole.shape.rank
    if found is None or axis not in found:
        return No("a bound is known only at run time, or the slice is along another axis")
    start, end, step = found.pop(axis)
    if step != 1:
        return No("its step is not 1")
    parts: list[tuple[Instruction, Range]] = []
    at: Dim = 0
    for x in whole.inputs:
        n = x.shape.dims[axis]
        before, after = compare(at + n, "<=", start), compare(at, ">=", end)
        if not before and not after:
            first = 0 if compare(start, "<=", at) else start - at
            last = n if compare(end, ">=", at + n) else end - at
            if not (compare(first, ">=", 0) and compare(last, "<=", n)):
                return No("the operands it reads are known only at run time")
            parts.append((x, (first, last, 1)))
        at = at + n
    if len(parts) == len(whole.inputs) or not parts:
        return No("it reads all parts")
    made = [cut(b, x, {**found, axis: r}) for x, r in parts]
    return made[0] if len(made) == 1 else b.add(Concat(axis=axis), *made)


@SLICES.on(Step)
def slice_from_step(i: Instruction, b: Builder) -> Instruction | No | None:
    """step(x) -> slice(x) with steps."""
    dims = i.inputs[0].shape.dims
    axes = tuple(a % len(dims) for a in op_as(i, Step).axes)
    return cut(b, i.inputs[0], {a: (0, dims[a], s) for a, s in zip(axes, op_as(i, Step).steps, strict=True)})


# concatenations -------------------------------------------------------------------------------------------------------


@SLICES.on(Concat)
def concat_of_one(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(x) -> x; empty operands are removed."""
    axis = op_as(i, Concat).axis % i.shape.rank
    kept = [x for x in i.inputs if x.shape.dims[axis] != 0]
    if not kept or len(kept) == len(i.inputs) > 1:
        return None
    if any(
        x.shape.dims[:axis] != i.shape.dims[:axis] or x.shape.dims[axis + 1 :] != i.shape.dims[axis + 1 :]
        for x in i.inputs
    ):
        return No("whether the operands' extents fit is known only at run time")
    return b.add(i.op, *kept) if len(kept) > 1 else kept[0]


@SLICES.on(Concat, reads=Concat)
def join_concats(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(concat(x, y), z) -> concat(x, y, z) along one axis."""
    if not any(isinstance(x.op, Concat) for x in i.inputs):
        return None
    axis = op_as(i, Concat).axis % i.shape.rank
    flat: list[Instruction] = []
    for x in i.inputs:
        same = isinstance(x.op, Concat) and x.op.axis % i.shape.rank == axis
        flat.extend(x.inputs if same and one_user(x) and i.inputs.count(x) == 1 else (x,))
    return (
        b.add(i.op, *flat)
        if len(flat) > len(i.inputs)
        else No("the inner concat is along another axis, or has other users")
    )


@SLICES.on(Concat, reads=Slice)
def concat_of_slices(i: Instruction, b: Builder) -> Instruction | No | None:
    """concat(x[a:b], x[b:c]) -> x[a:c] along the same axis."""
    if sum(isinstance(x.op, Slice) for x in i.inputs) < 2:
        return None
    axis = op_as(i, Concat).axis % i.shape.rank
    out: list[tuple[Instruction, dict[int, Range] | None, Instruction]] = []
    for x in i.inputs:
        own = ranges(x)
        if out and own is not None and axis in own:
            source, last, _ = out[-1]
            if (
                last is not None
                and source is x.inputs[0]
                and last.keys() == own.keys()
                and all(last[a] == own[a] for a in own if a != axis)
                and last[axis][2] == own[axis][2] == 1
                and last[axis][1] == own[axis][0]
            ):
                out[-1] = (source, {**last, axis: (last[axis][0], own[axis][1], 1)}, x)
                continue
        good = own is not None and axis in own
        out.append((x.inputs[0] if good else x, own if good else None, x))
    if len(out) == len(i.inputs):
        return No("no two neighbors are adjacent slices of one tensor")
    parts = [x if own is None else cut(b, x, own) for x, own, _ in out]
    return parts[0] if len(parts) == 1 else b.add(i.op, *parts)


# gathers --------------------------------------------------------------------------------------------------------------


@SLICES.on(Gather)
def gather_of_range(i: Instruction, b: Builder) -> Instruction | No | None:
    """gather(x, constant) -> a slice of x for a single index or evenly increasing ones."""
    x, indices = i.inputs
    value = aligned(indices)
    if value is None or not x.shape.ranked or is_constant(x):
        return None
    axis: int = op_as(i, Gather).axis % x.shape.rank
    n = x.shape.dims[axis]
    if not value.size or value.shape != tuple(indices.shape.dims):
        return None
    at = value.astype(np.int64).reshape(-1)
    if at.min() < 0 and at.max() < 0:
        if not isinstance(n, int):
            return No("positions count from the end of an extent that is known only at run time")
        at = at + n
    if not (at.min() >= 0 and compare(int(at.max()), "<", n)):
        return No("whether the positions are in range is known only at run time")
    step = int(at[1] - at[0]) if at.size > 1 else 1
    if step < 1 or (at.size > 1 and not (np.diff(at) == step).all()):
        return No("the positions are not evenly increasing")
    part = cut(b, x, {axis: (int(at[0]), int(at[-1]) + 1, step)})
    if indices.shape.rank == 1:
        return part
    if indices.shape.rank == 0:
        return b.add(Squeeze(axes=(axis,)), part)
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), part)


@SLICES.on(Gather)
def repetition_from_gather(i: Instruction, b: Builder) -> Instruction | No | None:
    """gather(x, constant) -> a broadcast of x if the indices repeat each element of the axis equally often, in order."""
    x, indices = i.inputs
    value = aligned(indices)
    if value is None or not x.shape.ranked or is_constant(x) or value.shape != tuple(indices.shape.dims):
        return None
    axis: int = op_as(i, Gather).axis % x.shape.rank
    n = x.shape.dims[axis]
    if not isinstance(n, int) or n < 1 or value.size <= n or value.size % n:
        return None
    times = value.size // n
    at = np.where(value < 0, value + n, value).reshape(-1)
    inside = np.array_equal(at, np.repeat(np.arange(n), times))
    if not inside and not np.array_equal(at, np.tile(np.arange(n), times)):
        return No("the positions do not repeat the axis evenly")
    before, after = x.shape.dims[:axis], x.shape.dims[axis + 1 :]
    split, wide = ((n, 1), (n, times)) if inside else ((1, n), (times, n))
    parts = b.add(Reshape(dims=(*before, *split, *after), allowzero=True), x)
    spread = b.add(Multibroadcast(out_lens=(*before, *wide, *after)), parts)
    return b.add(Reshape(dims=i.shape.dims, allowzero=True), spread)
