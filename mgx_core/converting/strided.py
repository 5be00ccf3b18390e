"""Slices specified by begin and size, or by begin, end, strides and bit masks (TensorFlow's StridedSlice)."""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ParseError
from ..ir.instruction import Instruction
from ..named_tuples import NamedTuple
from ..ops.slice import FAR, clip
from ..types import dtype as dt
from ..types.dim import Dim, compare
from .builder import InstructionBuilder

__all__ = ["Masks", "cut", "slice_of_size", "strided_slice"]


class Masks(NamedTuple):
    """StridedSlice's masks, a bit for each entry: ignore begin, ignore end, ellipsis, new axis, drop axis."""

    begin: int = 0
    end: int = 0
    ellipsis: int = 0
    new_axis: int = 0
    shrink: int = 0


class Spec(NamedTuple):
    """The range of one operand axis; at: the index of its entry in the specification, -1 for none."""

    axis: int
    begin: Dim | None
    end: Dim | None
    step: int
    at: int
    shrinks: bool


def slice_of_size(n: InstructionBuilder, x: Instruction, begin: Instruction, size: Instruction) -> Instruction:
    """Returns x[begin : begin + size] along each axis; a size of -1 extends to the end.

    Errors: ParseError if the range exceeds x.
    """
    starts, sizes = n.dims(begin), n.dims(size)
    rank = x.shape.rank
    if starts is not None and sizes is not None:
        if len(starts) != rank or len(sizes) != rank:
            raise ParseError(
                f"one begin and one size per axis are required, got {list(starts)} and {list(sizes)} for rank {rank}"
            )
        ends: list[Dim] = []
        for axis, (s, c) in enumerate(zip(starts, sizes, strict=True)):
            length = x.shape.dims[axis]
            known = isinstance(s, int) and isinstance(c, int) and isinstance(length, int)
            if known and (compare(s, ">", length) or compare(c, "<", -1) or compare(s + c, ">", length)):
                raise ParseError(f"begin {s} and size {c} leave axis {axis} of extent {length}")
            ends.append(FAR if _is(c, -1) else s + c)
        kept = [
            a for a in range(rank) if not (_is(starts[a], 0) and (_is(sizes[a], -1) or sizes[a] == x.shape.dims[a]))
        ]
        return n.slice(x, kept, [starts[a] for a in kept], [ends[a] for a in kept]) if kept else x
    first, count = n.convert(begin, dt.int64), n.convert(size, dt.int64)
    whole = n.pointwise("equal", count, n.literal(-1, dt.int64))
    last = n.pointwise("where", whole, n.literal(FAR, dt.int64), n.pointwise("add", first, count))
    made = n.add("slice", x, first, last, axes=tuple(range(rank)))
    if sizes is not None and any(not _is(s, -1) for s in sizes):  # the extents are static though the begin is not
        dims = [d if _is(s, -1) else s for s, d in zip(sizes, made.shape.dims, strict=True)]
        if all(isinstance(d, int) for d in dims):
            return n.reshape(made, dims)
    return made


def _is(d: Dim, number: int) -> bool:
    return isinstance(d, int) and d == number


def strided_slice(
    n: InstructionBuilder, x: Instruction, begin: Instruction, end: Instruction, strides: Instruction, masks: Masks
) -> Instruction:
    """Returns a strided slice of x.  Errors: ParseError if it does not fit x, or if strides are not known at parse time."""
    steps = n.dims(strides)
    if steps is None or not all(isinstance(s, int) for s in steps):
        raise ParseError("the strides of a slice must be known at parse time")
    first, last = n.dims(begin), n.dims(end)
    count = len(steps)
    for given in (first, last):
        if given is not None and len(given) != count:
            raise ParseError(f"begins, ends and strides must have the same length, got {len(given)} and {count}")
    specs, form = _specification(x.shape.rank, count, first, last, [int(s) for s in steps], masks)
    if any(s.step == 0 for s in specs):
        raise ParseError("a stride must not be 0")
    for s in specs:
        if s.shrinks and first is not None:
            _inside(first[s.at], x.shape.dims[s.axis], s.axis)
    if (first is None and any(s.begin is None and s.at >= 0 for s in specs)) or (
        last is None and any(s.end is None and s.at >= 0 and not s.shrinks for s in specs)
    ):
        x = _at_run_time(n, x, begin, end, specs, masks)
    else:
        ranges = [s for s in specs if s.at >= 0]
        x = cut(
            n,
            x,
            [s.axis for s in ranges],
            [s.begin if s.begin is not None else (0 if s.step > 0 else FAR) for s in ranges],
            [s.end if s.end is not None else (FAR if s.step > 0 else -FAR - 1) for s in ranges],
            [s.step for s in ranges],
        )
    return _formed(n, x, specs, form)


def _inside(at: Dim, length: Dim, axis: int) -> None:
    if isinstance(at, int) and isinstance(length, int) and not -length <= at < length:
        raise ParseError(f"index {at} is out of range for axis {axis} of extent {length}")


