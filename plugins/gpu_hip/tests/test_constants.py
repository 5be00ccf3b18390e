"""Constants that instances of a program share."""

from __future__ import annotations

import gc

import numpy as np

import mgx_core as mgx
from mgx_core.dim import symbol
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


def test_uploaded_once_and_given_back() -> None:
    constants, device = Constants(), open_device("host", 1)
    array = np.arange(1000, dtype=np.float32)
    before = device.pool.held
    first = constants.uploaded(array, device)
    assert constants.uploaded(array, device) is first
    np.testing.assert_array_equal(device.download(np.empty(1000, np.float32), first), array)
    del first
    gc.collect()
    device.pool.trim()
    assert device.pool.held == before


def test_instances_for_other_shapes_share_weights() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [symbol("n", 1, 8), 64]))
    w = m.add_literal(np.random.default_rng(3).standard_normal((64, 64)).astype(np.float32))
    m.add_return([m.add(mgx.op("dot"), x, w)])
    program.compile(GpuTarget("host", 1))
    for n in (1, 2, 3):
        program.run({"x": np.ones((n, 64), np.float32)})
    runners = [i.runner for i in program.executable.instances()]
    assert len(runners) == 3
    assert len({b.address for r in runners for b in r.weights}) == len(runners[0].weights) == 1
