"""Instruction orders with a lower memory peak: module text before and after, and orders that must not change."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.compile.order_for_memory import OrderForMemory
from mgx_core.compile.pipeline import Pipeline, Stage
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.targets.memory import plan_memory

BEFORE = """\
module main
  %x = @param["x"] -> float32[64, 64]
  %1 = exp(%x) -> float32[64, 64]
  %2 = tanh(%x) -> float32[64, 64]
  %3 = reduce_sum[axes=[0, 1], noop_with_empty_axes=false](%1) -> float32[1, 1]
  %4 = reduce_sum[axes=[0, 1], noop_with_empty_axes=false](%2) -> float32[1, 1]
  %5 = add(%3, %4) -> float32[1, 1]
  @return(%5)"""

AFTER = """\
module main
  %x = @param["x"] -> float32[64, 64]
  %1 = exp(%x) -> float32[64, 64]
  %2 = reduce_sum[axes=[0, 1], noop_with_empty_axes=false](%1) -> float32[1, 1]
  %3 = tanh(%x) -> float32[64, 64]
  %4 = reduce_sum[axes=[0, 1], noop_with_empty_axes=false](%3) -> float32[1, 1]
  %5 = add(%2, %4) -> float32[1, 1]
  @return(%5)"""


# the reduction to %5 allocates more than the addition does, but is the last to read %1
FREEING = """\
module main
  %x = @param["x"] -> float32[2, 64, 64]
  %y = @param["y"] -> float32[32, 64]
  %1 = exp(%x)
  %2 = reduce_max[axes=[1, 2]](%1)
  %3 = reduce_max[axes=[0]](%2)
  %4 = reshape[dims=[1]](%3)
  %s = multibroadcast[out_lens=[32, 64]](%4)
  %t = add(%y, %s)
  %5 = reduce_sum[axes=[0]](%1)
  %6 = reduce_sum[axes=[1, 2]](%5)
  %7 = reduce_sum[axes=[0, 1]](%t)
  @return(%6, %7)"""

# neither of the first two frees anything; %2 is smaller
SMALLER_FIRST = """\
module main
  %x = @param["x"] -> float32[64, 64]
  %y = @param["y"] -> float32[32, 64]
  %1 = exp(%x)
  %2 = tanh(%y)
  %3 = reduce_sum[axes=[0, 1]](%1)
  %4 = reduce_sum[axes=[0, 1]](%2)
  @return(%3, %4)"""


def ordered(text: str, most: int = 5000):
    module = parse_module(text, STANDARD)
    pipeline = Pipeline([Stage("plan", (OrderForMemory(most=most),))], validate=True)
    pipeline.run(module)
    (record,) = pipeline.records
    return module, record


def test_one_large_value_after_the_other(run_both):
    module, record = ordered(BEFORE)
    assert module.text() == AFTER
    assert record.changed
    old = parse_module(BEFORE, STANDARD)
    assert plan_memory(old).lower_bound == 2 * 64 * 64 * 4 + 64
    assert plan_memory(module).lower_bound == 64 * 64 * 4 + 2 * 64
    run_both(old, module, True)


@pytest.mark.parametrize(
    ("before", "names"),
    [
        (FREEING, ["exp", "reduce_max", "reduce_sum", "reduce_sum", "reduce_max", "add", "reduce_sum"]),
        (SMALLER_FIRST, ["tanh", "reduce_sum", "exp", "reduce_sum"]),
    ],
)
def test_the_instruction_that_adds_least_is_next(before, names):
    module, record = ordered(before)
    assert record.changed
    assert [i.op.name for i in module if not (i.is_param or i.is_return or i.op.view is not None)] == names


def test_longer_modules_are_not_reordered():
    assert ordered(BEFORE, most=5)[1].changed
    assert not ordered(BEFORE, most=4)[1].changed


def test_a_good_order_stays():
    module, record = ordered(AFTER)
    assert module.text() == AFTER
    assert not record.changed
    assert [c[:3] for c in record.rules] == [("order-for-memory", 0, 1)]


def test_extents_are_known_before_they_are_needed():
    module, record = ordered("""\
symbol n?0 in 0..12
module main
  %x = @param["x"] -> float32[64, 64]
  %1 = exp(%x) -> float32[64, 64]
  %2 = tanh(%x) -> float32[64, 64]
  %3 = reduce_sum[axes=[0, 1], noop_with_empty_axes=false](%1) -> float32[1, 1]
  %4 = reduce_sum[axes=[0, 1], noop_with_empty_axes=false](%2) -> float32[1, 1]
  %5 = add(%3, %4) -> float32[1, 1]
  %6 = relu(%5) -> float32[1, 1]
  %7 = nonzero(%6) -> int64[2, n?0]
  %8 = @literal(1.0) -> float32[1]
  %9 = multibroadcast[out_lens=[2, n?0]](%8) -> float32[2, n?0]
  @return(%9)""")
    assert record.changed
    at = {i.op.name: n for n, i in enumerate(module) if i.result.dynamic()}
    assert at["nonzero"] < at["multibroadcast"]


def test_the_option(tmp_path):
    program = mgx.parse_program(BEFORE)
    x = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64)
    peaks, results = [], []
    for aggressive in (False, True):
        program.compile(mgx.get_target("ref"), aggressive_memory=aggressive, optimize=False)
        results.append(np.asarray(program.run({"x": x})[0]))
        (instance,) = program.executable.instances()
        peaks.append(instance.plan.peak)
    assert peaks[1] < 0.6 * peaks[0]
    np.testing.assert_array_equal(*results)


def test_half_precision_is_an_option_too():
    program = mgx.parse_program(BEFORE)
    program.compile(mgx.get_target("ref"), use_fp16=True, optimize=False)
    kinds = {i.shape.dtype.name for i in program.executable.module if not (i.is_param or i.is_return)}
    assert "float16" in kinds
    assert program.get_main_module().text() == BEFORE
    (result,) = program.run({"x": np.zeros((64, 64), np.float32)})
    assert np.asarray(result).dtype == np.float32
