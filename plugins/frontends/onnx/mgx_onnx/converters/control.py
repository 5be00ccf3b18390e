"""If, Loop and Scan; subgraphs are converted to modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction, Module, Shape, ShapeError, UnrankedError
from mgx_core import dtype as dt
from mgx_core.converting.counted import counted_trips
from mgx_core.converting.filling import count_up
from mgx_core.converting.lists import without_lists
from mgx_core.converting.loops import carried, over_numbers
from mgx_core.converting.numbered_slices import with_known_extents
from mgx_core.ops.control import never_ends
from mgx_core.passes.iterations import reduces_slices
from mgx_core.types.dim import Dim, maximum
from mgx_core.types.shape import AnyShape, SequenceShape

from ..converter import converts
from ..node import Node


@converts("If")
def if_(n: Node, cond: Instruction) -> Any:
    then, other = n.attr("then_branch"), n.attr("else_branch")
    known = n.constant(cond)
    if known is not None and known.size == 1:
        return n.parser.inline_graph(n, then if known.reshape(()) else other)
    if cond.shape.ranked and cond.shape.rank:
        cond = n.reshape(cond, ())
    return n.items(n.add("if", cond, modules=_branches(n, cond, then, other)))


def _branches(n: Node, cond: Instruction, then: Any, other: Any) -> list[Module]:
    """Returns both branches; if the shapes of one do not fit, it raises the error only when it is taken."""
    found: list[Module | ShapeError] = []
    for graph, name in ((then, "then"), (other, "else")):
        try:
            found.append(n.parse_subgraph(graph, name))
        except UnrankedError:
            raise  # the node is deferred
        except ShapeError as error:
            found.append(error)
    good = [m for m in found if isinstance(m, Module)]
    return [m if isinstance(m, Module) else _invalid(n, cond, m, good) for m in found]


def _invalid(n: Node, cond: Instruction, error: ShapeError, good: Sequence[Module]) -> Module:
    """Returns a module that raises the error of a branch, with the results of the other one.  Errors: the same without one."""
    if not good:
        raise error
    module = Module(f"{good[0].name}:invalid")
    why = f"the branch that the condition selects cannot run: {error}"
    ops = [_op("unreachable", shape=shape, why=why) for shape in good[0].output_shapes()]
    module.add_return([module.add(op, cond, sources=n.parser.sources(n)) for op in ops])
    return module


@converts("Loop")
def loop(n: Node, trips: Instruction | None = None, cond: Instruction | None = None, *states: Instruction) -> Any:
    graph = n.attr("body")
    scalars = [Shape(dt.int64, ()), Shape(dt.bool_, ())]
    initial = [s.result for s in states]
    most_trips = n.dims(trips)
    bound = maximum(most_trips[0], 0) if most_trips else None

    def build(shapes: list[AnyShape]) -> Module:
        return with_known_extents(n.parse_subgraph(graph, "body", [*scalars, *shapes]), bound)

    body = carried(initial, build, 1)
    options = n.parser.options
    most = options.limit_max_iterations
    trips = _scalar(n, trips)
    cond = _scalar(n, cond)
    if not options.use_dyn_output:  # the loop ends, and its rows are padded, at a known iteration count
        known = None if trips is None else n.constant(trips)
        most = min(options.max_loop_iterations if known is None else int(known.reshape(())), most)
        limit = n.literal(np.asarray(most, np.int64))
        trips = limit if trips is None else n.add("min", trips, limit)
    sure = _sure_trips(n, trips, cond, body, most)
    if sure is None and (len(body.outputs) > 1 + len(states) or any(isinstance(i, SequenceShape) for i in initial)):
        counted = counted_trips(n, body, trips, cond, states)
        sure = _known_trips(n, counted, most)
        if sure is not None:
            trips, cond = counted, None
            body.replace_return([body.add_literal(np.asarray(True)), *body.outputs[1:]])  # terminated by its trip count
    lists = without_lists(n, body, states, sure)
    if lists is None:
        items = _run(n, most, [trips, cond, *states], body, sure is not None)
        return (*items[: len(states)], *(_filled(n, rows) for rows in items[len(states) :]))
    lost = {*lists.made, *lists.rows}
    kept = [s for k, s in enumerate(states) if k not in lost]
    items = _run(n, most, [trips, cond, *kept], lists.body, sure is not None)
    after, rows = iter(items[: len(kept)]), items[len(kept) : len(items) - len(lists.rows)]
    filled = dict(zip(lists.rows, items[len(items) - len(lists.rows) :], strict=True))
    found = lists.made | {k: lists.filled(n, k, states[k], x) for k, x in filled.items()}
    return (*(found.get(k) or next(after) for k in range(len(states))), *(_filled(n, r) for r in rows))


def _run(
    n: Node, most: int, operands: Sequence[Instruction | None], body: Module, sure: bool
) -> tuple[Instruction, ...]:
    """Returns a loop's results; a body without results is not run.

    sure: the trip count is known; the rows are then those of a scan, with a known extent.
    """
    trips, states = operands[0], operands[2:]
    if len(body.outputs) == 1:
        return ()
    if sure and trips is not None and len(body.outputs) > 1 + len(states):
        op = _op("scan", states=len(states), input_axes=[0])
        return _results(n, n.add(op, *states, count_up(n, trips), modules=[over_numbers(body)]))
    given = [n.parser.absent() if x is None else x for x in operands]
    op = _op("loop", max_iterations=most)
    return _results(n, n.parser.module.add(op, *given, modules=[body], sources=n.parser.sources(n)))


def _results(n: Node, loop: Instruction) -> tuple[Instruction, ...]:
    """Returns a loop's results, computed for all iterations at once if it reduces slices of different lengths.

    A pass does the same later, but the extents of lists are needed here, to convert their readers.
    """
    if not reduces_slices(loop):
        return n.items(loop)
    from mgx_core.passes.ragged_loops import vectorized  # few models have such loops

    found = vectorized(n.parser.module, loop)
    if not isinstance(found, list):
        return n.items(loop)
    n.parser.module.remove(loop)
    return tuple(found)


def _sure_trips(n: Node, trips: Instruction | None, cond: Instruction | None, body: Module, most: int) -> Dim | None:
    """Returns the trip count of a loop without a condition if it is constant or an extent, else None."""
    if trips is None or not never_ends(body) or (cond is not None and not n.is_true(cond)):
        return None
    return _known_trips(n, trips, most)


def _known_trips(n: Node, trips: Instruction | None, most: int) -> Dim | None:
    found = n.dims(trips)
    if found is None or (isinstance(found[0], int) and found[0] > most):
        return None
    return maximum(found[0], 0)


def _filled(n: Node, rows: Instruction) -> Instruction:
    """Returns a loop's rows, padded if the option requires it; scalar rows then get one axis."""
    if n.parser.options.use_dyn_output or not rows.shape.ranked:
        return rows
    rows = n.largest(rows)
    return n.unsqueeze(rows, [1]) if rows.shape.rank == 1 else rows


