"""Rules that recognise rotary embeddings: module text before and after, and equal results."""

from __future__ import annotations

import pytest

from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.rotary import ROTARY

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
    (
        "rotary-from-pairs",
        """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %c = @param["c"] -> float32[5, 2]
  %s = @param["s"] -> float32[2, 1, 5, 2]
  %1 = reshape[dims=[2, 3, 5, 2, 2]](%x)
  %2 = slice[axes=[4], starts=[0], ends=[1]](%1)
  %3 = slice[axes=[4], starts=[1], ends=[2]](%1)
  %4 = squeeze[axes=[4]](%2)
  %5 = squeeze[axes=[4]](%3)
  %6 = multibroadcast[out_lens=[2, 3, 5, 2]](%c)
  %7 = multibroadcast[out_lens=[2, 3, 5, 2]](%s)
  %8 = mul(%4, %6)
  %9 = mul(%7, %5)
  %10 = sub(%8, %9)
  %11 = mul(%4, %7)
  %12 = mul(%5, %6)
  %13 = add(%12, %11)
  %14 = unsqueeze[axes=[4]](%10)
  %15 = unsqueeze[axes=[4]](%13)
  %16 = concat[axis=-1](%14, %15)
  %17 = reshape[dims=[6, 5, 4]](%16)
  @return(%17)""",
        """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %c = @param["c"] -> float32[5, 2]
  %s = @param["s"] -> float32[2, 1, 5, 2]
  %1 = reshape[dims=[2, 3, 5, 2, 2], allowzero=false](%x) -> float32[2, 3, 5, 2, 2]
  %2 = reshape[dims=[2, 3, 5, 4], allowzero=false](%1) -> float32[2, 3, 5, 4]
  %3 = reshape[dims=[1, 5, 2], allowzero=false](%c) -> float32[1, 5, 2]
  %4 = multibroadcast[out_lens=[2, 5, 2]](%3) -> float32[2, 5, 2]
  %5 = reshape[dims=[2, 5, 2], allowzero=false](%s) -> float32[2, 5, 2]
  %6 = rotary_embedding[interleaved=true](%2, %4, %5) -> float32[2, 3, 5, 4]
  %7 = reshape[dims=[6, 5, 4], allowzero=false](%6) -> float32[6, 5, 4]
  @return(%7)""",
    ),
    (
        "rotary-from-pairs",
        """\
  %x = @param["x"] -> float32[2, 5, 3, 4]
  %c = @literal(1.0, 2.0) -> float32[2]
  %d = @literal(1.0, 2.0) -> float32[2]
  %s = @param["s"] -> float32[5, 1, 2]
  %1 = slice[axes=[3], starts=[0], ends=[4], steps=[2]](%x)
  %2 = slice[axes=[3], starts=[1], ends=[4], steps=[2]](%x)
  %3 = multibroadcast[out_lens=[2, 5, 3, 2]](%c)
  %4 = multibroadcast[out_lens=[2, 5, 3, 2]](%s)
  %5 = multibroadcast[out_lens=[2, 5, 3, 2]](%d)
  %6 = mul(%1, %3)
  %7 = mul(%2, %4)
  %8 = sub(%6, %7)
  %9 = mul(%1, %4)
  %10 = mul(%2, %5)
  %11 = add(%9, %10)
  %12 = unsqueeze[axes=[4]](%8)
  %13 = unsqueeze[axes=[4]](%11)
  %14 = concat[axis=4](%12, %13)
  %15 = reshape[dims=[2, 5, 3, 4]](%14)
  @return(%15)""",
        """\
  %x = @param["x"] -> float32[2, 5, 3, 4]
  %s = @param["s"] -> float32[5, 1, 2]
  %1 = @literal(1.0, 2.0) -> float32[1, 1, 2]
  %2 = multibroadcast[out_lens=[2, 5, 2]](%1) -> float32[2, 5, 2]
  %3 = reshape[dims=[1, 5, 2], allowzero=false](%s) -> float32[1, 5, 2]
  %4 = multibroadcast[out_lens=[2, 5, 2]](%3) -> float32[2, 5, 2]
  %5 = transpose[permutation=[0, 2, 1, 3]](%x) -> float32[2, 3, 5, 4]
  %6 = rotary_embedding[interleaved=true](%5, %2, %4) -> float32[2, 3, 5, 4]
  %7 = transpose[permutation=[0, 2, 1, 3]](%6) -> float32[2, 5, 3, 4]
  @return(%7)""",
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


PAIRS = """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %c = @param["c"] -> float32[3, 5, 2]
  %1 = slice[axes=[3], starts=[{}], ends=[4], steps=[2]](%x)
  %2 = slice[axes=[3], starts=[1], ends=[4], steps=[2]](%x)
  %3 = multibroadcast[out_lens=[2, 3, 5, 2]](%c)
  %4 = mul(%1, %3)
  %5 = mul(%2, %3)
  %6 = sub(%4, %5)
  %7 = add(%4, %5)
  %8 = unsqueeze[axes=[4]](%6)
  %9 = unsqueeze[axes=[4]](%7)
  %10 = concat[axis=4](%8, %9)
  %11 = reshape[dims=[2, 3, 5, 4]](%10)
  @return(%11)"""


def test_refuses_angles_of_heads(rule_refuses):
    why = "the angles are not [batch or 1, 1, steps or 1, 2], or the same with heads and steps exchanged"
    rule_refuses("rotary-from-pairs", PAIRS.format(0), why)


def test_pairs_of_other_elements_are_no_rotation():
    """Both factors start at the second element."""
    module = parse_module("module main\n" + PAIRS.format(1).replace("[3, 5, 2]", "[5, 2]"), STANDARD)
    before, rewriter = module.text(), Rewriter(ROTARY)
    rewriter.apply(module)
    assert module.text() == before and not rewriter.tally.fired
