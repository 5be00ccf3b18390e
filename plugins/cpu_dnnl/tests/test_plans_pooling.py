"""Pooling of bytes, whose results do not begin where their memory does."""

from __future__ import annotations

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
