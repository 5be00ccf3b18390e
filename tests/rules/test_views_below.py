"""Rules that move views after the ops that read them: module text before and after, and equal results."""

from __future__ import annotations

import pytest

TURNS = [
    (
        "views-below-narrowing",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = tanh(%x)
  %2 = transpose[permutation=[1, 0, 2]](%1)
  %3 = reshape[dims=[3, 8]](%2)
  %4 = convert[target_type=float16](%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = tanh(%x) -> float32[2, 3, 4]
  %2 = convert[target_type=float16, saturate=true, round_mode="up"](%1) -> float16[2, 3, 4]
  %3 = transpose[permutation=[1, 0, 2]](%2) -> float16[3, 2, 4]
  %4 = reshape[dims=[3, 8], allowzero=false](%3) -> float16[3, 8]
  @return(%4)""",
    ),
    (
        "views-below-narrowing",
        """\
  %x = @param["x"] -> float32[6, 4]
  %y = @param["y"] -> float32[4, 8]
  %c = @literal(0.5) -> float32[1, 1, 1]
  %b = multibroadcast[out_lens=[3, 8, 2]](%c)
  %1 = dot(%x, %y)
  %2 = reshape[dims=[2, 3, 8]](%1)
  %3 = transpose[permutation=[1, 2, 0]](%2)
  %4 = mul(%b, %3)
  %5 = convert[target_type=float16](%4)
  @return(%5)""",
        """\
  %x = @param["x"] -> float32[6, 4]
  %y = @param["y"] -> float32[4, 8]
  %1 = dot(%x, %y) -> float32[6, 8]
  %2 = @literal(0.5) -> float32[]
  %3 = multibroadcast[out_lens=[6, 8]](%2) -> float32[6, 8]
  %4 = mul(%1, %3) -> float32[6, 8]
  %5 = convert[target_type=float16, saturate=true, round_mode="up"](%4) -> float16[6, 8]
  %6 = reshape[dims=[2, 3, 8], allowzero=false](%5) -> float16[2, 3, 8]
  %7 = transpose[permutation=[1, 2, 0]](%6) -> float16[3, 8, 2]
  @return(%7)""",
    ),
    (
        "views-below-narrowing",
        """\
  %x = @param["x"] -> int64[6, 4]
  %c = @literal(9007199254740993) -> int64[]
  %b = multibroadcast[out_lens=[3, 4, 2]](%c)
  %1 = abs(%x)
  %2 = reshape[dims=[2, 3, 4]](%1)
  %3 = transpose[permutation=[1, 2, 0]](%2)
  %4 = mul(%3, %b)
  %5 = convert[target_type=int32](%4)
  @return(%5)""",
        """\
  %x = @param["x"] -> int64[6, 4]
  %1 = abs(%x) -> int64[6, 4]
  %2 = @literal(9007199254740993) -> int64[]
  %3 = multibroadcast[out_lens=[6, 4]](%2) -> int64[6, 4]
  %4 = mul(%1, %3) -> int64[6, 4]
  %5 = convert[target_type=int32, saturate=true, round_mode="up"](%4) -> int32[6, 4]
  %6 = reshape[dims=[2, 3, 4], allowzero=false](%5) -> int32[2, 3, 4]
  %7 = transpose[permutation=[1, 2, 0]](%6) -> int32[3, 4, 2]
  @return(%7)""",
    ),
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 3]
  %c = @literal(1.0, 2.0) -> float32[2]
  %b = multibroadcast[out_lens=[3, 2]](%c)
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = transpose[permutation=[1, 0]](%y)
  %3 = clip(%1, %b, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 3]
  %1 = @literal(1.0, 2.0) -> float32[2, 1]
  %2 = multibroadcast[out_lens=[2, 3]](%1) -> float32[2, 3]
  %3 = clip(%x, %2, %y) -> float32[2, 3]
  %4 = transpose[permutation=[1, 0]](%3) -> float32[3, 2]
  @return(%4)""",
    ),
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[0, 3]
  %y = @param["y"] -> float32[0, 3]
  %c = @literal() -> float32[3, 0]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = transpose[permutation=[1, 0]](%y)
  %3 = clip(%1, %c, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[0, 3]
  %y = @param["y"] -> float32[0, 3]
  %1 = @literal() -> float32[0, 3]
  %2 = clip(%x, %1, %y) -> float32[0, 3]
  %3 = transpose[permutation=[1, 0]](%2) -> float32[3, 0]
  @return(%3)""",
    ),
    (
        "reshape-below-pointwise",
        """\
  %x = @param["x"] -> float32[6, 2]
  %c = @literal(1.0, 2.0) -> float32[2]
  %b = multibroadcast[out_lens=[2, 3, 2]](%c)
  %0 = relu(%x)
  %1 = reshape[dims=[2, 3, 2]](%0)
  %2 = mul(%1, %b)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[6, 2]
  %1 = relu(%x) -> float32[6, 2]
  %2 = @literal(1.0, 2.0) -> float32[2]
  %3 = multibroadcast[out_lens=[6, 2]](%2) -> float32[6, 2]
  %4 = mul(%1, %3) -> float32[6, 2]
  %5 = reshape[dims=[2, 3, 2], allowzero=true](%4) -> float32[2, 3, 2]
  @return(%5)""",
    ),
    (
        "broadcast-below-pointwise",
        """\
  %x = @param["x"] -> float32[1, 3]
  %y = @param["y"] -> float32[]
  %1 = multibroadcast[out_lens=[4, 2, 3]](%x)
  %2 = multibroadcast[out_lens=[4, 2, 3]](%y)
  %3 = mul(%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[1, 3]
  %y = @param["y"] -> float32[]
  %1 = multibroadcast[out_lens=[1, 3]](%y) -> float32[1, 3]
  %2 = mul(%x, %1) -> float32[1, 3]
  %3 = multibroadcast[out_lens=[4, 2, 3]](%2) -> float32[4, 2, 3]
  @return(%3)""",
    ),
    (
        "drop-reduction-of-units",
        """\
  %x = @param["x"] -> float32[n, 1]
  %1 = reduce_mean[axes=[1]](%x)
  %2 = neg(%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[n, 1]
  %1 = neg(%x) -> float32[n, 1]
  @return(%1)""",
    ),
    (
        "join-reductions",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = reduce_mean[axes=[2]](%x)
  %2 = reduce_mean[axes=[0]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = reduce_mean[axes=[0, 2], noop_with_empty_axes=false](%x) -> float32[1, 3, 1]
  @return(%1)""",
    ),
    (
        "transpose-below-extreme",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = transpose[permutation=[2, 0, 1]](%x)
  %2 = reduce_max[axes=[0]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = reduce_max[axes=[2], noop_with_empty_axes=false](%x) -> float32[2, 3, 1]
  %2 = transpose[permutation=[2, 0, 1]](%1) -> float32[1, 2, 3]
  @return(%2)""",
    ),
    (
        "transpose-below-reduction",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = transpose[permutation=[2, 0, 1]](%x)
  %2 = reduce_sum[axes=[0, 1]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3, 4]
  %1 = reduce_sum[axes=[0, 2], noop_with_empty_axes=false](%x) -> float32[1, 3, 1]
  %2 = transpose[permutation=[2, 0, 1]](%1) -> float32[1, 1, 3]
  @return(%2)""",
    ),
    (
        "reshape-below-reduction",
        """\
  %x = @param["x"] -> float32[n, 3, 4, 5]
  %1 = reshape[dims=[n, 3, 20]](%x)
  %2 = reduce_max[axes=[2]](%1)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[n, 3, 4, 5]
  %1 = reduce_max[axes=[2, 3], noop_with_empty_axes=false](%x) -> float32[n, 3, 1, 1]
  %2 = reshape[dims=[n, 3, 1], allowzero=true](%1) -> float32[n, 3, 1]
  @return(%2)""",
    ),
    (
        "transpose-below-concat",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 4]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = transpose[permutation=[1, 0]](%y)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[2, 4]
  %1 = concat[axis=1](%x, %y) -> float32[2, 7]
  %2 = transpose[permutation=[1, 0]](%1) -> float32[7, 2]
  @return(%2)""",
    ),
    (
        "transpose-below-gather",
        """\
  %x = @param["x"] -> float32[2, 3]
  %i = @literal(2, 0) -> int64[2]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = gather[axis=0](%1, %i)
  @return(%2)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = @literal(2, 0) -> int64[2]
  %2 = gather[axis=1](%x, %1) -> float32[2, 2]
  %3 = transpose[permutation=[1, 0]](%2) -> float32[2, 2]
  @return(%3)""",
    ),
    (
        "transpose-below-gather",
        """\
  %x = @param["x"] -> float32[2, 3]
  %i = @literal(1, -1) -> int64[2]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = gather[axis=0](%1, %i)
  %3 = gather[axis=1](%1, %i)
  @return(%2, %3)""",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = @literal(1, -1) -> int64[2]
  %2 = gather[axis=1](%x, %1) -> float32[2, 2]
  %3 = transpose[permutation=[1, 0]](%2) -> float32[2, 2]
  %4 = gather[axis=0](%x, %1) -> float32[2, 3]
  %5 = transpose[permutation=[1, 0]](%4) -> float32[3, 2]
  @return(%3, %5)""",
    ),
    (
        "broadcast-below-concat",
        """\
  %x = @param["x"] -> float32[2, 1]
  %y = @param["y"] -> float32[3, 1]
  %1 = multibroadcast[out_lens=[2, 4]](%x)
  %2 = multibroadcast[out_lens=[3, 4]](%y)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        """\
  %x = @param["x"] -> float32[2, 1]
  %y = @param["y"] -> float32[3, 1]
  %1 = concat[axis=0](%x, %y) -> float32[5, 1]
  %2 = multibroadcast[out_lens=[5, 4]](%1) -> float32[5, 4]
  @return(%2)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %y = @param["y"] -> float32[3, 2]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = add(%1, %y)
  @return(%2)""",
        "an operand is neither constant nor transposed in the same way",
    ),
    (
        "transpose-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = transpose[permutation=[1, 0]](%x)
  %2 = relu(%1)
  @return(%2)""",
        "no operations would become fusible",
    ),
    (
        "reshape-below-pointwise",
        """\
  %x = @param["x"] -> float32[2, 3]
  %1 = reshape[dims=[6]](%x)
  %2 = relu(%1)
  @return(%2)""",
        "no operations would become fusible",
    ),
    (
        "reshape-below-reduction",
        """\
  %x = @param["x"] -> float32[4, 6]
  %1 = reshape[dims=[4, 2, 3]](%x)
  %2 = reduce_sum[axes=[2]](%1)
  @return(%2)""",
        "the reduced axes are parts of axes of x",
    ),
    (
        "broadcast-below-concat",
        """\
  %x = @param["x"] -> float32[2, 1, 2]
  %y = @param["y"] -> float32[2, 4, 1]
  %1 = multibroadcast[out_lens=[2, 4, 2]](%x)
  %2 = multibroadcast[out_lens=[2, 4, 2]](%y)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        "the operands broadcast over different axes",
    ),
    (
        "transpose-below-concat",
        """\
  %x = @param["x"] -> float32[2, 3, 2]
  %1 = transpose[permutation=[1, 0, 2]](%x)
  %2 = transpose[permutation=[1, 2, 0]](%x)
  %3 = concat[axis=0](%1, %2)
  @return(%3)""",
        "the operands are transposed differently",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)