def _specification(
    rank: int, count: int, first: Sequence[Dim] | None, last: Sequence[Dim] | None, steps: Sequence[int], masks: Masks
) -> tuple[list[Spec], list[int | None]]:
    """Returns one `Spec` per operand axis, and the result's axes in order, None for new ones."""
    ellipses = [k for k in range(count) if masks.ellipsis >> k & 1]
    if len(ellipses) > 1:
        raise ParseError("a slice may have one ellipsis")
    new = {k for k in range(count) if masks.new_axis >> k & 1 and k not in ellipses}
    taken = count - len(new) - len(ellipses)
    if taken > rank:
        raise ParseError(f"a slice of {taken} axes does not fit a tensor of rank {rank}")
    specs: list[Spec] = []
    form: list[int | None] = []
    axis = 0
    for k in range(count):
        if k in ellipses:
            for _ in range(rank - taken):
                specs.append(Spec(axis, None, None, 1, -1, False))
                form.append(axis)
                axis += 1
            continue
        if k in new:
            form.append(None)
            continue
        shrinks = bool(masks.shrink >> k & 1)
        start = None if first is None or (masks.begin >> k & 1 and not shrinks) else first[k]
        stop = None if last is None or masks.end >> k & 1 else last[k]
        step = steps[k]
        if shrinks:
            step = 1
            stop = None if start is None else (FAR if isinstance(start, int) and start == -1 else start + 1)
        specs.append(Spec(axis, start, stop, step, k, shrinks))
        if not shrinks:
            form.append(axis)
        axis += 1
    for rest in range(axis, rank):
        specs.append(Spec(rest, None, None, 1, -1, False))
        form.append(rest)
    return specs, form


def _at_run_time(
    n: InstructionBuilder, x: Instruction, begin: Instruction, end: Instruction, specs: Sequence[Spec], masks: Masks
) -> Instruction:
    """Returns x sliced, one axis at a time, by begins and ends that are known only at run time."""
    for s in specs:
        if s.at < 0:
            continue
        start, stop = n.dims(begin), n.dims(end)

        def entry(whole: Instruction, k: int = s.at) -> Instruction:
            return n.convert(n.slice(whole, [0], [k], [k + 1]), dt.int64)

        if s.shrinks:
            x = n.add("gather", x, entry(begin), axis=s.axis)
            continue
        low = n.literal([0 if s.step > 0 else FAR], dt.int64) if masks.begin >> s.at & 1 else entry(begin)
        high = n.literal([FAR if s.step > 0 else -FAR - 1], dt.int64) if masks.end >> s.at & 1 else entry(end)
        if start is not None and not masks.begin >> s.at & 1 and isinstance(start[s.at], int):
            low = n.literal([start[s.at]], dt.int64)
        if stop is not None and not masks.end >> s.at & 1 and isinstance(stop[s.at], int):
            high = n.literal([stop[s.at]], dt.int64)
        x = n.add("slice", x, low, high, axes=(s.axis,), steps=(s.step,) if s.step != 1 else ())
    return x


def _formed(n: InstructionBuilder, x: Instruction, specs: Sequence[Spec], form: Sequence[int | None]) -> Instruction:
    """Returns x with dropped axes removed and new ones inserted."""
    dropped = [s.axis for s in specs if s.shrinks]
    new = [i for i, axis in enumerate(form) if axis is None]
    if dropped:
        x = n.squeeze(x, dropped)
    return n.unsqueeze(x, new) if new else x


def cut(
    n: InstructionBuilder,
    x: Instruction,
    axes: Sequence[int],
    starts: Sequence[Dim],
    ends: Sequence[Dim],
    steps: Sequence[int],
) -> Instruction:
    """Returns ranges of x as slice, reverse and step ops; a reversed range with symbolic bounds stays one slice."""
    if not len(axes) == len(starts) == len(ends) == len(steps):
        counts = [len(starts), len(ends), len(axes), len(steps)]
        raise ParseError(f"starts, ends, axes and steps must have one length, got {counts}")
    if 0 in steps:
        raise ParseError("a step must not be 0")
    on = n.axes(axes, x.shape.rank)
    first, last = list(starts), list(ends)
    for i, (axis, step) in enumerate(zip(on, steps, strict=True)):
        length, start, end = x.shape.dims[axis], first[i], last[i]
        if step > 0:
            continue
        if isinstance(length, int) and isinstance(start, int) and isinstance(end, int):
            at = range(length)[start:end:step]
            first[i], last[i] = (at[-1], at[0] + 1) if len(at) else (0, 0)
        elif isinstance(start, int) and (start == -1 or start >= FAR) and isinstance(end, int) and end <= -FAR:
            first[i], last[i] = 0, FAR
        else:
            return n.add("slice", x, axes=on, starts=tuple(starts), ends=tuple(ends), steps=tuple(steps))
    if any(not _all(x.shape.dims[a], s, e) for a, s, e in zip(on, first, last, strict=True)):
        x = n.slice(x, on, first, last)
    back = tuple(a for a, s in zip(on, steps, strict=True) if s < 0)
    if back:
        x = n.add("reverse", x, axes=back)
    far = [(a, abs(s)) for a, s in zip(on, steps, strict=True) if abs(s) != 1]
    if far:
        x = n.add("step", x, axes=tuple(a for a, _ in far), steps=tuple(s for _, s in far))
    return x


def _all(length: Dim, start: Dim, end: Dim) -> bool:
    """Returns True if a range covers the whole axis."""
    return clip(start, length) == 0 and clip(end, length) == length
