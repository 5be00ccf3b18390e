"""Types of loop-carried values whose extents change in each trip."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.converting.loops import carried
from mgx_core.types.dim import Dim, bounds, symbol
from mgx_core.types.polynomial import UNBOUNDED
from mgx_core.types.shape import AnyShape


def body_of(change: str, start: Dim) -> mgx.Module:
    """Returns a body that grows or shrinks the carried vector by one element per trip, and returns it as rows of one."""

    def build(shapes: list[AnyShape]) -> mgx.Module:
        body = mgx.Module("body")
        body.add_parameter("trip", mgx.Shape(dt.int64, ()))
        going = body.add_parameter("going", mgx.Shape(dt.bool_, ()))
        state = body.add_parameter("state", shapes[0])
        if change == "grows":
            after = body.add(mgx.op("concat", axis=0), state, body.add_literal(np.float32([7])))
        else:
            after = body.add(mgx.op("slice", axes=(0,), starts=(1,), ends=(2**31,)), state)
        rows = body.add(mgx.op("reshape", dims=(-1, 1)), after)
        body.add_return([going, body.add(mgx.op("reshape", dims=(-1,)), rows)])
        return body

    return carried([mgx.Shape(dt.float32, [start])], build, 1)


@pytest.mark.parametrize(
    ("change", "start", "trips", "wanted"),
    [("grows", 1, 5, [1, 7, 7, 7, 7, 7]), ("shrinks", 6, 4, [5, 6])],
)
def test_extents_that_change_in_every_trip(change: str, start: int, trips: int, wanted: list[int]) -> None:
    body = body_of(change, start)
    low, high = bounds(body.parameters["state"].shape.dims[0])
    assert (low, high) == ((1, UNBOUNDED) if change == "grows" else (0, 6))
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.float32, [start]))
    count, going = main.add_literal(np.int64(trips)), main.add_literal(np.bool_(True))
    made = main.add(mgx.op("loop", max_iterations=100), count, going, x, modules=[body])
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), made)])
    program.compile(mgx.get_target("ref"))
    (found,) = program.run({"x": np.arange(1, start + 1, dtype=np.float32)})
    assert np.asarray(found).tolist() == wanted


def test_an_extent_that_changes_once_keeps_its_bounds() -> None:
    def build(shapes: list[AnyShape]) -> mgx.Module:
        body = mgx.Module("body")
        body.add_parameter("trip", mgx.Shape(dt.int64, ()))
        going = body.add_parameter("going", mgx.Shape(dt.bool_, ()))
        body.add_parameter("state", shapes[0])
        body.add_return([going, body.add_literal(np.zeros(4, np.float32))])
        return body

    body = carried([mgx.Shape(dt.float32, [2])], build, 1)
    assert bounds(body.parameters["state"].shape.dims[0]) == (2, 4)


def test_an_outer_extent_is_not_mistaken_for_one_that_changes_in_the_loop() -> None:
    """The outer symbol was kept for the state, so that each trip computed with the extent of the first one."""
    around = symbol("rows", 1, 9)
    body = body_of("shrinks", around)
    inside = body.parameters["state"].shape.dims[0]
    assert inside != around and bounds(inside) == (0, 9)
