"""Convolutions whose weights exceed the caches, compared with float64 sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl import winograd
from mgx_cpu_dnnl.plans import window_products
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(8)


@pytest.fixture
def small_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """No weights stay near, and Winograd's filtering never pays."""
    monkeypatch.setattr(window_products, "_exceeds_cache", lambda weights: True)
    monkeypatch.setattr(winograd, "MAX_DIRECT_RATIO", 0.0)


def compiled(x: Any, w: Any, relu: bool = False, **attributes: Any) -> tuple[Any, Any, list[str]]:
    """Returns results of the cpu target, with or without bias and relu, those of the reference in float64, and the steps."""
    bias = rng.standard_normal((w.shape[0], *(1 for _ in w.shape[2:])))

    def built(dtype: str, target: mgx.Target) -> mgx.Program:
        program = mgx.Program()
        m = program.get_main_module()
        given = m.add_parameter("x", mgx.shape(type=dtype, lens=list(x.shape)))
        y = m.add(mgx.op("convolution", **attributes), given, m.add_literal(w.astype(dtype)))
        if relu:
            added = m.add_literal(bias.astype(np.float32).astype(dtype))
            y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=y.shape.lens()), added))
            y = m.add(mgx.op("relu"), y)
        m.add_return([y])
        program.compile(target)
        return program

    made = built("float32", CpuTarget())
    steps = [s.name for s in made.executable.instances()[0].runner.schedule.steps]
    wanted = built("float64", mgx.get_target("ref")).run({"x": x.astype(np.float64)})
    return made.run({"x": x})[0].to_numpy(), wanted[0].to_numpy(), steps


CASES = [
    ((1, 19, 7, 7), (50, 19, 3, 3), {"padding": [1, 1, 1, 1]}),
    ((1, 19, 8, 7), (50, 19, 3, 3), {"padding": [1, 1, 1, 1], "stride": [2, 2]}),
    ((2, 16, 5, 6), (64, 16, 2, 3), {"padding": [0, 0, 1, 2], "stride": [2, 1]}),
    ((1, 16, 9, 9), (40, 16, 3, 3), {"padding": [2, 2, 2, 2], "stride": [2, 2], "dilation": [2, 2]}),
    ((1, 24, 3, 3), (32, 24, 3, 3), {"padding": [0, 0, 0, 0]}),
    ((1, 8, 11), (32, 8, 5), {"padding": [2, 2], "stride": [1], "dilation": [1]}),
    ((1, 6, 3, 4, 3), (48, 6, 2, 3, 2), {"padding": [1, 1, 0, 0, 1, 1], "stride": [1] * 3, "dilation": [1] * 3}),
]


@pytest.mark.parametrize(("dims", "weights", "attributes"), CASES)
@pytest.mark.parametrize("relu", [False, True])
def test_values(small_cache: None, dims: Any, weights: Any, attributes: Any, relu: bool) -> None:
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in (dims, weights))
    found, wanted, steps = compiled(x, w, relu, **attributes)
    assert "gemm" in steps, steps
    assert found.shape == wanted.shape
    terms = w[0].size
    np.testing.assert_allclose(found, wanted, atol=4 * terms * 2.0**-24 * np.abs(x).max() * np.abs(w).max())


def test_more_windows_than_results_are_not_copied(small_cache: None) -> None:
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in ((1, 16, 7, 7), (48, 16, 3, 3)))
    _, _, steps = compiled(x, w, padding=[1, 1, 1, 1])
    assert "gemm" not in steps, steps


def test_only_weights_that_no_near_cache_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    class Processor:
        def cache_sizes(self) -> dict[str, int]:
            return {"l2": 1 << 20}

    monkeypatch.setattr(window_products, "native", Processor)
    op = mgx.op("convolution", padding=[1, 1])

    def kept(channels: int) -> bool:
        shapes = [mgx.Shape("float32", [1, channels, 7, 7]), mgx.Shape("float32", [1024, channels, 3, 3])]
        return window_products.fits(op, shapes, []) is not None

    assert kept(448)
    assert not kept(512)


@pytest.mark.parametrize(("dilation", "taps"), [(5, 3), (12, 1)])
def test_taps_that_meet_only_padding_are_not_copied(small_cache: None, dilation: int, taps: int) -> None:
    """The extents are known only in a run, so that no rule removed the taps."""
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in ((1, 16, 5, 6), (48, 16, 3, 3)))
    attributes = {"padding": [dilation] * 4, "dilation": [dilation] * 2}
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape("float32", [1, 16, symbol("h"), 6]))
    m.add_return([m.add(mgx.op("convolution", **attributes), given, m.add_literal(w))])
    program.compile(CpuTarget())
    found = program.run({"x": x})[0].to_numpy()
    _, wanted, _ = compiled(x, w, **attributes)
    np.testing.assert_allclose(found, wanted, atol=4 * w[0].size * 2.0**-24 * np.abs(x).max() * np.abs(w).max())
    (product,) = (s for s in program.executable.instances()[0].runner.schedule.steps if s.name == "gemm")
    assert product.flops == 2 * 30 * w.shape[0] * 16 * taps


@pytest.mark.parametrize(
    "attributes", [{"padding": [1, 1]}, {"padding": [1, 1], "stride": [2, 2]}, {"padding": [0, 2, 1, 0]}]
)
def test_images_of_any_extents(agrees_open: Any, attributes: dict[str, Any]) -> None:
    r = np.random.default_rng(4)
    w = (0.1 * r.standard_normal((256, 40, 3, 3))).astype(np.float32)
    sizes = [(2, 7, 9), (3, 4, 5), (2, 12, 9), (5, 30, 41)]
    agrees_open(mgx.op("convolution", **attributes), ["b", 40, "h", "w"], [w], sizes, 1e-3)


def test_signals_of_any_length(agrees_open: Any) -> None:
    r = np.random.default_rng(4)
    w = (0.1 * r.standard_normal((256, 40, 5))).astype(np.float32)
    op = mgx.op("convolution", padding=[2], stride=[2])
    agrees_open(op, [1, 40, "t"], [w], [(30,), (9,), (200,), (61,)], 1e-3)
