"""If, Loop and Scan: sub-graphs become modules."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from mgx_core import Instruction, Module, Shape
from mgx_core import dtype as dt
from mgx_core.converting.loops import carried
from mgx_core.types.shape import AnyShape

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
    modules = [n.parse_subgraph(then, "then"), n.parse_subgraph(other, "else")]
    return n.items(n.add("if", cond, modules=modules))


@converts("Loop")
def loop(n: Node, trips: Instruction | None = None, cond: Instruction | None = None, *states: Instruction) -> Any:
    graph = n.attr("body")
    scalars = [Shape(dt.int64, ()), Shape(dt.bool_, ())]
    initial = [s.result for s in states]
    body = carried(initial, lambda shapes: n.parse_subgraph(graph, "body", [*scalars, *shapes]), 1)
    options = n.parser.options
    most = options.limit_max_iterations
    trips = _scalar(n, trips)
    cond = _scalar(n, cond)
    if not options.use_dyn_output:  # the loop ends, and its rows are filled up, at a number that is known now
        known = None if trips is None else n.constant(trips)
        most = min(options.max_loop_iterations if known is None else int(known.reshape(())), most)
        limit = n.literal(np.asarray(most, np.int64))
        trips = limit if trips is None else n.add("min", trips, limit)
    made = n.parser.module.add(
        _op("loop", max_iterations=most),
        *(n.parser.absent() if x is None else x for x in (trips, cond)),
        *states,
        modules=[body],
        sources=n.parser.sources(n),
    )
    items = n.items(made)
    return (*items[: len(states)], *(_filled(n, rows) for rows in items[len(states) :]))


def _filled(n: Node, rows: Instruction) -> Instruction:
    """Returns a loop's rows; filled up where the option says so, and then a row that is one number has one axis."""
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
        n.fail(f"attribute {name!r} must hold 0 and 1, got {given}")
    return list(given)


@converts("Scan", since=8)
def scan_8(n: Node, lengths: Instruction | None, *inputs: Instruction) -> Any:
    """Builds the scan of opset 8, which scans each batch row on its own: a loop over rows around the scan of opset 9."""
    if lengths is not None:
        n.unsupported("sequence_lens of Scan-8 is not supported")
    graph = n.attr("body")
    count = n.attr("num_scan_inputs")
    states = len(inputs) - count
    directions = _list(n, "directions", count)
    outputs: list[list[Instruction]] = []
    batch = inputs[0].shape.dims[0]
    if not isinstance(batch, int):
        n.unsupported("Scan-8 needs a static batch extent")
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
