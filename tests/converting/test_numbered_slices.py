"""Slices at a loop's iteration number become gathers of known extents where they cannot be clipped."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.converting.numbered_slices import with_known_extents
from mgx_core.ir.interpreter import Interpreter
from mgx_core.types.dim import Dim, symbol


def body_of(length: Dim, first: int, size: int) -> mgx.Module:
    """(iteration, condition, x [2, length]) -> (condition, x[:, t + first : t + first + size] * 2)"""
    body = mgx.Module("body")
    number = body.add_parameter("t", mgx.Shape(dt.int64, ()))
    going = body.add_parameter("going", mgx.Shape(dt.bool_, ()))
    x = body.add_parameter("x", mgx.Shape(dt.float32, [2, length]))
    start = body.add(mgx.op("sub"), number, body.add_literal(np.int64(-first))) if first else number
    starts = body.add(mgx.op("unsqueeze", axes=[0]), start)
    ends = body.add(mgx.op("add"), body.add_literal(np.int64([size])), starts)
    part = body.add(mgx.op("slice", axes=[-1]), x, starts, ends)
    body.add_return([going, body.add(mgx.op("add"), part, part)])
    return body


N = symbol("n", 0, 99)


@pytest.mark.parametrize(
    ("length", "first", "size", "trips"), [(7, 0, 1, 7), (7, 2, 3, 3), (N, 0, 1, N), (N + 3, 1, 2, N), (N, 0, 1, N - 5)]
)
def test_extents_are_known(length: Dim, first: int, size: int, trips: Dim) -> None:
    x = np.random.default_rng(0).standard_normal((2, 7 if length == 7 else 12)).astype(np.float32)
    args = [np.int64(2), np.bool_(True), x]
    expected = Interpreter().run(body_of(length, first, size), args)
    body = with_known_extents(body_of(length, first, size), trips)
    assert body.output_shapes()[1] == mgx.Shape(dt.float32, [2, size])
    assert "slice" not in {i.op.name for i in body}
    np.testing.assert_array_equal(Interpreter().run(body, args)[1], expected[1])


@pytest.mark.parametrize(
    ("length", "first", "size", "trips"),
    [(7, 0, 1, 8), (7, 2, 3, 4), (7, -1, 1, 3), (7, 0, 0, 7), (N, 0, 1, N + 1), (N, 0, 1, None)],
)
def test_slices_that_could_be_clipped_stay(length: Dim, first: int, size: int, trips: Dim | None) -> None:
    body = with_known_extents(body_of(length, first, size), trips)
    assert "slice" in {i.op.name for i in body}
    assert body.output_shapes()[1].dynamic()
