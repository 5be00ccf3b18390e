"""Constants shared by the instances of a program."""

from __future__ import annotations

import gc
from typing import Literal

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.types.dim import symbol
from mgx_gpu_hip.constants import Constants
from mgx_gpu_hip.runtime import open_device
from mgx_gpu_hip.target import GpuTarget


def test_made_once_and_forgotten_when_unused() -> None:
    constants, calls = Constants(), []
    source = np.arange(6, dtype=np.float32).reshape(2, 3)

    def make() -> np.ndarray:
        calls.append(1)
        return source.T.copy()

    first = constants.derived(source, "turned", make)
    assert constants.derived(source, "turned", make) is first
    assert constants.derived(source, "otherwise", make) is not first
    assert len(calls) == 2
    np.testing.assert_array_equal(first.array, source.T)
    del first
    gc.collect()
    constants.derived(source, "turned", make)
    assert len(calls) == 3


def test_uploaded_once_and_released() -> None:
    constants, device = Constants(), open_device("host", 1)
    arrays = [np.arange(n, dtype=np.float32) for n in (1000, 7, 0)]
    gc.collect()
    device.pool.trim()
    before = device.pool.reserved
    first = constants.uploaded(arrays, device)
    again = constants.uploaded([arrays[1], np.ones(3), arrays[0]], device)
    assert [again[0], again[2]] == [first[1], first[0]]
    for array, part in zip(arrays[:2], first, strict=False):
        assert part.address % 256 == first[0].address % 256
        np.testing.assert_array_equal(device.download(np.empty(len(array), np.float32), part), array)
    del first, again, part
    gc.collect()
    device.pool.trim()
    assert device.pool.reserved == before


@pytest.mark.parametrize("order", ["C", "F"])
def test_instances_for_other_shapes_share_weights(order: Literal["C", "F"]) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [symbol("n", 1, 8), 64]))
    weights = np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32, order)
    m.add_return([m.add(mgx.op("dot"), x, m.add_literal(weights))])
    program.compile(GpuTarget("host", 1))
    for n in (1, 2, 3):
        (result,) = program.run({"x": np.ones((n, 64), np.float32)})
        np.testing.assert_allclose(result.to_numpy(), np.ones((n, 64), np.float32) @ weights, rtol=1e-4, atol=1e-4)
    runners = [i.runner for i in program.executable.instances()]
    assert len(runners) == 3
    assert len({b.address for r in runners for b in r.weights}) == len(runners[0].weights) == 1
