"""Products of bytes: tests that apply to both plans."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.plans import byte_pairs


@pytest.fixture(params=["pairs", "tiles"])
def plan(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Selects the plan under test: on processors with dot products of bytes the plan for pairs declines, but its kernels run
    there too.
    """
    if request.param == "pairs":
        monkeypatch.setattr(byte_pairs, "accumulates_int32", lambda: False)
    elif not native().multiplies_tiles():
        pytest.skip("the processor has no tile registers for bytes")
    return str(request.param)


@pytest.mark.parametrize("zero", [np.uint8(9), np.uint8(0), np.int8(9), np.int8(0), np.int8(-128)])
def test_numbers_beyond_the_range_are_its_ends(both: Any, plan: str, zero: Any) -> None:
    """Results of 1e12 units, infinities and NaN."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [40, 64]))
    bias = main.add_parameter("bias", mgx.Shape(dt.float32, [64]))
    factors = np.full(64, 1.0, np.float32)
    factors[:6] = [1e20, -1e20, np.inf, -np.inf, np.nan, 1e-30]
    w = main.add_literal(np.ones((64, 64), np.int8))
    wide = main.add(mgx.op("convert", target_type=dt.float32), main.add(mgx.op("quant_dot"), x, w))
    spread = mgx.op("multibroadcast", out_lens=(40, 64))
    product = main.add(mgx.op("mul"), wide, main.add(spread, main.add_literal(factors)))
    total = main.add(mgx.op("add"), product, main.add(spread, bias))
    points = main.add_literal(np.float32(0.3)), main.add_literal(zero)
    main.add_return([main.add(mgx.op("quantizelinear"), total, *points)])
    r = np.random.default_rng(3)
    feed = {"x": r.integers(1, 4, (40, 64), np.uint8), "bias": r.normal(0, 9, 64).astype(np.float32)}
    feed["bias"][8:11] = [np.inf, -np.inf, np.nan]
    with np.errstate(all="ignore"):
        got, wanted, steps = both(program, feed)
    assert any(s.startswith(f"matmul {plan}") for s in steps)
    assert np.abs(got.astype(int) - wanted.astype(int)).max() <= 1
    np.testing.assert_array_equal(got[:, [0, 1, 2, 3, 4, 8, 9, 10]], wanted[:, [0, 1, 2, 3, 4, 8, 9, 10]])
