"""The few integers that decide extents, computed in Python."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter
from mgx_core.run.counting import counting
from mgx_core.types.dim import symbol


def body(decide: Any, value: Any = 0, kind: str = "int32", lens: tuple[int, ...] = ()) -> mgx.Module:
    """Returns a module: a number broadcast to the extents that `decide` computes from a parameter and an extent [1]."""
    m = mgx.Program().get_main_module()
    n = m.add_parameter("n", mgx.Shape(kind, list(lens)))
    x = m.add_parameter("x", mgx.Shape("float32", [2, symbol("past"), 4]))
    one = m.add(mgx.op("dimensions_of", start=1, end=2), x)
    m.add_return([m.add(mgx.op("broadcast_with_dims"), m.add_literal(np.asarray(value)), decide(m, n, one))])
    return m


def wide(m: Any, n: Any) -> Any:
    return m.add(mgx.op("reshape", dims=[1]), m.add(mgx.op("convert", target_type="int64"), n))


@pytest.mark.parametrize("name", ["add", "sub", "mul", "max", "min"])
def test_extents_are_those_of_the_interpreter(name: str) -> None:
    module = body(lambda m, n, one: m.add(mgx.op(name), wide(m, n), one), np.float32(2.5))
    count = counting(module)
    assert count is not None
    for n, past in ((7, 5), (5, 7), (300, 0), (4, 4)):
        args = [np.array(n, np.int32), np.zeros((2, past, 4), np.float32)]
        found = count(args)
        if name == "sub" and n < past:
            assert found is None
            continue
        (wanted,) = Interpreter().run(module, args)
        assert found is not None and found[0].dtype == wanted.dtype
        np.testing.assert_array_equal(found[0], wanted)


def test_several_extents() -> None:
    def decide(m: Any, n: Any, one: Any) -> Any:
        both = m.add(mgx.op("multibroadcast", out_lens=[2]), one)
        return m.add(mgx.op("add"), n, m.add(mgx.op("mul"), both, m.add_literal(np.array([2, 3]))))

    module = body(decide, 1, "int64", (2,))
    count = counting(module)
    assert count is not None
    (found,) = count([np.array([1, 2]), np.zeros((2, 5, 4), np.float32)]) or [None]
    assert found is not None and found.shape == (11, 17) and (found == 1).all()


@pytest.mark.parametrize("n", [-1, 1 << 40])
def test_extents_out_of_range_are_left_to_the_interpreter(n: int) -> None:
    count = counting(body(lambda m, n, one: n, 0, "int64", (1,)))
    assert count is not None and count([np.array([n]), np.zeros((2, 5, 4), np.float32)]) is None


def test_other_bodies_are_left_to_the_interpreter() -> None:
    assert counting(body(lambda m, n, one: m.add(mgx.op("div"), wide(m, n), one))) is None
    assert counting(body(lambda m, n, one: wide(m, n), np.zeros(3))) is None
    m = mgx.Program().get_main_module()
    x = m.add_parameter("x", mgx.Shape("int64", [3]))
    m.add_return([m.add(mgx.op("add"), x, x)])
    assert counting(m) is None
