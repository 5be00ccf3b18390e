"""Loops that are replaced by their trips."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Instruction, Module, Shape, op
from mgx_core.ir.verify import verify
from mgx_core.passes.resolve_extents import with_known_extents
from mgx_core.passes.unroll_loops import UnrollLoops, numbers_decide_extents
from mgx_core.types.dim import symbol
from mgx_core.types.shape import SequenceShape


def between(body: Module, x: Instruction, offsets: Instruction, number: Instruction) -> Instruction:
    """Sums the rows between a trip's offset and the next one."""
    first = body.add(op("reshape", dims=(1,)), number)
    start = body.add(op("gather", axis=0), offsets, first)
    after = body.add(op("add"), first, body.add_literal(np.array([1])))
    rows = body.add(op("slice", axes=(0,)), x, start, body.add(op("gather", axis=0), offsets, after))
    return body.add(op("reduce_sum", axes=[0]), rows)


def scanning(offsets: Any, **order: Any) -> Module:
    """Sums of rows between offsets: a literal, or (None) an input with one more offset than trips."""
    module, body = Module("main"), Module("body")
    x = module.add_parameter("x", Shape("float32", [10, 2]))
    given = (
        module.add_parameter("offsets", Shape("int64", [4]))
        if offsets is None
        else module.add_literal(np.array(offsets))
    )
    numbers = module.add_literal(np.arange(3 if offsets is None else len(offsets) - 1))
    number = body.add_parameter("number", Shape("int64", []))
    body.add_return([body.add(op("squeeze", axes=[0]), between(body, x, given, number))])
    made = module.add(op("scan", states=0, input_axes=[0], **order), numbers, modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=0), made)])
    return module


@pytest.mark.parametrize(
    "order", [{}, {"input_directions": [1]}, {"output_directions": [1]}, {"output_axes": [1]}, {"output_axes": [-1]}]
)
def test_rows_between_constants(run_both: Any, order: dict[str, Any]) -> None:
    module = scanning([0, 4, 4, 9, 10], **order)
    before = module.clone()
    assert UnrollLoops().apply(module)
    module.sweep()
    assert verify(module) == []
    run_both(before, module)
    module = with_known_extents(module)
    assert not any(i.op.control or i.result.dynamic() for i in module)
    run_both(before, module)


def test_data_that_decide_extents_leave_a_loop() -> None:
    assert not UnrollLoops().apply(scanning(None))


def test_many_trips_leave_a_loop() -> None:
    unroll = UnrollLoops()
    assert not unroll.apply(scanning(np.zeros(400, np.int64)))
    assert "399 trips are too many" in str(unroll.tally.refusals)


def counting(trips: Any, listed: bool, grown: bool = False) -> Module:
    """A loop with a counter as state, with a list of sums, or rows; the last one is halved."""
    module, body, last, other = (Module(name) for name in ("main", "body", "last", "other"))
    x = module.add_parameter("x", Shape("float32", [10, 2]))
    offsets = module.add_literal(np.array([0, 3, 3, 8, 10]))
    number, going = body.add_parameter("n", Shape("int64", [])), body.add_parameter("going", Shape("bool", []))
    count = body.add_parameter("count", Shape("int64", []))
    empty = module.add(op("sequence_empty", dtype="float32"))
    done = [body.add_parameter("done", empty.result)] if listed else []
    total = between(body, x, offsets, count)
    last.add_return([last.add(op("mul"), total, last.add_literal(np.full((1, 2), 0.5, np.float32)))])
    other.add_return([total])
    at_end = body.add(op("equal"), number, body.add_literal(np.array(3)))
    item = body.add(op("get_tuple_elem", index=0), body.add(op("if"), at_end, modules=[last, other]))
    following = body.add(op("add"), count, body.add_literal(np.array(1)))
    kept = [body.add(op("sequence_insert"), done[0], item)] if listed else []
    states = [module.add_literal(np.array(0)), *([empty] if listed else [])]
    if grown:
        state = body.add_parameter("state", Shape("float32", [symbol("n", 1, 9)]))
        one, two = (body.add_literal(np.ones(n, np.float32)) for n in (1, 2))
        kept.append(body.add(op("concat", axis=0), body.add(op("add"), state, two), one))
        states.append(module.add_literal(np.ones(2, np.float32)))
    body.add_return([going, following, *kept, *([] if listed else [item])])
    number_of = (
        module.add_parameter("trips", Shape("int64", [])) if trips is None else module.add_literal(np.array(trips))
    )
    loop = module.add(op("loop"), number_of, module.add_absent(), *states, modules=[body])
    found = module.add(op("get_tuple_elem", index=len(states) - listed), loop)
    end = module.add(op("get_tuple_elem", index=0), loop)
    module.add_return([module.add(op("concat_from_sequence", axis=0), found) if listed else found, end])
    return module


