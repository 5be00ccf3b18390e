"""Loops in a schedule: the body of a `loop` or `scan` is emitted once, as steps that a run repeats for each iteration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from ..ir.instruction import Instruction
from ..ir.ordering import captures
from ..named_tuples import NamedTuple
from ..ops.control import Loop, Scan, never_ends
from ..ops.fill import DimensionsOf
from ..ops.index import Gather
from ..ops.movement import Reverse
from ..types import dtype as dt
from ..types.shape import Shape, TupleShape
from ..types.traced_int import TracedInt
from .branches import emit_body
from .kernel_emission import KernelEmitter
from .schedule import Call, Step
from .static_part import fixed, fixed_tensor, numeric, read_whole
from .values import NEVER_OVERWRITTEN, Buffer, Value, count_reads

__all__ = ["LoopSteps", "Trips", "emit_loop", "is_planned_loop", "most_rows"]

MOST_TRIPS: Final = (1 << 63) - 1  # of a scan, which ends with its operands
ROWS_BYTES: Final = 1 << 24  # maximum bytes of the rows of a loop, allocated for the maximum trip count


class Trips(NamedTuple):
    """The trip count of a loop.

    counter: int64, completed trips; bound: int64 maximum, if any; going: bool that must be true before each trip, if any;
    sure: no trip changes it; most: number of trips beyond which an error is raised.
    """

    counter: Value
    bound: Value | None
    going: Value | None
    sure: bool
    most: int


class LoopSteps(NamedTuple):
    """A target's steps for loops.

    around: creates the steps before and after a trip; put_row: adds a step that copies a row-major value into a row of another
    value, at the counter's index, or counted from the end.
    """

    around: Callable[[Trips], tuple[Step, Step]]
    put_row: Callable[[Value, Value, Value, bool], None]


class _Parts(NamedTuple):
    """A loop's operands and its body's parameters and results, by role.

    initial, states, again: initial values, parameters and next values of carried states, including the condition if the body may
    change it (absent: true); xs, slices: sliced operands and the parameters for slices; rows: results with one row per trip.
    """

    initial: list[Instruction]
    states: list[Instruction]
    again: list[Instruction]
    xs: list[Instruction]
    slices: list[Instruction]
    rows: list[Instruction]


def _parts(ins: Instruction) -> _Parts:
    (body,) = ins.modules
    parameters, outputs = list(body.parameters.values()), list(body.outputs)
    if isinstance(ins.op, Scan):
        n = ins.op.states
        return _Parts(
            list(ins.inputs[:n]), parameters[:n], outputs[:n], list(ins.inputs[n:]), parameters[n:], outputs[n:]
        )
    n = len(parameters) - 2
    first = 1 if never_ends(body) else 0  # where nothing changes the condition, it is not a state
    return _Parts(
        list(ins.inputs[1 + first : 2 + n]), parameters[1 + first :], outputs[first : 1 + n], [], [], outputs[1 + n :]
    )


def is_planned_loop(ins: Instruction, member: Callable[[Instruction], bool]) -> bool:
    """Returns True for a loop that can be scheduled: all extents are static, and states keep their types.

    member: returns whether an instruction of the body can have steps.
    """
    return isinstance(ins.op, (Loop, Scan)) and fixed(ins) and _has_static_trips(ins, member)


def most_rows(ins: Instruction, member: Callable[[Instruction], bool]) -> int | None:
    """Returns the maximum trip count of a loop that can be scheduled except that the number of its rows depends on data.

    None for other loops, and if rows for all these trips would need too much memory.  member: as above.
    """
    op, result = ins.op, ins.result
    if not isinstance(op, Loop) or not isinstance(result, TupleShape) or any(op.scan_output_directions):
        return None
    count = len(ins.modules[0].parameters) - 2
    states, rows = result.items[:count], result.items[count:]
    if not rows or any(s.dynamic() for s in states) or not all(numeric(r) and r.ranked for r in rows):
        return None
    most, trips = op.max_iterations, ins.inputs[0].literal
    if trips is not None:
        most = max(0, min(most, int(trips.to_numpy().reshape(()))))
    one_row = [Shape(r.dtype, r.dims[1:]) for r in rows if isinstance(r, Shape)]
    if any(r.dynamic() for r in one_row) or sum(most * r.elements() * r.dtype.size for r in one_row) > ROWS_BYTES:
        return None
    return most if _has_static_trips(ins, member) else None


def _has_static_trips(ins: Instruction, member: Callable[[Instruction], bool]) -> bool:
    """Returns True if all trips of a loop compute values of the same types and static extents, with steps."""
    if read_whole(ins):
        return False
    if any(not i.is_absent and not fixed_tensor(i) for i in ins.inputs):
        return False
    if isinstance(ins.op, Loop) and not _counted(ins):
        return False
    parts = _parts(ins)
    if any(x.shape.elements() == 0 for x in parts.xs):
        return False
    if not all(map(fixed_tensor, [*parts.states, *parts.again, *parts.rows])):
        return False
    for before, state, after in zip(parts.initial, parts.states, parts.again, strict=True):
        if len({_type(i) for i in (before, state, after) if not i.is_absent}) > 1:
            return False
    return all(map(member, ins.modules[0]))


def _type(ins: Instruction) -> tuple[Any, ...]:
    return ins.shape.dtype, *ins.shape.lens()


def _counted(ins: Instruction) -> bool:
    """Returns True if a loop's trip count and condition have the types that steps read."""
    if len(ins.inputs) < 2:
        return False
    operands = (*zip(ins.inputs[:2], (dt.int64, dt.bool_), strict=False), (ins.modules[0].outputs[0], dt.bool_))
    return all(i.is_absent or (fixed_tensor(i) and _type(i) == (kind,)) for i, kind in operands)


