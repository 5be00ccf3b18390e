"""Reports of the memory used by a context's caches."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import mgx_core as mgx
from mgx_gpu_hip.target import GpuTarget


def test_constants_are_counted_while_referenced() -> None:
    context = GpuTarget("host").get_context()
    assert context.memory() == {"derived constants": (0, 0), "device constants": (0, 0)}
    array = np.arange(100, dtype=np.float32)
    derived = context.constants.derived(array, "twice", lambda: np.tile(array, 2))
    uploaded = context.constants.uploaded([array], context.device)
    held = context.memory()
    assert held["derived constants"] == (1, 800)
    assert held["device constants"] == (1, 400)
    assert held["free device memory"].bytes >= 0
    del derived, uploaded
    assert context.memory()["device constants"] == (0, 0)


def loaded_kernels() -> set[str]:
    """Returns the emulated device's libraries that are mapped into this process."""
    with open("/proc/self/maps", encoding="utf-8") as file:
        return {line.split()[5] for line in file if "/kernels-" in line}


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="the system does not list mapped files")
def test_code_is_unloaded_with_its_program() -> None:
    """A process may have some 65,000 mappings, and a library takes five: leaks would end a long session of tests."""
    gc.collect()
    before = loaded_kernels()
    for op in ("softmax", "tanh"):
        program = mgx.Program()
        m = program.get_main_module()
        m.add_return([m.add(mgx.op(op), m.add_parameter("x", mgx.Shape("float32", [3, 7])))])
        program.compile(GpuTarget("host", 1))
        program.run({"x": np.ones((3, 7), np.float32)})
        assert loaded_kernels() - before
        del program, m
        gc.collect()
        assert loaded_kernels() <= before


def test_host_memory_of_a_caller_is_pinned_until_it_is_let_go():
    array = np.zeros(4096, np.uint8)
    pinned = GpuTarget("host").get_context().pin(array)
    assert pinned is not None
    assert GpuTarget("host").get_context().pin(array) is None  # the driver rejects it twice
    del pinned
    assert GpuTarget("host").get_context().pin(array) is not None
