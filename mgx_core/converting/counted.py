"""Derives the trip count of loops such as `while i < n` whose condition tests an induction variable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from ..ir.instruction import Instruction
from ..ir.module import Module
from ..named_tuples import NamedTuple
from ..ops.compare import Greater, GreaterOrEqual, Less, LessOrEqual, LogicalAnd, Not
from ..ops.pointwise import Add
from ..ops.reshape import Reshape, Squeeze, Unsqueeze
from ..types import dtype as dt
from .builder import InstructionBuilder

__all__ = ["counted_trips"]

VIEWS = (Reshape, Squeeze, Unsqueeze)


class _Bound(NamedTuple):
    """low < high, or low <= high if `closed`."""

    low: Instruction
    high: Instruction
    closed: bool


def counted_trips(
    n: InstructionBuilder,
    body: Module,
    trips: Instruction | None,
    cond: Instruction | None,
    states: Sequence[Instruction],
) -> Instruction | None:
    """Returns the trip count of a loop that ends only by an induction variable with a constant step, else None.

    body: (iteration, condition, *states) -> (condition, *states, *rows); trips, cond: as `loop` takes them.
    """
    bound = _bound(body.outputs[0], list(body.parameters.values())[1])
    counter = None if bound is None else _counter(body, bound.low)
    if bound is None or counter is None:
        return None
    place, step = counter
    first, high = states[place], _around(body, bound.high, states)
    if high is None or step < 1 or not first.shape.dtype.is_integer:
        return None
    least = 1 if cond is None or n.is_true(cond) else 0
    if cond is not None and not least and not _same_bound(n, cond, first, high, bound.closed):
        return None
    last, begin = (n.reshape(n.convert(i, dt.int64), ()) for i in (high, first))
    count = n.pointwise("sub", last, begin)
    more = step - 1 + bound.closed
    if more:
        count = n.pointwise("add", count, n.literal(more, dt.int64))
    if step > 1:
        count = n.pointwise("div", count, n.literal(step, dt.int64))
    count = n.pointwise("max", count, n.literal(least, dt.int64))
    return count if trips is None else n.pointwise("min", count, n.reshape(n.convert(trips, dt.int64), ()))


def _bound(condition: Instruction, going: Instruction | None) -> _Bound | None:
    """Returns the single comparison of a condition, besides the previous iteration's condition, else None."""
    found: list[_Bound | None] = []
    for part in _conjuncts(condition):
        if part is going or (part.literal is not None and bool(np.all(part.literal.value))):
            continue
        negated = isinstance(part.op, Not)
        compared = _whole(part.inputs[0]) if negated else part
        if not isinstance(compared.op, (Less, LessOrEqual, Greater, GreaterOrEqual)):
            return None
        a, b = compared.inputs
        low, high = (a, b) if isinstance(compared.op, (Less, LessOrEqual)) != negated else (b, a)
        closed = isinstance(compared.op, (LessOrEqual, GreaterOrEqual)) != negated
        found.append(_Bound(_whole(low), _whole(high), closed))
    return found[0] if len(found) == 1 else None


def _conjuncts(condition: Instruction) -> Iterator[Instruction]:
    condition = _whole(condition)
    if isinstance(condition.op, LogicalAnd):
        for part in condition.inputs:
            yield from _conjuncts(part)
    else:
        yield condition


def _whole(ins: Instruction) -> Instruction:
    """Returns the one-element value that an instruction is a view of."""
    while isinstance(ins.op, VIEWS) and len(ins.inputs) == 1:
        ins = ins.inputs[0]
    return ins


def _counter(body: Module, low: Instruction) -> tuple[int, int] | None:
    """Returns the index of the state that is `low` after an iteration, and its step."""
    parameters = list(body.parameters.values())[2:]
    if not isinstance(low.op, Add) or low.parent is not body:
        return None
    for k, p in enumerate(parameters):
        added = [i for i in low.inputs if _whole(i) is not p]
        if _whole(body.outputs[1 + k]) is low and len(added) == 1:
            value = added[0].literal.value if added[0].literal is not None else None
            whole = isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu"
            return (k, int(value.reshape(()))) if isinstance(value, np.ndarray) and whole else None
    return None


def _around(body: Module, high: Instruction, states: Sequence[Instruction]) -> Instruction | None:
    """Returns the loop-invariant value outside the loop for one inside its body."""
    if high.parent is not body:
        return high
    for k, p in enumerate(list(body.parameters.values())[2:]):
        if high is p and body.outputs[1 + k] is p:
            return states[k]
    return None


def _same_bound(n: InstructionBuilder, cond: Instruction, first: Instruction, high: Instruction, closed: bool) -> bool:
    """Returns True if the initial condition is the body's condition applied to the initial value."""
    found = _bound(cond, None)
    if found is None or found.closed is not closed:
        return False
    pairs = ((found.low, _whole(first)), (found.high, _whole(high)))
    return all(a is b or (n.dims(a) is not None and n.dims(a) == n.dims(b)) for a, b in pairs)
