"""Runs on a caller's stream during capture."""

from __future__ import annotations

import numpy as np

import mgx_core as mgx
from mgx_core import Shape
from mgx_core.ops.pointwise import Add, Erf
from mgx_gpu_hip.runtime import DeviceArray
from mgx_gpu_hip.target import GpuTarget


def test_runs_become_part_of_the_callers_graph() -> None:
    made = mgx.Program()
    main = made.get_main_module()
    x = main.add_parameter("x", Shape("float32", [4, 8]))
    main.add_return([main.add(Add(), main.add(Erf(), x), x)])
    made.compile(GpuTarget("host", 1), offload_copy=False)
    assert made.executable is not None
    gpu = made.executable.context.device
    held = DeviceArray(gpu.allocate(128), mgx.dtype.float32, (4, 8))
    stream = gpu.stream()

    def given(value: float) -> None:
        gpu.default_stream.copy_in(held.address, np.full((4, 8), value, np.float32))
        gpu.default_stream.wait()

    given(0.0)
    for _ in range(2):  # recorded, then replayed
        made.executable.run_async({"x": held}, stream.handle, "")
    with gpu.capture(stream) as captured:
        (found,) = made.executable.run_async({"x": held}, stream.handle, "")
    graph = captured.instantiate()
    given(1.0)
    graph.launch(stream.handle)
    stream.wait()
    np.testing.assert_allclose(found.to_numpy(), 1.8427008, rtol=1e-6)
