"""The target in use: found by name, asked for plans, compared with the reference implementations."""

from __future__ import annotations

import json
import subprocess
import sys

import numpy as np
import pytest

import mgx_core as mgx


def program_of(build, dtype="float32", **shapes):
    """Returns a program whose parameters have these extents and whose result `build` creates."""
    program = mgx.Program()
    main = program.get_main_module()
    parameters = [main.add_parameter(name, mgx.Shape(dtype, dims)) for name, dims in shapes.items()]
    main.add_return([build(main.add, *parameters)])
    return program


def placements(program):
    (instance,) = program.executable.instances()
    return [(p.op, p.place, p.kernel) for p in instance.placements], instance.placements


def test_installed_and_never_the_default():
    assert mgx.get_target("tiny").name == "tiny"
    assert mgx.best_target() != "tiny"


def test_own_kernels():
    program = program_of(lambda add, a, b, c: add(mgx.op("tanh"), add(mgx.op("add"), add(mgx.op("dot"), a, b), c)),
                         a=[2, 3], b=[3, 4], c=[2, 4])  # fmt: skip
    program.compile(mgx.get_target("tiny"))
    placed, _ = placements(program)
    assert [p[1:] for p in placed] == [
        ("target", "tiny matrix product"),
        ("target", "tiny add"),
        ("target", "tiny tanh"),
    ]
    values = {n: mgx.generate_argument(s) for n, s in program.get_parameter_shapes().items()}
    a, b, c = (values[n].to_numpy().astype(np.float64) for n in "abc")
    np.testing.assert_allclose(program.run(values)[0], np.tanh(a @ b + c), rtol=1e-5)


def test_second_plan_when_the_first_declines():
    program = program_of(lambda add, a, b: add(mgx.op("dot"), a, b), a=[2, 3, 4], b=[2, 4, 5])
    program.compile(mgx.get_target("tiny"))
    (placed,), (record,) = placements(program)
    assert placed[2] == "tiny batched product"
    assert record.refused == ("matrix: matrices only, got ranks 3 and 3",)


@pytest.mark.parametrize(
    ("op", "dtype", "dims", "reason"),
    [
        ("exp", "float32", [2, 2], "no plan is offered"),
        ("tanh", "float64", [2, 2], "elementwise: made for float32, got float64"),
        ("dot", "float32", [1, 2, 2, 2], "up to rank 3"),
    ],
)
def test_the_rest_runs_on_the_host_visibly(op, dtype, dims, reason):
    names = "xy" if op == "dot" else "x"
    program = program_of(lambda add, *xs: add(mgx.op(op), *xs), dtype, **dict.fromkeys(names, dims))
    program.compile(mgx.get_target("tiny"))
    (placed,), (record,) = placements(program)
    assert placed == (op, "host", f"reference {op}")
    assert reason in record.refused[0]
    values = {n: mgx.generate_argument(s) for n, s in program.get_parameter_shapes().items()}
    arrays = [v.to_numpy() for v in values.values()]
    np.testing.assert_array_equal(program.run(values)[0], mgx.op(op).compute(*arrays))


def test_driver_reports_and_verifies():
    run = [sys.executable, "-m", "mgx_core"]
    text = subprocess.run(
        [*run, "compile", "--test", "--target", "tiny", "--json"], capture_output=True, text=True, check=True
    )
    assert json.loads(text.stdout)["kernels"] == [{"op": "dot", "kernel": "tiny matrix product", "place": "target"}]
    subprocess.run([*run, "verify", "--test", "--target", "tiny", "--bisect"], check=True)
