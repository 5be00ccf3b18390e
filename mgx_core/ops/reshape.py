"""Reshapes: the same elements in row-major order with other extents."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from ..errors import ShapeError
from ..types.argument import Array
from ..types.dim import Dim, bounds, fresh, may_equal, product
from ..types.shape import AnyShape, Shape, row_major
from .axes import normalize_all
from .declaration import op
from .extents import unknown, vector_length, whole
from .operation import Operation

__all__ = ["Flatten", "Reshape", "ReshapeLazy", "Squeeze", "Unsqueeze", "regroup", "resolve"]


def resolve(old: Sequence[Dim], wanted: Sequence[Dim], allowzero: bool = False) -> tuple[Dim, ...]:
    """Resolves the extents of a reshape: 0 copies the old extent, one -1 is inferred.

    Zeros are literal if `allowzero` is set, or if there is no -1 and the tensor has no elements.
    Errors: ShapeError if the numbers of elements cannot agree.
    """
    total = product(old)
    dims = list(wanted)
    rest = [i for i, d in enumerate(dims) if isinstance(d, int) and d == -1]
    if any(isinstance(d, int) and d < -1 for d in dims) or len(rest) > 1:
        raise ShapeError(f"dims must be extents with at most one -1, got {dims}")
    literal = allowzero or (total == 0 and not rest)
    if allowzero and rest and any(isinstance(d, int) and d == 0 for d in dims):
        raise ShapeError(f"dims {dims} hold both 0 and -1, which leaves the latter undetermined")
    for i, d in enumerate(dims):
        if isinstance(d, int) and d == 0 and not literal:
            if i >= len(old):
                raise ShapeError(f"dims {dims} copy axis {i} of a tensor of rank {len(old)}")
            dims[i] = old[i]
    if rest:
        dims[rest[0]] = _rest(old, [d for i, d in enumerate(dims) if i != rest[0]])
    if not may_equal(product(dims), total):
        raise ShapeError(f"{list(old)} ({total} elements) cannot be reshaped to {dims}")
    return tuple(dims)


def _rest(old: Sequence[Dim], others: Sequence[Dim]) -> Dim:
    """Returns the extent inferred for -1.

    Unchanged extents cancel, so that the result is unique even if one of them is 0.
    """
    left, right = list(old), []
    for d in others:
        if d in left:
            left.remove(d)
        else:
            right.append(d)
    total, given = product(left), product(right)
    if isinstance(given, int) and given == 0:
        if not may_equal(total, 0):
            raise ShapeError(f"{list(old)} cannot be reshaped to extents with {list(others)}")
        return 0
    if isinstance(given, int) and isinstance(total, int) and total % given:
        raise ShapeError(
            f"{list(old)} cannot be reshaped to extents with {list(others)}: {total} is not a multiple of {given}"
        )
    return total // given


def regroup(x: Shape, lens: Sequence[int]) -> tuple[int, Shape] | None:
    """Returns the strides of a view of x with other extents; None if a copy is required."""
    if x.standard() or 0 in lens:
        return 0, Shape(x.dtype, lens)
    old = [(n, s) for n, s in zip(x.lens(), x.strides(), strict=True) if n != 1]
    steps = [0] * len(lens)
    at = 0
    axis = 0
    while axis < len(lens):
        if lens[axis] == 1:
            axis += 1
            continue
        end, have, need = at, 1, 1
        last = axis
        while True:  # the shortest runs of old and new axes with equal numbers of elements
            if need <= have:
                need *= lens[last]
                last += 1
            else:
                have *= old[end][0]
                end += 1
            if have == need:
                break
        if any(old[i][1] != old[i + 1][0] * old[i + 1][1] for i in range(at, end - 1)):
            return None
        step = old[end - 1][1]
        for i in reversed(range(axis, last)):
            steps[i] = step
            step *= lens[i]
        at, axis = end, last
    packed = row_major(lens)
    return 0, Shape(x.dtype, lens, [p if n == 1 else s for n, s, p in zip(lens, steps, packed, strict=True)])


class _Regrouping(Operation):
    """Base of ops whose result has the input's elements in row-major order."""

    __slots__ = ()

    reshapes: ClassVar[bool] = True

    def view(self, *inputs: Shape) -> tuple[int, Shape] | None:
        if len(inputs) > 1:
            return None
        shape = self.infer(inputs[0])
        return regroup(inputs[0], shape.lens()) if isinstance(shape, Shape) else None


