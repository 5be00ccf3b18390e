"""Rules on views: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "join-views",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = transpose[permutation=[0, 2, 1]](%x)
  %2 = transpose[permutation=[2, 0, 1]](%1)
  %3 = transpose[permutation=[1, 0, 2]](%2)
  %4 = neg(%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = neg(%x) -> float32[2, 3, 4]
  @return(%1)""",
    ),
    (
        "join-views",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = flatten[axis=1](%x)
  %2 = unsqueeze[axes=[0]](%1)
  %3 = reshape[dims=[6, 4]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = reshape[dims=[6, 4], allowzero=false](%x) -> float32[6, 4]
  @return(%1)""",
    ),
    (
        "join-views",
        """\
  %x = @param["x"] -> float32[1, 3, 4]
  %1 = transpose[permutation=[1, 0, 2]](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[1, 3, 4]
  %1 = reshape[dims=[3, 1, 4], allowzero=false](%x) -> float32[3, 1, 4]
  @return(%1)""",
    ),
    (
        "join-views",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = unsqueeze[axes=[1]](%x)
  %2 = multibroadcast[out_lens=[2, 4, 3]](%1)
  %3 = transpose[permutation=[0, 2, 1]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = unsqueeze[axes=[2]](%x) -> float32[2, 3, 1]
  %2 = multibroadcast[out_lens=[2, 3, 4]](%1) -> float32[2, 3, 4]
  @return(%2)""",
    ),
    (
        "join-views",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = multibroadcast[out_lens=[4, 2, 3]](%x)
  %2 = multibroadcast[out_lens=[5, 4, 2, 3]](%1)
  %3 = contiguous(%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = multibroadcast[out_lens=[5, 4, 2, 3]](%x) -> float32[5, 4, 2, 3]
  @return(%1)""",
    ),
    (
        "join-views",
        """\
  %x = @param["x"] -> float32[n, 6]
  %1 = reshape[dims=[n, 2, 3]](%x)
  %2 = transpose[permutation=[1, 2, 0]](%1)
  %3 = reshape[dims=[6, n]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[n, 6]
  %1 = transpose[permutation=[1, 0]](%x) -> float32[6, n]
  @return(%1)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)
