"""Rules that move slices before products: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx

TURNS = [
    (
        "slice-of-windows",
        """\
  %x = @param["x"] -> float32[1, 2, n, 9]
  %w = @param["w"] -> float32[2, 1, 4, 3]
  %1 = convolution[padding=[3, 1], stride=[1, 2], group=2](%x, %w)
  %2 = slice[axes=[2, 3], starts=[0, 0], ends=[n, 5]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, n, 9]
  %w = @param["w"] -> float32[2, 1, 4, 3]
  %1 = convolution[padding=[3, 1, 0, 1], stride=[1, 2], dilation=[], group=2, padding_mode="default"](%x, %w) -> float32[1, 2, n, 5]
  @return(%1)""",
    ),
    (
        "slice-of-windows",
        """\
  %x = @param["x"] -> float32[2, 2, 9]
  %w = @param["w"] -> float32[3, 2, 3]
  %1 = convolution[padding=[5, 4], stride=[2], dilation=[2]](%x, %w)
  %2 = slice[axes=[2], starts=[1], ends=[6]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 2, 9]
  %w = @param["w"] -> float32[3, 2, 3]
  %1 = convolution[padding=[3, 2], stride=[2], dilation=[2], group=1, padding_mode="default"](%x, %w) -> float32[2, 3, 5]
  @return(%1)""",
    ),
    (
        "slice-before-epilogue",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %w = @param["w"] -> float32[2, 1, 3]
  %c = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0) -> float32[7]
  %d = multibroadcast[out_lens=[1, 2, 7]](%c)
  %1 = convolution[padding=[2], group=2](%x, %w)
  %2 = add(%1, %d)
  %3 = slice[axes=[2], starts=[0], ends=[5]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %w = @param["w"] -> float32[2, 1, 3]
  %1 = convolution[padding=[2], stride=[], dilation=[], group=2, padding_mode="default"](%x, %w) -> float32[1, 2, 7]
  %2 = slice[axes=[2], starts=[0], ends=[5], steps=[]](%1) -> float32[1, 2, 5]
  %3 = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 1.0, 2.0, 3.0, 4.0, 5.0) -> float32[1, 2, 5]
  %4 = add(%2, %3) -> float32[1, 2, 5]
  @return(%4)""",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %1 = dot(%x, %y)
  %2 = slice[axes=[1], starts=[1], ends=[3]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %1 = slice[axes=[1], starts=[1], ends=[3], steps=[]](%y) -> float32[2, 2]
  %2 = dot(%x, %1) -> float32[3, 2]
  @return(%2)""",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0) -> float32[3, 2, 1, 1]
  %1 = convolution(%x, %w)
  %2 = slice[axes=[1], starts=[1], ends=[2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %1 = @literal(3.0, 4.0) -> float32[1, 2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float32[1, 1, 2, 2]
  @return(%2)""",
    ),
    (
        "slice-before-epilogue",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %c = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %b = multibroadcast[out_lens=[3, 4]](%c)
  %1 = dot(%x, %y)
  %2 = add(%1, %b)
  %3 = slice[axes=[1], starts=[1], ends=[3]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %1 = dot(%x, %y) -> float32[3, 4]
  %2 = slice[axes=[1], starts=[1], ends=[3], steps=[]](%1) -> float32[3, 2]
  %3 = @literal(2.0, 3.0, 2.0, 3.0, 2.0, 3.0) -> float32[3, 2]
  %4 = add(%2, %3) -> float32[3, 2]
  @return(%4)""",
    ),
    (  # a constant that another slice has already cut is also one
        "slice-before-epilogue",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 1]
  %c = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4, 1]
  %b = slice[axes=[0], starts=[1], ends=[4]](%c)
  %1 = dot(%x, %y)
  %2 = add(%1, %b)
  %3 = slice[axes=[0], starts=[0], ends=[2]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 1]
  %1 = dot(%x, %y) -> float32[3, 1]
  %2 = slice[axes=[0], starts=[0], ends=[2], steps=[]](%1) -> float32[2, 1]
  %3 = @literal(2.0, 3.0) -> float32[2, 1]
  %4 = add(%2, %3) -> float32[2, 1]
  @return(%4)""",
    ),
    (
        "slice-of-repeated",
        """\
  %x = @param["x"] -> float32[1, 4]
  %1 = multibroadcast[out_lens=[3, 2, 4]](%x)
  %2 = slice[axes=[0, 2], starts=[1, 1], ends=[2, 4], steps=[1, 2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 4]
  %1 = slice[axes=[1], starts=[1], ends=[4], steps=[2]](%x) -> float32[1, 2]
  %2 = multibroadcast[out_lens=[1, 2, 2]](%1) -> float32[1, 2, 2]
  @return(%2)""",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> int8[4, 2]
  %y = @param["y"] -> int8[3, 2, 5]
  %1 = quant_dot(%x, %y)
  %2 = slice[axes=[1], starts=[1], ends=[3]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> int8[4, 2]
  %y = @param["y"] -> int8[3, 2, 5]
  %1 = slice[axes=[0], starts=[1], ends=[3], steps=[]](%x) -> int8[2, 2]
  %2 = quant_dot(%1, %y) -> int32[3, 2, 5]
  @return(%2)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "slice-of-windows",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %w = @param["w"] -> float32[2, 2, 3]
  %1 = convolution[padding=[1]](%x, %w)
  %2 = slice[axes=[2], starts=[0], ends=[3]](%1)
  @return(%2)""",
        "the slice leaves out more than windows that begin or end in the padding",
    ),
    (
        "slice-of-windows",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %w = @param["w"] -> float32[2, 2, 3]
  %1 = convolution[padding=[1]](%x, %w)
  %2 = slice[axes=[2], starts=[0], ends=[5], steps=[2]](%1)
  @return(%2)""",
        "the slice has steps, or its ends are not known from those of the convolution",
    ),
    (
        "slice-of-windows",
        """\
  %x = @param["x"] -> float32[1, 2, 5]
  %w = @param["w"] -> float32[2, 2, 3]
  %1 = convolution[padding=[1]](%x, %w)
  %2 = slice[axes=[2], starts=[0], ends=[4]](%1)
  @return(%2, %1)""",
        "the whole result has other users",
    ),
    (
        "slice-of-product",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %1 = dot(%x, %y)
  %2 = slice[axes=[1], starts=[1], ends=[3]](%1)
  @return(%1, %2)""",
        "the whole product or other parts have users",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)


def test_no_slice_stays_after_ops_that_another_slice_has_passed():
    """Of two consecutive slices, the first is moved before the product first, then the second."""
    text = """\
module main
  %x = @param["x"] -> float32[3, 4]
  %y = @param["y"] -> float32[4, 1]
  %c = @literal(1.0, 2.0, 3.0) -> float32[3, 1]
  %h = @literal(0.5) -> float32[]
  %b = multibroadcast[out_lens=[3, 1]](%h)
  %1 = dot(%x, %y)
  %2 = mul(%1, %b)
  %3 = add(%2, %c)
  %4 = slice[axes=[0], starts=[1], ends=[3]](%3)
  %5 = step[axes=[0], steps=[3]](%4)
  @return(%5)
"""
    program = mgx.parse_program(text)
    x, y = np.arange(12, dtype=np.float32).reshape(3, 4), np.ones((4, 1), np.float32)
    program.compile(mgx.get_target("ref"), validate=True)  # raises unless the rules have reached a fixed point
    np.testing.assert_array_equal(program.run({"x": x, "y": y})[0], [[13.0]])