@op("reshape", exact=True, moves=True)
class Reshape(_Regrouping):
    """The elements in row-major order under other extents.

    x: any [..] -> dims.  In `dims` (the attribute, or the run-time input of the same name) 0 copies the extent of the
    same axis of x unless `allowzero`, and one -1 is inferred.  Without a -1, zeros of an x without elements are extents.
    Errors: ShapeError if the number of elements differs.  Source: ONNX Reshape-14.
    """

    dims: tuple[Dim, ...] = ()
    allowzero: bool = False

    def infer(self, x: Shape, dims: Shape | None = None) -> Shape:
        if dims is not None:
            return unknown(x, vector_length(dims, "dims"))
        if not x.ranked and (self.allowzero or 0 not in [d for d in self.dims if isinstance(d, int)]):
            return Shape.of(x.dtype, [fresh("d") if isinstance(d, int) and d == -1 else d for d in self.dims])
        return x.with_dims(resolve(x.dims, self.dims, self.allowzero))

    def normal(self, x: Shape, dims: AnyShape | None = None) -> Operation:
        """Returns the op with explicit extents."""
        if dims is not None or not x.ranked:
            return self
        found = self.infer(x).dims
        return self.replace(dims=found, allowzero=any(isinstance(d, int) and d == 0 for d in found))

    def compute(self, x: Array, dims: Array | None = None) -> Array:
        wanted = self.dims if dims is None else whole(dims)
        return x.reshape([int(d) for d in resolve(x.shape, wanted, self.allowzero)])


@op("reshape_lazy", exact=True)
class ReshapeLazy(Reshape):
    """`reshape` that a target keeps as a view if strides can express it.

    x: any [..] -> dims.  Errors: as `reshape`.  Source: MIGraphX reshape_lazy.
    """


@op("flatten", exact=True, moves=True)
class Flatten(_Regrouping):
    """Reshapes to a matrix: the axes before `axis` become rows, the others columns.

    x: any [a.., b..] -> [prod a, prod b].  Errors: ShapeError if `axis` is outside -rank..rank.  Source: ONNX
    Flatten-13.
    """

    axis: int = 1

    def infer(self, x: Shape) -> Shape:
        if not -x.rank <= self.axis <= x.rank:
            raise ShapeError(f"axis must lie in [{-x.rank}, {x.rank}], got {self.axis}")
        at = self.axis + x.rank if self.axis < 0 else self.axis
        return x.with_dims((product(x.dims[:at]), product(x.dims[at:])))

    def compute(self, x: Array) -> Array:
        at = self.axis + x.ndim if self.axis < 0 else self.axis
        return x.reshape(int(np.prod(x.shape[:at], dtype=np.int64)), int(np.prod(x.shape[at:], dtype=np.int64)))


@op("squeeze", exact=True, aligns=True, moves=True)
class Squeeze(_Regrouping):
    """Removes some axes of extent 1; all of them if `axes` is empty.

    x: any [..] -> fewer axes; axes as attribute or as run-time input.
    Errors: ShapeError if one of the axes has another extent.  Source: ONNX Squeeze-13.
    """

    axes: tuple[int, ...] = ()

    def infer(self, x: Shape, axes: Shape | None = None) -> Shape:
        if axes is not None:
            count = vector_length(axes, "axes")
            if isinstance(count, int) and count > x.rank:
                raise ShapeError(f"{count} axes cannot be taken from {x}")
            return unknown(x, x.rank - count if isinstance(count, int) and count else fresh("rank"))
        if not self.axes and any(not isinstance(d, int) and bounds(d)[0] <= 1 for d in x.dims):
            return Shape.unranked(x.dtype)
        removed = self._removed(x.dims, self.axes)
        return x.with_dims(d for i, d in enumerate(x.dims) if i not in removed)

    @staticmethod
    def _removed(dims: Sequence[Dim], axes: Sequence[int]) -> set[int]:
        if not axes:
            return {i for i, d in enumerate(dims) if d == 1}
        removed = set(normalize_all(axes, len(dims)))
        for axis in sorted(removed):
            if not may_equal(dims[axis], 1):
                raise ShapeError(f"axis {axis} must have extent 1 to be squeezed, got {dims[axis]}")
        return removed

    def compute(self, x: Array, axes: Array | None = None) -> Array:
        removed = self._removed(x.shape, self.axes if axes is None else whole(axes))
        return x.reshape([n for i, n in enumerate(x.shape) if i not in removed])


@op("unsqueeze", exact=True, aligns=True, moves=True)
class Unsqueeze(_Regrouping):
    """Inserts axes of extent 1 at the positions `axes` of the result.

    x: any [..] -> more axes; axes as attribute or as run-time input.
    Errors: ShapeError if an axis is outside the result's rank or a duplicate.  Source: ONNX Unsqueeze-13.
    """

    axes: tuple[int, ...] = ()

    def infer(self, x: Shape, axes: Shape | None = None) -> Shape:
        if axes is not None:
            return unknown(x, vector_length(axes, "axes") + x.rank)
        return x.with_dims(self._grown(x.dims, self.axes))

    def normal(self, x: Shape, axes: AnyShape | None = None) -> Operation:
        """Returns the op with non-negative axes."""
        if axes is not None or not x.ranked:
            return self
        return self.replace(axes=tuple(sorted(normalize_all(self.axes, x.rank + len(self.axes)))))

    @staticmethod
    def _grown(dims: Sequence[Dim], axes: Sequence[int]) -> list[Dim]:
        rank = len(dims) + len(axes)
        new = set(normalize_all(axes, rank))
        old = iter(dims)
        return [1 if i in new else next(old) for i in range(rank)]

    def compute(self, x: Array, axes: Array | None = None) -> Array:
        return x.reshape([int(d) for d in self._grown(x.shape, self.axes if axes is None else whole(axes))])
