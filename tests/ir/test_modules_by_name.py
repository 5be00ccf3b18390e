"""Modules are found, renamed and dropped by name; valid instruction orders; interpretation without execution."""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import ParameterError
from mgx_core.ir.verify import misplaced


def branching() -> mgx.Program:
    program = mgx.Program()
    main = program.get_main_module()
    cond, x = main.add_parameter("cond", mgx.Shape("bool", [])), main.add_parameter("x", mgx.Shape("float", [3]))
    modules = []
    for name in ("abs", "neg"):
        module = program.create_module(name)
        module.add_return([module.add(mgx.op(name), x)])
        modules.append(module)
    chosen = main.add(mgx.op("if"), cond, modules=modules)
    main.add_return([main.add(mgx.op("get_tuple_elem", index=0), chosen), main.add(mgx.op("exp"), x)])
    return program


def test_names() -> None:
    program = branching()
    program.create_module("spare")
    assert program.get_module("neg").name == "neg"
    program.rename_module("neg", "minus")
    program.rename_module("spare", "other")
    assert list(program.graph.modules()) == ["main", "abs", "minus", "other"]
    program.remove_module("other")
    assert list(program.graph.modules()) == ["main", "abs", "minus"]
    for wrong, why in (
        (lambda: program.get_module("neg"), "there is no module 'neg'"),
        (lambda: program.rename_module("main", "m"), "keeps its name"),
        (lambda: program.rename_module("abs", "minus"), "there is a module 'minus' already"),
        (lambda: program.remove_module("abs"), "is run by an instruction"),
        (lambda: program.remove_module("main"), "is run by the program"),
    ):
        with pytest.raises(ParameterError, match=why):
            wrong()


def test_copies_keep_modules_that_nothing_runs_yet() -> None:
    program = branching()
    main, spare = program.get_main_module(), program.create_module("spare")
    spare.add_return([spare.add(mgx.op("exp"), main.parameters["x"])])  # reads a value of main
    for copy in (program.clone(), deepcopy(program)):
        assert list(copy.graph.modules()) == ["main", "abs", "neg", "spare"]
        inner = copy.get_module("spare")
        assert inner is not spare
        inside = copy.get_main_module()
        assert next(iter(inner)).inputs == (inside.parameters["x"],)
        copy.remove_module("spare")
    assert list(program.graph.modules()) == ["main", "abs", "neg", "spare"]


def test_random_orders_compute_the_same() -> None:
    program = branching()
    x = np.array([1, -2, 3], np.float32)
    orders = set()
    for seed in range(8):
        program.get_main_module().shuffle(seed)
        assert misplaced(program.get_main_module()) is None
        orders.add(tuple(i.name for i in program.get_main_module()))
        program.compile(mgx.get_target("ref"))
        got = program.run({"cond": np.array(False), "x": x})
        np.testing.assert_array_equal(got[0].to_numpy(), -x)
        np.testing.assert_allclose(got[1].to_numpy(), np.exp(x), rtol=1e-6)
    assert len(orders) > 1


def test_dry_runs() -> None:
    program = mgx.Program()
    main = program.get_main_module()
    shape = mgx.Shape("float", dyn_dims=[mgx.DynamicDimension(1, 8), mgx.DynamicDimension(2, 2)])
    main.add_return([main.add(mgx.op("exp"), main.add_parameter("x", shape))])
    program.compile(mgx.get_target("ref"))
    assert program.dry_run({"x": np.ones((3, 2), np.float32)}) == [mgx.Shape("float", [3, 2])]
    assert len(program.executable.instances()) == 1
    with pytest.raises(ParameterError, match="must be float32"):
        program.dry_run({"x": np.ones((3, 3), np.float32)})
