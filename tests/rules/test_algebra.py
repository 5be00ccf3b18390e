"""Rules on products: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.types.dim import fresh

TURNS = [
    (
        "factor-into-convolution",
        """\
  %x = @param["x"] -> bfloat16[1, 1, 2]
  %w = @literal(1.5, 2.0) -> bfloat16[2, 1, 1]
  %s = @literal(0.25, 4.0) -> bfloat16[2, 1]
  %m = multibroadcast[out_lens=[1, 2, 2]](%s)
  %1 = convolution(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        """\
  %x = @param["x"] -> bfloat16[1, 1, 2]
  %1 = @literal(0.375, 8.0) -> bfloat16[2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> bfloat16[1, 2, 2]
  @return(%2)""",
    ),
    (
        "factor-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1, 1]
  %s = @literal(10.0, 100.0) -> float32[2]
  %m = broadcast[axis=1, out_lens=[1, 2, 2, 2]](%s)
  %1 = convolution(%x, %w)
  %2 = mul(%m, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %1 = @literal(10.0, 20.0, 300.0, 400.0) -> float32[2, 2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float32[1, 2, 2, 2]
  @return(%2)""",
    ),
    (  # products would be subnormal: what the factors have in common stays a scalar
        "factor-into-convolution",
        """\
  %x = @param["x"] -> float16[1, 1, 2]
  %w = @literal(0.5, 1.0) -> float16[2, 1, 1]
  %s = @literal(2.288818359375e-05, 1.52587890625e-05) -> float16[2, 1]
  %m = multibroadcast[out_lens=[1, 2, 2]](%s)
  %1 = convolution(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        """\
  %x = @param["x"] -> float16[1, 1, 2]
  %1 = @literal(0.375, 0.5) -> float16[2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float16[1, 2, 2]
  %3 = @literal(3.0517578125e-05) -> float16[]
  %4 = multibroadcast[out_lens=[1, 2, 2]](%3) -> float16[1, 2, 2]
  %5 = mul(%2, %4) -> float16[1, 2, 2]
  @return(%5)""",
    ),
    (
        "input-factor-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 4, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1, 1]
  %s = @literal(1.0, 10.0, 100.0, 1000.0) -> float32[4, 1, 1]
  %m = multibroadcast[out_lens=[1, 4, 2, 2]](%s)
  %1 = mul(%x, %m)
  %2 = convolution[padding=[1, 1], group=2](%1, %w)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 4, 2, 2]
  %1 = @literal(1.0, 20.0, 300.0, 4000.0) -> float32[2, 2, 1, 1]
  %2 = convolution[padding=[1, 1], stride=[], dilation=[], group=2, padding_mode="default"](%x, %1) -> float32[1, 2, 4, 4]
  @return(%2)""",
    ),
    (
        "input-term-out-of-convolution",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1, 1]
  %s = @literal(10.0, 100.0) -> float32[2, 1, 1]
  %m = multibroadcast[out_lens=[1, 2, 2, 2]](%s)
  %1 = add(%x, %m)
  %2 = convolution(%1, %w)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %1 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float32[1, 2, 2, 2]
  %3 = @literal(210.0, 430.0) -> float32[2, 1, 1]
  %4 = multibroadcast[out_lens=[1, 2, 2, 2]](%3) -> float32[1, 2, 2, 2]
  %5 = add(%2, %4) -> float32[1, 2, 2, 2]
  @return(%5)""",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> float16[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float16[2, 2, 1, 1]
  %a = @literal(0.5, -1.0) -> float16[2]
  %am = broadcast[axis=1, out_lens=[1, 2, 2, 2]](%a)
  %s = @literal(10.0, 100.0) -> float32[2]
  %sm = broadcast[axis=1, out_lens=[1, 2, 2, 2]](%s)
  %c = @literal(1.0, 2.0) -> float32[2]
  %cm = broadcast[axis=1, out_lens=[1, 2, 2, 2]](%c)
  %1 = convolution(%x, %w)
  %2 = add(%1, %am)
  %3 = convert[target_type=float32](%2)
  %4 = mul(%3, %sm)
  %5 = add(%4, %cm)
  %6 = convert[target_type=float16](%5)
  @return(%6)""",
        """\
  %x = @param["x"] -> float16[1, 2, 2, 2]
  %1 = @literal(10.0, 20.0, 300.0, 400.0) -> float16[2, 2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float16[1, 2, 2, 2]
  %3 = @literal(6.0, -98.0) -> float16[2, 1, 1]
  %4 = multibroadcast[out_lens=[1, 2, 2, 2]](%3) -> float16[1, 2, 2, 2]
  %5 = add(%2, %4) -> float16[1, 2, 2, 2]
  @return(%5)""",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> bfloat16[3, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> bfloat16[2, 2]
  %s = @literal(2.0, 4.0) -> float32[2]
  %sm = multibroadcast[out_lens=[3, 2]](%s)
  %c = @literal(1.0) -> float32[1]
  %cm = multibroadcast[out_lens=[3, 2]](%c)
  %1 = dot(%x, %w)
  %3 = convert[target_type=float32](%1)
  %4 = mul(%sm, %3)
  %5 = add(%cm, %4)
  %6 = convert[target_type=bfloat16](%5)
  @return(%6)""",
        """\
  %x = @param["x"] -> bfloat16[3, 2]
  %1 = @literal(2.0, 8.0, 6.0, 16.0) -> bfloat16[2, 2]
  %2 = dot(%x, %1) -> bfloat16[3, 2]
  %3 = @literal(1.0) -> bfloat16[1]
  %4 = multibroadcast[out_lens=[3, 2]](%3) -> bfloat16[3, 2]
  %5 = add(%2, %4) -> bfloat16[3, 2]
  @return(%5)""",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> float16[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float16[2, 2, 1, 1]
  %s = @literal(10.0) -> float32[1]
  %sm = multibroadcast[out_lens=[1, 2, 2, 2]](%s)
  %1 = convolution(%x, %w)
  %2 = convert[target_type=float32](%1)
  %3 = mul(%2, %sm)
  %4 = convert[target_type=float16](%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float16[1, 2, 2, 2]
  %1 = @literal(10.0, 20.0, 30.0, 40.0) -> float16[2, 2, 1, 1]
  %2 = convolution[padding=[], stride=[], dilation=[], group=1, padding_mode="default"](%x, %1) -> float16[1, 2, 2, 2]
  @return(%2)""",
    ),
    (
        "factor-into-dot",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %ww = multibroadcast[out_lens=[2, 2, 2]](%w)
  %s = @literal(10.0, 100.0) -> float32[2]
  %m = multibroadcast[out_lens=[2, 3, 2]](%s)
  %1 = dot(%x, %ww)
  %2 = mul(%1, %m)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %1 = @literal(10.0, 200.0, 30.0, 400.0) -> float32[2, 2]
  %2 = multibroadcast[out_lens=[2, 2, 2]](%1) -> float32[2, 2, 2]
  %3 = dot(%x, %2) -> float32[2, 3, 2]
  @return(%3)""",
    ),
    (
        "factor-into-dot",
        """\
  %x = @param["x"] -> float16[1, 2]
  %w = @literal(0.5, 1.0, 0.25, 2.0) -> float16[2, 2]
  %m = @literal(2.288818359375e-05, 1.52587890625e-05) -> float16[1, 2]
  %1 = dot(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        """\
  %x = @param["x"] -> float16[1, 2]
  %1 = @literal(0.375, 0.5, 0.1875, 1.0) -> float16[2, 2]
  %2 = dot(%x, %1) -> float16[1, 2]
  %3 = @literal(3.0517578125e-05) -> float16[]
  %4 = multibroadcast[out_lens=[1, 2]](%3) -> float16[1, 2]
  %5 = mul(%2, %4) -> float16[1, 2]
  @return(%5)""",
    ),
    (  # distances to the rows of a codebook
        "difference-from-dot",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %ww = multibroadcast[out_lens=[2, 2, 2]](%w)
  %c = @literal(10.0, 100.0) -> float32[2]
  %m = multibroadcast[out_lens=[2, 3, 2]](%c)
  %1 = dot(%x, %ww)
  %2 = sub(%m, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %1 = @literal(10.0, 100.0) -> float32[2]
  %2 = multibroadcast[out_lens=[2, 3, 2]](%1) -> float32[2, 3, 2]
  %3 = @literal(-1.0, -2.0, -3.0, -4.0) -> float32[2, 2]
  %4 = multibroadcast[out_lens=[2, 2, 2]](%3) -> float32[2, 2, 2]
  %5 = dot(%x, %4) -> float32[2, 3, 2]
  %6 = add(%5, %2) -> float32[2, 3, 2]
  @return(%6)""",
    ),
    (
        "input-factor-into-dot",
        """\
  %x = @param["x"] -> float32[3, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %s = @literal(10.0, 100.0) -> float32[2]
  %m = multibroadcast[out_lens=[3, 2]](%s)
  %1 = mul(%x, %m)
  %2 = dot(%1, %w)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %1 = @literal(10.0, 20.0, 300.0, 400.0) -> float32[2, 2]
  %2 = dot(%x, %1) -> float32[3, 2]
  @return(%2)""",
    ),
    (
        "input-term-out-of-dot",
        """\
  %x = @param["x"] -> float32[3, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %s = @literal(10.0, 100.0) -> float32[2]
  %m = multibroadcast[out_lens=[3, 2]](%s)
  %1 = add(%x, %m)
  %2 = dot(%1, %w)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %1 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %2 = dot(%x, %1) -> float32[3, 2]
  %3 = @literal(310.0, 420.0) -> float32[2]
  %4 = multibroadcast[out_lens=[3, 2]](%3) -> float32[3, 2]
  %5 = add(%2, %4) -> float32[3, 2]
  @return(%5)""",
    ),
    (
        "scale-out-of-dot",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %s = @literal(0.25) -> float32[]
  %m = multibroadcast[out_lens=[3, 2]](%s)
  %1 = mul(%x, %m)
  %2 = dot(%1, %y)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[2, 4]
  %1 = dot(%x, %y) -> float32[3, 4]
  %2 = @literal(0.25) -> float32[]
  %3 = multibroadcast[out_lens=[3, 4]](%2) -> float32[3, 4]
  %4 = mul(%1, %3) -> float32[3, 4]
  @return(%4)""",
    ),
    (
        "scale-out-of-dot",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[3, 1]
  %s = @literal(0.25) -> float32[1, 1, 1]
  %v = unsqueeze[axes=[2]](%x)
  %m = multibroadcast[out_lens=[2, 3, 1]](%s)
  %1 = mul(%v, %m)
  %2 = squeeze[axes=[2]](%1)
  %3 = dot(%2, %y)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[3, 1]
  %1 = unsqueeze[axes=[2]](%x) -> float32[2, 3, 1]
  %2 = squeeze[axes=[2]](%1) -> float32[2, 3]
  %3 = dot(%2, %y) -> float32[2, 1]
  %4 = @literal(0.25) -> float32[]
  %5 = multibroadcast[out_lens=[2, 1]](%4) -> float32[2, 1]
  %6 = mul(%3, %5) -> float32[2, 1]
  @return(%6)""",
    ),
    (
        "dot-of-transposes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[4, 2]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = transpose[permutation=[1, 0]](%y)
  %3 = dot(%1, %2)
  %4 = transpose[permutation=[1, 0]](%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[4, 2]
  %1 = dot(%y, %x) -> float32[4, 3]
  @return(%1)""",
    ),
    (
        "dot-of-repeated",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[1, 2, 4]
  %1 = multibroadcast[out_lens=[5, 3, 2]](%x)
  %2 = multibroadcast[out_lens=[5, 2, 4]](%y)
  %3 = dot(%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %y = @param["y"] -> float32[1, 2, 4]
  %1 = multibroadcast[out_lens=[1, 3, 2]](%x) -> float32[1, 3, 2]
  %2 = dot(%1, %y) -> float32[1, 3, 4]
  %3 = multibroadcast[out_lens=[5, 3, 4]](%2) -> float32[5, 3, 4]
  @return(%3)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "factor-into-convolution",
        """\
  %x = @param["x"] -> bfloat16[1, 1, 2]
  %w = @literal(1.5, 2.0) -> bfloat16[2, 1, 1]
  %s = @literal(3.015625, 4.0) -> bfloat16[2, 1]
  %m = multibroadcast[out_lens=[1, 2, 2]](%s)
  %1 = convolution(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "factor-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1, 1]
  %s = @literal(10.0, 100.0) -> float32[2]
  %m = multibroadcast[out_lens=[1, 2, 2, 2]](%s)
  %1 = convolution(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        "the factor differs within a channel",
    ),
    (
        "factor-into-convolution",
        """\
  %x = @param["x"] -> float32[1, 1, 1]
  %w = @literal(1e+30) -> float32[1, 1, 1]
  %m = @literal(1e+30) -> float32[1, 1, 1]
  %1 = convolution(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "factor-into-dot",
        """\
  %x = @param["x"] -> float16[1, 2]
  %w = @literal(0.01, 0.01, 0.02, 0.02) -> float16[2, 2]
  %m = @literal(0.002, 1.0) -> float16[1, 2]
  %1 = dot(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "wide-norm-into-product",
        """\
  %x = @param["x"] -> float16[1, 2]
  %w = @literal(0.01, 1.0, 0.02, 2.0) -> float16[2, 2]
  %s = @literal(1.0, 1000000.0) -> float32[1, 2]
  %c = @literal(1.0, 2.0) -> float32[1, 2]
  %1 = dot(%x, %w)
  %2 = convert[target_type=float32](%1)
  %3 = mul(%2, %s)
  %4 = add(%3, %c)
  %5 = convert[target_type=float16](%4)
  @return(%5)""",
        "the weights would leave the range of their type, or lose digits in it",
    ),
    (
        "input-term-out-of-convolution",
        """\
  %x = @param["x"] -> float32[1, 2, 2, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2, 1, 1]
  %s = @literal(10.0) -> float32[]
  %m = multibroadcast[out_lens=[1, 2, 2, 2]](%s)
  %1 = add(%x, %m)
  %2 = convolution[padding=[1, 1]](%1, %w)
  @return(%2)""",
        "the padding is not part of the sum",
    ),
    (
        "input-term-out-of-dot",
        """\
  %x = @param["x"] -> float32[3, 2]
  %w = @literal(1.0, 2.0, 3.0, 4.0) -> float32[2, 2]
  %s = @literal(10.0) -> float32[]
  %m = multibroadcast[out_lens=[3, 2]](%s)
  %0 = relu(%x)
  %1 = add(%0, %m)
  %2 = dot(%1, %w)
  @return(%2)""",
        "the sum is the last op of x's epilogue: nothing would be saved",
    ),
    (
        "scale-out-of-dot",
        """\
  %x = @param["x"] -> int32[3, 2]
  %y = @param["y"] -> int32[2, 4]
  %s = @literal(2) -> int32[]
  %m = multibroadcast[out_lens=[3, 2]](%s)
  %1 = mul(%x, %m)
  %2 = dot(%1, %y)
  @return(%2)""",
        "int32 products may overflow in another order",
    ),
    (
        "dot-of-transposes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 4]
  %1 = transpose[permutation=[1, 0]](%x)
  %3 = dot(%1, %y)
  %4 = transpose[permutation=[1, 0]](%3)
  @return(%4)""",
        "an operand is not transposed",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)


def test_a_channel_that_is_next_to_nothing_goes_into_the_weights(rule_turns) -> None:
    rule_turns(
        "factor-into-dot",
        """\
  %x = @param["x"] -> float16[1, 2]
  %w = @literal(1.0, 1.0, 2.0, 2.0) -> float16[2, 2]
  %m = @literal(1e-07, 1.0) -> float16[1, 2]
  %1 = dot(%x, %w)
  %2 = mul(%1, %m)
  @return(%2)""",
        """\
  %x = @param["x"] -> float16[1, 2]
  %1 = @literal(1.1920928955078125e-07, 1.0, 2.384185791015625e-07, 2.0) -> float16[2, 2]
  %2 = dot(%x, %1) -> float16[1, 2]
  @return(%2)""",
    )


@pytest.mark.parametrize("name", ["dot", "convolution"])
def test_sums_stay_finite_where_small_factors_are_folded(name: str) -> None:
    """The sums of 40000 would exceed float16 if the weights were multiplied by 1.9 and a power of two left behind."""
    program = mgx.Program()
    m = program.get_main_module()
    lens = [1, 2] if name == "dot" else [1, 2, 1]
    x = m.add_parameter("x", mgx.Shape("float16", lens))
    w = m.add_literal(np.ones((2, 2, *lens[2:]), np.float16))
    scales = np.array([2.9e-5, -2.7e-5], np.float16).reshape(lens[1:])
    y = m.add(mgx.op(name), x, w)
    m.add_return([m.add(mgx.op("mul"), y, m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(scales)))])
    program.compile(mgx.get_target("ref"))
    found = program.run({"x": np.full(lens, 20000, np.float16)})[0].to_numpy()
    np.testing.assert_allclose(found.reshape(-1), 40000 * scales.reshape(-1).astype(np.float32), rtol=2e-3)


def test_a_slice_that_alone_knows_its_extent_stays() -> None:
    """A slice of a repeated number whose extent is clamped at run time; no other instruction defines its symbol."""
    program = mgx.Program()
    main = program.get_main_module()
    n = fresh("n")
    x = main.add_parameter("x", mgx.Shape(mgx.dtype.float32, [n, 5]))
    wide = main.add(mgx.op("multibroadcast", out_lens=[n, 5]), main.add_literal(np.float32(2.5)))
    part = main.add(mgx.op("slice", axes=(0,), starts=(0,), ends=(n - 1,)), wide)
    main.add_return([main.add(mgx.op("concat", axis=0), part, x)])
    program.compile(mgx.get_target("ref"))
    for rows in (3, 1):
        (found,) = program.run({"x": np.ones((rows, 5), np.float32)})
        np.testing.assert_array_equal(np.asarray(found)[:, 0], [2.5] * (rows - 1) + [1.0] * rows)
