"""Scans by their definition: the positions of each trip's rows."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.ir.interpreter import evaluate_module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD

SCAN = """
module main
  %s = @param["s"] -> float32[2, 3]
  %x = @param["x"] -> float32[2, TRIPS, 3]
  %1 = scan[states=1, input_axes=[1], input_directions=[0], output_axes=[AXIS], output_directions=[BACK]](%s, %x){body}
  %2 = get_tuple_elem[index=0](%1)
  %3 = get_tuple_elem[index=1](%1)
  @return(%2, %3)
module body
  %sum = @param["sum"] -> float32[2, 3]
  %row = @param["row"] -> float32[2, 3]
  %4 = add(%sum, %row)
  @return(%4, %4)"""


@pytest.mark.parametrize("trips", [1, 4])
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("back", [0, 1])
def test_rows_of_a_scan_are_stacked_along_their_axis(axis, back, trips):
    text = SCAN.replace("TRIPS", str(trips)).replace("AXIS", str(axis)).replace("BACK", str(back))
    x, start = np.arange(2 * trips * 3, dtype=np.float32).reshape(2, trips, 3), np.ones((2, 3), np.float32)
    final, rows = evaluate_module(parse_module(text, STANDARD), [start, x])
    sums = np.moveaxis(np.cumsum(x, 1) + start[:, None], 1, 0)
    assert np.array_equal(np.asarray(final), sums[-1])
    assert np.array_equal(np.asarray(rows), np.moveaxis(sums[::-1] if back else sums, 0, axis))


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
def test_a_scan_without_trips_returns_no_rows_along_their_axis(axis):
    text = SCAN.replace("TRIPS", "0").replace("AXIS", str(axis)).replace("BACK", "0")
    final, rows = evaluate_module(
        parse_module(text, STANDARD), [np.ones((2, 3), np.float32), np.zeros((2, 0, 3), np.float32)]
    )
    assert np.array_equal(np.asarray(final), np.ones((2, 3)))
    assert np.asarray(rows).shape == np.moveaxis(np.zeros((0, 2, 3)), 0, axis).shape
