"""Sums of convolutions of one tensor: module text before and after, refusals, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.compile.stages import optimize_module
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.module import Module, nested
from mgx_core.ops import STANDARD
from mgx_core.options import CompileOptions
from mgx_core.types.shape import Shape

DEFAULT = 'group=1, padding_mode="default"'

TURNS = [
    (
        """\
  %x = @param["x"] -> float32[n, 1, 4]
  %w = @literal(1.0, 2.0, 3.0, 4.0, 5.0, 6.0) -> float32[2, 1, 3]
  %v = @literal(10.0, 20.0) -> float32[2, 1, 1]
  %1 = convolution[padding=[1]](%x, %w)
  %2 = convolution(%x, %v)
  %3 = add(%2, %1)
  @return(%3)""",
        f"""\
  %x = @param["x"] -> float32[n, 1, 4]
  %1 = @literal(1.0, 12.0, 3.0, 4.0, 25.0, 6.0) -> float32[2, 1, 3]
  %2 = convolution[padding=[1], stride=[], dilation=[], {DEFAULT}](%x, %1) -> float32[n, 2, 4]
  @return(%2)""",
    ),
    (
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %y = @param["y"] -> float32[1, 2, 3]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1]
  %s = @literal(10.0, 20.0) -> float32[2, 1]
  %b = broadcast[axis=1, out_lens=[1, 2, 3]](%s)
  %1 = convolution(%x, %w)
  %2 = mul(%x, %b)
  %3 = add(%2, %y)
  %4 = sub(%3, %1)
  @return(%4)""",
        f"""\
  %x = @param["x"] -> float32[1, 2, 3]
  %y = @param["y"] -> float32[1, 2, 3]
  %1 = @literal(9.0, -2.0, -3.0, 16.0) -> float32[2, 2, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], {DEFAULT}](%x, %1) -> float32[1, 2, 3]
  %3 = add(%2, %y) -> float32[1, 2, 3]
  @return(%3)""",
    ),
]

REFUSES = [
    (
        """\
  %x = @param["x"] -> float32[1, 1, 3]
  %w = @literal(1.0, 2.0, 3.0) -> float32[1, 1, 3]
  %v = @literal(1.0, 2.0) -> float32[1, 1, 2]
  %1 = convolution[padding=[2], dilation=[2]](%x, %w)
  %2 = convolution[padding=[1, 0]](%x, %v)
  %3 = add(%1, %2)
  @return(%3)""",
        "strides, groups or positions of the windows differ",
    ),
    (
        """\
  %x = @param["x"] -> float32[1, 1, 3]
  %w = @literal(1.0) -> float32[1, 1, 1]
  %v = @literal(2.0) -> float32[1, 1, 1]
  %1 = convolution(%x, %w)
  %2 = convolution(%x, %v)
  %3 = add(%1, %2)
  @return(%3, %2)""",
        "a branch has other users",
    ),
    (
        """\
  %x = @param["x"] -> float32[1, 1, 3]
  %w = @literal(3.0e38) -> float32[1, 1, 1]
  %v = @literal(2.0e38) -> float32[1, 1, 1]
  %1 = convolution(%x, %w)
  %2 = convolution(%x, %v)
  %3 = add(%1, %2)
  @return(%3)""",
        "the weights would overflow",
    ),
]


@pytest.mark.parametrize(("before", "after"), TURNS)
def test_turns(rule_turns, before, after):
    rule_turns("sum-of-convolutions-of-one-tensor", before, after)


@pytest.mark.parametrize(("before", "why"), REFUSES)
def test_refuses(rule_refuses, before, why):
    rule_refuses("sum-of-convolutions-of-one-tensor", before, why)


def branch(main: Module, x, draw: np.random.Generator, group: int, stride: int, length: int, dilation: int):
    """A convolution with 6 output channels, centered windows and a bias."""
    w = draw.standard_normal((6, 6 // group, length, length)).astype(np.float32)
    around = dilation * (length - 1) // 2
    op = STANDARD.make(
        "convolution", group=group, stride=(stride, stride), dilation=(dilation, dilation), padding=(around, around)
    )
    made = main.add(op, x, main.add_literal(w))
    bias = main.add_literal(draw.standard_normal((6, 1, 1)).astype(np.float32))
    return main.add(
        STANDARD.make("add"), made, main.add(STANDARD.make("multibroadcast", out_lens=made.shape.dims), bias)
    )


@pytest.mark.parametrize("windows", [((1, 1), (3, 1), (3, 1)), ((5, 1), (3, 2), (1, 1)), ((3, 3), (7, 1), (1, 4))])
@pytest.mark.parametrize(("group", "stride"), [(1, 1), (6, 1), (2, 2), (6, 2)])
def test_branches_of_a_network_in_training_are_one_convolution(windows, group, stride):
    draw = np.random.default_rng(group + stride)
    main = Module()
    x = main.add_parameter("x", Shape("float", [2, 6, 9, 8]))
    total = branch(main, x, draw, group, stride, *windows[0])
    for n, window in enumerate(windows[1:]):
        total = main.add(STANDARD.make("sub" if n else "add"), total, branch(main, x, draw, group, stride, *window))
    if stride == 1:
        factors = main.add_literal(np.linspace(-2, 2, 6, dtype=np.float32).reshape(6, 1, 1))
        total = main.add(
            STANDARD.make("sub"),
            total,
            main.add(
                STANDARD.make("mul"), main.add(STANDARD.make("multibroadcast", out_lens=x.shape.dims), factors), x
            ),
        )
    main.add_return([total])
    value = draw.standard_normal((2, 6, 9, 8)).astype(np.float32)
    expected = Interpreter().run(main, [value])[0]
    optimize_module(main, CompileOptions())
    names = [i.op.name for m in (main, *nested(main)) for i in m]
    assert names.count("convolution") == 1
    assert "sub" not in names
    got = Interpreter().run(main, [value])[0]
    np.testing.assert_allclose(np.asarray(got), np.asarray(expected), rtol=0, atol=1e-4)
