"""Extents as values, and ranges of a known length."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.target import CpuTarget

Check = Callable[..., None]


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize(
    ("start", "limit", "delta"), [(0, 7, 1), (3, -20, -4), (5, 6, 9), (-9, 90, 11), (0, 70_000, 1), (4, -5, -3)]
)
def test_ranges_of_a_known_length(agrees: Check, dtype: Any, start: int, limit: int, delta: int) -> None:
    operands = [np.array(n, dtype) for n in (start, limit, delta)]
    agrees(mgx.op("dynamic_range", length=len(range(start, limit, delta))), *operands)


@pytest.mark.parametrize(("limit", "delta"), [(8, 1), (6, 1), (0, 1), (7, 0), (-9, -1)])
def test_ranges_of_another_length_are_refused(fails: Check, limit: int, delta: int) -> None:
    good = [np.array(n) for n in (0, 7, 1)]
    bad = [np.array(n) for n in (0, limit, delta)]
    fails("outside its range", mgx.op("dynamic_range", length=7), bad, good)


def test_extents_are_stored_by_a_native_step() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dt.float32, [symbol("a"), 3, symbol("b")]))
    lens = m.add(mgx.op("dimensions_of", start=0, end=None), x)
    m.add_return([m.add(mgx.op("mul"), lens, lens)])
    program.compile(CpuTarget())
    for a in range(4, 12):
        (got,) = program.run({"x": np.zeros((a, 3, 2 * a), np.float32)})
        assert np.asarray(got).tolist() == [a * a, 9, 4 * a * a]
    assert len(program.executable.instances()) < 8
