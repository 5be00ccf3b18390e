"""Programs compiled for a device that is not here."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import DeviceError
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.target import GpuTarget

ARCHITECTURES = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "sm_90"]


def compiled(arch: str) -> mgx.Program:
    try:
        compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float", [1, 4, 6, 6]))
    op = mgx.op("convolution", padding=[1, 1], stride=[1, 1], dilation=[1, 1])
    y = m.add(mgx.op("relu"), m.add(op, x, m.add_literal(np.ones((8, 4, 3, 3), np.float32))))
    m.add_return([m.add(mgx.op("softmax", axis=1), y)])
    program.compile(GpuTarget(), target=arch)
    return program


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_program_is_compiled_saved_and_refused_here(arch: str) -> None:
    program = compiled(arch)
    (instance,) = program.executable.instances()
    codes = instance.runner.codes
    assert len(codes) >= 2
    assert all(c.image[:4] == b"\x7fELF" for c in codes)
    with pytest.raises(DeviceError, match=f"compiled for {arch}"):
        program.run({"x": np.zeros((1, 4, 6, 6), np.float32)})
    saved = program.executable.target.machine(program.executable.context)
    assert saved.endswith(arch)
    assert len(mgx.save_buffer(program)) > sum(len(i) for i in {c.image for c in codes})


def test_an_unknown_architecture_is_named() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape("float", [2])))])
    with pytest.raises(DeviceError, match=r"an architecture is one of .*got 'gfx1'"):
        program.compile(GpuTarget(), target="gfx1")


def test_the_option_may_name_the_device_that_is_there() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape("float", [2])))])
    program.compile(GpuTarget("host", 1), target="host32")
    np.testing.assert_array_equal(program.run({"x": np.array([-1, 2], np.float32)})[0].to_numpy(), [0, 2])
