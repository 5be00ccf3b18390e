"""Rules on index arithmetic: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

from mgx_core.ir.interpreter import Interpreter
from mgx_core.ir.text.parser import parse_module
from mgx_core.ops import STANDARD
from mgx_core.rules.engine import Rewriter
from mgx_core.rules.indices import INDICES, Count, count

RANGE = """\
  %zero = @literal(0) -> int64[]
  %one = @literal(1) -> int64[]
  %dims = dimensions_of[start={axis}, end={end}](%x)
  %limit = squeeze[axes=[0]](%dims)
  %{name} = dynamic_range[length={length}](%zero, %limit, %one)
"""


def counted(name: str, axis: int, length: str) -> str:
    text = RANGE.format(name=name, axis=axis, end=axis + 1, length=length)
    for local in ("zero", "one", "dims", "limit"):
        text = text.replace(f"%{local}", f"%{name}_{local}")
    return text


TURNS = [
    (
        "gather-in-order",
        f"""\
  %x = @param["x"] -> float32[n, 4]
{counted("r", 0, "n")}\
  %1 = unsqueeze[axes=[0]](%r)
  %2 = gather[axis=0](%x, %1)
  %narrow = convert[target_type=int32, saturate=true, round_mode="up"](%r)
  %column = reshape[dims=[n, 1]](%narrow)
  %wide = multibroadcast[out_lens=[n, 3]](%column)
  %t = transpose[permutation=[1, 0]](%wide)
  %3 = gather[axis=0](%x, %t)
  @return(%2, %3)""",
        """\
  %x = @param["x"] -> float32[n, 4]
  %1 = unsqueeze[axes=[0]](%x) -> float32[1, n, 4]
  %2 = unsqueeze[axes=[0]](%x) -> float32[1, n, 4]
  %3 = multibroadcast[out_lens=[3, n, 4]](%2) -> float32[3, n, 4]
  @return(%1, %3)""",
    ),
    (
        "gather-in-order",
        f"""\
  %x = @param["x"] -> float32[n]
  %y = @param["y"] -> float32[n+7, 2]
{counted("r", 0, "n")}\
  %two = @literal(2) -> int64[1]
  %twos = multibroadcast[out_lens=[n]](%two)
  %later = add(%r, %twos)
  %1 = gather[axis=0](%y, %later)
  %2 = neg(%x)
  @return(%1, %2)""",
        """\
  %x = @param["x"] -> float32[n]
  %y = @param["y"] -> float32[n+7, 2]
  %1 = slice[axes=[0], starts=[2], ends=[n+2], steps=[]](%y) -> float32[n, 2]
  %2 = neg(%x) -> float32[n]
  @return(%1, %2)""",
    ),
    (
        "gather-in-order-of-axes",
        f"""\
  %x = @param["x"] -> float32[n, n, 2]
{counted("r", 0, "n")}\
{counted("q", 1, "n")}\
  %1 = unsqueeze[axes=[1, 2, 3, 4]](%r)
  %2 = multibroadcast[out_lens=[n, 1, 1, n, 1]](%1)
  %3 = multibroadcast[out_lens=[n, 1, 1, n]](%q)
  %4 = unsqueeze[axes=[4]](%3)
  %5 = concat[axis=4](%2, %4)
  %6 = gathernd[batch_dims=0](%x, %5)
  @return(%6)""",
        """\
  %x = @param["x"] -> float32[n, n, 2]
  %1 = unsqueeze[axes=[1, 2]](%x) -> float32[n, 1, 1, n, 2]
  @return(%1)""",
    ),
    (
        "gather-of-single-indices",
        """\
  %x = @param["x"] -> float32[2, n]
  %i = @literal(1, -1, 0) -> int64[1, 3, 1]
  %1 = gathernd[batch_dims=0](%x, %i)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, n]
  %1 = @literal(1, -1, 0) -> int64[1, 3, 1]
  %2 = squeeze[axes=[2]](%1) -> int64[1, 3]
  %3 = gather[axis=0](%x, %2) -> float32[1, 3, n]
  @return(%3)""",
    ),
    (
        "gather-in-order-of-axes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %i = @literal(0, 0, 0, 1, 1, 0, 1, 1) -> int64[2, 2, 2]
  %1 = gathernd[batch_dims=0](%x, %i)
  @return(%1)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = slice[axes=[1], starts=[0], ends=[2], steps=[]](%x) -> float32[2, 2]
  @return(%1)""",
    ),
    (
        "gather-in-order-of-axes",
        """\
  %x = @param["x"] -> float32[2, 3]
  %i = @literal(0, 0, 0, 1, 0, 2) -> int64[1, 3, 2]
  %j = @literal(1, 2) -> int64[1, 1, 2]
  %1 = gathernd[batch_dims=0](%x, %i)
  %2 = gathernd[batch_dims=0](%x, %j)
  @return(%1, %2)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = slice[axes=[0], starts=[0], ends=[1], steps=[]](%x) -> float32[1, 3]
  %2 = squeeze[axes=[0]](%1) -> float32[3]
  %3 = unsqueeze[axes=[0]](%2) -> float32[1, 3]
  %4 = slice[axes=[0], starts=[1], ends=[2], steps=[]](%x) -> float32[1, 3]
  %5 = slice[axes=[1], starts=[2], ends=[3], steps=[]](%4) -> float32[1, 1]
  %6 = squeeze[axes=[0, 1]](%5) -> float32[]
  %7 = unsqueeze[axes=[0, 1]](%6) -> float32[1, 1]
  @return(%3, %7)""",
    ),
    (
        "gather-in-order",
        """\
  %x = @param["x"] -> float32[n]
  %y = @param["y"] -> float32[8, 2]
  %i = @literal(0, 1, 2, 3, 4, 5, 6, 7) -> int64[1, 8]
  %s = slice[axes=[1], starts=[0], ends=[n]](%i)
  %1 = gather[axis=0](%y, %s)
  %2 = neg(%x)
  @return(%1, %2)""",
        """\
  %x = @param["x"] -> float32[n]
  %y = @param["y"] -> float32[8, 2]
  %1 = slice[axes=[0], starts=[0], ends=[n], steps=[]](%y) -> float32[n, 2]
  %2 = unsqueeze[axes=[0]](%1) -> float32[1, n, 2]
  %3 = neg(%x) -> float32[n]
  @return(%2, %3)""",
    ),
    (
        "comparison-of-count",
        f"""\
  %x = @param["x"] -> float32[n]
{counted("r", 0, "n")}\
  %no = @literal(0) -> int64[1]
  %nos = multibroadcast[out_lens=[n]](%no)
  %1 = greater_or_equal(%r, %nos)
  %2 = greater(%nos, %r)
  @return(%1, %2)""",
        """\
  %x = @param["x"] -> float32[n]
  %1 = @literal(true) -> bool[]
  %2 = multibroadcast[out_lens=[n]](%1) -> bool[n]
  %3 = @literal(false) -> bool[]
  %4 = multibroadcast[out_lens=[n]](%3) -> bool[n]
  @return(%2, %4)""",
    ),
    (
        "known-condition",
        """\
  %x = @param["x"] -> bool[n]
  %yes = @literal(true) -> bool[1]
  %no = @literal(false) -> bool[1]
  %1 = multibroadcast[out_lens=[n]](%yes)
  %2 = multibroadcast[out_lens=[n]](%no)
  %3 = logical_and(%1, %x)
  %4 = logical_or(%3, %2)
  %5 = logical_and(%4, %4)
  %6 = not(%5)
  %7 = logical_and(%x, %2)
  @return(%6, %7)""",
        """\
  %x = @param["x"] -> bool[n]
  %1 = @literal(false) -> bool[1]
  %2 = multibroadcast[out_lens=[n]](%1) -> bool[n]
  %3 = not(%x) -> bool[n]
  @return(%3, %2)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "gather-in-order",
        f"""\
  %x = @param["x"] -> float32[n]
  %y = @param["y"] -> float32[4]
{counted("r", 0, "n")}\
  %1 = gather[axis=0](%y, %r)
  %2 = neg(%x)
  @return(%1, %2)""",
        "the positions may lie outside",
    ),
    (
        "gather-in-order-of-axes",
        f"""\
  %x = @param["x"] -> float32[n, n]
{counted("r", 0, "n")}\
  %1 = reshape[dims=[n, 1]](%r)
  %2 = concat[axis=1](%1, %1)
  %3 = gathernd[batch_dims=0](%x, %2)
  @return(%3)""",
        "the indices are consecutive along the same axis, or in another order",
    ),
    (
        "gather-of-single-indices",
        """\
  %x = @param["x"] -> float32[5]
  %i = @param["i"] -> int64[n, 1]
  %1 = gathernd[batch_dims=0](%x, %i)
  @return(%1)""",
        "the indices may be those of a mask's elements, which are recognized by them",
    ),
    (
        "comparison-of-count",
        f"""\
  %x = @param["x"] -> float32[n]
{counted("r", 0, "n")}\
  %four = @literal(4) -> int64[1]
  %fours = multibroadcast[out_lens=[n]](%four)
  %1 = less(%r, %fours)
  @return(%1)""",
        "the result depends on the position",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)


@pytest.mark.parametrize(
    ("view", "found"),
    [
        ("%v = multibroadcast[out_lens=[4, 3]](%c)", Count(1, 5)),
        ("%u = unsqueeze[axes=[0, 2]](%c)\n  %v = multibroadcast[out_lens=[2, 3, 2]](%u)", Count(1, 5)),
        ("%v = slice[axes=[0], starts=[1], ends=[3]](%c)", Count(0, 6)),
        ("%v = slice[axes=[0], starts=[0], ends=[3], steps=[2]](%c)", None),
        ("%u = multibroadcast[out_lens=[3, 3]](%c)\n  %v = transpose[permutation=[1, 0]](%u)", Count(0, 5)),
        ("%u = multibroadcast[out_lens=[2, 3]](%c)\n  %v = reshape[dims=[6]](%u)", None),
        ('%v = convert[target_type=int8, saturate=true, round_mode="up"](%c)', Count(0, 5)),
        ("%v = convert[target_type=float32](%c)", None),
    ],
)
def test_counts_are_followed_through_views(view, found):
    module = parse_module(f"module main\n  %c = @literal(5, 6, 7) -> int64[3]\n  {view}\n  @return(%v)", STANDARD)
    assert count(module.outputs[0]) == found
    if found is not None:
        (value,) = Interpreter().run(module, [])
        assert np.diff(value, axis=found.axis).tolist() == np.ones_like(np.diff(value, axis=found.axis)).tolist()
        assert (np.take(value, 0, found.axis) == found.first).all()


@pytest.mark.parametrize(
    ("dtype", "offset", "target", "holds"),
    [
        ("int64", 7, "int64", True),
        ("int64", 2**63 - 3, "int64", False),
        ("int64", 2**63 - 9, "int64", True),
        ("int32", 2**31 - 3, "int32", False),
        ("uint8", 254, "uint8", False),
        ("int8", 100, "int8", True),
        ("int64", -2, "uint64", False),
        ("int64", -2, "int32", True),
        ("int64", 2**31 - 3, "int32", False),
        ("int64", 300, "uint8", False),
    ],
)
def test_counts_that_wrap_around_are_none(dtype, offset, target, holds):
    text = f"""symbol n in 2..8
module main
  %x = @param["x"] -> float32[n]
  %zero = @literal(0) -> {dtype}[]
  %one = @literal(1) -> {dtype}[]
  %r = dynamic_range[length=n](%zero, %zero, %one)
  %offset = @literal({offset}) -> {dtype}[1]
  %wide = multibroadcast[out_lens=[n]](%offset)
  %moved = add(%r, %wide)
  %v = convert[target_type={target}, saturate=true, round_mode="up"](%moved)
  @return(%v)"""
    (out,) = parse_module(text, STANDARD).outputs
    assert count(out) == (Count(0, offset) if holds else None)


@pytest.mark.parametrize("offset", [2**53, 2**53 - 4, 2**62 - 3])
def test_large_numbers_are_compared_as_they_are(offset, run_both):
    def module():
        return parse_module(
            f"""symbol n in 2..8
module main
  %x = @param["x"] -> float32[n]
{counted("r", 0, "n")}\
  %offset = @literal({offset}) -> int64[1]
  %next = @literal({offset + 1}) -> int64[1]
  %1 = multibroadcast[out_lens=[n]](%offset)
  %2 = multibroadcast[out_lens=[n]](%next)
  %moved = add(%r, %1)
  %3 = less(%moved, %2)
  %4 = greater_or_equal(%moved, %1)
  @return(%3, %4)""",
            STANDARD,
        )

    after = module()
    Rewriter(INDICES).apply(after)
    assert [o.op.name for o in after.outputs] == ["less", "multibroadcast"]
    run_both(module(), after, True)
