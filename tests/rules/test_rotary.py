"""Rules that recognise rotary embeddings: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "rotary-from-halves",
        """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %a = @param["a"] -> float32[2, 5, 2]
  %1 = concat[axis=2](%a, %a)
  %2 = cos(%1)
  %3 = unsqueeze[axes=[1]](%2)
  %4 = multibroadcast[out_lens=[2, 3, 5, 4]](%3)
  %5 = sin(%1)
  %6 = unsqueeze[axes=[1]](%5)
  %7 = multibroadcast[out_lens=[2, 3, 5, 4]](%6)
  %8 = slice[axes=[3], starts=[0], ends=[2]](%x)
  %9 = slice[axes=[3], starts=[2], ends=[2147483647]](%x)
  %10 = neg(%9)
  %11 = concat[axis=3](%10, %8)
  %12 = mul(%x, %4)
  %13 = mul(%11, %7)
  %14 = add(%12, %13)
  @return(%14)""",
        """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %a = @param["a"] -> float32[2, 5, 2]
  %1 = concat[axis=2](%a, %a) -> float32[2, 5, 4]
  %2 = cos(%1) -> float32[2, 5, 4]
  %3 = unsqueeze[axes=[1]](%2) -> float32[2, 1, 5, 4]
  %4 = sin(%1) -> float32[2, 5, 4]
  %5 = unsqueeze[axes=[1]](%4) -> float32[2, 1, 5, 4]
  %6 = slice[axes=[3], starts=[0], ends=[2], steps=[]](%3) -> float32[2, 1, 5, 2]
  %7 = reshape[dims=[2, 5, 2], allowzero=false](%6) -> float32[2, 5, 2]
  %8 = slice[axes=[3], starts=[0], ends=[2], steps=[]](%5) -> float32[2, 1, 5, 2]
  %9 = reshape[dims=[2, 5, 2], allowzero=false](%8) -> float32[2, 5, 2]
  %10 = rotary_embedding[interleaved=false](%x, %7, %9) -> float32[2, 3, 5, 4]
  @return(%10)""",
    ),
    (
        "rotary-from-halves",
        """\
  %x = @param["x"] -> float32[n, 3, 2, 2]
  %c = @literal(1.0, 1.0, 2.0, 2.0) -> float32[2, 2]
  %s = @literal(3.0, 3.0) -> float32[2]
  %1 = multibroadcast[out_lens=[n, 3, 2, 2]](%c)
  %2 = multibroadcast[out_lens=[n, 3, 2, 2]](%s)
  %3 = slice[axes=[-1], starts=[0], ends=[1]](%x)
  %4 = slice[axes=[-1], starts=[1], ends=[2]](%x)
  %5 = neg(%4)
  %6 = concat[axis=-1](%5, %3)
  %7 = mul(%2, %6)
  %8 = mul(%1, %x)
  %9 = add(%7, %8)
  @return(%9)""",
        """\
  %x = @param["x"] -> float32[n, 3, 2, 2]
  %1 = @literal(1.0, 2.0) -> float32[1, 2, 1]
  %2 = multibroadcast[out_lens=[n, 2, 1]](%1) -> float32[n, 2, 1]
  %3 = @literal(3.0) -> float32[1, 1, 1]
  %4 = multibroadcast[out_lens=[n, 2, 1]](%3) -> float32[n, 2, 1]
  %5 = rotary_embedding[interleaved=false](%x, %2, %4) -> float32[n, 3, 2, 2]
  @return(%5)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


WHOLE = """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %c = @param["c"] -> {}
  %1 = multibroadcast[out_lens=[2, 3, 5, 4]](%c)
  %3 = slice[axes=[3], starts=[0], ends=[2]](%x)
  %4 = slice[axes=[3], starts=[2], ends=[4]](%x)
  %5 = neg(%4)
  %6 = concat[axis=3](%5, %3)
  %7 = mul(%1, %6)
  %8 = mul(%1, %x)
  %9 = add(%7, %8)
  @return(%9)"""


@pytest.mark.parametrize(
    ("angles", "why"),
    [
        ("float32[5, 4]", "the two halves of the angles are not known to be the same"),
        ("float32[3, 5, 4]", "angles [1, 3, 5, 4] are not [batch or 1, 1, steps or 1, 4]"),
    ],
)
def test_refuses(rule_refuses, angles, why):
    rule_refuses("rotary-from-halves", WHOLE.format(angles), why)
