"""Rules that recognize activations: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.compile.stages import optimize_module
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.options import CompileOptions

FACTORED_GELU = """\
  %x = @param["x"] -> float32[2]
  %a = @literal(0.044715) -> float32[]
  %s = @literal(0.7978846) -> float32[]
  %o = @literal(1.0) -> float32[]
  %h = @literal(0.5) -> float32[]
  %1 = multibroadcast[out_lens=[2]](%a)
  %2 = mul(%x, %1)
  %3 = mul(%2, %x)
  %4 = multibroadcast[out_lens=[2]](%o)
  %5 = add(%3, %4)
  %6 = multibroadcast[out_lens=[2]](%s)
  %7 = mul(%x, %6)
  %8 = mul(%7, %5)
  %9 = tanh(%8)
  %10 = add(%9, %4)
  %11 = multibroadcast[out_lens=[2]](%h)
  %12 = mul(%x, %11)
  %13 = mul(%12, %10)
  @return(%13)"""
GELU = """\
  %x = @param["x"] -> float32[2]
  %1 = gelu_tanh(%x) -> float32[2]
  @return(%1)"""

TURNS = [
    (
        "gelu-from-erf",
        """\
  %x = @param["x"] -> float32[n]
  %r = @literal(1.4142135) -> float32[]
  %h = @literal(0.5) -> float32[]
  %o = @literal(1.0) -> float32[]
  %1 = multibroadcast[out_lens=[n]](%r)
  %2 = div(%x, %1)
  %3 = erf(%2)
  %4 = multibroadcast[out_lens=[n]](%o)
  %5 = add(%3, %4)
  %6 = mul(%x, %5)
  %7 = multibroadcast[out_lens=[n]](%h)
  %8 = mul(%6, %7)
  @return(%8)""",
        """\
  %x = @param["x"] -> float32[n]
  %1 = gelu_erf(%x) -> float32[n]
  @return(%1)""",
    ),
    (
        "gelu-from-tanh",
        """\
  %x = @param["x"] -> float32[2]
  %three = @literal(3.0, 3.0) -> float32[2]
  %a = @literal(0.044715) -> float32[]
  %s = @literal(0.7978846) -> float32[]
  %o = @literal(1.0) -> float32[]
  %h = @literal(0.5) -> float32[]
  %p = @literal(3.0) -> float32[]
  %t = multibroadcast[out_lens=[2]](%p)
  %1 = pow(%x, %t)
  %2 = multibroadcast[out_lens=[2]](%a)
  %3 = mul(%1, %2)
  %4 = add(%x, %3)
  %5 = multibroadcast[out_lens=[2]](%s)
  %6 = mul(%4, %5)
  %7 = tanh(%6)
  %8 = multibroadcast[out_lens=[2]](%o)
  %9 = add(%7, %8)
  %10 = multibroadcast[out_lens=[2]](%h)
  %11 = mul(%x, %10)
  %12 = mul(%11, %9)
  @return(%12)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = gelu_tanh(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "gelu-from-tanh",  # quantize_fp16 leaves powers in float32
        """\
  %x = @param["x"] -> float16[2]
  %a = @literal(0.044715) -> float16[]
  %s = @literal(0.7978846) -> float16[]
  %o = @literal(1.0) -> float16[]
  %h = @literal(0.5) -> float16[]
  %p = @literal(3.0) -> float32[]
  %w = convert[target_type=float32](%x)
  %t = multibroadcast[out_lens=[2]](%p)
  %1 = pow(%w, %t)
  %n = convert[target_type=float16](%1)
  %2 = multibroadcast[out_lens=[2]](%a)
  %3 = mul(%n, %2)
  %4 = add(%x, %3)
  %5 = multibroadcast[out_lens=[2]](%s)
  %6 = mul(%4, %5)
  %7 = tanh(%6)
  %8 = multibroadcast[out_lens=[2]](%o)
  %9 = add(%7, %8)
  %10 = multibroadcast[out_lens=[2]](%h)
  %11 = mul(%x, %10)
  %12 = mul(%11, %9)
  @return(%12)""",
        """\
  %x = @param["x"] -> float16[2]
  %1 = gelu_tanh(%x) -> float16[2]
  @return(%1)""",
    ),
    ("gelu-from-tanh", FACTORED_GELU, GELU),
    # constants rounded to eight bits
    ("gelu-from-tanh", FACTORED_GELU.replace("float32", "bfloat16"), GELU.replace("float32", "bfloat16")),
    (
        "swish-from-sigmoid",
        """\
  %x = @param["x"] -> float32[2]
  %s = @literal(1.5) -> float32[]
  %1 = sigmoid(%x)
  %2 = mul(%1, %x)
  %3 = multibroadcast[out_lens=[2]](%s)
  %4 = mul(%x, %3)
  %5 = sigmoid(%4)
  %6 = mul(%x, %5)
  @return(%2, %6)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = swish[alpha=1.0](%x) -> float32[2]
  %2 = quick_gelu[alpha=1.5](%x) -> float32[2]
  @return(%1, %2)""",
    ),
    (
        "sigmoid-from-exp",
        """\
  %x = @param["x"] -> float32[2]
  %o = @literal(1.0) -> float32[]
  %1 = neg(%x)
  %2 = exp(%1)
  %3 = multibroadcast[out_lens=[2]](%o)
  %4 = add(%3, %2)
  %5 = div(%3, %4)
  %6 = recip(%4)
  @return(%5, %6)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = sigmoid(%x) -> float32[2]
  %2 = sigmoid(%x) -> float32[2]
  @return(%1, %2)""",
    ),
    (
        "softplus-from-exp",
        """\
  %x = @param["x"] -> float32[2]
  %o = @literal(1.0) -> float32[]
  %2 = exp(%x)
  %3 = multibroadcast[out_lens=[2]](%o)
  %4 = add(%3, %2)
  %5 = log(%4)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = softplus(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "mish-from-tanh",
        """\
  %x = @param["x"] -> float32[2]
  %2 = softplus(%x)
  %3 = tanh(%2)
  %5 = mul(%3, %x)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = mish(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "hard-sigmoid-from-clip",
        """\
  %x = @param["x"] -> float32[2]
  %a = @literal(3.0) -> float32[]
  %z = @literal(0.0) -> float32[]
  %s = @literal(6.0) -> float32[]
  %1 = multibroadcast[out_lens=[2]](%a)
  %2 = multibroadcast[out_lens=[2]](%z)
  %3 = multibroadcast[out_lens=[2]](%s)
  %4 = add(%x, %1)
  %5 = clip(%4, %2, %3)
  %6 = div(%5, %3)
  @return(%6)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = hard_sigmoid[alpha=0.16666666666666666, beta=0.5](%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "hard-swish-from-hard-sigmoid",
        """\
  %x = @param["x"] -> float32[2]
  %1 = hard_sigmoid[alpha=0.16666667, beta=0.5](%x)
  %2 = mul(%x, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = hard_swish(%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "leaky-relu-from-prelu",
        """\
  %x = @param["x"] -> float32[3, 2]
  %a = @literal(0.25, 0.25, 0.25) -> float32[3, 1]
  %1 = multibroadcast[out_lens=[3, 2]](%a)
  %2 = prelu(%x, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[3, 2]
  %1 = leaky_relu[alpha=0.25](%x) -> float32[3, 2]
  @return(%1)""",
    ),
    (
        "leaky-relu-from-max",
        """\
  %x = @param["x"] -> float32[2]
  %a = @literal(0.25) -> float32[]
  %1 = multibroadcast[out_lens=[2]](%a)
  %2 = mul(%x, %1)
  %3 = max(%2, %x)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = leaky_relu[alpha=0.25](%x) -> float32[2]
  @return(%1)""",
    ),
    (
        "leaky-relu-from-where",
        """\
  %x = @param["x"] -> float32[2]
  %a = @literal(0.25) -> float32[]
  %z = @literal(0.0, 0.0) -> float32[2]
  %y = @literal(0.0) -> float32[]
  %0 = multibroadcast[out_lens=[2]](%y)
  %1 = multibroadcast[out_lens=[2]](%a)
  %2 = mul(%x, %1)
  %3 = greater(%x, %0)
  %4 = where(%3, %x, %2)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2]
  %1 = leaky_relu[alpha=0.25](%x) -> float32[2]
  @return(%1)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "gelu-from-tanh",
        """\
  %x = @param["x"] -> float64[2]
  %a = @literal(0.044715) -> float64[]
  %s = @literal(0.79788) -> float64[]
  %o = @literal(1.0) -> float64[]
  %h = @literal(0.5) -> float64[]
  %c = mul(%x, %x)
  %1 = mul(%c, %x)
  %2 = multibroadcast[out_lens=[2]](%a)
  %3 = mul(%1, %2)
  %4 = add(%x, %3)
  %5 = multibroadcast[out_lens=[2]](%s)
  %6 = mul(%4, %5)
  %7 = tanh(%6)
  %8 = multibroadcast[out_lens=[2]](%o)
  %9 = add(%7, %8)
  %10 = multibroadcast[out_lens=[2]](%h)
  %11 = mul(%x, %10)
  %12 = mul(%11, %9)
  @return(%12)""",
        "the constants are not those of gelu",
    ),
    (
        "gelu-from-erf",
        """\
  %x = @param["x"] -> float32[]
  %h = @literal(0.5) -> float32[]
  %o = @literal(1.0) -> float32[]
  %3 = erf(%x)
  %5 = add(%3, %o)
  %6 = mul(%x, %5)
  %8 = mul(%6, %h)
  @return(%8)""",
        "the argument of erf is not x / sqrt(2)",
    ),
    (
        "sigmoid-from-exp",
        """\
  %x = @param["x"] -> float32[]
  %o = @literal(1.0) -> float32[]
  %2 = exp(%x)
  %4 = add(%o, %2)
  %6 = recip(%4)
  @return(%6)""",
        "the exponent is not negated",
    ),
    (
        "leaky-relu-from-prelu",
        """\
  %x = @param["x"] -> float32[2]
  %a = @literal(0.25, 0.5) -> float32[2]
  %2 = prelu(%x, %a)
  @return(%2)""",
        "the slope is not one constant",
    ),
    (
        "leaky-relu-from-max",
        """\
  %x = @param["x"] -> float32[]
  %a = @literal(2.0) -> float32[]
  %2 = mul(%x, %a)
  %3 = max(%2, %x)
  @return(%3)""",
        "the slope is not a constant between 0 and 1",
    ),
    (
        "hard-swish-from-hard-sigmoid",
        """\
  %x = @param["x"] -> float32[2]
  %1 = hard_sigmoid(%x)
  %2 = mul(%x, %1)
  @return(%2)""",
        "the slope and offset are not 1/6 and 1/2",
    ),
]


def test_whole_numbers_have_no_hard_swish() -> None:
    module = parse_module(
        """\
module main
  %x = @param["x"] -> int32[1]
  %3 = @literal(3) -> int32[1]
  %6 = @literal(6) -> int32[1]
  %0 = @literal(0) -> int32[1]
  %s = add(%x, %3)
  %c = clip(%s, %0, %6)
  %d = div(%c, %6)
  %y = mul(%x, %d)
  @return(%y)""",
        STANDARD,
    )
    optimize_module(module, CompileOptions())
    assert Interpreter().run(module, [np.int32([5])])[0].tolist() == [5]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
