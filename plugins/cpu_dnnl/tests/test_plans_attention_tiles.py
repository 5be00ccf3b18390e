"""Attention in bfloat16: products in tile registers if these are faster than the loop over blocks of keys."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(7)
TILES = "amx_bf16" in native().cpu_features()
BF16 = dt.bfloat16.numpy


def attention(queries: int, keys: int, head: int, heads: int = 3, scale: bool = False, bias: str = "") -> list[str]:
    """Compares attention between transposes with its reference in float32; returns the names of the steps."""
    program = mgx.Program()
    m = program.get_main_module()
    given: dict[str, Any] = {}

    def parameter(name: str, *lens: int) -> Any:
        given[name] = (rng.standard_normal(lens) * (1 if name == "v" else 0.4)).astype(BF16)
        return m.add_parameter(name, mgx.Shape("bfloat16", list(lens)))

    def turned(x: Any, *order: int) -> Any:
        return m.add(mgx.op("transpose", permutation=list(order)), x)

    q, k, v = (
        turned(parameter(n, 2, c, heads, head), 0, 2, 1, 3) for n, c in (("q", queries), ("k", keys), ("v", keys))
    )
    scores = m.add(mgx.op("dot"), q, turned(k, 0, 1, 3, 2))
    lens = [2, heads, queries, keys]

    def spread(x: Any) -> Any:
        return m.add(mgx.op("multibroadcast", out_lens=lens), x)

    if scale:
        scores = m.add(mgx.op("mul"), scores, spread(m.add_literal(np.array([0.25], BF16))))
    if bias == "rows":
        scores = m.add(mgx.op("add"), scores, parameter("bias", *lens))
    if bias == "across":
        scores = m.add(mgx.op("add"), scores, spread(turned(parameter("bias", 1, queries, keys, heads), 0, 3, 1, 2)))
    made = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=3), scores), v)
    m.add_return([turned(made, 0, 2, 1, 3)])
    wide = {n: x.astype(np.float32) for n, x in given.items()}
    q, k, v = (wide[n].transpose(0, 2, 1, 3) for n in "qkv")
    exact = q @ k.swapaxes(2, 3) * (0.25 if scale else 1)
    if bias:
        exact = exact + (wide["bias"] if bias == "rows" else wide["bias"].transpose(0, 3, 1, 2))
    weights = np.exp(exact - exact.max(-1, keepdims=True))
    exact = (weights / weights.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3)
    program.compile(CpuTarget())
    (found,) = program.run(given)
    np.testing.assert_allclose(np.asarray(found, np.float32), exact, rtol=1e-2, atol=1.5e-2)
    return [s.name for s in program.executable.instances()[0].runner.schedule.steps]


@pytest.mark.skipif(not TILES, reason="the processor has no tile registers for bfloat16")
@pytest.mark.parametrize(("queries", "keys", "head"), [(33, 50, 64), (77, 77, 39), (40, 197, 80), (300, 301, 32)])
@pytest.mark.parametrize("scores", [{}, {"scale": True}, {"scale": True, "bias": "rows"}, {"bias": "across"}], ids=str)
def test_products_by_tiles(queries: int, keys: int, head: int, scores: dict[str, Any]) -> None:
    names = attention(queries, keys, head, **scores)
    tiles = head >= 64 or scores.get("bias") != "across"  # otherwise a loop over the scores would cancel the gain
    assert any(n.startswith("attention") for n in names) is not tiles
    products = [n for n in names if n.startswith("matmul")]
    assert len(products) == (0 if not tiles else 4 if queries == 300 else 2)  # two parts of heads
    assert not tiles or queries == 300 or set(products) == {"matmul brg:avx512_core_amx"}
    assert any(n.startswith("scores") for n in names) is (tiles and scores.get("bias") == "across")


@pytest.mark.skipif(not TILES, reason="the processor has no tile registers for bfloat16")
def test_rows_of_a_long_head_are_divided() -> None:
    names = attention(1100, 1000, 32, 1, scale=True, bias="rows")
    assert sum(n.startswith("matmul") for n in names) == 2 * 2 * 3, names  # products, heads, parts of each


def test_few_rows_and_small_heads_stay_in_one_loop() -> None:
    for extents in ((16, 16, 64), (50, 50, 24), (1, 200, 64)):
        assert any(n.startswith("attention") for n in attention(*extents, scale=True)), extents
