"""Cross-compilation: programs compiled for an absent device."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import DeviceError
from mgx_gpu_hip.compile.compilers import compiler_for
from mgx_gpu_hip.target import GpuTarget

ARCHITECTURES = ["gfx908", "gfx90a", "gfx942", "gfx1030", "gfx1100", "sm_90"]


def needs_compiler(arch: str) -> None:
    try:
        compiler_for(arch)
    except DeviceError as why:
        pytest.skip(str(why))


def compiled(arch: str) -> mgx.Program:
    needs_compiler(arch)
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


def network() -> mgx.Program:
    """Returns convolutions (dense, depthwise, grouped), gates, attention, norms and a recurrent layer with a symbolic batch."""
    rng = np.random.default_rng(3)
    program = mgx.Program()
    m = program.get_main_module()

    def weights(*dims: int) -> mgx.Instruction:
        return m.add_literal(rng.standard_normal(dims, np.float32) * 0.1)

    def convolution(x: mgx.Instruction, kernel: mgx.Instruction, stride: int, group: int) -> mgx.Instruction:
        op = mgx.op("convolution", padding=[1, 1], stride=[stride, stride], dilation=[1, 1], group=group)
        return m.add(mgx.op("relu"), m.add(op, x, kernel))

    x = m.add_parameter("x", mgx.Shape("float", [mgx.dim.symbol("n", 1, 64), 3, 32, 32]))
    x = convolution(x, weights(32, 3, 3, 3), 2, 1)
    x = convolution(x, weights(32, 1, 3, 3), 1, 32)
    x = convolution(x, weights(64, 8, 3, 3), 2, 4)
    gates = m.add(mgx.op("sigmoid"), m.add(mgx.op("reduce_mean", axes=[2, 3]), x))
    x = m.add(mgx.op("mul"), x, m.add(mgx.op("multibroadcast", out_lens=x.shape.dims), gates))
    rows = m.add(mgx.op("transpose", permutation=[0, 2, 1]), m.add(mgx.op("reshape", dims=[0, 64, 64]), x))
    turned = m.add(mgx.op("transpose", permutation=[0, 2, 1]), rows)
    attended = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=2), m.add(mgx.op("dot"), rows, turned)), rows)
    state = m.add(mgx.op("transpose", permutation=[1, 0, 2]), attended)
    op = mgx.op("gru", hidden_size=16, actv_func=["sigmoid", "tanh"], direction="forward")
    states = m.add(op, state, weights(1, 48, 64), weights(1, 48, 16))
    m.add_return([attended, states])
    return program


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_kernels_of_a_network_compile_in_half(arch: str) -> None:
    needs_compiler(arch)
    program = network()
    mgx.quantize_fp16(program)
    program.compile(GpuTarget(), target=arch)
    with pytest.raises(DeviceError, match=f"compiled for {arch}"):
        program.run({"x": np.zeros((2, 3, 32, 32), np.float32)})
    (instance,) = program.executable.instances()
    assert all(c.image[:4] == b"\x7fELF" for c in instance.runner.codes)
    assert not [s.name for s in instance.runner.schedule.steps if s.name.startswith("host")]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_selections_compile(arch: str) -> None:
    """Clang crashed for gfx90a on a loop over the elements of a line that it vectorized."""
    needs_compiler(arch)
    program = mgx.Program()
    m = program.get_main_module()
    results = []
    for name, rows, n in (("x", 512, 8192), ("y", 1, 128000)):
        found = m.add(mgx.op("topk", k=32), m.add_parameter(name, mgx.Shape("half", [rows, n])))
        results += [m.add(mgx.op("get_tuple_elem", index=i), found) for i in range(2)]
    m.add_return(results)
    program.compile(GpuTarget(), target=arch)
    (instance,) = program.executable.instances()
    assert all(c.image[:4] == b"\x7fELF" for c in instance.runner.codes)


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("kind", ["half", "float", "double"])
def test_fourier_transforms_compile(kind: str, arch: str) -> None:
    needs_compiler(arch)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(kind, [4, 240, 1]))
    y = m.add(mgx.op("dft", onesided=True), x)
    m.add_return([y, m.add(mgx.op("dft", onesided=True, inverse=True), y)])
    program.compile(GpuTarget(), target=arch)
    (instance,) = program.executable.instances()
    assert [s.kernel for s in instance.plan.steps] == ["generated dft"] * 2


def test_an_unknown_architecture_is_named() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape("float", [2])))])
    with pytest.raises(DeviceError, match=r"an architecture must be one of .*got 'gfx1'"):
        program.compile(GpuTarget(), target="gfx1")


def test_the_option_may_name_the_device_that_is_there() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    m.add_return([m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape("float", [2])))])
    program.compile(GpuTarget("host", 1), target="host32")
    np.testing.assert_array_equal(program.run({"x": np.array([-1, 2], np.float32)})[0].to_numpy(), [0, 2])
