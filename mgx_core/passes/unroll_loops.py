"""Unrolls short loops in which the iteration number determines extents of the body."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import numpy as np

from ..errors import MgxError, No
from ..ir.instruction import Instruction
from ..ir.module import Module, everywhere, within
from ..ir.symbols import introduced
from ..ops.concat import Concat
from ..ops.control import GetTupleElem, Loop, Scan, never_ends
from ..ops.fill import DimensionsOf
from ..ops.reshape import Squeeze, Unsqueeze
from ..ops.slice import Slice
from ..records import dataclass
from ..rules.constants import aligned
from ..rules.known_extents import extents
from ..rules.matching import op_as
from ..rules.shapes import SHAPES
from ..types.shape import SequenceShape, Shape
from .fold_constants import FoldConstants
from .inline_branches import InlineBranches, put_results
from .interface import CountingPass
from .rewrite import Rewrite

__all__ = ["UnrollLoops", "numbers_decide_extents"]

MOST: Final = 1024  # the most instructions of an unrolled loop
_READERS: Final = SHAPES.roots  # ops that read extents from all operands but the first


@dataclass(frozen=True)
class UnrollLoops(CountingPass):
    """Unrolls short loops in which the iteration number determines extents of the body.

    Such a body (rows of a table between two offsets) runs one op at a time, but each unrolled iteration has static extents.
    """

    name: str = "unroll-loops"

    def apply(self, module: Module) -> bool:
        changed = False
        for inner, ins in everywhere(module):
            if _reads_list(ins):
                from .join_lists import joined, picked  # imports the sequence ops (4 ms), which few models use

                changed |= joined(inner, ins) or picked(inner, ins)
            elif numbers_decide_extents(ins):
                results = _unrolled(inner, ins)
                if isinstance(results, No):
                    self.tally.refuse(self.name, ins, results)
                else:
                    put_results(inner, ins, results)
                    self.tally.fired[self.name] += 1
                    changed = True
        return changed


def numbers_decide_extents(ins: Instruction) -> bool:
    """Returns True for a loop whose body has symbolic extents that depend on the iteration number but not on data."""
    if not isinstance(ins.op, (Loop, Scan)):
        return False
    members = [i for i in within(ins) if not i.op.control and not i.is_param]
    openers = [i for i in members if i.inputs and introduced(i)]
    by_trip = _trip_parameters(ins) if openers else set()
    return bool(by_trip) and all(_follows(d, by_trip) for i in openers for d in _deciding(i))


def _reads_list(ins: Instruction) -> bool:
    """Returns True for an op of a sequence."""
    return bool(ins.inputs) and isinstance(ins.inputs[0].result, SequenceShape)


def _deciding(ins: Instruction) -> Sequence[Instruction]:
    """Returns the operands that may determine the extents of a result."""
    if _reads_list(ins):
        from .join_lists import lengths_of

        if lengths_of(ins.inputs[0]) is not None:
            return ins.inputs[1:]
    return [i for i in (ins.inputs[1:] if isinstance(ins.op, _READERS) else ins.inputs) if not i.is_absent]


def _trip_parameters(loop: Instruction) -> set[Instruction]:
    """Returns the parameters of a body determined by the iteration number: itself, and states that are in each iteration."""
    (body,) = loop.modules
    parameters = list(body.parameters.values())
    if isinstance(loop.op, Loop):
        fixed, states, first, after = {parameters[0]}, parameters[2:], loop.inputs[2:], body.outputs[1:]
    else:
        count = op_as(loop, Scan).states
        scanned = zip(parameters[count:], loop.inputs[count:], strict=True)
        fixed = {p for p, x in scanned if _follows(x, ())}
        states, first, after = parameters[:count], loop.inputs[:count], body.outputs
    by_trip = {p for p, x in zip(states, first, strict=True) if isinstance(x.result, Shape) and _follows(x, ())}
    while True:
        kept = {p for p, a in zip(states, after, strict=False) if p in by_trip and _follows(a, by_trip | fixed)}
        if kept == by_trip:
            return by_trip | fixed
        by_trip = kept


def _follows(value: Instruction, by_trip: Collection[Instruction]) -> bool:
    """Returns True if a value depends only on constants, extents and the given parameters."""
    waiting, met = [value], {value}
    while waiting:
        ins = waiting.pop()
        if ins in by_trip or ins.is_literal or ins.is_absent or isinstance(ins.op, DimensionsOf):
            continue
        if ins.is_param or ins.op.random or (ins.modules and not ins.op.fused):
            return False
        waiting += [i for i in ins.inputs if i not in met]
        met.update(ins.inputs)
    return True


def _unrolled(module: Module, loop: Instruction) -> list[Instruction] | No:
    """Inserts a loop's iterations before it; returns its results."""
    count = _trips(loop)
    if isinstance(count, No):
        return count
    if not 0 < count * sum(1 for _ in within(loop)) <= MOST:
        return No(f"{count} trips are too many instructions, or none")
    if not all(isinstance(u.op, GetTupleElem) for u in loop.users):
        return No("its results are used as one tuple")
    states = list(loop.inputs[2:] if isinstance(loop.op, Loop) else loop.inputs[: op_as(loop, Scan).states])
    rows: list[list[Instruction]] = [[] for _ in range(len(loop.result.items) - len(states))]  # type: ignore[union-attr]
    try:
        for number in range(count):
            results = _put_trip(module, loop, states, number)
            states = results[: len(states)]
            for row, value in zip(rows, results[len(states) :], strict=True):
                row.append(value)
        stacked = [_stacked(module, loop, n, row) for n, row in enumerate(rows)]
    except MgxError as error:
        return No(f"an iteration cannot be inlined: {error.message}")
    return [*states, *stacked]


