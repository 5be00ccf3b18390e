"""Bodies of loops: types of the carried values that hold for every trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import ParseError
from ..ir.module import Module
from ..ops.covering import join
from ..types.dim import Dim, bounds, fresh
from ..types.polynomial import UNBOUNDED
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape

__all__ = ["carried"]


def carried(states: Sequence[AnyShape], build: Callable[[list[AnyShape]], Module], skip: int) -> Module:
    """The body with state types that hold for every trip: extents that change become symbols, ranks that change are left open.

    build: makes the body for types of its states; skip: outputs of the body before the states.
    Errors: ParseError if the types do not converge.
    """
    shapes = list(states)
    for _ in range(8):
        body = build(shapes)
        results = body.output_shapes()[skip : skip + len(shapes)]
        if all(map(_covers, shapes, results)):
            return body
        shapes = [s if _covers(s, r) else _wider(s, r) for s, r in zip(shapes, results, strict=True)]
        body.clear()
    raise ParseError("the types of the loop's values do not converge")


def _covers(old: AnyShape, new: AnyShape) -> bool:
    """True if the old type stays right: every extent that changed was a symbol already, of bounds that the new one keeps."""
    match old, new:
        case Shape(), Shape():
            if old.dtype is not new.dtype:
                return False
            if not old.ranked:
                return True
            if not new.ranked or old.rank != new.rank:
                return False
            return all(map(_extent_covers, old.dims, new.dims))
        case SequenceShape(), SequenceShape():
            return _covers(old.element, new.element)
        case OptionalShape(), OptionalShape():
            return _covers(old.element, new.element)
        case OptionalShape(), _:
            return _covers(old.element, new)
    return old == new


def _extent_covers(old: Dim, new: Dim) -> bool:
    if old == new or isinstance(old, int):
        return old == new
    return all(_kept(old, new))


def _kept(old: Dim, new: Dim) -> tuple[bool, bool]:
    """Returns True for the lower and for the upper bound of an extent where another one keeps it; none is below 0."""
    (low, high), (least, most) = bounds(old), bounds(new)
    return low <= max(least, 0), high >= UNBOUNDED or most <= high


def _wider(old: AnyShape, new: AnyShape) -> AnyShape:
    """Returns the type of both.  A symbol whose bound was passed loses that bound: the next trip would pass any other."""
    match old, new:
        case Shape(), Shape() if old.ranked and new.ranked and old.rank == new.rank:
            both = join(old, new)
            assert isinstance(both, Shape)
            return both.with_dims(map(_unbounded, old.dims, new.dims, both.dims))
        case SequenceShape(), SequenceShape():
            return SequenceShape(_wider(old.element, new.element))
        case OptionalShape(), OptionalShape():
            return OptionalShape(_wider(old.element, new.element))
    return join(old, new)


def _unbounded(old: Dim, new: Dim, both: Dim) -> Dim:
    if _extent_covers(old, new):
        return old
    if isinstance(old, int):
        return both
    low, high = bounds(old)
    above, below = _kept(old, new)
    return fresh("n", low if above else 0, high if below else UNBOUNDED)