def emit_loop(
    e: KernelEmitter, ins: Instruction, env: dict[Instruction, Any], steps: LoopSteps, most: int | None = None
) -> tuple[Value, ...]:
    """Emits a loop: initial states, and a body that reads and updates them; returns the results.

    most: the maximum trip count, if the number of rows depends on data; the results then have as many rows, and the last one is
    the trip count.  Outer values that the body reads stay alive until the last trip, and no step of the body overwrites them.
    """
    current, call = e.current, Call(ins.op, "loop", ins.sources, (), "", ins)
    e.call, e.sources = call, ins.sources
    parts, (body,) = _parts(ins), ins.modules
    states = [e.copy(_value(e, i, env)) for i in parts.initial]
    xs = [_forwards(e, ins.op, n, e.value_of(x, env)) for n, x in enumerate(parts.xs)]
    trips = _trips(e, ins, env, states, xs)
    rows = [_rows(e, ins, n, most) for n in range(len(parts.rows))]
    begin, end = steps.around(trips)
    begin.writes = [r.buffer for r in rows]  # they are alive in all trips, not from the first row on
    e.add(begin)
    around = [v for c in captures(body) if (v := env.get(c)) is not None]
    held = [*around, *xs, trips.counter, *(v for v in (trips.bound, trips.going) if v is not None)]
    for value in held:
        count_reads(value, NEVER_OVERWRITTEN)
    if isinstance(ins.op, Loop):
        env |= zip(list(body.parameters.values())[:2], (trips.counter, _value(e, ins.inputs[1], env)), strict=True)
    env |= zip(parts.states, states, strict=True)
    for n, (x, p) in enumerate(zip(xs, parts.slices, strict=True)):
        env[p] = e.run_op(Gather(axis=_axis(ins.op, n, x)), (), [x, trips.counter])
    made = dict(zip(body.outputs, emit_body(e, body, env, call), strict=True))
    for n, (row, rows_of) in enumerate(zip(parts.rows, rows, strict=True)):
        if rows_of.shape.elements():
            steps.put_row(e.row_major(made[row]), trips.counter, rows_of, _backwards(ins.op, n))
    _replace(e, [made[o] for o in parts.again], states)
    for value in held:
        count_reads(value, -NEVER_OVERWRITTEN)
    end.reads = [b for v in (*held, *states, *rows) for b in _buffers(v)]
    end.writes = [v.buffer for v in (*states, *rows)]  # what follows the last write to them follows the loop
    e.add(end)
    kept = len(states) - isinstance(ins.op, Loop) * (not trips.sure)  # without the condition
    results = [*states[len(states) - kept :], *(_with_axis(ins.op, n, r) for n, r in enumerate(rows))]
    e.call, e.current = None, current
    if most is not None:
        results.append(trips.counter.view_at(0, Shape(dt.int64, [1])))
    for value in results:
        value.buffer.readers = 0
    return tuple(results)


