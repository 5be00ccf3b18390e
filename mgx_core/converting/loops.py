"""Infers the types of loop-carried values, which must be valid in every iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from ..errors import ParseError
from ..ir.module import Module
from ..ops.type_join import join
from ..types.dim import Dim, bounds, fresh
from ..types.polynomial import UNBOUNDED
from ..types.shape import AnyShape, OptionalShape, SequenceShape, Shape

__all__ = ["carried", "over_numbers"]


def carried(states: Sequence[AnyShape], build: Callable[[list[AnyShape]], Module], skip: int) -> Module:
    """Returns the loop body with loop-invariant state types: extents that vary become symbols, ranks that vary become unknown.

    Iterates to a fixed point. build: builds the body for given state types; skip: number of body outputs before the states.
    Errors: ParseError if the types do not converge.
    """
    shapes = list(states)
    types = _Types()
    for _ in range(8):
        body = build(shapes)
        results = body.output_shapes()[skip : skip + len(shapes)]
        if all(map(types.covers, shapes, results)):
            return body
        shapes = [s if types.covers(s, r) else types.wider(s, r) for s, r in zip(shapes, results, strict=True)]
        body.clear()
    raise ParseError("the types of the loop-carried values do not converge")


def over_numbers(body: Module) -> Module:
    """Returns the body of a loop without a condition as the body of a scan over its iteration numbers; `body` is emptied.

    body: (iteration, condition, *states) -> (condition, *states, *rows) becomes (*states, iteration) -> (*states, *rows).
    """
    made = Module(body.name)
    iteration = next(iter(body.parameters.values()))
    kept = [made.add_parameter(name, p.result) for name, p in list(body.parameters.items())[2:]]
    number = made.add_parameter(next(iter(body.parameters)), iteration.result)
    going = made.add_literal(np.asarray(True))
    made.add_return(made.inline(body, [number, going, *kept])[1:])
    body.clear()
    made.sweep()
    return made


class _Types:
    """Compares the types of loop-carried values before and after an iteration.

    own: symbols of extents that vary between iterations; all other symbols are loop-invariant.
    """

    def __init__(self) -> None:
        self._own: set[Dim] = set()

    def covers(self, old: AnyShape, new: AnyShape) -> bool:
        """Returns True if the old type covers the new one: each changed extent is a loop symbol whose bounds hold."""
        match old, new:
            case Shape(), Shape():
                if old.dtype is not new.dtype:
                    return False
                if not old.ranked:
                    return True
                if not new.ranked or old.rank != new.rank:
                    return False
                return all(map(self._extent_covers, old.dims, new.dims))
            case SequenceShape(), SequenceShape():
                return self.covers(old.element, new.element)
            case OptionalShape(), OptionalShape():
                return self.covers(old.element, new.element)
            case OptionalShape(), _:
                return self.covers(old.element, new)
        return old == new

    def _extent_covers(self, old: Dim, new: Dim) -> bool:
        return old == new or (old in self._own and all(_kept(old, new)))

    def wider(self, old: AnyShape, new: AnyShape) -> AnyShape:
        """Returns the join of both types.  A violated bound is dropped (widening), so that the iteration converges."""
        match old, new:
            case Shape(), Shape() if old.ranked and new.ranked and old.rank == new.rank:
                both = join(old, new)
                assert isinstance(both, Shape)
                return both.with_dims(map(self._changing, old.dims, new.dims, both.dims))
            case SequenceShape(), SequenceShape():
                return SequenceShape(self.wider(old.element, new.element))
            case OptionalShape(), OptionalShape():
                return OptionalShape(self.wider(old.element, new.element))
        return join(old, new)

    def _changing(self, old: Dim, new: Dim, both: Dim) -> Dim:
        if self._extent_covers(old, new):
            return old
        if old in self._own:
            low, high = bounds(old)
            above, below = _kept(old, new)
            both = fresh("n", low if above else 0, high if below else UNBOUNDED)
        self._own.add(both)
        return both


def _kept(old: Dim, new: Dim) -> tuple[bool, bool]:
    """Returns whether another extent respects the lower and the upper bound of one; extents are never negative."""
    (low, high), (least, most) = bounds(old), bounds(new)
    return low <= max(least, 0), high >= UNBOUNDED or most <= high
