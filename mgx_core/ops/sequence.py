"""Sequences of tensors.

At run time, a sequence is a Python list, an absent optional is None and a present one is the value itself.  All items of a
sequence share the element type; extents that differ between items are fresh symbols.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..errors import ParameterError, ShapeError
from ..types import dtype as dt
from ..types.argument import Array, Value
from ..types.dim import Sym, fresh, may_equal
from ..types.dtype import DType
from ..types.shape import AnyShape, SequenceShape, Shape
from .axes import normalize
from .declaration import op
from .operation import Operation
from .type_join import join


@op("sequence_construct", exact=True)
class SequenceConstruct(Operation):
    """A sequence of the inputs, in their order.

    items: any tensors of one element type -> sequence.
    Errors: ShapeError if the element types differ.  Source: ONNX SequenceConstruct-11.
    """

    def infer(self, *items: AnyShape) -> SequenceShape:
        if not items:
            raise ShapeError("a sequence is constructed of one item or more; see sequence_empty")
        whole = items[0]
        for item in items[1:]:
            whole = join(whole, item)
        return SequenceShape(whole)

    def compute(self, *items: Value) -> list[Value]:
        return list(items)


@op("sequence_empty", exact=True)
class SequenceEmpty(Operation):
    """A sequence without items, of tensors of type `dtype` and any rank.

    Source: ONNX SequenceEmpty-11.
    """

    dtype: DType = dt.float32

    def infer(self) -> SequenceShape:
        return SequenceShape(Shape.unranked(self.dtype))

    def compute(self) -> list[Value]:
        return []


@op("sequence_at", exact=True)
class SequenceAt(Operation):
    """The item at a position, counted from the end if negative.

    sequence of n items, position: int32 or int64 scalar in [-n, n-1] -> the item.
    Errors: ParameterError if the position is outside.  Source: ONNX SequenceAt-11.
    """

    def infer(self, sequence: AnyShape, position: Shape) -> AnyShape:
        element = _element(sequence)
        _check_position(position)
        return refreshed(element)

    def compute(self, sequence: list[Value], position: Array) -> Value:
        return sequence[_position(position, len(sequence), len(sequence) - 1)]


@op("sequence_insert", exact=True)
class SequenceInsert(Operation):
    """A sequence with one more item, before a position or (no position) at the end.

    sequence of n items, item, position: int scalar in [-n, n] -> sequence of n + 1 items.
    Errors: ShapeError if the item's type is another, ParameterError if the position is outside.  Source: ONNX SequenceInsert-11.
    """

    def infer(self, sequence: AnyShape, item: AnyShape, position: Shape | None = None) -> SequenceShape:
        element = _element(sequence)
        if position is not None:
            _check_position(position)
        return SequenceShape(join(element, item))

    def compute(self, sequence: list[Value], item: Value, position: Array | None = None) -> list[Value]:
        n = len(sequence)
        at = n if position is None else _position(position, n, n)
        return [*sequence[:at], item, *sequence[at:]]


@op("sequence_erase", exact=True)
class SequenceErase(Operation):
    """A sequence without the item at a position (without one: the last).

    sequence of n items, position: int scalar in [-n, n-1] -> sequence of n - 1 items.
    Errors: ParameterError if the position is outside or there is no item.  Source: ONNX SequenceErase-11.
    """

    def infer(self, sequence: AnyShape, position: Shape | None = None) -> SequenceShape:
        element = _element(sequence)
        if position is not None:
            _check_position(position)
        return SequenceShape(element)

    def compute(self, sequence: list[Value], position: Array | None = None) -> list[Value]:
        n = len(sequence)
        at = _position(np.asarray(-1) if position is None else position, n, n - 1)
        return [*sequence[:at], *sequence[at + 1 :]]


@op("sequence_length", exact=True)
class SequenceLength(Operation):
    """The number of items.

    sequence -> int64 scalar.  Source: ONNX SequenceLength-11.
    """

    def infer(self, sequence: AnyShape) -> Shape:
        _element(sequence)
        return Shape.of(dt.int64, ())

    def compute(self, sequence: list[Value]) -> Array:
        return np.asarray(len(sequence), np.int64)


@op("split_to_sequence", exact=True)
class SplitToSequence(Operation):
    """The parts of a tensor along one axis.

    x: [.., n, ..], split: int scalar (length of all parts, the last may be less) or int [k] (lengths that sum to n) -> sequence.
    Without `split` the parts have length 1, and lose the axis unless `keepdims`.
    Errors: ShapeError for an axis outside the rank or lengths that do not fit.  Source: ONNX SplitToSequence-24.
    """

    axis: int = 0
    keepdims: bool = True

    def infer(self, x: Shape, split: Shape | None = None) -> SequenceShape:
        dims = list(x.dims)
        axis = normalize(self.axis, x.rank)
        if split is None:
            dims[axis : axis + 1] = [1] if self.keepdims else []
        else:
            if not split.dtype.is_integer:
                raise ShapeError(f"split must hold integers, got {split.dtype}")
            if split.ranked and split.rank > 1:
                raise ShapeError(f"split must be a scalar or have one axis, got {split}")
            dims[axis] = fresh("part", 0, dims[axis])
        return SequenceShape(Shape.of(x.dtype, dims))

    def compute(self, x: Array, split: Array | None = None) -> list[Value]:
        axis = normalize(self.axis, x.ndim)
        n = x.shape[axis]
        if split is None:
            return [p if self.keepdims else p.squeeze(axis) for p in _parts(x, range(n + 1), axis)]
        if split.ndim == 0:
            step = int(split)
            if step <= 0:
                raise ShapeError(f"split must be positive, got {step}")
            return _parts(x, [*range(0, n, step), n], axis)
        lengths = [int(v) for v in split.reshape(-1)]
        if any(v < 0 for v in lengths) or sum(lengths) != n:
            raise ShapeError(f"the lengths in split must not be negative and sum to {n}, got {lengths}")
        return _parts(x, np.cumsum([0, *lengths]).tolist(), axis)


def _parts(x: Array, ends: range | list[int], axis: int) -> list[Value]:
    lead = (slice(None),) * axis
    return [x[(*lead, slice(a, b))] for a, b in pairwise(ends)]


@op("concat_from_sequence", exact=True)
class ConcatFromSequence(Operation):
    """Concatenates the items of a sequence along an axis, or (`new_axis`) stacks them along a new one.

    sequence of [.., n_i, ..] -> [.., sum n_i, ..]; with new_axis: k of [..] -> [.., k, ..].
    Errors: ShapeError for an axis outside the rank, an empty sequence or items that do not fit.  Source: ONNX
    ConcatFromSequence-11.
    """

    axis: int
    new_axis: bool = False

    def infer(self, sequence: AnyShape) -> Shape:
        element = _element(sequence)
        if not isinstance(element, Shape):
            raise ShapeError(f"a sequence of tensors is required, got {sequence}")
        if not element.ranked:
            return element
        dims = [fresh("item") if isinstance(d, Sym) else d for d in element.dims]
        axis = normalize(self.axis, len(dims) + self.new_axis)
        dims[axis : axis + (not self.new_axis)] = [fresh("joined")]
        return element.with_dims(dims)

    def compute(self, sequence: list[Value]) -> Array:
        if not sequence:
            raise ShapeError("an empty sequence cannot be concatenated")
        axis = normalize(self.axis, sequence[0].ndim + self.new_axis)
        try:
            return np.stack(sequence, axis) if self.new_axis else np.concatenate(sequence, axis)
        except ValueError:
            dims = [list(v.shape) for v in sequence]
            raise ShapeError(
                f"items of dims {dims} cannot be {'stacked' if self.new_axis else 'joined'} along axis {axis}"
            ) from None


def refreshed(element: AnyShape) -> AnyShape:
    """Returns the type of one item: symbolic extents may differ between items."""
    if isinstance(element, Shape) and element.ranked:
        return element.with_dims(fresh("item") if isinstance(d, Sym) else d for d in element.dims)
    return element


def _element(sequence: AnyShape) -> AnyShape:
    if not isinstance(sequence, SequenceShape):
        raise ShapeError(f"a sequence is required, got {sequence}")
    return sequence.element


def _check_position(position: Shape) -> None:
    if not isinstance(position, Shape) or position.dtype not in (dt.int32, dt.int64):
        raise ShapeError(f"position must be an int32 or int64 scalar, got {position}")
    if position.ranked and (position.rank > 1 or not all(may_equal(d, 1) for d in position.dims)):
        raise ShapeError(f"position must be a scalar, got {position}")


def _position(position: Array, n: int, last: int) -> int:
    """Returns the position counted from the front, in 0..last."""
    at = int(position.reshape(-1)[0])
    if not -n <= at <= last:
        raise ParameterError(f"position must lie in [{-n}, {last}] for a sequence of {n} items, got {at}")
    return at + n if at < 0 else at
