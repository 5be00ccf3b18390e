"""Bodies of loops: types of the carried values that hold for every trip."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..errors import ParseError
from ..ir.module import Module
from ..ops.covering import join
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
        wider = [s if s == r else join(s, r) for s, r in zip(shapes, results, strict=True)]
        if all(_covers(s, w) for s, w in zip(shapes, wider, strict=True)):
            return body
        shapes = wider
        body.clear()
    raise ParseError("the types of the loop's values do not converge")


def _covers(old: AnyShape, new: AnyShape) -> bool:
    """True if the old type stays right: every extent that changed was a symbol already."""
    match old, new:
        case Shape(), Shape():
            if not old.ranked:
                return True
            if not new.ranked:
                return False
            return all(a == b or not isinstance(a, int) for a, b in zip(old.dims, new.dims, strict=True))
        case SequenceShape(), SequenceShape():
            return _covers(old.element, new.element)
        case OptionalShape(), OptionalShape():
            return _covers(old.element, new.element)
    return old == new
