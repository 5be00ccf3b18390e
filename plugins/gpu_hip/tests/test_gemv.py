"""Products of one row with epilogues, compared with the reference on the emulated device."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_gpu_hip.target import GpuTarget

SHAPES = [((1,), 2056, 40), ((1, 1), 768, 96), ((1,), 264, 257), ((1, 1), 3072, 33)]  # axes before k, k, n


def made(lead: tuple[int, ...], k: int, n: int, kind: Any, behind: bool) -> tuple[mgx.Program, dict[str, Any], Any]:
    rng = np.random.default_rng(k)
    x = rng.standard_normal((*lead, k)).astype(kind.numpy)
    w = (rng.standard_normal((k, n)) / k**0.5).astype(kind.numpy)
    b, r = (rng.standard_normal(s).astype(kind.numpy) for s in ((n,), (*lead, n)))
    program = mgx.Program()
    m = program.get_main_module()
    left = m.add_parameter("x", mgx.Shape(kind, [*lead, k]))
    right = m.add_literal(w)
    if len(lead) > 1:
        right = m.add(mgx.op("multibroadcast", out_lens=[*lead[:-1], k, n]), right)
    y = m.add(mgx.op("dot"), left, right)
    wanted = x.astype(np.float64) @ w.astype(np.float64)
    feed = {"x": x}
    if behind:
        bias = m.add(mgx.op("multibroadcast", out_lens=[*lead, n]), m.add_literal(b))
        y = m.add(mgx.op("relu"), m.add(mgx.op("add"), y, bias))
        y = m.add(mgx.op("add"), y, m.add_parameter("r", mgx.Shape(kind, [*lead, n])))
        feed["r"] = r
        wanted = np.maximum(wanted + b.astype(np.float64), 0) + r.astype(np.float64)
    m.add_return([y])
    return program, feed, wanted


@pytest.mark.pairs
@pytest.mark.parametrize("device", [0, 1], ids=["wave32", "wave64"])
@pytest.mark.parametrize("behind", [False, True], ids=["alone", "group"])
@pytest.mark.parametrize("of", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("shape", SHAPES, ids=lambda s: f"{s[1]}x{s[2]}")
def test_one_row(shape: Any, of: str, behind: bool, device: int) -> None:
    kind = dt.of(of)
    program, feed, wanted = made(*shape, kind, behind)
    program.compile(GpuTarget("host", device))
    got = program.run(feed)[0].to_numpy().astype(np.float64)
    (instance,) = program.executable.instances()
    assert [s.name.split("_")[:2] for s in instance.runner.schedule.steps] == [["single", "row"]]
    np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * max(2 * kind.epsilon, 2e-6))


@pytest.mark.parametrize(("lead", "k", "n"), [((2,), 2048, 64), ((1,), 2047, 64), ((1,), 64, 64)])
def test_other_products_are_left_to_other_kernels(lead: tuple[int, ...], k: int, n: int) -> None:
    program, feed, wanted = made(lead, k, n, dt.float16, False)
    program.compile(GpuTarget("host", 1))
    got = program.run(feed)[0].to_numpy().astype(np.float64)
    (instance,) = program.executable.instances()
    assert not any(s.name.startswith("single_row") for s in instance.runner.schedule.steps)
    np.testing.assert_allclose(got, wanted, rtol=0, atol=np.abs(wanted).max() * 2e-3)
