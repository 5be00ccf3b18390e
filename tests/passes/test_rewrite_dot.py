"""Rules that targets may add: text before, text after, and the same numbers."""

from __future__ import annotations

import pytest

from mgx_core.passes.rewrite_dot import DOTS, MEANS

RULES = DOTS + MEANS

TURNS = [
    (
        "flatten-batches",
        """\
  %x = @param["x"] -> float32[n, 3, 2]
  %w = @param["w"] -> float32[2, 5]
  %1 = multibroadcast[out_lens=[n, 2, 5]](%w)
  %2 = dot(%x, %1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[n, 3, 2]
  %w = @param["w"] -> float32[2, 5]
  %1 = reshape[dims=[3*n, 2], allowzero=true](%x) -> float32[3*n, 2]
  %2 = dot(%1, %w) -> float32[3*n, 5]
  %3 = reshape[dims=[n, 3, 5], allowzero=true](%2) -> float32[n, 3, 5]
  @return(%3)""",
    ),
    (
        "dot-from-convolution",
        """\
  %x = @param["x"] -> float32[n, 3, 2, 2]
  %w = @param["w"] -> float32[4, 3, 1, 1]
  %1 = convolution(%x, %w)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[n, 3, 2, 2]
  %w = @param["w"] -> float32[4, 3, 1, 1]
  %1 = reshape[dims=[n, 3, 4], allowzero=true](%x) -> float32[n, 3, 4]
  %2 = reshape[dims=[4, 3], allowzero=false](%w) -> float32[4, 3]
  %3 = multibroadcast[out_lens=[n, 4, 3]](%2) -> float32[n, 4, 3]
  %4 = dot(%3, %1) -> float32[n, 4, 4]
  %5 = reshape[dims=[n, 4, 2, 2], allowzero=true](%4) -> float32[n, 4, 2, 2]
  @return(%5)""",
    ),
    (
        "turn-operands",
        """\
  %x = @param["x"] -> float32[2, 3]
  %w = @param["w"] -> float32[3, 4]
  %1 = dot(%x, %w)
  %2 = transpose[permutation=[1, 0]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %w = @param["w"] -> float32[3, 4]
  %1 = transpose[permutation=[1, 0]](%x) -> float32[3, 2]
  %2 = transpose[permutation=[1, 0]](%w) -> float32[4, 3]
  %3 = dot(%2, %1) -> float32[4, 2]
  @return(%3)""",
    ),
    (
        "sum-from-mean",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = reduce_mean[axes=[1]](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = @literal(0.25) -> float32[]
  %2 = multibroadcast[out_lens=[2, 4]](%1) -> float32[2, 4]
  %3 = mul(%x, %2) -> float32[2, 4]
  %4 = reduce_sum[axes=[1], noop_with_empty_axes=false](%3) -> float32[2, 1]
  @return(%4)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after, RULES)


REFUSES = [
    (
        "flatten-batches",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %w = @param["w"] -> float32[1, 2, 5]
  %1 = multibroadcast[out_lens=[2, 2, 5]](%w)
  %2 = dot(%x, %1)
  @return(%2)""",
        "the right operand is not one matrix for all batches",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why, RULES)
