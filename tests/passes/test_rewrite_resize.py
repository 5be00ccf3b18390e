"""Resizing as repetition: text before, text after, and the same numbers."""

from __future__ import annotations

import pytest

from mgx_core.passes.rewrite_resize import RESIZES

RULES = RESIZES

TURNS = [
    (
        "drop-resize-to-same",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = resize[sizes=[1, 2, 3]](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = neg(%x) -> float32[1, 2, 3]
  @return(%1)""",
    ),
    (
        "repetition-from-resize",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = resize[scales=[1.0, 1.0, 2.0], nearest_mode="round_prefer_floor"](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = reshape[dims=[1, 2, 3, 1], allowzero=false](%x) -> float32[1, 2, 3, 1]
  %2 = multibroadcast[out_lens=[1, 2, 3, 2]](%1) -> float32[1, 2, 3, 2]
  %3 = reshape[dims=[1, 2, 6], allowzero=false](%2) -> float32[1, 2, 6]
  @return(%3)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after, RULES)


REFUSES = [
    (
        "repetition-from-resize",
        """\
  %x = @param["x"] -> float32[1, 2, 3]
  %1 = resize[sizes=[1, 2, 5]](%x)
  @return(%1)""",
        "not every new element repeats the old one under it by a whole factor",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why, RULES)