def _put_trip(module: Module, loop: Instruction, states: Sequence[Instruction], number: int) -> list[Instruction]:
    """Inserts one iteration before a loop, with the extents that its number determines; returns its states and rows."""
    (body,) = loop.modules
    trip = Module(body.name)  # in a separate module, since extents are resolved across a whole module
    given = [*states, *([] if isinstance(loop.op, Loop) else _slices(module, loop, number))]
    taken = [
        trip.add_literal(value.literal) if value.literal is not None else trip.add_parameter(f"x{n}", value.result)
        for n, value in enumerate(given)
    ]
    if isinstance(loop.op, Loop):
        taken = [trip.add_literal(np.asarray(number, np.int64)), trip.add_literal(np.asarray(True)), *taken]
    results = trip.inline(body, taken)
    trip.add_return(results[isinstance(loop.op, Loop) :])
    FoldConstants().apply(trip)
    for ins in list(trip):
        if _reads_list(ins):
            from .join_lists import picked

            picked(trip, ins)
    while InlineBranches().apply(trip) | Rewrite(SHAPES).apply(trip):
        FoldConstants().apply(trip)
    trip.sweep()
    return module.inline(trip, [value for value in given if value.literal is None], before=loop)


def _trips(loop: Instruction) -> int | No:
    """Returns the trip count of a loop."""
    if isinstance(loop.op, Scan):
        x = loop.inputs[loop.op.states].shape
        length = x.dims[loop.op.axis_of(loop.op.input_axes, 0, x.rank)]
        return length if isinstance(length, int) else No("the number of trips is a symbolic extent")
    trips, condition = loop.inputs[:2]
    number = None if trips.is_absent else extents(trips)
    sure = condition.is_absent or ((known := aligned(condition)) is not None and bool(known.all()))
    if number is None or not sure or not never_ends(loop.modules[0]):
        return No("the number of trips is known only at run time")
    (count,) = number
    if not isinstance(count, int):
        return No("the number of trips is a symbolic extent")
    assert isinstance(loop.op, Loop)
    return count if count <= loop.op.max_iterations else No("there are more trips than its iteration limit")


def _slices(module: Module, loop: Instruction, number: int) -> Iterator[Instruction]:
    """Yields the slice of each input of a scan in one iteration."""
    op = loop.op
    assert isinstance(op, Scan)
    for n, x in enumerate(loop.inputs[op.states :]):
        axis = op.axis_of(op.input_axes, n, x.shape.rank)
        backwards = n < len(op.input_directions) and op.input_directions[n]
        at = -1 - number if backwards else number
        if x.literal is not None:
            yield module.add_literal(np.take(x.literal.to_numpy(), at, axis), before=loop)
            continue
        cut = Slice(axes=(axis,), starts=(at,), ends=(at + 1 or 1 << 62,))
        part = module.add(cut, x, before=loop, sources=loop.sources)
        yield module.add(Squeeze(axes=(axis,)), part, before=loop, sources=loop.sources)


def _stacked(module: Module, loop: Instruction, n: int, rows: Sequence[Instruction]) -> Instruction:
    """Returns the rows of all iterations, stacked."""
    op = loop.op
    assert isinstance(op, (Loop, Scan))
    if isinstance(op, Loop):
        axes: tuple[int, ...] = ()
        directions = op.scan_output_directions
    else:
        axes, directions = op.output_axes, op.output_directions
    axis = Scan.axis_of(axes, n, rows[0].shape.rank + 1)
    ordered = rows[::-1] if n < len(directions) and directions[n] else rows
    apart = [module.add(Unsqueeze(axes=(axis,)), r, before=loop, sources=loop.sources) for r in ordered]
    return module.add(Concat(axis=axis), *apart, before=loop, sources=loop.sources)
