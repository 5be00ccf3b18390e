"""Rewrites of single convolutions: module text before and after, refusals, and equal results."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mgx_core.compile.stages import optimize_module
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module
from mgx_core.ops import STANDARD
from mgx_core.ops.window import Moves
from mgx_core.options import CompileOptions
from mgx_core.types.shape import Shape

DEFAULT = 'group=1, padding_mode="default"'

TURNS = [
    (
        """\
  %x = @param["x"] -> float32[n, 1, 4]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0) -> float32[2, 1, 3]
  %1 = convolution[padding=[5], dilation=[5]](%x, %w)
  @return(%1)""",
        f"""\
  %x = @param["x"] -> float32[n, 1, 4]
  %1 = @literal(2.0, 5.0) -> float32[2, 1, 1]
  %2 = convolution[padding=[0, 0], stride=[], dilation=[5], {DEFAULT}](%x, %1) -> float32[n, 2, 4]
  @return(%2)""",
    ),
    (
        """\
  %x = @param["x"] -> float32[n, 1, 1, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0) -> float32[1, 1, 3, 3]
  %1 = convolution[stride=[2, 2], padding_mode="same_upper"](%x, %w)
  @return(%1)""",
        f"""\
  %x = @param["x"] -> float32[n, 1, 1, 2]
  %1 = @literal(4.0, 5.0) -> float32[1, 1, 1, 2]
  %2 = convolution[padding=[0, 0, 0, 0], stride=[2, 2], dilation=[], {DEFAULT}](%x, %1) -> float32[n, 1, 1, 1]
  @return(%2)""",
    ),
]

REFUSES = [
    (
        """\
  %x = @param["x"] -> float32[n, 1, 2]
  %w = @literal(1.0, 2.0) -> float32[1, 1, 2]
  %1 = convolution[padding=[3], dilation=[7]](%x, %w)
  @return(%1)""",
        "no tap meets the image, or the padding would be negative",
    )
]


PATCHES = """\
  %x = @param["x"] -> float32[n, 2, 4, 7]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 11.0, 12.0) -> float32[6, 1, 1, 2]
  %1 = convolution[stride=[1, 2], group=2](%x, %w)
  @return(%1)"""


def test_patches_of_groups_are_multiplied(rule_turns):
    rule_turns(
        "windows-side-by-side",
        PATCHES,
        """\
  %x = @param["x"] -> float32[n, 2, 4, 7]
  %1 = slice[axes=[3], starts=[0], ends=[6], steps=[]](%x) -> float32[n, 2, 4, 6]
  %2 = reshape[dims=[n, 2, 1, 4, 1, 3, 2], allowzero=false](%1) -> float32[n, 2, 1, 4, 1, 3, 2]
  %3 = transpose[permutation=[0, 1, 3, 5, 2, 4, 6]](%2) -> float32[n, 2, 4, 3, 1, 1, 2]
  %4 = reshape[dims=[n, 2, 12, 2], allowzero=false](%3) -> float32[n, 2, 12, 2]
  %5 = @literal(1.0, 3.0, 5.0, 2.0, 4.0, 6.0, 7.0, 9.0, 11.0, 8.0, 10.0, 12.0) -> float32[2, 2, 3]
  %6 = multibroadcast[out_lens=[n, 2, 2, 3]](%5) -> float32[n, 2, 2, 3]
  %7 = dot(%4, %6) -> float32[n, 2, 12, 3]
  %8 = transpose[permutation=[0, 1, 3, 2]](%7) -> float32[n, 2, 3, 12]
  %9 = reshape[dims=[n, 6, 4, 3], allowzero=false](%8) -> float32[n, 6, 4, 3]
  @return(%9)""",
    )


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("stride=[1, 2]", "stride=[1, 1]", "the windows overlap, or have gaps or padding"),
        ("stride=[1, 2]", "stride=[1, 2], padding=[0, 1]", "the windows overlap, or have gaps or padding"),
        ("4, 7]", "n, 7]", "extents of images and weights are known only at run time"),
        ("6, 1, 1, 2]", "4, 1, 1, 3]", "windows have more inputs (3) than outputs (2)"),
    ],
)
def test_other_windows_of_groups_stay(rule_refuses, old, new, why):
    before = PATCHES.replace(old, new)
    rule_refuses(
        "windows-side-by-side", before.replace("stride=[1, 2]", "stride=[1, 3]") if "1, 3]" in new else before, why
    )


@pytest.mark.parametrize(("before", "after"), TURNS)
def test_turns(rule_turns, before, after):
    rule_turns("taps-in-padding", before, after)


@pytest.mark.parametrize(("before", "why"), REFUSES)
def test_refuses(rule_refuses, before, why):
    rule_refuses("taps-in-padding", before, why)


def test_taps_that_meet_the_image_are_found_for_all_small_windows():
    """Whatever the window: as many positions as before, the same sums, and no tap less than meet the image."""
    fewer = 0
    for n, k, s, d, b, e in itertools.product((1, 2, 3, 5), (1, 2, 3, 4), (1, 2, 3), (1, 2, 4), (0, 1, 3), (0, 2, 5)):
        if n + b + e < (k - 1) * d + 1:
            continue
        moves = Moves((s,), (d,), (b,), (e,))
        (count,) = moves.counts([n], [k])
        met = [j for j in range(k) if any(0 <= t * s + j * d - b < n for t in range(count))]
        found = moves.meeting([n], [k])
        if found is None:
            continue
        made, [(first, end)] = found
        assert made.counts([n], [end - first]) == [count]
        assert made.begins[0] == b - first * d
        assert set(met) <= set(range(first, end))
        fewer += end - first < k
    assert fewer > 100


@pytest.mark.parametrize("dtype", ["float32", "int8"])
def test_results_are_equal(dtype):
    draw = np.random.default_rng(3)
    main = Module()
    x = main.add_parameter("x", Shape(dtype, [2, 4, 3, 5]))
    w = draw.integers(-9, 9, (6, 2, 3, 3)).astype(dtype)
    name = "convolution" if dtype == "float32" else "quant_convolution"
    zeros = [] if dtype == "float32" else [main.add_literal(np.int8(3)), main.add_literal(np.arange(6, dtype=np.int8))]
    op = STANDARD.make(name, group=2, padding=[4, 3, 4, 3], dilation=[4, 3], stride=[1, 2])
    main.add_return([main.add(op, x, main.add_literal(w), *zeros)])
    value = draw.integers(-9, 9, (2, 4, 3, 5)).astype(dtype)
    expected = Interpreter().run(main, [value])[0]
    optimize_module(main, CompileOptions())
    (made,) = (i for i in main if i.op.name == name)
    assert made.inputs[1].shape.dims == (6, 2, 1, 3)
    np.testing.assert_array_equal(Interpreter().run(main, [value])[0], expected)
