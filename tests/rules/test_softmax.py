"""Rules that recognize softmax: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "softmax-from-quotient",
        """\
  %x = @param["x"] -> float32[n, 5]
  %1 = reduce_max[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[n, 5]](%1)
  %3 = sub(%x, %2)
  %4 = exp(%3)
  %5 = reduce_sum[axes=[1]](%4)
  %6 = multibroadcast[out_lens=[n, 5]](%5)
  %7 = div(%4, %6)
  @return(%7)""",
        """\
  %x = @param["x"] -> float32[n, 5]
  %1 = softmax[axis=1](%x) -> float32[n, 5]
  @return(%1)""",
    ),
    (
        "softmax-from-plain-quotient",
        """\
  %x = @param["x"] -> float32[2, 5]
  %4 = exp(%x)
  %5 = reduce_sum[axes=[1]](%4)
  %6 = multibroadcast[out_lens=[2, 5]](%5)
  %7 = div(%4, %6)
  @return(%7)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = softmax[axis=1](%x) -> float32[2, 5]
  @return(%1)""",
    ),
    (
        "logsoftmax-from-log",
        """\
  %x = @param["x"] -> float32[2, 5]
  %4 = softmax[axis=0](%x)
  %5 = log(%4)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = logsoftmax[axis=0](%x) -> float32[2, 5]
  @return(%1)""",
    ),
    (
        "logsoftmax-from-difference",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = reduce_max[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[2, 5]](%1)
  %3 = sub(%x, %2)
  %4 = exp(%3)
  %5 = reduce_sum[axes=[1]](%4)
  %6 = log(%5)
  %7 = multibroadcast[out_lens=[2, 5]](%6)
  %8 = sub(%3, %7)
  @return(%8)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = logsoftmax[axis=1](%x) -> float32[2, 5]
  @return(%1)""",
    ),
    (
        "argmax-before-softmax",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = softmax[axis=1](%x)
  %2 = argmax[axis=1](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = argmax[axis=1, select_last_index=false](%x) -> int64[2, 1]
  @return(%1)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "softmax-from-quotient",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = reduce_max[axes=[0]](%x)
  %2 = multibroadcast[out_lens=[2, 5]](%1)
  %3 = sub(%x, %2)
  %4 = exp(%3)
  %5 = reduce_sum[axes=[0]](%4)
  %6 = multibroadcast[out_lens=[2, 5]](%5)
  %7 = div(%4, %6)
  @return(%7)""",
        "sums over axes [0], maxima over [0]; softmax is raised along the last axis",
    ),
    (
        "argmax-before-softmax",
        """\
  %x = @param["x"] -> float32[2, 5]
  %1 = softmax[axis=0](%x)
  %2 = argmax[axis=1](%1)
  @return(%2)""",
        "the softmax is along another axis",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
