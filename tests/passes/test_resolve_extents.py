"""Extents that a product requires to be equal to others."""

from __future__ import annotations

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.passes.resolve_extents import UnifyExtents
from mgx_core.types.dim import broadcast, symbol

N, M = symbol("n", 0, 99), symbol("m", 0, 99)


def masked(target: str = "") -> mgx.Program:
    """Returns a program: softmax(q k^T + mask) v, with a mask of an extent of its own."""
    program = mgx.Program()
    m = program.get_main_module()
    q = m.add_parameter("q", mgx.Shape("float32", [2, 8]))
    k, v = (m.add_parameter(name, mgx.Shape("float32", [N, 8])) for name in "kv")
    mask = m.add_parameter("mask", mgx.Shape("float32", [1, M]))
    lens = [2, broadcast(N, M)]
    scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[1, 0]), k))
    both = (m.add(mgx.op("multibroadcast", out_lens=lens), x) for x in (scores, mask))
    weights = m.add(mgx.op("softmax", axis=1), m.add(mgx.op("add"), *both))
    m.add_return([m.add(mgx.op("dot"), weights, v)])
    if target:
        program.compile(mgx.get_target(target))
    return program


def test_an_extent_is_what_the_product_requires() -> None:
    module = masked().get_main_module()
    assert "broadcast(m, n)" in str(module)
    assert UnifyExtents().apply(module)
    assert "broadcast(m, n)" not in str(module) and "out_lens=[2, n]" in str(module)
    assert not UnifyExtents().apply(module)


def test_other_modules_are_unchanged() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    a, b = (m.add_parameter(name, mgx.Shape("float32", lens)) for name, lens in (("a", [2, N]), ("b", [M, 3])))
    m.add_return([m.add(mgx.op("dot"), a, b)])
    before = str(m)
    assert not UnifyExtents().apply(m) and str(m) == before


@pytest.mark.parametrize("target", ["ref", "cpu"])
@pytest.mark.parametrize(("n", "m"), [(5, 5), (5, 1), (1, 1)])
def test_masks_of_both_extents_give_the_same(target: str, n: int, m: int) -> None:
    rng = np.random.default_rng(n + m)
    q, k, v, mask = (rng.standard_normal(lens).astype(np.float32) for lens in ((2, 8), (n, 8), (n, 8), (1, m)))
    (got,) = masked(target).run({"q": q, "k": k, "v": v, "mask": mask})
    power = np.exp(q @ k.T + mask)
    np.testing.assert_allclose(np.asarray(got), power / power.sum(1, keepdims=True) @ v, rtol=1e-4, atol=1e-5)


def test_attention_is_fused_under_a_mask_of_its_own_extent() -> None:
    assert 'tag="attention"' in str(masked("cpu").executable.module)


def test_a_mask_of_another_length_is_refused() -> None:
    given = {name: np.zeros((rows, 8), np.float32) for name, rows in (("q", 2), ("k", 5), ("v", 5))}
    with pytest.raises(mgx.MgxError):
        masked("cpu").run({**given, "mask": np.zeros((1, 4), np.float32)})
