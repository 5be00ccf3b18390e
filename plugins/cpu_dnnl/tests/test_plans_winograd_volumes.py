"""Convolutions of volumes by Winograd's filtering of images, compared with float64 sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_cpu_dnnl import winograd
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(15)

CASES = [
    ((1, 16, 5, 12, 13), (16, 16, 3, 3, 3), {"padding": [1] * 6}),
    ((2, 16, 4, 9, 9), (20, 16, 3, 3, 3), {"padding": [1, 0, 1, 1, 2, 1]}),
    ((1, 17, 6, 8, 8), (16, 17, 5, 3, 3), {"padding": [2, 1, 1] * 2}),
    ((1, 16, 7, 8, 10), (16, 16, 3, 3, 3), {"padding": [1] * 6, "stride": [2, 1, 1]}),
    ((1, 16, 7, 9, 10), (24, 16, 3, 3, 3), {"padding": [2, 1, 1] * 2, "dilation": [2, 1, 1]}),
    ((3, 16, 2, 8, 8), (16, 16, 1, 3, 3), {"padding": [0, 1, 1] * 2}),
    ((1, 16, 1, 8, 8), (16, 16, 3, 3, 3), {"padding": [1] * 6}),
    ((1, 32, 3, 8, 9), (32, 16, 3, 3, 3), {"padding": [1] * 6, "group": 2}),
    ((1, 16, 4, 8, 8), (16, 16, 3, 3, 3), {"padding": [0] * 6}),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Filtering always pays."""
    monkeypatch.setattr(winograd, "MAX_DIRECT_RATIO", 1e9)


def compiled(x: Any, w: Any, epilogue: str, **attributes: Any) -> tuple[Any, Any, list[str]]:
    """Returns results of the cpu target, those of the reference in float64, and the kernels."""
    given = {"stride": [1] * 3, "dilation": [1] * 3} | attributes
    lens = mgx.op("convolution", **given).infer(mgx.Shape("float32", x.shape), mgx.Shape("float32", w.shape)).lens()
    bias, other = rng.standard_normal((w.shape[0], 1, 1, 1)), rng.standard_normal(lens)

    def built(dtype: str, target: mgx.Target) -> Any:
        program = mgx.Program()
        m = program.get_main_module()

        def literal(value: Any) -> Any:
            return m.add_literal(value.astype(np.float32).astype(dtype))

        start = m.add(mgx.op("tanh"), m.add_parameter("x", mgx.shape(type=dtype, lens=list(x.shape))))
        y = m.add(mgx.op("convolution", **given), start, literal(w))
        feed = {"x": x.astype(dtype)}
        if epilogue:
            y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=lens), literal(bias)))
        if epilogue == "residual":
            y = m.add(mgx.op("add"), y, m.add(mgx.op("sin"), m.add_parameter("y", mgx.shape(type=dtype, lens=lens))))
            feed["y"] = other.astype(np.float32).astype(dtype)
        if epilogue:
            y = m.add(mgx.op("relu"), y)
        m.add_return([y])
        program.compile(target)
        return program.run(feed)[0].to_numpy(), program

    found, program = built("float32", CpuTarget())
    kernels = [p.kernel for p in program.executable.instances()[0].placements]
    return found, built("float64", mgx.get_target("ref"))[0], kernels


@pytest.mark.parametrize(("dims", "weights", "attributes"), CASES)
@pytest.mark.parametrize("epilogue", ["", "relu", "residual"])
def test_values(always: None, dims: Any, weights: Any, attributes: Any, epilogue: str) -> None:
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in (dims, weights))
    found, wanted, kernels = compiled(x, w, epilogue, **attributes)
    assert any("winograd" in k for k in kernels), kernels
    assert found.shape == wanted.shape
    scale = float(np.abs(w).max()) * 2.0**-24
    np.testing.assert_allclose(found, wanted, atol=32 * w[0].size * scale)


@pytest.mark.parametrize(
    ("dims", "weights", "attributes"),
    [
        ((1, 16, 4, 8, 8), (16, 16, 3, 3, 3), {"padding": [1] * 6, "stride": [1, 2, 1]}),
        ((1, 8, 4, 8, 8), (16, 8, 3, 3, 3), {"padding": [1] * 6}),
        ((1, 16, 2, 8, 8), (16, 16, 2, 3, 3), {"padding": [1, 1, 1] * 2}),
        ((9, 16, 2, 8, 8), (16, 16, 3, 3, 3), {"padding": [1, 1, 1] * 2}),
    ],
    ids=["strides", "channels", "no tap at all places", "samples"],
)
def test_others_are_left_to_other_plans(always: None, dims: Any, weights: Any, attributes: Any) -> None:
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in (dims, weights))
    found, wanted, kernels = compiled(x, w, "relu", **attributes)
    assert not any("winograd" in k for k in kernels), kernels
    np.testing.assert_allclose(found, wanted, atol=4 * w[0].size * 2.0**-24 * np.abs(w).max())
