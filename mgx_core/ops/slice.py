"""Slicing: ranges, steps, splits, single positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Self

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, bounds, ceil_div, fresh, maximum, minimum
from ..types.shape import AnyShape, Shape, TupleShape
from ..types.traced_int import int_or_traced
from .axes import normalize, normalize_all
from .declaration import op
from .extents import index_operand, merge, scalar_operand, vector_length, whole
from .operation import Operation

__all__ = ["FAR", "ScanSlice", "Slice", "SlidingWindows", "Split", "Step", "clip"]

FAR: Final = (1 << 31) - 1  # the smallest position that exporters use to mean "to the end"


def clip(at: Dim, length: Dim) -> Dim | None:
    """Returns a slice bound within 0..length, negative ones counted from the end; None if its sign is unknown."""
    if isinstance(at, int) and abs(at) >= FAR:
        return length if at > 0 else 0
    low, high = bounds(at)
    if low >= 0:
        return minimum(at, length)
    if high < 0:
        return maximum(at + length, 0)
    return None


def _clip_step(step: int, length: Dim) -> int:
    """Returns a step no longer than the axis, which selects the same elements and whose stride fits in 64 bits."""
    longest = max(length, 1) if isinstance(length, int) else abs(step)
    return max(-longest, min(step, longest))


def _positions(start: int, end: int, step: int, length: int) -> tuple[int, int]:
    """Returns the first position and the number of positions in ``range(length)[start:end:step]``, traced if an argument is."""
    low, high = (0, length) if step > 0 else (-1, length - 1)
    first, last = (max(low, min(at + length if at < 0 else at, high)) for at in (start, end))
    span = last - first if step > 0 else first - last
    return first, max(-(-span // abs(step)), 0)


def _extent(start: Dim, end: Dim, step: int, length: Dim) -> Dim:
    """Returns the number of positions in a range, or a fresh symbol if it is data-dependent."""
    if isinstance(length, int) and isinstance(start, int) and isinstance(end, int):
        return _positions(start, end, step, length)[1]
    if step < 0:
        if isinstance(end, int) and end < -FAR and isinstance(start, int) and (start == -1 or start >= FAR):
            return ceil_div(length, -step)
        return fresh("n", 0, length)
    first, last = clip(start, length), clip(end, length)
    if first is None or last is None:
        return fresh("n", 0, length)
    count = maximum(last - first, 0)
    return count if step == 1 else ceil_div(count, step)


@op("slice", exact=True, moves=True)
class Slice(Operation):
    """Slices x along some axes: from start to end (exclusive), negative ones counted from the end, all clipped.

    x: any [..] -> same rank.  Each of starts, ends, axes, steps is an attribute or a run-time input; by default, axes are the
    first ones and steps 1.  A negative step counts down, from start to end (exclusive).
    Errors: ShapeError for a step of 0, axes outside the rank, lists of unequal lengths.  Source: ONNX Slice-13.
    """

    axes: tuple[int, ...] = ()
    starts: tuple[Dim, ...] = ()
    ends: tuple[Dim, ...] = ()
    steps: tuple[int, ...] = ()

    def infer(
        self,
        x: Shape,
        starts: Shape | None = None,
        ends: Shape | None = None,
        axes: Shape | None = None,
        steps: Shape | None = None,
    ) -> Shape:
        if starts is None and ends is None and axes is None and steps is None:
            out = list(x.dims)
            for axis, start, end, step in self.ranges(x.rank, self.starts, self.ends, self.axes, self.steps):
                out[axis] = _extent(start, end, step, x.dims[axis])
            return x.with_dims(out)
        given = [(starts, len(self.starts)), (ends, len(self.ends)), (axes, len(self.axes)), (steps, len(self.steps))]
        names = ("starts", "ends", "axes", "steps")
        counts = [n if s is None else vector_length(s, w) for (s, n), w in zip(given, names, strict=True)]
        count: Dim = counts[0]
        for (operand, _), n, what in zip(given, counts, names, strict=True):
            if operand is not None or n or what == "ends":
                count = merge(count, n, "the lengths of starts, ends, axes and steps")
        cut: Sequence[int] = range(x.rank)
        if axes is None and self.axes:
            cut = normalize_all(self.axes, x.rank)
        elif axes is None and isinstance(count, int):
            if count > x.rank:
                raise ShapeError(f"{count} starts given for {x}")
            cut = range(count)
        return x.with_dims(fresh("n", 0, d) if i in cut else d for i, d in enumerate(x.dims))

    def normal(self, x: Shape, *operands: AnyShape) -> Self:
        """Returns the op with explicit non-negative axes, and with bounds and steps clipped to static extents."""
        if operands or not x.ranked:
            return self
        ranges = self.ranges(x.rank, self.starts, self.ends, self.axes, self.steps)
        starts, ends = [r[1] for r in ranges], [r[2] for r in ranges]
        steps = [_clip_step(r[3], x.dims[r[0]]) for r in ranges]
        for i, (axis, start, end, step) in enumerate(ranges):
            first, last = clip(start, x.dims[axis]), clip(end, x.dims[axis])
            if step > 0 and first is not None and last is not None:
                starts[i], ends[i] = first, last
        kept = tuple(steps) if any(s != 1 for s in steps) else ()
        return self.replace(axes=tuple(r[0] for r in ranges), starts=tuple(starts), ends=tuple(ends), steps=kept)

    @staticmethod
    def ranges(
        rank: int, starts: Sequence[Dim], ends: Sequence[Dim], axes: Sequence[int], steps: Sequence[int]
    ) -> list[tuple[int, Dim, Dim, int]]:
        """Returns axis, start, end and step of each sliced axis."""
        axes = axes or range(len(starts))
        steps = steps or (1,) * len(starts)
        if not len(starts) == len(ends) == len(axes) == len(steps):
            counts = [len(starts), len(ends), len(axes), len(steps)]
            raise ShapeError(f"starts, ends, axes and steps must have one length, got {counts}")
        if 0 in steps:
            raise ShapeError("a step must not be 0")
        return list(zip(normalize_all(axes, rank), starts, ends, steps, strict=True))

    def compute(
        self,
        x: Array,
        starts: Array | None = None,
        ends: Array | None = None,
        axes: Array | None = None,
        steps: Array | None = None,
    ) -> Array:
        window = [slice(None)] * x.ndim
        for axis, start, end, step in self.ranges(
            x.ndim,
            [int(v) for v in self.starts] if starts is None else whole(starts),
            [int(v) for v in self.ends] if ends is None else whole(ends),
            self.axes if axes is None else whole(axes),
            self.steps if steps is None else whole(steps),
        ):
            window[axis] = slice(start, end, step)
        return x[tuple(window)]

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        if len(inputs) > 1:
            return None
        x = inputs[0]
        offset, lens, strides = 0, x.lens(), x.strides()
        for axis, start, end, step in self.ranges(x.rank, self.starts, self.ends, self.axes, self.steps):
            if step < 0:
                return None
            first, count = _positions(int_or_traced(start), int_or_traced(end), step, lens[axis])
            offset += first * strides[axis] if count else 0
            lens[axis] = count
            strides[axis] *= step
        return (0 if 0 in lens else offset), Shape(x.dtype, lens, strides)


@op("split", exact=True)
class Split(Operation):
    """Splits x along one axis into parts of run-time sizes.

    x: any [.., n, ..], sizes: int [count] that add up to n -> count tensors.
    Errors: ShapeError for sizes that do not add up or are negative.  Source: ONNX Split-18.
    """

    axis: int = 0
    count: int = 1

    def infer(self, x: Shape, sizes: Shape) -> TupleShape:
        axis = normalize(self.axis, x.rank)
        merge(vector_length(sizes, "sizes"), self.count, "the number of sizes and of parts")
        n = x.dims[axis]
        return TupleShape(
            x.with_dims((*x.dims[:axis], fresh("part", 0, n), *x.dims[axis + 1 :])) for _ in range(self.count)
        )

    def compute(self, x: Array, sizes: Array) -> tuple[Array, ...]:
        axis, parts = normalize(self.axis, x.ndim), whole(sizes)
        if sum(parts) != x.shape[axis] or any(p < 0 for p in parts) or len(parts) != self.count:
            raise ShapeError(f"{self.count} sizes that add up to {x.shape[axis]} are required, got {parts}")
        return tuple(np.split(x, np.cumsum(parts)[:-1], axis))


@op("sliding_windows", exact=True)
class SlidingWindows(Operation):
    """Selects all windows of `size` positions along `axis`, `step` apart; they overlap if `step` is less than `size`.

    x: any [.., n, ..] -> [.., (n - size) / step + 1, size, ..], rounded down.
    Errors: ShapeError if the axis is outside the rank, size or step is below 1, or no window fits.  Source: torch.Tensor.unfold.
    """

    axis: int
    size: int
    step: int = 1

    def infer(self, x: Shape) -> Shape:
        axis = normalize(self.axis, x.rank)
        if self.size < 1 or self.step < 1:
            raise ShapeError(f"size and step must be at least 1, got {self.size} and {self.step}")
        length = x.dims[axis]
        if bounds(length)[1] < self.size:
            raise ShapeError(f"a window of {self.size} positions does not fit into axis {axis} of {x}")
        return x.with_dims((*x.dims[:axis], (length - self.size) // self.step + 1, self.size, *x.dims[axis + 1 :]))

    def compute(self, x: Array) -> Array:
        axis = normalize(self.axis, x.ndim)
        if x.shape[axis] < self.size:
            raise ShapeError(f"a window of {self.size} positions does not fit into axis {axis} of {list(x.shape)}")
        every = np.lib.stride_tricks.sliding_window_view(x, self.size, axis)
        return np.moveaxis(every[(slice(None),) * axis + (slice(None, None, self.step),)], -1, axis + 1)

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        x = inputs[0]
        axis, strides = normalize(self.axis, x.rank), x.strides()
        strides[axis : axis + 1] = [strides[axis] * self.step, strides[axis]]
        return 0, Shape(x.dtype, self.infer(x).lens(), strides)


@op("step", exact=True)
class Step(Operation):
    """Selects every `steps[i]`-th position along `axes[i]`, starting with the first.

    x: any [..] -> same rank, extents divided by the step and rounded up.
    Errors: ShapeError for steps below 1 or axes outside the rank.  Source: MIGraphX step.
    """

    axes: tuple[int, ...]
    steps: tuple[int, ...]

    def _by_axis(self, rank: int) -> dict[int, int]:
        axes = normalize_all(self.axes, rank)
        if len(axes) != len(self.steps) or any(s < 1 for s in self.steps):
            raise ShapeError(
                f"one step of at least 1 per axis is required, got {list(self.steps)} for axes {list(axes)}"
            )
        return dict(zip(axes, self.steps, strict=True))

    def normal(self, x: Shape) -> Self:
        """Returns the op with explicit non-negative axes, and with steps clipped to static extents."""
        if not x.ranked:
            return self
        steps = self._by_axis(x.rank)
        return self.replace(axes=tuple(steps), steps=tuple(_clip_step(s, x.dims[a]) for a, s in steps.items()))

    def infer(self, x: Shape) -> Shape:
        steps = self._by_axis(x.rank)
        return x.with_dims(ceil_div(d, steps[i]) if i in steps else d for i, d in enumerate(x.dims))

    def compute(self, x: Array) -> Array:
        steps = self._by_axis(x.ndim)
        return x[tuple(slice(None, None, steps.get(i, 1)) for i in range(x.ndim))]

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        x = inputs[0]
        steps = self._by_axis(x.rank)
        strides = [s * steps.get(i, 1) for i, s in enumerate(x.strides())]
        return 0, Shape(x.dtype, self.infer(x).lens(), strides)


@op("scan_slice", exact=True)
class ScanSlice(Operation):
    """The slice at a run-time position along one axis, counted from the end if `direction` is 1.

    x: any [.., n, ..], index: int, one element in 0..n-1 -> [.., 1, ..].
    Errors: ShapeError for a position outside the axis.  Source: MIGraphX scan_slice.
    """

    axis: int = 0
    direction: int = 0

    def infer(self, x: Shape, index: Shape) -> Shape:
        axis = normalize(self.axis, x.rank)
        scalar_operand(index_operand(index, "index"), "index")
        return x.with_dims(1 if i == axis else d for i, d in enumerate(x.dims))

    def compute(self, x: Array, index: Array) -> Array:
        axis, at = normalize(self.axis, x.ndim), int(index.reshape(-1)[0])
        if not 0 <= at < x.shape[axis]:
            raise ShapeError(f"index must lie in [0, {x.shape[axis] - 1}], got {at}")
        at = x.shape[axis] - 1 - at if self.direction else at
        return np.take(x, [at], axis)
