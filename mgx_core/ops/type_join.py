"""Joins types: the most specific common type of the results of branches and loops."""

from __future__ import annotations

from ..errors import ShapeError
from ..types.dim import Dim, bounds, fresh
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape, TupleShape

__all__ = ["join"]


def join(a: AnyShape, b: AnyShape) -> AnyShape:
    """Returns the join of two types: extents that differ become fresh symbols, different ranks an unranked type.

    Errors: ShapeError if the element types differ.
    """
    match a, b:
        case Shape(), Shape():
            if a.dtype is not b.dtype:
                raise ShapeError(f"element types must be equal, got {a.dtype} and {b.dtype}")
            if not a.ranked or not b.ranked or a.rank != b.rank:
                return Shape.unranked(a.dtype)
            return a.with_dims(_join_dim(x, y) for x, y in zip(a.dims, b.dims, strict=True))
        case SequenceShape(), SequenceShape():
            return SequenceShape(join(a.element, b.element))
        case OptionalShape(), OptionalShape():
            return OptionalShape(join(a.element, b.element))
        case OptionalShape(), _:
            return OptionalShape(join(a.element, b))
        case _, OptionalShape():
            return OptionalShape(join(a, b.element))
        case TupleShape(), TupleShape() if len(a.items) == len(b.items):
            return TupleShape(map(join, a.items, b.items))
    raise ShapeError(f"types must be of one kind, got {a} and {b}")


def _join_dim(a: Dim, b: Dim) -> Dim:
    if a == b:
        return a
    least = min(bounds(a)[0], bounds(b)[0])  # may be negative, as 3n - 3, which no extent is
    return fresh("n", max(least, 0), max(bounds(a)[1], bounds(b)[1]))
