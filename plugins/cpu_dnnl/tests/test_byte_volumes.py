"""Depthwise convolutions of volumes of bytes: computed in floats if these represent the sums exactly; results equal the
reference.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.rules.engine import Rewriter
from mgx_cpu_dnnl.byte_volumes import BYTE_VOLUMES
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(21)


def convolved(first: str, zero: int | None, weights: list[int], group: int, **attributes: Any) -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(first, [2, group, 5, 9, 9]))
    w = main.add_literal(rng.integers(-128, 128, weights).astype(np.int8))
    points = [] if zero is None else [main.add_literal(np.array(zero, first))]
    main.add_return([main.add(mgx.op("quant_convolution", group=group, **attributes), x, w, *points)])
    return program


@pytest.mark.parametrize(("first", "zero"), [("uint8", 131), ("uint8", None), ("int8", -7)])
@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize(
    "attributes",
    [
        {"padding": [1, 1, 1]},
        {"stride": [1, 2, 2], "padding": [1, 1, 1]},
        {"dilation": [2, 2, 2], "padding": [2, 2, 2]},
    ],
)
def test_sums_are_exact(first: str, zero: int | None, times: int, attributes: dict[str, Any]) -> None:
    right = convolved(first, zero, [24 * times, 1, 3, 3, 3], 24, **attributes)
    program = right.clone()
    about = np.iinfo(first)
    feed = {"x": rng.integers(about.min, about.max + 1, (2, 24, 5, 9, 9)).astype(first)}
    right.compile(mgx.get_target("ref"), optimize=False)
    program.compile(CpuTarget())
    np.testing.assert_array_equal(np.asarray(program.run(feed)[0]), np.asarray(right.run(feed)[0]))
    kinds = [s.name for s in program.executable.instances()[-1].runner.schedule.steps]
    assert not any(":avx512_core_vnni" in k or "product" in k for k in kinds), kinds


@pytest.mark.parametrize(("side", "floats"), [(5, True), (9, False)])
def test_sums_that_floats_do_not_hold_stay_integers(side: int, floats: bool) -> None:
    main = convolved("uint8", 3, [24, 1, side, side, side], 24, padding=[side // 2] * 3).get_main_module()
    Rewriter(BYTE_VOLUMES).apply(main)
    assert ("quant_convolution" in str(main)) is not floats
