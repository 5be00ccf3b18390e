"""Interpretation of modules with the reference implementations."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import MgxError, ShapeError
from mgx_core.ir.interpreter import Interpreter, as_array, evaluate_module, schedule
from mgx_core.ir.module import Module
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape


def read(text: str) -> Module:
    return parse_module(text, STANDARD)


SUM = """
    symbol n in 1..8
    module main
      %x = @param["x"] -> float32[n]
      %k = @literal(2.0) -> float32[1]
      %1 = multibroadcast[out_lens=[n]](%k)
      %2 = add(%x, %1)
      %3 = relu(%2)
      @return(%3, %x)"""


def test_symbols_get_their_values_from_the_arguments():
    x = np.float32([-5, 1, 2])
    got, same = evaluate_module(read(SUM), [x])
    assert got.tolist() == [0, 3, 4]
    assert same.value is x


def test_symbols_known_while_running():
    text = """
        symbol n?0 in 0..4
        module main
          %x = @param["x"] -> float32[4]
          %one = @literal(10) -> int64[1]
          %1 = nonzero(%x) -> int64[1, n?0]
          %2 = multibroadcast[out_lens=[1, n?0]](%one) -> int64[1, n?0]
          %3 = add(%1, %2) -> int64[1, n?0]
          @return(%3)"""
    for x in ([0, 1, 0, 2], [0, 0, 0, 0]):
        (got,) = evaluate_module(read(text), [np.float32(x)])
        np.testing.assert_array_equal(got.value, 10 + np.nonzero(x)[0][None])


def test_observers_see_every_instruction_in_order():
    seen = []
    Interpreter(lambda ins, value: seen.append((ins.name, value.shape))).run(read(SUM), [np.ones(2, np.float32)])
    assert seen == [("multibroadcast", (2,)), ("add", (2,)), ("relu", (2,))]


def test_values_die_after_their_last_use():
    module = read("""
        module main
          %x = @param["x"] -> float32[2]
          %1 = relu(%x)
          %2 = neg(%1)
          %3 = abs(%2)
          %4 = add(%1, %3)
          %dead = exp(%x)
          @return(%4)""")
    steps = {ins.name: [i.name for i in done] for ins, done in module.derive("schedule", schedule)}
    assert steps["neg"] == []
    assert steps["abs"] == ["neg"]
    assert sorted(steps["add"]) == ["abs", "relu"]
    assert "exp" in steps["exp"]


def test_values_captured_by_a_later_module_stay():
    module = read("""
        module main
          %c = @param["c"] -> bool[]
          %x = @param["x"] -> float32[2]
          %1 = relu(%x)
          %2 = neg(%1)
          %3 = if(%c){then, else}
          %4 = get_tuple_elem[index=0](%3)
          @return(%4)
        module then
          %5 = abs(%1)
          @return(%5)
        module else
          %6 = if(%c){deep, deeper}
          %7 = get_tuple_elem[index=0](%6)
          @return(%7)
        module deep
          @return(%1)
        module deeper
          %8 = add(%1, %2)
          @return(%8)""")
    x = np.float32([-1, 3])
    assert evaluate_module(module, [np.array(True), x])[0].tolist() == [0, 3]
    assert evaluate_module(module, [np.array(False), x])[0].tolist() == [0, 0]


def test_absent_results_are_none():
    module = Module()
    x = module.add_parameter("x", Shape("float", [1]))
    module.add_return([x, module.add_absent()])
    got = evaluate_module(module, [np.float32([1])])
    assert got[1].value is None


def test_errors_report_the_location():
    module = read("""
        module main
          %x = @param["x"] -> float32[3]
          %i = @param["i"] -> int64[1]
          %1 = gather[axis=0](%x, %i)  # node_7, layer/gather
          @return(%1)""")
    with pytest.raises(
        MgxError, match=r"node 'node_7', 'layer/gather': gather\[axis=0\]\(float32\[3\], int64\[1\]\): .*9"
    ):
        evaluate_module(module, [np.zeros(3, np.float32), np.int64([9])])
    with pytest.raises(ShapeError, match="module 'main' takes 2 values, got 1"):
        evaluate_module(module, [np.zeros(3, np.float32)])


def test_an_attribute_that_is_the_message_is_shown_once():
    module = read("""
        module main
          %x = @param["x"] -> float32[3]
          %c = @param["c"] -> bool[1]
          %1 = require[message="x is negative"](%x, %c)  # check
          @return(%1)""")
    with pytest.raises(MgxError, match=r"^node 'check': require\(float32\[3\], bool\[1\]\): x is negative$"):
        evaluate_module(module, [np.zeros(3, np.float32), np.array([False])])


def test_numpy_scalars_become_arrays():
    made = as_array(np.float32(3))
    assert isinstance(made, np.ndarray)
    assert made.shape == ()


@pytest.mark.parametrize("trips", [0, 2])
def test_rows_of_a_loop_without_trips_have_their_extents(trips: int) -> None:
    """The other extents of its rows were 0, and joining them with other rows failed."""
    module = mgx.Module("main")
    x = module.add_parameter("x", mgx.Shape("float32", [symbol("b")]))
    count = module.add_parameter("n", mgx.Shape("int64", []))
    body = mgx.Module("body")
    body.add_parameter("i", mgx.Shape("int64", []))
    going = body.add_parameter("going", mgx.Shape("bool", []))
    body.add_return([going, body.add(mgx.op("neg"), x)])
    rows = module.add(mgx.op("loop"), count, module.add_literal(np.bool_(True)), modules=[body])
    rows = module.add(mgx.op("get_tuple_elem", index=0), rows)
    first = module.add(mgx.op("unsqueeze", axes=(0,)), x)
    module.add_return([module.add(mgx.op("concat", axis=0), first, rows)])
    given = np.float32([1, 2, 3])
    (found,) = Interpreter().run(module, [given, np.int64(trips)])
    np.testing.assert_array_equal(found, [given, *[-given] * trips])
