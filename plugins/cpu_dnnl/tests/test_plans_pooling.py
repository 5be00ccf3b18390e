"""Pooling: bytes, whose results do not begin where their memory does, and large windows, axis by axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.plans.pooling import LEAD
from mgx_cpu_dnnl.target import CpuTarget


@pytest.mark.parametrize("channels", [4, 20, 32])
def test_bytes_have_memory_before_them(channels: int) -> None:
    """oneDNN's masked stores of the last channels end a process where the page before the result is not there."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [1, channels, 4, 4]))
    main.add_return([main.add(mgx.op("pooling", mode="max", lengths=(2, 2), stride=(2, 2)), x)])
    program.compile(CpuTarget())
    steps = program.executable.instances()[-1].runner.schedule.steps
    (pool,) = [s for s in steps if s.name.startswith("pool")]
    assert pool.writes[0].bytes >= LEAD + 4 * channels
    given = np.random.default_rng(0).integers(0, 256, (1, channels, 4, 4), np.uint8)
    wanted = given.reshape(1, channels, 2, 2, 2, 2).max((3, 5))
    np.testing.assert_array_equal(np.asarray(program.run({"x": given})[0]), wanted)


@pytest.mark.parametrize(
    ("extents", "attributes"),
    [
        ([11, 14], {"lengths": [5, 5], "padding": [2, 2]}),
        ([13, 9], {"lengths": [9, 13], "padding": [4, 6], "dilations": [1, 1]}),
        ([23, 17], {"lengths": [5, 6], "padding": [1, 2, 3, 2], "stride": [2, 1]}),
        ([19, 22], {"lengths": [4, 5], "padding": [3, 4], "dilations": [3, 2], "ceil_mode": True, "stride": [1, 2]}),
        ([8, 7, 9], {"lengths": [3, 5, 4], "padding": [1, 2, 1]}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_maxima_along_one_axis_after_the_other_are_those_of_windows(
    both: Callable[..., Any], extents: list[int], attributes: dict[str, Any], dtype: str
) -> None:
    rank = len(extents)
    given = {"stride": [1] * rank, "dilations": [1] * rank, "mode": "max", **attributes}
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dtype, [2, 5, *extents]))
    main.add_return([main.add(mgx.op("pooling", **given), x)])
    values = np.random.default_rng(0).standard_normal((2, 5, *extents)).astype(dt.of(dtype).numpy)
    values[0, 1, ..., 3] = np.nan
    values[1, 2] = -np.inf
    found, wanted, steps = both(program, {"x": values})
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    assert sum(name.startswith("pooling") for name in steps) == rank


@pytest.mark.parametrize(("mode", "name"), [("max", "float32"), ("average", "float32"), ("max", "uint8")])
def test_windows_of_no_images(agrees: Callable[..., None], mode: str, name: str) -> None:
    for lens in ((0, 3, 6, 6), (2, 0, 6, 6)):
        agrees(mgx.op("pooling", mode=mode, lengths=(2, 2)), np.zeros(lens, name))
