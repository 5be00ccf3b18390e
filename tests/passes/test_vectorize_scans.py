"""Scans of independent iterations, computed for all slices together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from mgx_core import Instruction, Module, Shape, op
from mgx_core.ir.verify import verify
from mgx_core.passes.vectorize_scans import VectorizeScans

Build = Callable[[Module, Instruction, Instruction], Sequence[Instruction]]


def apart(body: Module, x: Instruction, row: Instruction) -> Instruction:
    """Returns the squares of x [4, 3] minus a row [3]."""
    spread = body.add(op("multibroadcast", out_lens=(4, 3)), row)
    off = body.add(op("sub"), x, spread)
    return body.add(op("mul"), off, off)


def distances(body: Module, x: Instruction, row: Instruction) -> Sequence[Instruction]:
    total = body.add(op("reduce_sum", axes=[1]), apart(body, x, row))
    return [body.add(op("squeeze", axes=[1]), total)]


def turned(body: Module, x: Instruction, row: Instruction) -> Sequence[Instruction]:
    """Two results with other orders of axes, without a reduction of the last axis; and one that all slices share."""
    square = apart(body, x, row)
    largest = body.add(op("reduce_max", axes=[0]), square)
    half = body.add_literal(np.full((3, 4), 0.5, np.float32))
    other = body.add(op("mul"), body.add(op("transpose", permutation=[1, 0]), square), half)
    same = body.add(op("reduce_min", axes=[0, 1]), body.add(op("relu"), x))
    return [body.add(op("unsqueeze", axes=[0]), largest), other, same]


def scanning(build: Build, rows: Sequence[int], **order: Any) -> Module:
    """A scan over rows of y with x as its state; all results are returned."""
    module, body = Module("main"), Module("body")
    x = module.add_parameter("x", Shape("float32", [4, 3]))
    y = module.add_parameter("y", Shape("float32", rows))
    inner, row = body.add_parameter("inner", Shape("float32", [4, 3])), body.add_parameter("row", Shape("float32", [3]))
    made = build(body, inner, row)
    body.add_return([inner, *made])
    scan = module.add(op("scan", states=1, **order), x, y, modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=i), scan) for i in range(len(made) + 1)])
    return module


@pytest.mark.parametrize("build", [distances, turned])
@pytest.mark.parametrize(
    ("rows", "order"),
    [
        ((5, 3), {}),
        ((3, 5), {"input_axes": [1]}),
        ((5, 3), {"output_axes": [1, -1, 0]}),
        ((5, 3), {"output_axes": [-1, 1, 2]}),
    ],
)
def test_independent_iterations(run_both: Any, build: Build, rows: Sequence[int], order: dict[str, Any]) -> None:
    module = scanning(build, rows, **order)
    before = module.clone()
    assert VectorizeScans().apply(module)
    module.sweep()
    assert verify(module) == []
    assert not any(i.op.control for i in module)
    run_both(before, module)


def test_loops_run_along_slices_where_the_last_axis_is_reduced() -> None:
    for build, wanted in ((distances, [4, 3, 5]), (turned, [5, 4, 3])):
        module = scanning(build, (5, 3))
        VectorizeScans().apply(module)
        first = next(i for i in module if i.name.startswith("reduce_"))
        assert first.inputs[0].shape.lens() == wanted


@pytest.mark.parametrize(
    ("module", "why"),
    [
        (lambda: scanning(distances, (5, 3), input_directions=[1]), "backwards"),
        (
            lambda: scanning(lambda b, x, r: [b.add(op("prefix_scan_sum", axis=0), apart(b, x, r))], (5, 3)),
            "prefix_scan_sum",
        ),
        (lambda: scanning(distances, (1 << 16, 3)), "may be too large"),
        (lambda: scanning(distances, (1 << 40, 3)), "very many iterations"),
    ],
)
def test_what_is_left(module: Callable[[], Module], why: str) -> None:
    vectorize = VectorizeScans()
    assert not vectorize.apply(module())
    assert why in str(vectorize.tally.refusals)


def test_states_that_change_are_left() -> None:
    module, body = Module("main"), Module("body")
    x, y = (module.add_parameter(n, Shape("float32", d)) for n, d in (("x", [3]), ("y", [5, 3])))
    total, row = (body.add_parameter(n, Shape("float32", [3])) for n in ("total", "row"))
    more = body.add(op("add"), total, row)
    body.add_return([more, more])
    scan = module.add(op("scan", states=1), x, y, modules=[body])
    module.add_return([module.add(op("get_tuple_elem", index=1), scan)])
    vectorize = VectorizeScans()
    assert not vectorize.apply(module)
    assert "changes the states" in str(vectorize.tally.refusals)
