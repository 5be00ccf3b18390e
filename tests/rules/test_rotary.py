"""Rules that recognize rotary embeddings: module text before and after, and equal results."""

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
  %7 = slice[axes=[3], starts=[0], ends=[2], steps=[]](%5) -> float32[2, 1, 5, 2]
  %8 = reshape[dims=[2, 5, 2], allowzero=false](%6) -> float32[2, 5, 2]
  %9 = reshape[dims=[2, 5, 2], allowzero=false](%7) -> float32[2, 5, 2]
  %10 = rotary_embedding[interleaved=false](%x, %8, %9) -> float32[2, 3, 5, 4]
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
    (
        "rotary-from-halves",
        """\
  %y = @param["y"] -> float32[2, 5, 3, 6]
  %a = @param["a"] -> float32[5, 1, 2]
  %1 = concat[axis=2](%a, %a)
  %2 = multibroadcast[out_lens=[2, 5, 3, 4]](%1)
  %3 = slice[axes=[3], starts=[1], ends=[5]](%y)
  %4 = slice[axes=[3], starts=[1], ends=[3]](%y)
  %5 = slice[axes=[3], starts=[3], ends=[5]](%y)
  %6 = neg(%5)
  %7 = concat[axis=3](%6, %4)
  %8 = mul(%3, %2)
  %9 = mul(%7, %2)
  %10 = add(%8, %9)
  @return(%10)""",
        """\
  %y = @param["y"] -> float32[2, 5, 3, 6]
  %a = @param["a"] -> float32[5, 1, 2]
  %1 = concat[axis=2](%a, %a) -> float32[5, 1, 4]
  %2 = slice[axes=[3], starts=[1], ends=[5], steps=[]](%y) -> float32[2, 5, 3, 4]
  %3 = slice[axes=[2], starts=[0], ends=[2], steps=[]](%1) -> float32[5, 1, 2]
  %4 = slice[axes=[2], starts=[0], ends=[2], steps=[]](%1) -> float32[5, 1, 2]
  %5 = reshape[dims=[1, 5, 2], allowzero=false](%3) -> float32[1, 5, 2]
  %6 = multibroadcast[out_lens=[2, 5, 2]](%5) -> float32[2, 5, 2]
  %7 = reshape[dims=[1, 5, 2], allowzero=false](%4) -> float32[1, 5, 2]
  %8 = multibroadcast[out_lens=[2, 5, 2]](%7) -> float32[2, 5, 2]
  %9 = transpose[permutation=[0, 2, 1, 3]](%2) -> float32[2, 3, 5, 4]
  %10 = rotary_embedding[interleaved=false](%9, %6, %8) -> float32[2, 3, 5, 4]
  %11 = transpose[permutation=[0, 2, 1, 3]](%10) -> float32[2, 5, 3, 4]
  @return(%11)""",
    ),
    (
        "rotary-from-pairs",
        """\
  %x = @param["x"] -> float32[3, 5, 4]
  %c = @param["c"] -> float32[3, 5, 2]
  %1 = slice[axes=[2], starts=[0], ends=[4], steps=[2]](%x)
  %2 = slice[axes=[2], starts=[1], ends=[4], steps=[2]](%x)
  %3 = mul(%1, %c)
  %4 = mul(%2, %c)
  %5 = sub(%3, %4)
  %6 = add(%3, %4)
  %7 = unsqueeze[axes=[3]](%5)
  %8 = unsqueeze[axes=[3]](%6)
  %9 = concat[axis=3](%7, %8)
  %10 = reshape[dims=[3, 5, 4]](%9)
  @return(%10)""",
        """\
  %x = @param["x"] -> float32[3, 5, 4]
  %c = @param["c"] -> float32[3, 5, 2]
  %1 = reshape[dims=[3, 5, 2], allowzero=false](%c) -> float32[3, 5, 2]
  %2 = reshape[dims=[3, 5, 2], allowzero=false](%c) -> float32[3, 5, 2]
  %3 = reshape[dims=[3, 1, 5, 4], allowzero=false](%x) -> float32[3, 1, 5, 4]
  %4 = rotary_embedding[interleaved=true](%3, %1, %2) -> float32[3, 1, 5, 4]
  %5 = reshape[dims=[3, 5, 4], allowzero=false](%4) -> float32[3, 5, 4]
  @return(%5)""",
    ),
    (
        "rotary-beside-rest",
        """\
  %x = @param["x"] -> float32[2, 3, 5, 6]
  %c = @param["c"] -> float32[2, 5, 2]
  %1 = slice[axes=[3], starts=[0], ends=[4]](%x)
  %2 = rotary_embedding[interleaved=false](%1, %c, %c)
  %3 = slice[axes=[3], starts=[4], ends=[6]](%x)
  %4 = concat[axis=3](%2, %3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 3, 5, 6]
  %c = @param["c"] -> float32[2, 5, 2]
  %1 = rotary_embedding[interleaved=false](%x, %c, %c) -> float32[2, 3, 5, 6]
  @return(%1)""",
    ),
    (
        "rotary-beside-rest",
        """\
  %x = @param["x"] -> float32[2, 5, 3, 6]
  %c = @param["c"] -> float32[2, 5, 2]
  %1 = slice[axes=[3], starts=[0], ends=[4]](%x)
  %2 = transpose[permutation=[0, 2, 1, 3]](%1)
  %3 = rotary_embedding[interleaved=true](%2, %c, %c)
  %4 = transpose[permutation=[0, 2, 1, 3]](%3)
  %5 = slice[axes=[3], starts=[4], ends=[6]](%x)
  %6 = concat[axis=3](%4, %5)
  @return(%6)""",
        """\
  %x = @param["x"] -> float32[2, 5, 3, 6]
  %c = @param["c"] -> float32[2, 5, 2]
  %1 = transpose[permutation=[0, 2, 1, 3]](%x) -> float32[2, 3, 5, 6]
  %2 = rotary_embedding[interleaved=true](%1, %c, %c) -> float32[2, 3, 5, 6]
  %3 = transpose[permutation=[0, 2, 1, 3]](%2) -> float32[2, 5, 3, 6]
  @return(%3)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


FIT = "the angles are not [batch or 1, 1, steps or 1, 2], or the same with heads and steps exchanged"
ONE = "the two halves of the angles are not known to be the same"
WHOLE = """\
  %x = @param["x"] -> float32[2, 3, 5, 4]
  %c = @param["c"] -> {}
  %d = concat[axis={}](%c, %c)
  %1 = multibroadcast[out_lens=[2, 3, 5, 4]](%d)
  %3 = slice[axes=[3], starts=[0], ends=[2]](%x)
  %4 = slice[axes=[3], starts=[2], ends=[4]](%x)
  %5 = neg(%4)
  %6 = concat[axis=3](%5, %3)
  %7 = mul(%1, %6)
  %8 = mul(%1, %x)
  %9 = add(%7, %8)
  @return(%9)"""


@pytest.mark.parametrize(
    ("angles", "axis", "why"),
    [
        ("float32[1, 4]", 0, ONE),
        ("float32[3, 5, 2]", 2, FIT),
    ],
)
def test_refuses(rule_refuses, angles, axis, why):
    rule_refuses("rotary-from-halves", WHOLE.format(angles, axis).replace("5", "2" if axis == 0 else "5"), why)


REST = """\
  %x = @param["x"] -> float32[2, 3, 5, 6]
  %c = @param["c"] -> float32[2, 5, {}]
  %1 = slice[axes=[3], starts=[{}], ends=[{}]](%x)
  %2 = rotary_embedding[interleaved=false](%1, %c, %c)
  %3 = slice[axes=[3], starts=[4], ends=[6]](%x)
  %4 = concat[axis=3](%2, %3)
  @return(%4)"""


def test_refuses_a_single_angle_for_all_pairs(rule_refuses):
    text = WHOLE.replace('@param["c"] -> {}', "@literal(0.5, 0.25, 0.5, 0.25, 0.5) -> float32[5, 1]")
    rule_refuses("rotary-from-halves", text.replace("  %d = concat[axis={}](%c, %c)\n", "").replace("%d", "%c"), ONE)


@pytest.mark.parametrize(("half", "start"), [(2, 1), (1, 0)])
def test_other_elements_than_the_first_stay_beside_the_rest(half, start):
    """The elements that are turned are not those before the rest, or are only some of them."""
    module = parse_module("module main\n" + REST.format(half, start, start + 4), STANDARD)
    before, rewriter = module.text(), Rewriter(ROTARY)
    rewriter.apply(module)
    assert module.text() == before and not rewriter.tally.fired


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
    rule_refuses("rotary-from-pairs", PAIRS.format(0), FIT)


def test_pairs_of_other_elements_are_no_rotation():
    """Both factors start at the second element."""
    module = parse_module("module main\n" + PAIRS.format(1).replace("[3, 5, 2]", "[5, 2]"), STANDARD)
    before, rewriter = module.text(), Rewriter(ROTARY)
    rewriter.apply(module)
    assert module.text() == before and not rewriter.tally.fired