@pytest.mark.parametrize("listed", [False, True])
def test_states_that_count_and_branches_on_the_number(run_both: Any, listed: bool) -> None:
    module = counting(4, listed)
    before = module.clone()
    assert UnrollLoops().apply(module)
    UnrollLoops().apply(module)  # lists, once the ops that fill them are static
    module.sweep()
    assert verify(module) == []
    assert not any(i.op.control for i in module)
    run_both(before, module)
    module = with_known_extents(module)
    assert [list(o.shape.lens()) for o in module.outputs] == [[4, 2] if listed else [4, 1, 2], []]
    run_both(before, module)


def test_loops_that_stay() -> None:
    """Loops with an unknown number of trips, loops without trips, and loops whose error must be raised at run time."""
    long = counting(4, False)
    loop = next(i for i in long if i.op.control)
    long.replace_op(loop, loop.op.replace(max_iterations=2), loop.result)
    for module, why in (
        (long, "more trips than its iteration limit"),
        (counting(None, False), "known only at run time"),
        (counting(0, False), "or none"),
        (counting(4, False, grown=True), "an iteration cannot be inlined"),
    ):
        unroll = UnrollLoops()
        assert not unroll.apply(module)
        assert why in str(unroll.tally.refusals)


def test_extents_of_bodies_that_follow_from_the_inputs_are_no_reason() -> None:
    module, body = Module("main"), Module("body")
    x = module.add_parameter("x", Shape("float32", [3, symbol("n", 1, 9)]))
    row = body.add_parameter("row", Shape("float32", [symbol("n", 1, 9)]))
    body.add_return([body.add(op("neg"), row)])
    scan = module.add(op("scan", states=0, input_axes=[0]), x, modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=0), scan)])
    assert not numbers_decide_extents(scan)


def splitting(lengths: Any, axis: int = 0) -> Module:
    """The sums of the parts of a split tensor, one per iteration, times weights; and the number of parts."""
    module, body = Module("main"), Module("body")
    x = module.add_parameter("x", Shape("float32", [9, 9]))
    given = (
        module.add_parameter("lengths", Shape("int64", [3]))
        if lengths is None
        else module.add_literal(np.array(lengths))
    )
    parts = module.add(op("split_to_sequence", axis=axis), x, given)
    count = module.add(op("sequence_length"), parts)
    number, going = body.add_parameter("n", Shape("int64", [])), body.add_parameter("going", Shape("bool", []))
    part = body.add(op("sequence_at"), parts, number)
    doubled = body.add(op("add"), part, body.add(op("relu"), part))
    spread = op("multibroadcast", out_lens=part.shape.dims)
    weighted = body.add(op("mul"), doubled, body.add(spread, body.add_literal(np.array([2], np.float32))))
    body.add_return([going, body.add(op("reduce_sum", axes=[axis]), weighted)])
    loop = module.add(op("loop"), count, module.add_absent(), modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=0), loop), count])
    return module


@pytest.mark.parametrize("lengths", [[2, 3, 4], [0, 9], [5, 0, 4], 4, 9, 20], ids=str)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_of_known_lengths(run_both: Any, lengths: Any, axis: int) -> None:
    before = splitting(lengths, axis)
    module = before.clone()
    assert UnrollLoops().apply(module)
    while UnrollLoops().apply(module):
        pass
    module.sweep()
    assert verify(module) == []
    assert not any(i.op.control or i.result.dynamic() for i in module)
    assert not any(isinstance(i.result, SequenceShape) for i in module)
    run_both(before, module)


@pytest.mark.parametrize("lengths", [None, [2, 3, 5], [-1, 10], 0], ids=str)
def test_parts_that_are_unknown_or_invalid_stay(lengths: Any) -> None:
    """Errors are raised at run time."""
    module = splitting(lengths)
    before = str(module)
    assert not UnrollLoops().apply(module)
    assert str(module) == before


@pytest.mark.parametrize("position", [0, 1, -1, -2, 2, -3])
def test_items_of_known_sequences(run_both: Any, position: int) -> None:
    """Of a split tensor and of listed tensors; a position outside stays an error."""
    module = Module("main")
    x = module.add_parameter("x", Shape("float32", [9, 9]))
    at = module.add_literal(np.array(position))
    parts = module.add(op("split_to_sequence", axis=0), x, module.add_literal(np.array([3, 6])))
    listed = module.add(op("sequence_construct"), x, module.add(op("relu"), x))
    module.add_return([module.add(op("sequence_at"), s, at) for s in (parts, listed)])
    before = module.clone()
    assert UnrollLoops().apply(module) == (-2 <= position < 2)
    if -2 <= position < 2:
        module.sweep()
        assert verify(module) == []
        assert not any(isinstance(i.result, SequenceShape) for i in module)
        run_both(before, module)
