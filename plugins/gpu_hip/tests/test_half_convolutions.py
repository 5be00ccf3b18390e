"""Convolutions of 16-bit floats in generated kernels, with epilogues that libraries have or lack."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_gpu_hip.plans import half_convolutions
from mgx_gpu_hip.target import GpuTarget

CASES: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "padded": ((2, 16, 9, 7), (24, 16, 3, 3), dict(padding=(1, 1))),
    "groups": ((1, 32, 6, 7), (48, 16, 3, 3), dict(padding=(1, 1), stride=(2, 1), group=2)),
    "pixels": ((3, 40, 5, 5), (16, 40, 1, 1), {}),
    "18 channels": ((2, 18, 9, 7), (36, 18, 3, 3), dict(padding=(1, 1))),
    "groups of 12": ((1, 24, 6, 7), (24, 12, 3, 3), dict(padding=(1, 1), stride=(2, 2), group=2)),
    "a row": ((2, 24, 33), (9, 24, 7), dict(padding=(9,), dilation=(3,))),
    "a volume": ((1, 8, 3, 4, 5), (16, 8, 1, 2, 3), dict(padding=(0, 1, 1))),
}


@pytest.mark.parametrize("device", [0, 1], ids=["wave64", "wave32"])
@pytest.mark.parametrize("of", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_definition(name: str, of: str, device: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bias, a residual and a gate follow, which no library fuses with a convolution."""
    monkeypatch.setattr(half_convolutions, "JOINT", ("host32", "host64"))
    rng = np.random.default_rng(3)
    x_lens, w_lens, attributes = CASES[name]
    program = mgx.Program()
    m = program.get_main_module()
    kind = dt.of(of).numpy
    w = (rng.standard_normal(w_lens) / np.prod(w_lens[1:]) ** 0.5).astype(kind)
    y = m.add(mgx.op("convolution", **attributes), m.add_parameter("x", mgx.Shape(of, x_lens)), m.add_literal(w))
    lens = y.shape.lens()
    bias = m.add_literal(rng.standard_normal(w_lens[0]).astype(kind))
    y = m.add(mgx.op("add"), y, m.add(mgx.op("broadcast", axis=1, out_lens=lens), bias))
    y = m.add(mgx.op("add"), y, m.add_parameter("r", mgx.Shape(of, lens)))
    m.add_return([m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y))])
    feed = {k: rng.standard_normal(v).astype(kind) for k, v in (("x", x_lens), ("r", lens))}
    exact = program.clone()
    exact.compile(mgx.get_target("ref"))
    program.compile(GpuTarget("host", device))
    (instance,) = program.executable.instances()
    assert any(step.name.startswith("narrow_convolution") for step in instance.plan.steps), [
        s.name for s in instance.plan.steps
    ]
    got, wanted = (np.asarray(p.run(feed)[0]).astype(np.float32) for p in (program, exact))
    np.testing.assert_allclose(got, wanted, rtol=4 * dt.of(of).epsilon, atol=16 * dt.of(of).epsilon)


def test_convolutions_of_other_sizes_share_a_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Layers of single pixels that differ in channels and in the image have one kernel, with these numbers as arguments."""
    monkeypatch.setattr(half_convolutions, "JOINT", ("host32", "host64"))
    rng = np.random.default_rng(3)
    program = mgx.Program()
    m = program.get_main_module()
    sizes = {"a": (16, 24, 8), "b": (40, 16, 8), "c": (16, 24, 4), "d": (32, 48, 4)}
    results = []
    for name, (channels, filters, side) in sizes.items():
        w = m.add_literal((rng.standard_normal((filters, channels, 1, 1)) / channels**0.5).astype(np.float16))
        x = m.add_parameter(name, mgx.Shape("float16", (2, channels, side, side)))
        results.append(m.add(mgx.op("relu"), m.add(mgx.op("convolution"), x, w)))
    m.add_return(results)
    feed = {k: rng.standard_normal((2, c, s, s)).astype(np.float16) for k, (c, _, s) in sizes.items()}
    exact = program.clone()
    exact.compile(mgx.get_target("ref"))
    program.compile(GpuTarget("host", 1))
    (instance,) = program.executable.instances()
    names = [step.name for step in instance.plan.steps if step.name.startswith("narrow_convolution")]
    assert len(names) == len(sizes)
    assert len(set(names)) < len(sizes) - 1, names
    for got, wanted in zip(program.run(feed), exact.run(feed), strict=True):
        np.testing.assert_allclose(np.asarray(got), np.asarray(wanted), rtol=4e-3, atol=4e-3)
