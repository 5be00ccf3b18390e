"""Rules on slices: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "drop-whole-slice",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = slice[axes=[0], starts=[0], ends=[n]](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[n, 3]
  %1 = neg(%x) -> float32[n, 3]
  @return(%1)""",
    ),
    (
        "join-slices",
        """\
  %x = @param["x"] -> float32[7, 8]
  %1 = slice[axes=[0], starts=[0], ends=[7], steps=[3]](%x)
  %2 = slice[axes=[0, 1], starts=[0, 1], ends=[0, 8]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[7, 8]
  %1 = slice[axes=[0, 1], starts=[0, 1], ends=[0, 8], steps=[]](%x) -> float32[0, 7]
  @return(%1)""",
    ),
    (
        "join-slices",
        """\
  %x = @param["x"] -> float32[10, 8]
  %1 = slice[axes=[0, 1], starts=[1, 2], ends=[9, 8]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[8], steps=[2]](%1)
  %3 = slice[axes=[0], starts=[1], ends=[3]](%2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[10, 8]
  %1 = slice[axes=[0, 1], starts=[5, 2], ends=[8, 8], steps=[2, 1]](%x) -> float32[2, 6]
  @return(%1)""",
    ),
    (
        "slice-of-concat",
        """\
  %x = @param["x"] -> float32[n, 3]
  %y = @param["y"] -> float32[n, 4]
  %z = @param["z"] -> float32[n, 5]
  %1 = concat[axis=1](%x, %y, %z)
  %2 = slice[axes=[1], starts=[4], ends=[6]](%1)
  %3 = slice[axes=[1], starts=[5], ends=[9]](%1)
  @return(%2, %3)""",
        """\
  %x = @param["x"] -> float32[n, 3]
  %y = @param["y"] -> float32[n, 4]
  %z = @param["z"] -> float32[n, 5]
  %1 = slice[axes=[1], starts=[1], ends=[3], steps=[]](%y) -> float32[n, 2]
  %2 = slice[axes=[1], starts=[2], ends=[4], steps=[]](%y) -> float32[n, 2]
  %3 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%z) -> float32[n, 2]
  %4 = concat[axis=1](%2, %3) -> float32[n, 4]
  @return(%1, %4)""",
    ),
    (
        "slice-from-step",
        """\
  %x = @param["x"] -> float32[5, 4]
  %1 = step[axes=[0], steps=[2]](%x)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[5, 4]
  %1 = slice[axes=[0], starts=[0], ends=[5], steps=[2]](%x) -> float32[3, 4]
  @return(%1)""",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[n, 4]
  %1 = slice[axes=[1], starts=[0], ends=[1]](%x)
  %2 = slice[axes=[1], starts=[1], ends=[4]](%x)
  %3 = sigmoid(%1)
  %4 = sigmoid(%2)
  @return(%4, %3)""",
        """\
  %x = @param["x"] -> float32[n, 4]
  %1 = sigmoid(%x) -> float32[n, 4]
  %2 = slice[axes=[1], starts=[0], ends=[1], steps=[]](%1) -> float32[n, 1]
  %3 = slice[axes=[1], starts=[1], ends=[4], steps=[]](%1) -> float32[n, 3]
  @return(%3, %2)""",
    ),
    (
        "concat-of-one",
        """\
  %x = @param["x"] -> float32[2, 3]
  %e = @param["e"] -> float32[0, 3]
  %1 = concat[axis=0](%e, %x, %e)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %e = @param["e"] -> float32[0, 3]
  %1 = neg(%x) -> float32[2, 3]
  @return(%1)""",
    ),
    (
        "join-concats",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = concat[axis=0](%x, %x)
  %2 = neg(%x)
  %3 = concat[axis=-2](%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = neg(%x) -> float32[2, 3]
  %2 = concat[axis=-2](%x, %x, %1) -> float32[6, 3]
  @return(%2)""",
    ),
    (
        "concat-of-slices",
        """\
  %x = @param["x"] -> float32[2, n]
  %1 = slice[axes=[0], starts=[0], ends=[1]](%x)
  %2 = slice[axes=[0], starts=[1], ends=[2]](%x)
  %3 = concat[axis=0](%1, %2, %x)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, n]
  %1 = concat[axis=0](%x, %x) -> float32[4, n]
  @return(%1)""",
    ),
    (
        "work-after-concat",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[4, 3]
  %1 = relu(%x)
  %2 = relu(%y)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[4, 3]
  %1 = concat[axis=0](%x, %y) -> float32[6, 3]
  %2 = relu(%1) -> float32[6, 3]
  @return(%2)""",
    ),
    (
        "gather-of-range",
        """\
  %x = @param["x"] -> float32[2, 6]
  %i = @literal(1) -> int64[]
  %j = @literal(1, 3, 5) -> int64[3]
  %k = @literal(-2, -1) -> int64[2]
  %1 = gather[axis=0](%x, %i)
  %2 = gather[axis=1](%x, %j)
  %3 = gather[axis=1](%x, %k)
  @return(%1, %2, %3)""",
        """\
  %x = @param["x"] -> float32[2, 6]
  %1 = slice[axes=[0], starts=[1], ends=[2], steps=[]](%x) -> float32[1, 6]
  %2 = squeeze[axes=[0]](%1) -> float32[6]
  %3 = slice[axes=[1], starts=[1], ends=[6], steps=[2]](%x) -> float32[2, 3]
  %4 = slice[axes=[1], starts=[4], ends=[6], steps=[]](%x) -> float32[2, 2]
  @return(%2, %3, %4)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "concat-of-one",
        """\
  %x = @param["x"] -> float32[5, 2]
  %y = @param["y"] -> float32[n, 0]
  %1 = concat[axis=1](%x, %x, %y)
  @return(%1)""",
        "whether the operands' extents fit is known only at run time",
    ),
    (
        "join-slices",
        """\
  %x = @param["x"] -> float32[5]
  %1 = slice[axes=[0], starts=[-1], ends=[-6], steps=[-1]](%x)
  %2 = slice[axes=[0], starts=[0], ends=[2]](%1)
  @return(%2)""",
        "a bound is known only at run time, or a step is negative",
    ),
    (
        "slice-of-concat",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = concat[axis=0](%x, %x)
  %2 = slice[axes=[0], starts=[1], ends=[3]](%1)
  @return(%2)""",
        "it reads all parts",
    ),
    (
        "slice-of-concat",
        """\
  %x = @param["x"] -> float32[n]
  %y = @param["y"] -> float32[4]
  %1 = concat[axis=0](%x, %y, %x)
  %2 = slice[axes=[0], starts=[0], ends=[3]](%1)
  @return(%2)""",
        "the operands it reads are known only at run time",
    ),
    (
        "work-before-slices",
        """\
  %x = @param["x"] -> float32[2, 4]
  %1 = slice[axes=[1], starts=[0], ends=[2]](%x)
  %2 = slice[axes=[1], starts=[1], ends=[4]](%x)
  %3 = sigmoid(%1)
  %4 = sigmoid(%2)
  @return(%4, %3)""",
        "the slices overlap, or do not cover x",
    ),
    (
        "concat-of-slices",
        """\
  %x = @param["x"] -> float32[4]
  %1 = slice[axes=[0], starts=[0], ends=[1]](%x)
  %2 = slice[axes=[0], starts=[2], ends=[4]](%x)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        "no two neighbors are adjacent slices of one tensor",
    ),
    (
        "work-after-concat",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = neg(%x)
  %2 = relu(%1)
  %3 = relu(%x)
  %4 = concat[axis=0](%2, %3)
  @return(%4)""",
        "the ops would fuse with their producers",
    ),
    (
        "gather-of-range",
        """\
  %x = @param["x"] -> float32[4]
  %i = @literal(2, 0) -> int64[2]
  %1 = gather[axis=0](%x, %i)
  @return(%1)""",
        "the positions are not evenly increasing",
    ),
    (
        "gather-of-range",
        """\
  %x = @param["x"] -> float32[n]
  %i = @literal(2) -> int64[]
  %1 = gather[axis=0](%x, %i)
  @return(%1)""",
        "whether the positions are in range is known only at run time",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
