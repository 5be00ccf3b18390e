"""Each kernel in use: installed, discovered by mgx, and run by the cpu target's executor."""

from __future__ import annotations

import threading

import example_mgx_cpu_kernels.kernels as kernels
import numpy as np
import pytest

import mgx_core as mgx


def compiled(name, dims, dtype="float32", **attributes):
    """relu, the operation, and a doubling: a program with other ops before and after it."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add(mgx.op("relu"), m.add_parameter("x", mgx.Shape(dtype, dims)))
    y = m.add(mgx.op(name, **attributes), x)
    m.add_return([m.add(mgx.op("add"), y, y)])
    program.compile(mgx.get_target("cpu"))
    return program


def definition(name, x, **attributes):
    return 2 * mgx.op(name, **attributes).compute(np.maximum(x, 0))


def given(*dims):
    return np.random.default_rng(len(dims)).normal(size=dims).astype(np.float32)


def placement(program, name):
    (found,) = [p for p in program.executable.instances()[-1].placements if p.op.split("[")[0] == name]
    return found


def steps(program):
    return [s.name for s in program.executable.instances()[-1].plan.steps]


def hosted(program):
    """Returns the kernels that run on the host."""
    return [s.kernel for s in program.executable.instances()[-1].plan.steps if s.host]


def test_a_scalar_expression_is_part_of_one_loop():
    x = given(3, 50)
    program = compiled("bent_identity", [3, 50])
    np.testing.assert_allclose(program.run({"x": x})[0], definition("bent_identity", x), rtol=1e-6)
    assert len(steps(program)) == 1
    assert all(p.place == "target" for p in program.executable.instances()[0].placements)


@pytest.mark.parametrize("rows", [1, 7, 400])
def test_a_c_function(rows):
    x = given(rows, 33)
    program = compiled("decay", [mgx.dim.symbol("n", 1, 1000), 33], rate=0.8)
    np.testing.assert_allclose(program.run({"x": x})[0], definition("decay", x, rate=0.8), rtol=1e-5, atol=1e-6)
    assert (placement(program, "decay").place, placement(program, "decay").kernel) == ("target", "decay in C")
    assert hosted(program) == []


def test_a_c_function_from_many_threads():
    program = compiled("decay", [64, 100])
    failures = []

    def work(number):
        x = given(64, 100) * (number + 1)
        wanted = definition("decay", x)
        failures.extend(number for _ in range(20) if not np.allclose(program.run({"x": x})[0], wanted, atol=1e-5))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failures == []


def test_other_types_go_to_the_definition_visibly():
    program = compiled("decay", [4, 5], "float64")
    x = given(4, 5).astype(np.float64)
    np.testing.assert_allclose(program.run({"x": x})[0], definition("decay", x), rtol=1e-12)
    found = placement(program, "decay")
    assert found.place == "host"
    assert "made for float32, got float64" in found.refused[0]


def test_without_a_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("MGX_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(kernels.shutil, "which", lambda name: None)
    monkeypatch.delenv("CC", raising=False)
    kernels.library.cache_clear()
    try:
        assert "needs a C compiler" in placement(compiled("decay", [4, 5]), "decay").refused[0]
    finally:
        kernels.library.cache_clear()


def test_a_numpy_function():
    x = given(6, 20)
    program = compiled("sort_rows", [6, 20])
    np.testing.assert_array_equal(program.run({"x": x})[0], definition("sort_rows", x))
    assert hosted(program) == ["sort by numpy"]
    assert placement(program, "sort_rows").refused == ("it is a Python function",)