def _scalar(n: Node, x: Instruction | None) -> Instruction | None:
    if x is not None and x.shape.ranked and x.shape.rank:
        return n.reshape(x, ())
    return x


def _op(name: str, **attributes: Any) -> Any:
    from mgx_core import op

    return op(name, **attributes)


@converts("Scan", since=9)
def scan(n: Node, *inputs: Instruction) -> Any:
    graph = n.attr("body")
    count = n.attr("num_scan_inputs")
    states = len(inputs) - count
    if states < 0 or count < 1:
        n.fail(f"num_scan_inputs must lie in 1..{len(inputs)}, got {count}")
    rows = len(graph.output) - states
    axes_in = _list(n, "scan_input_axes", count)
    slices: list[AnyShape] = []
    for x, axis in zip(inputs[states:], axes_in, strict=True):
        axis = n.axes([axis], x.shape.rank)[0]
        dims = x.shape.dims
        slices.append(x.shape.with_dims((*dims[:axis], *dims[axis + 1 :])))
    initial = [s.result for s in inputs[:states]]
    body = carried(initial, lambda shapes: n.parse_subgraph(graph, "body", [*shapes, *slices]), 0)
    made = n.add(
        _op(
            "scan",
            states=states,
            input_axes=axes_in,
            input_directions=_list(n, "scan_input_directions", count),
            output_axes=_list(n, "scan_output_axes", rows),
            output_directions=_list(n, "scan_output_directions", rows),
        ),
        *inputs,
        modules=[body],
    )
    return n.items(made)


def _list(n: Node, name: str, count: int) -> list[int]:
    given = n.attr(name, [0] * count)
    if len(given) != count:
        n.fail(f"attribute {name!r} must have {count} entries, got {len(given)}")
    if "directions" in name and any(d not in (0, 1) for d in given):
        n.fail(f"attribute {name!r} must contain only 0 and 1, got {given}")
    return list(given)


@converts("Scan", since=8)
def scan_8(n: Node, lengths: Instruction | None, *inputs: Instruction) -> Any:
    """Converts Scan-8, which scans each batch row separately, to a loop over rows around a Scan-9."""
    if lengths is not None:
        n.unsupported("sequence_lens of Scan-8 is not supported")
    graph = n.attr("body")
    count = n.attr("num_scan_inputs")
    states = len(inputs) - count
    directions = _list(n, "directions", count)
    outputs: list[list[Instruction]] = []
    batch = inputs[0].shape.dims[0]
    if not isinstance(batch, int):
        n.unsupported("Scan-8 requires a static batch extent")
    rows = len(graph.output) - states
    for row in range(batch):
        own = [n.squeeze(n.slice(x, [0], [row], [row + 1]), [0]) for x in inputs]
        initial = [s.result for s in own[:states]]
        slices: list[AnyShape] = [x.shape.with_dims(x.shape.dims[1:]) for x in own[states:]]

        def build(shapes: Sequence[AnyShape], slices: Sequence[AnyShape] = slices) -> Module:
            return n.parse_subgraph(graph, "body", [*shapes, *slices])

        body = carried(initial, build, 0)
        along = {"output_axes": [0] * rows, "output_directions": [0] * rows}
        op = _op("scan", states=states, input_axes=[0] * count, input_directions=directions, **along)
        outputs.append([n.unsqueeze(i, [0]) for i in n.items(n.add(op, *own, modules=[body]))])
    return tuple(n.add("concat", *parts, axis=0) for parts in zip(*outputs, strict=True))
