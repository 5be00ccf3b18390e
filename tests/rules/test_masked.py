"""Scatters at the nonzero elements of a mask: module text before and after, refusals, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.compile.stages import optimize_module
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.options import CompileOptions
from mgx_core.passes.rewrite import Rewrite
from mgx_core.rules.masked import MASKED

START = """\
  %x = @param["x"] -> float32[n, 3, 4]
  %y = @param["y"] -> float32[n, 3, 4]
  %m = @param["m"] -> bool[n, 3]
  %0 = nonzero(%m)
  %i = transpose[permutation=[1, 0]](%0)
"""
ONE_VALUE = f"""{START}\
  %dims = @param["dims"] -> int64[2]
  %v = @literal(7.0) -> float32[]
  %w = broadcast_with_dims(%v, %dims)
  %2 = scatternd_none(%x, %i, %w)
  @return(%2)"""
SAME_MASK = f"""{START}\
  %v = gathernd[batch_dims=0](%y, %i)
  %2 = scatternd_none(%x, %i, %v)
  @return(%2)"""

REFUSES = [
    (
        f"""{START}\
  %v = gathernd[batch_dims=0](%y, %i)
  %w = neg(%v)
  %2 = scatternd_none(%x, %i, %w)
  @return(%2)""",
        "the new elements are neither one value nor elements of a tensor at the same mask",
    ),
    (
        """\
  %x = @param["x"] -> float32[n, 3]
  %m = @param["m"] -> bool[4, 3]
  %0 = nonzero(%m)
  %i = transpose[permutation=[1, 0]](%0)
  %dims = @param["dims"] -> int64[1]
  %v = @literal(7.0) -> float32[]
  %w = broadcast_with_dims(%v, %dims)
  %2 = scatternd_none(%x, %i, %w)
  @return(%2)""",
        "the mask is not boolean, or has other extents than the tensor",
    ),
]

VECTOR = """\
  %x = @param["x"] -> float32[n, 4]
  %y = @param["y"] -> float32[n, 4]
  %m = @param["m"] -> bool[n]
  %0 = nonzero(%m)
  %i = transpose[permutation=[1, 0]](%0)
  %v = gathernd[batch_dims=0](%y, %i)
  %2 = scatternd_none(%x, %i, %v)
  @return(%2)"""


def test_turns(rule_turns):
    rule_turns(
        "scatter-at-mask",
        SAME_MASK,
        """\
  %x = @param["x"] -> float32[n, 3, 4]
  %y = @param["y"] -> float32[n, 3, 4]
  %m = @param["m"] -> bool[n, 3]
  %1 = unsqueeze[axes=[2]](%m) -> bool[n, 3, 1]
  %2 = multibroadcast[out_lens=[n, 3, 4]](%1) -> bool[n, 3, 4]
  %3 = where(%2, %y, %x) -> float32[n, 3, 4]
  @return(%3)""",
    )


@pytest.mark.parametrize(("before", "why"), REFUSES)
def test_refuses(rule_refuses, before, why):
    rule_refuses("scatter-at-mask", before, why)


@pytest.mark.parametrize("text", [ONE_VALUE, ONE_VALUE.replace("float32[]\n", "float32[1, 1]\n"), SAME_MASK])
def test_results_are_equal_and_extents_are_known(text):
    draw = np.random.default_rng(0)
    module = parse_module(f"symbol n\nmodule main\n{text}", STANDARD)
    x, y = draw.standard_normal((2, 5, 3, 4)).astype(np.float32)
    mask = draw.random((5, 3)) < 0.4
    args = [x, y, mask, np.array([mask.sum(), 4])][: len(module.parameters)]
    expected = x.copy()
    expected[mask] = 7 if "broadcast_with_dims" in text else y[mask]
    np.testing.assert_array_equal(Interpreter().run(module, args)[0], expected)
    optimize_module(module, CompileOptions())
    assert "nonzero" not in {i.op.name for i in module}
    np.testing.assert_array_equal(Interpreter().run(module, args)[0], expected)


def test_masks_of_one_axis_are_found_though_their_transpose_is_a_reshape():
    module = parse_module(f"symbol n\nmodule main\n{VECTOR}", STANDARD)
    x, y = np.random.default_rng(1).standard_normal((2, 5, 4)).astype(np.float32)
    mask = np.array([True, False, True, True, False])
    optimize_module(module, CompileOptions())
    assert "nonzero" not in {i.op.name for i in module}
    np.testing.assert_array_equal(Interpreter().run(module, [x, y, mask])[0], np.where(mask[:, None], y, x))


def test_a_scalar_mask_selects_the_first_element_only():
    """The elements of a scalar are numbered like those of a vector of one."""
    text = (
        ONE_VALUE.replace("float32[n, 3, 4]", "float32[3]")
        .replace("bool[n, 3]", "bool[]")
        .replace("int64[2]", "int64[1]")
    )
    module = parse_module(f"module main\n{text}", STANDARD)
    Rewrite(MASKED).apply(module)
    x = np.arange(3, dtype=np.float32)
    for mask in (True, False):
        found = Interpreter().run(module, [x, x, np.array(mask), np.array([int(mask)])])[0]
        np.testing.assert_array_equal(found, [7, 1, 2] if mask else x)
