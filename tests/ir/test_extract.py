"""Extraction of a range of instructions as a module."""

from __future__ import annotations

import numpy as np

import mgx_core as mgx
from mgx_core.ir.extract import extract
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module


def test_values_read_become_parameters_and_literals_stay():
    module = Module()
    x, y = (module.add_parameter(n, mgx.Shape("float32", [2])) for n in "xy")
    two = module.add_literal(np.full(2, 2, np.float32))
    first = module.add(mgx.op("add"), x, two, sources=["a"])
    second = module.add(mgx.op("mul"), first, y, sources=["b"])
    module.add_return([module.add(mgx.op("neg"), second), y])
    made, taken = extract([first, second], [second, y], "part")
    assert taken == [x, y]
    assert sorted(i.name for i in made) == ["@literal", "@param", "@param", "@return", "add", "mul"]
    assert [i.sources for i in made if i.name in ("add", "mul")] == [("a",), ("b",)]
    given = np.array([1, 2], np.float32), np.array([3, 4], np.float32)
    found = Interpreter().run(made, given)
    np.testing.assert_array_equal(found[0], [9, 16])
    np.testing.assert_array_equal(found[1], given[1])


def test_modules_read_the_copies():
    module = Module()
    c = module.add_parameter("c", mgx.Shape("bool", []))
    x = module.add_parameter("x", mgx.Shape("float32", [2]))
    inner = module.add(mgx.op("neg"), x)
    then, other = Module("then"), Module("other")
    then.add_return([then.add(mgx.op("exp"), inner)])
    other.add_return([other.add(mgx.op("abs"), x)])
    branch = module.add(mgx.op("if"), c, modules=[then, other])
    item = module.add(mgx.op("get_tuple_elem", index=0), branch)
    module.add_return([item])
    made, taken = extract([inner, branch, item], [item], "part")
    assert set(taken) == {c, x}
    values = {c: np.bool_(True), x: np.array([1, -2], np.float32)}
    (found,) = Interpreter().run(made, [values[t] for t in taken])
    np.testing.assert_allclose(found, np.exp([-1, 2]), rtol=1e-6)
