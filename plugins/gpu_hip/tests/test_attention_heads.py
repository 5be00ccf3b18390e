"""Attention whose heads share keys and values in groups: no copies of these, and the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_gpu_hip.target import GpuTarget


def attention(queries: int, keys: int, masked: bool, of: Any, batch: int = 1) -> tuple[mgx.Program, dict[str, Any]]:
    """6 heads in 2 groups, 16 wide, as a decoder is exported: keys repeated, scores scaled and masked."""
    rng = np.random.default_rng(queries)
    program = mgx.Program()
    m = program.get_main_module()
    dims = {"q": [batch, queries, 96], "k": [batch, 2, keys, 16], "v": [batch, 2, keys, 16]}
    feed = {name: rng.standard_normal(d).astype(of.numpy) for name, d in dims.items()}
    q, k, v = (m.add_parameter(n, mgx.Shape(of, d)) for n, d in dims.items())
    q = m.add(mgx.op("reshape", dims=[batch, queries, 6, 16]), q)
    q = m.add(mgx.op("transpose", permutation=[0, 2, 1, 3]), q)

    def repeated(x: Any) -> Any:
        x = m.add(mgx.op("unsqueeze", axes=[2]), x)
        x = m.add(mgx.op("multibroadcast", out_lens=[batch, 2, 3, keys, 16]), x)
        return m.add(mgx.op("reshape", dims=[batch, 6, keys, 16]), x)

    scores = m.add(mgx.op("dot"), q, m.add(mgx.op("transpose", permutation=[0, 1, 3, 2]), repeated(k)))
    scale = m.add_literal(np.asarray(0.25, of.numpy))
    whole = [batch, 6, queries, keys]
    scores = m.add(mgx.op("mul"), scores, m.add(mgx.op("multibroadcast", out_lens=whole), scale))
    if masked:
        mask = m.add_parameter("mask", mgx.Shape(of, [batch, 1, queries, keys]))
        feed["mask"] = np.where(rng.random((batch, 1, queries, keys)) < 0.3, -1e4, 0).astype(of.numpy)
        scores = m.add(mgx.op("add"), scores, m.add(mgx.op("multibroadcast", out_lens=whole), mask))
    y = m.add(mgx.op("dot"), m.add(mgx.op("softmax", axis=3), scores), repeated(v))
    y = m.add(mgx.op("transpose", permutation=[0, 2, 1, 3]), y)
    m.add_return([m.add(mgx.op("reshape", dims=[batch, queries, 96]), y)])
    return program, feed


@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("of", ["float32", "float16"])
@pytest.mark.parametrize("masked", [False, True], ids=["plain", "masked"])
@pytest.mark.parametrize(("queries", "keys", "batch"), [(1, 37, 1), (5, 12, 2), (24, 24, 1)])
def test_shared_keys_are_not_copied(queries: int, keys: int, batch: int, masked: bool, of: str, device: int) -> None:
    program, feed = attention(queries, keys, masked, dt.of(of), batch)
    plain = program.clone()
    plain.compile(mgx.get_target("ref"))
    wanted = plain.run(feed)[0].to_numpy().astype(np.float64)
    program.compile(GpuTarget("host", device))
    got = program.run(feed)[0].to_numpy().astype(np.float64)
    (instance,) = program.executable.instances()
    assert [s.name.split("_")[0] for s in instance.runner.schedule.steps] == ["attention"]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=2e-3 if of == "float16" else 2e-6)