def _value(e: KernelEmitter, ins: Instruction, env: dict[Instruction, Any]) -> Value:
    """Returns the value of a state or condition; an absent one is true."""
    value: Value | None = e.value_of(ins, env)
    return e.literal(np.asarray(True)) if value is None else value


def _trips(
    e: KernelEmitter, ins: Instruction, env: dict[Instruction, Any], states: list[Value], xs: list[Value]
) -> Trips:
    counter = e.copy(e.literal(np.asarray(0, np.int64)))
    op = ins.op
    if isinstance(op, Scan):
        axis = _axis(op, 0, xs[0])
        length = xs[0].lens[axis]
        if type(length) is TracedInt:
            bound = e.run_op(DimensionsOf(start=axis, end=axis + 1), (), [xs[0]])
            assert isinstance(bound, Value)
            return Trips(counter, bound.view_at(0, Shape(dt.int64, [])), None, True, MOST_TRIPS)
        return Trips(counter, e.literal(np.asarray(length, np.int64)), None, True, length)
    assert isinstance(op, Loop)
    sure = never_ends(ins.modules[0])
    going = e.value_of(ins.inputs[1], env) if sure else states[0]
    return Trips(counter, e.value_of(ins.inputs[0], env), going, sure, op.max_iterations)


def _axis(op: Any, n: int, x: Value) -> int:
    return op.axis_of(op.input_axes, n, len(x.lens)) if isinstance(op, Scan) else 0


def _forwards(e: KernelEmitter, op: Any, n: int, x: Value) -> Value:
    """Returns a scan's sliced operands in trip order."""
    if n >= len(op.input_directions) or not op.input_directions[n]:
        return x
    turned = e.run_op(Reverse(axes=(_axis(op, n, x),)), (), [x])
    assert isinstance(turned, Value)
    return turned


def _backwards(op: Any, n: int) -> bool:
    return isinstance(op, Scan) and n < len(op.output_directions) and bool(op.output_directions[n])


def _rows(e: KernelEmitter, ins: Instruction, n: int, most: int | None) -> Value:
    """Allocates memory for the rows of the n-th result, consecutive in memory; most: their number, if it depends on data."""
    parts = _parts(ins)
    assert isinstance(ins.result, TupleShape)
    shape = ins.result.items[len(ins.result.items) - len(parts.rows) + n]
    assert isinstance(shape, Shape)
    if most is not None:
        return e.allocate(shape.dtype, [most, *shape.with_dims(shape.dims[1:]).lens()])
    lens = shape.lens()
    lens.insert(0, lens.pop(_row_axis(ins.op, n, len(lens))))
    return e.allocate(shape.dtype, lens)


def _row_axis(op: Any, n: int, rank: int) -> int:
    return op.axis_of(op.output_axes, n, rank) if isinstance(op, Scan) else 0


def _with_axis(op: Any, n: int, rows: Value) -> Value:
    """Returns collected rows along the requested axis."""
    lens, strides = list(rows.lens), list(rows.strides)
    axis = _row_axis(op, n, len(lens))
    for order in (lens, strides):
        order.insert(axis, order.pop(0))
    return rows.view_at(0, Shape(rows.dtype, lens, strides))


def _buffers(value: Any) -> list[Buffer]:
    return [b for v in value for b in _buffers(v)] if isinstance(value, tuple) else [value.buffer]


def _replace(e: KernelEmitter, made: Sequence[Value], states: Sequence[Value]) -> None:
    """Emits the state update after a trip; results that alias other states are copied first."""
    own = {s.buffer for s in states}
    moves: list[tuple[Value, Value]] = []
    for value, state in zip(made, states, strict=True):
        if not state.shape.elements() or (value.buffer is state.buffer and value.offset == 0 and value.dense()):
            continue
        moves.append((e.copy(value) if value.buffer in own else value, state))
    for value, state in moves:
        e.copy_into(value, state)
