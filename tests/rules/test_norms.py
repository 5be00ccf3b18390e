"""Rules that recognize norms: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "layernorm-from-parts",
        """\
  %x = @param["x"] -> float32[n, 5]
  %e = @literal(1e-05) -> float32[]
  %two = @literal(2.0) -> float32[]
  %1 = reduce_mean[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[n, 5]](%1)
  %3 = sub(%x, %2)
  %4 = multibroadcast[out_lens=[n, 5]](%two)
  %5 = pow(%3, %4)
  %6 = reduce_mean[axes=[1]](%5)
  %7 = multibroadcast[out_lens=[n, 1]](%e)
  %8 = add(%6, %7)
  %9 = sqrt(%8)
  %10 = multibroadcast[out_lens=[n, 5]](%9)
  %11 = div(%3, %10)
  @return(%11)""",
        """\
  %x = @param["x"] -> float32[n, 5]
  %1 = layernorm[axis=1, epsilon=9.999999747378752e-06](%x) -> float32[n, 5]
  @return(%1)""",
    ),
    (
        "layernorm-from-parts",
        """\
  %x = @param["x"] -> float32[2, 3, 5]
  %e = @literal(0.001) -> float32[]
  %1 = reduce_mean[axes=[1, 2]](%x)
  %2 = multibroadcast[out_lens=[2, 3, 5]](%1)
  %3 = sub(%x, %2)
  %5 = sqdiff(%x, %2)
  %6 = reduce_mean[axes=[1, 2]](%5)
  %7 = multibroadcast[out_lens=[2, 1, 1]](%e)
  %8 = add(%7, %6)
  %9 = rsqrt(%8)
  %10 = multibroadcast[out_lens=[2, 3, 5]](%9)
  %11 = mul(%10, %3)
  @return(%11)""",
        """\
  %x = @param["x"] -> float32[2, 3, 5]
  %1 = layernorm[axis=1, epsilon=0.0010000000474974513](%x) -> float32[2, 3, 5]
  @return(%1)""",
    ),
    (
        "layernorm-from-batch-form",
        """\
  %x = @param["x"] -> float32[2, 4]
  %e = @literal(0.001) -> float32[]
  %gamma = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %beta = @literal(0.5, 0.25, 0.125, 0.0) -> float32[4]
  %1 = reduce_mean[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[2, 4]](%1)
  %5 = sqdiff(%x, %2)
  %6 = reduce_mean[axes=[1]](%5)
  %7 = multibroadcast[out_lens=[2, 1]](%e)
  %8 = add(%6, %7)
  %9 = rsqrt(%8)
  %10 = multibroadcast[out_lens=[2, 4]](%9)
  %11 = multibroadcast[out_lens=[2, 4]](%gamma)
  %12 = mul(%10, %11)
  %13 = mul(%x, %12)
  %14 = mul(%2, %12)
  %15 = multibroadcast[out_lens=[2, 4]](%beta)
  %16 = sub(%15, %14)
  %17 = add(%13, %16)
  @return(%17)""",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %2 = @literal(0.5, 0.25, 0.125, 0.0) -> float32[4]
  %3 = multibroadcast[out_lens=[2, 4]](%1) -> float32[2, 4]
  %4 = multibroadcast[out_lens=[2, 4]](%2) -> float32[2, 4]
  %5 = layernorm[axis=1, epsilon=0.0010000000474974513](%x) -> float32[2, 4]
  %6 = mul(%5, %3) -> float32[2, 4]
  %7 = add(%6, %4) -> float32[2, 4]
  @return(%7)""",
    ),
    (
        "rmsnorm-from-parts",
        """\
  %x = @param["x"] -> float32[n, 5]
  %e = @literal(1e-05) -> float32[]
  %one = @literal(1.0) -> float32[]
  %5 = mul(%x, %x)
  %6 = reduce_mean[axes=[1]](%5)
  %7 = multibroadcast[out_lens=[n, 1]](%e)
  %8 = add(%6, %7)
  %9 = sqrt(%8)
  %10 = multibroadcast[out_lens=[n, 1]](%one)
  %11 = div(%10, %9)
  %12 = multibroadcast[out_lens=[n, 5]](%11)
  %13 = mul(%x, %12)
  @return(%13)""",
        """\
  %x = @param["x"] -> float32[n, 5]
  %1 = rmsnorm[axis=1, epsilon=9.999999747378752e-06](%x) -> float32[n, 5]
  @return(%1)""",
    ),
    (
        "scale-into-norm",
        """\
  %x = @param["x"] -> float32[2, 4]
  %g = @param["g"] -> float32[4]
  %1 = layernorm(%x)
  %2 = multibroadcast[out_lens=[2, 4]](%g)
  %3 = mul(%2, %1)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 4]
  %g = @param["g"] -> float32[4]
  %1 = layernorm[axis=-1, epsilon=1e-05](%x, %g) -> float32[2, 4]
  @return(%1)""",
    ),
    (
        "bias-into-norm",
        """\
  %x = @param["x"] -> float32[2, 4]
  %g = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %b = @literal(1.0, 2.0, 3.0, 4.0) -> float32[1, 4]
  %1 = layernorm(%x, %g)
  %2 = multibroadcast[out_lens=[2, 4]](%b)
  %3 = add(%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %2 = @literal(1.0, 2.0, 3.0, 4.0) -> float32[1, 4]
  %3 = layernorm[axis=-1, epsilon=1e-05](%x, %1, %2) -> float32[2, 4]
  @return(%3)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "layernorm-from-parts",
        """\
  %x = @param["x"] -> float32[2, 5]
  %e = @literal(0.001) -> float32[]
  %1 = reduce_mean[axes=[0]](%x)
  %2 = multibroadcast[out_lens=[2, 5]](%1)
  %3 = sub(%x, %2)
  %5 = mul(%3, %3)
  %6 = reduce_mean[axes=[0]](%5)
  %7 = multibroadcast[out_lens=[1, 5]](%e)
  %8 = add(%7, %6)
  %9 = rsqrt(%8)
  %10 = multibroadcast[out_lens=[2, 5]](%9)
  %11 = mul(%10, %3)
  @return(%11)""",
        "it normalizes over axes [0], which are not the last ones",
    ),
    (
        "scale-into-norm",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = layernorm(%x)
  %3 = mul(%x, %1)
  @return(%3)""",
        "the factor does not match the normalized axes",
    ),
    (
        "bias-into-norm",
        """\
  %x = @param["x"] -> float32[2, 4]
  %g = @literal(1.0, 2.0, 3.0, 4.0) -> float32[4]
  %1 = layernorm(%x, %g)
  %2 = multibroadcast[out_lens=[2, 4]](%g)
  %3 = add(%1, %2)
  @return(%3, %1)""",
        "the norm has other users",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
