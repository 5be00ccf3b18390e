"""Positions computed by a target are judged by the elements they select: near ties pass, wrong orders and omissions do not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import HostKernel, Kernels, Program, Reference, Shape, Target, dtype, op
from mgx_core.driver.accuracy import HALF, WIDE, Tolerance
from mgx_core.driver.bisection import Bisection
from mgx_core.ir.graph import Graph


class Nudged(Target):
    """The reference implementation, with the result of one op replaced by a test."""

    name = "nudged"

    def __init__(self, kind: str, change: Any) -> None:
        self.kind = type(op(kind))
        self.change = change

    def kernels(self, context: Any) -> Kernels:
        plans = Kernels(self.name)

        @plans.plan(self.kind)
        def changed(op: Any, shapes: Any, context: Any) -> Any:
            return HostKernel("changed", lambda *args: self.change(op.compute(*args), *args))

        plans.plan()(lambda op, shapes, context, modules=(): Reference(op))
        return plans


def judged(program: Program, feed: dict[str, Any], target: Target, tolerance: Tolerance) -> list[str]:
    """Returns the reason why results differ, for each that does."""

    def compile(given: Program) -> Any:
        made = given.clone()
        made.compile(target)
        return made.executable

    hunt = Bisection(program, feed, tolerance, compile)
    return [d.why for d in hunt.compared(compile(program)) if not d.ok]


def best_two() -> Program:
    """The two largest of six scores, with their positions and the rows at these positions."""
    graph = Graph()
    main = graph.main
    x = main.add_parameter("x", Shape(dtype.float32, [1, 6]))
    rows = main.add_parameter("rows", Shape(dtype.float32, [6, 3]))
    found = main.add(op("topk", k=2, axis=1), x)
    values, places = (main.add(op("get_tuple_elem", index=n), found) for n in range(2))
    main.add_return([values, places, main.add(op("gather", axis=0), rows, places)])
    return Program(graph, ["values", "places", "rows"])


ROWS = np.arange(18, dtype=np.float32).reshape(6, 3)


@pytest.mark.parametrize(
    ("order", "why"),
    [
        ([1, 3], ""),
        ([3, 1], ""),
        ([1, 4], "other elements"),
        ([1, 1], "twice"),
        ([1, 6], "below 6"),
        ([4, 1], "other elements"),
    ],
)
def test_equal_largest_elements_may_be_swapped(order: list[int], why: str) -> None:
    x = np.array([[0.1, 0.9, 0.2, 0.8999, 0.5, 0.3]], np.float32)
    places = np.array([order], np.int64)

    def change(found: Any, x: Any) -> Any:
        return np.take_along_axis(x, np.minimum(places, 5), 1), places

    program = best_two()
    if max(order) > 5:  # the code after it cannot be computed with this result
        program.get_main_module().replace_return(list(program.get_main_module().outputs)[:2])
        program = Program(program.graph, ["values", "places"])
    found = judged(program, {"x": x, "rows": ROWS}, Nudged("topk", change), WIDE)
    assert all(why in text for text in found[:1])
    assert bool(found) == bool(why)


def test_rows_after_a_selection_are_those_selected() -> None:
    """A correct selection does not excuse a gather that takes other rows."""
    x = np.array([[0.1, 0.9, 0.2, 0.8999, 0.5, 0.3]], np.float32)
    found = judged(best_two(), {"x": x, "rows": ROWS}, Nudged("gather", lambda found, rows, at: found[:, ::-1]), WIDE)
    assert len(found) == 1
    assert "elements differ" in found[0]


@pytest.mark.parametrize(("at", "ok"), [(2, True), (1, True), (0, False)])
def test_a_position_is_judged_by_its_element(at: int, ok: bool) -> None:
    graph = Graph()
    x = graph.main.add_parameter("x", Shape(dtype.float32, [3]))
    graph.main.add_return([graph.main.add(op("argmax", axis=0), x)])
    feed = {"x": np.array([0.2, 0.9996, 1.0], np.float32)}
    target = Nudged("argmax", lambda found, x: np.array([at], np.int64))
    assert (judged(Program(graph), feed, target, WIDE) == []) == ok


def detector() -> tuple[Program, dict[str, Any]]:
    """Five boxes: two near copies, two separate ones with nearly equal scores, one below the threshold."""
    graph = Graph()
    main = graph.main
    boxes = main.add_parameter("boxes", Shape(dtype.float32, [1, 5, 4]))
    scores = main.add_parameter("scores", Shape(dtype.float32, [1, 1, 5]))
    limits = [main.add_literal(np.array(v)) for v in (np.int64([3]), np.float32([0.5]), np.float32([0.1]))]
    found = main.add(op("nonmaxsuppression"), boxes, scores, *limits)
    feed = {
        "boxes": np.array([[[0, 0, 4, 4], [0, 0, 4, 3.9], [8, 8, 9, 9], [5, 0, 6, 3], [2, 9, 3, 12]]], np.float32),
        "scores": np.array([[[0.9, 0.89, 0.5, 0.51, 0.05]]], np.float32),
    }
    main.add_return([found])
    return Program(graph), feed


@pytest.mark.parametrize(
    ("boxes", "why"),
    [
        ([0, 3, 2], ""),
        ([1, 3, 2], ""),
        ([0, 2, 3], ""),
        ([3, 0, 2], "order of falling score"),
        ([0, 1, 3], "overlap by more"),
        ([0, 3], "is left out"),
        ([0, 3, 4], "a score above"),
        ([0, 3, 3], "each once"),
        ([0, 3, 7], "not there"),
    ],
)
def test_boxes_are_judged_by_scores_and_overlaps(boxes: list[int], why: str) -> None:
    program, feed = detector()
    rows = np.array([[0, 0, box] for box in boxes], np.int64)
    found = judged(program, feed, Nudged("nonmaxsuppression", lambda found, *args: rows), Tolerance(0.02, 0.02, 0.02))
    assert bool(found) == bool(why)
    assert why in " ".join(found)


def test_wider_tolerances_allow_no_wrong_order() -> None:
    program, feed = detector()
    rows = np.array([[0, 0, 2], [0, 0, 0], [0, 0, 3]], np.int64)
    assert judged(program, feed, Nudged("nonmaxsuppression", lambda found, *args: rows), HALF)
