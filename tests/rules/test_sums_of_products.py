"""Rules that recognize products written as sums of broadcast products: module text before and after, and equal results."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.ir.interpreter import Interpreter

TURNS = [
    (
        "product-from-broadcast-sum",
        """\
  %x = @param["x"] -> float32[2, 16, 1, 8]
  %y = @param["y"] -> float32[2, 1, 9, 8]
  %1 = multibroadcast[out_lens=[2, 16, 9, 8]](%x)
  %2 = multibroadcast[out_lens=[2, 16, 9, 8]](%y)
  %3 = mul(%1, %2)
  %4 = reduce_sum[axes=[3]](%3)
  @return(%4)""",
        """\
  %x = @param["x"] -> float32[2, 16, 1, 8]
  %y = @param["y"] -> float32[2, 1, 9, 8]
  %1 = transpose[permutation=[0, 1, 3, 2]](%x) -> float32[2, 16, 8, 1]
  %2 = reshape[dims=[2, 16, 8], allowzero=false](%1) -> float32[2, 16, 8]
  %3 = transpose[permutation=[0, 3, 2, 1]](%y) -> float32[2, 8, 9, 1]
  %4 = reshape[dims=[2, 8, 9], allowzero=false](%3) -> float32[2, 8, 9]
  %5 = dot(%2, %4) -> float32[2, 16, 9]
  %6 = reshape[dims=[2, 16, 9], allowzero=false](%5) -> float32[2, 16, 9]
  %7 = reshape[dims=[2, 16, 9, 1], allowzero=false](%6) -> float32[2, 16, 9, 1]
  @return(%7)""",
    ),
    (
        "products-of-einsum",
        """\
  %x = @param["x"] -> float16[2, 16, 8]
  %y = @param["y"] -> float16[2, 8, 9]
  %1 = einsum[equation="bij,bjk->bki"](%x, %y)
  @return(%1)""",
        """\
  %x = @param["x"] -> float16[2, 16, 8]
  %y = @param["y"] -> float16[2, 8, 9]
  %1 = dot(%x, %y) -> float16[2, 16, 9]
  %2 = transpose[permutation=[0, 2, 1]](%1) -> float16[2, 9, 16]
  @return(%2)""",
    ),
    (
        "products-of-einsum",
        """\
  %x = @param["x"] -> float16[3, 4]
  %y = @param["y"] -> float16[4, 5]
  %z = @param["z"] -> float16[5, 6]
  %1 = einsum[equation="ij,jk,kl->il"](%x, %y, %z)
  @return(%1)""",
        """\
  %x = @param["x"] -> float16[3, 4]
  %y = @param["y"] -> float16[4, 5]
  %z = @param["z"] -> float16[5, 6]
  %1 = convert[target_type=float32, saturate=true, round_mode="up"](%x) -> float32[3, 4]
  %2 = convert[target_type=float32, saturate=true, round_mode="up"](%y) -> float32[4, 5]
  %3 = convert[target_type=float32, saturate=true, round_mode="up"](%z) -> float32[5, 6]
  %4 = dot(%1, %2) -> float32[3, 5]
  %5 = dot(%4, %3) -> float32[3, 6]
  %6 = convert[target_type=float16, saturate=true, round_mode="up"](%5) -> float16[3, 6]
  @return(%6)""",
    ),
    (
        "products-of-einsum",
        """\
  %x = @param["x"] -> float16[3, 4]
  %y = @param["y"] -> float16[4, 5]
  %1 = einsum[equation="ij,jk->k"](%x, %y)
  @return(%1)""",
        """\
  %x = @param["x"] -> float16[3, 4]
  %y = @param["y"] -> float16[4, 5]
  %1 = convert[target_type=float32, saturate=true, round_mode="up"](%x) -> float32[3, 4]
  %2 = convert[target_type=float32, saturate=true, round_mode="up"](%y) -> float32[4, 5]
  %3 = reduce_sum[axes=[0], noop_with_empty_axes=false](%1) -> float32[1, 4]
  %4 = squeeze[axes=[0]](%3) -> float32[4]
  %5 = reshape[dims=[1, 4], allowzero=false](%4) -> float32[1, 4]
  %6 = dot(%5, %2) -> float32[1, 5]
  %7 = reshape[dims=[5], allowzero=false](%6) -> float32[5]
  %8 = convert[target_type=float16, saturate=true, round_mode="up"](%7) -> float16[5]
  @return(%8)""",
    ),
]


@pytest.mark.parametrize(("name", "before", "after"), TURNS)
def test_turns(rule_turns, name, before, after):
    rule_turns(name, before, after)


REFUSES = [
    (
        "product-from-broadcast-sum",
        """\
  %x = @param["x"] -> float32[2, 4, 1, 8]
  %y = @param["y"] -> float32[2, 1, 9, 8]
  %1 = multibroadcast[out_lens=[2, 4, 9, 8]](%x)
  %2 = multibroadcast[out_lens=[2, 4, 9, 8]](%y)
  %3 = mul(%1, %2)
  %4 = reduce_sum[axes=[3]](%3)
  @return(%4)""",
        "a product of 4 x 8 x 9 is not faster than the reduction",
    ),
    (
        "product-from-broadcast-sum",
        """\
  %x = @param["x"] -> float32[2, 16, 1, 8]
  %y = @param["y"] -> float32[2, 1, 9, 8]
  %1 = multibroadcast[out_lens=[2, 16, 9, 8]](%x)
  %2 = multibroadcast[out_lens=[2, 16, 9, 8]](%y)
  %3 = mul(%1, %2)
  %4 = reduce_sum[axes=[3]](%3)
  @return(%4, %3)""",
        "the elementwise products have other users",
    ),
]


@pytest.mark.parametrize(("name", "before", "why"), REFUSES)
def test_refuses(rule_refuses, name, before, why):
    rule_refuses(name, before, why)


@pytest.mark.parametrize(
    ("first", "second", "axis"),
    [
        ((3, 1, 8, 9, 1, 8), (3, 1, 1, 9, 10, 8), 5),  # the states of a chunk of Mamba 2
        ((3, 1, 8, 9, 8, 1), (3, 1, 1, 9, 8, 12), 4),
        ((8, 12, 1), (8, 1, 16), 0),  # the sum outermost, no batch
        ((9, 8, 1, 3), (8, 10, 3), 1),  # an operand of a lower rank
        ((1, 8, 5, 9), (10, 1, 5, 9), 3),  # columns in front of the rows
        ((2, 8, 1, 8, 1, 9), (2, 1, 3, 1, 4, 9), 5),  # rows and columns of two axes, interleaved
    ],
)
def test_any_order_of_axes(first: tuple[int, ...], second: tuple[int, ...], axis: int) -> None:
    """One product in place of all elementwise ones, in float32 only."""
    for of in ("float32", "float16"):
        program = mgx.Program()
        m = program.get_main_module()
        dims = np.broadcast_shapes(first, second)
        x, y = (m.add_parameter(n, mgx.Shape(of, d)) for n, d in (("x", first), ("y", second)))
        wide = [m.add(mgx.op("multibroadcast", out_lens=dims), v) for v in (x, y)]
        m.add_return([m.add(mgx.op("reduce_sum", axes=[axis]), m.add(mgx.op("mul"), *wide))])
        rng = np.random.default_rng(0)
        feed = {n: rng.standard_normal(d).astype(of) for n, d in (("x", first), ("y", second))}
        (wanted,) = Interpreter().run(m.clone(), list(feed.values()))
        program.compile(mgx.get_target("ref"))
        assert ("= dot" in str(program)) is (of == "float32"), program
        found = program.run(feed)[0].to_numpy()
        np.testing.assert_allclose(found.astype(float), np.asarray(wanted).astype(float), rtol=1e-3, atol=1e-5)
