"""The kernel in use: installed, discovered by mgx, and launched on the emulated device."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx


@pytest.fixture(autouse=True)
def emulated(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("MGX_GPU_DEVICE", "host:1")


def compiled(dims, dtype="float32", **attributes):
    """relu, the operation, and a doubling: a program with other ops before and after it."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape(dtype, dims)))
    y = m.add(mgx.op("leaky_sum", **attributes), x)
    m.add_return([m.add(mgx.op("add"), y, y)])
    program.compile(mgx.get_target("gpu"))
    return program


def definition(x, **attributes):
    return 2 * mgx.op("leaky_sum", **attributes).compute(np.maximum(x, 0))


def given(*dims):
    return np.random.default_rng(len(dims)).normal(size=dims).astype(np.float32)


def placement(program):
    (found,) = [p for p in program.executable.instances()[-1].placements if p.op.split("[")[0] == "leaky_sum"]
    return found


def test_the_kernel_runs_for_any_number_of_rows():
    program = compiled([mgx.dim.symbol("n", 1, 1000), 33], rate=0.8)
    for rows in (1, 7, 400):
        x = given(rows, 33)
        np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), definition(x, rate=0.8), rtol=1e-5, atol=1e-6)
        assert (placement(program).place, placement(program).kernel) == ("target", "leaky sum in HIP")


def test_other_types_go_to_the_definition_visibly():
    program = compiled([4, 5], "float64")
    x = given(4, 5).astype(np.float64)
    np.testing.assert_allclose(program.run({"x": x})[0].to_numpy(), definition(x), rtol=1e-12)
    assert placement(program).place == "host"
    assert "made for float32, got float64" in placement(program).refused[0]


def test_a_saved_program_runs(tmp_path):
    x = given(3, 8)
    program = compiled([3, 8])
    wanted = program.run({"x": x})[0].to_numpy()
    program.save(tmp_path / "leaky.mxr")
    np.testing.assert_array_equal(mgx.load(tmp_path / "leaky.mxr").run({"x": x})[0].to_numpy(), wanted)
