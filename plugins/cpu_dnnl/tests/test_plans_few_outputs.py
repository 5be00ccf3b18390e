"""Convolutions with few outputs, several columns at a time, compared with float64 sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_cpu_dnnl.plans.few_outputs import columns_together
from mgx_cpu_dnnl.shared import shared
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(12)

CASES = [
    ((1, 5, 64), (1, 5, 7), {"padding": [3, 3], "stride": [1], "dilation": [1]}),
    ((2, 4, 128), (2, 4, 5), {"padding": [0, 4], "stride": [1], "dilation": [1]}),
    ((1, 3, 131), (1, 3, 9), {"padding": [4, 4], "stride": [2], "dilation": [1]}),
    ((1, 4, 5, 64), (1, 4, 3, 3), {"padding": [1, 1, 1, 1]}),
    ((2, 6, 7, 48), (3, 6, 5, 5), {"padding": [2, 2, 2, 2]}),
    ((1, 6, 9, 80), (4, 6, 2, 7), {"padding": [1, 3, 0, 3], "stride": [2, 2], "dilation": [3, 1]}),
    ((1, 8, 4, 3, 32), (4, 8, 3, 3, 3), {"padding": [1] * 6, "stride": [1] * 3, "dilation": [1] * 3}),
    ((2, 3, 4, 3, 32), (1, 3, 3, 1, 3), {"padding": [1, 0, 1] * 2, "stride": [1, 2, 1], "dilation": [1] * 3}),
]


def compiled(x: Any, w: Any, epilogue: str, extents: Any, **attributes: Any) -> tuple[Any, Any, list[str]]:
    """Returns results of the cpu target, those of the reference in float64, and the kernels."""
    bias, other = rng.standard_normal((w.shape[0], *(1 for _ in w.shape[2:]))), rng.standard_normal(extents)

    def built(dtype: str, target: mgx.Target) -> Any:
        program = mgx.Program()
        m = program.get_main_module()

        def literal(value: Any) -> Any:
            return m.add_literal(value.astype(np.float32).astype(dtype))

        given = m.add(mgx.op("tanh"), m.add_parameter("x", mgx.shape(type=dtype, lens=list(x.shape))))
        y = m.add(mgx.op("convolution", **attributes), given, literal(w))
        if epilogue:
            y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=y.shape.lens()), literal(bias)))
        if epilogue == "relu":
            y = m.add(mgx.op("relu"), y)
        if epilogue == "residual":
            residual = m.add(mgx.op("sin"), m.add_parameter("y", mgx.shape(type=dtype, lens=list(extents))))
            y = m.add(mgx.op("add"), m.add(mgx.op("leaky_relu", alpha=0.25), y), residual)
        m.add_return([y])
        program.compile(target)
        feed = {"x": x.astype(dtype)} | ({"y": other.astype(dtype)} if epilogue == "residual" else {})
        return program.run(feed)[0].to_numpy(), program

    found, program = built("float32", CpuTarget())
    kernels = [p.kernel for p in program.executable.instances()[0].placements]
    return found, built("float64", mgx.get_target("ref"))[0], kernels


@pytest.mark.parametrize(("dims", "weights", "attributes"), CASES)
@pytest.mark.parametrize("epilogue", ["", "relu", "residual"])
def test_values(dims: Any, weights: Any, attributes: Any, epilogue: str) -> None:
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in (dims, weights))
    extents = (
        mgx.op("convolution", **attributes).infer(mgx.Shape("float32", dims), mgx.Shape("float32", weights)).lens()
    )
    found, wanted, kernels = compiled(x, w, epilogue, extents, **attributes)
    together = shared().engine.wide or weights != (3, 6, 5, 5)  # where two columns fill a vector, filtering saves more
    assert any("columns" in k for k in kernels) == together, kernels
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=4 * w[0].size * 2.0**-24 * np.abs(w).max())


def test_columns_are_joined_only_where_that_saves_time() -> None:
    assert columns_together(1, 7, 1, 640, 16, False) == 16
    assert columns_together(3, 3, 1, 192, 16, True) == 4  # five do not divide 192
    assert columns_together(8, 3, 1, 40, 16, False) == 2
    assert columns_together(8, 3, 1, 40, 8, False) == 1  # a vector of AVX2 is full
    assert columns_together(1, 1, 1, 640, 16, False) == 1  # windows of one column have none in common
    assert columns_together(1, 3, 3, 640, 16, False) == 1
    assert columns_together(8, 3, 1, 64, 16, True) == 1  # filtering saves more
    assert columns_together(1, 3, 1, 21, 16, False) == 1  # too few columns would be left


@pytest.mark.parametrize(("outputs", "dilation", "width"), [(9, 1, 64), (1, 2, 64), (1, 1, 13)])
def test_others_are_left_to_other_plans(outputs: int, dilation: int, width: int) -> None:
    x, w = (
        rng.standard_normal((1, 4, 5, width)).astype(np.float32),
        rng.standard_normal((outputs, 4, 5, 5)).astype(np.float32),
    )
    given = {"padding": [4, 4, 4, 4], "stride": [1, 1], "dilation": [1, dilation]}
    extents = mgx.op("convolution", **given).infer(mgx.Shape("float32", x.shape), mgx.Shape("float32", w.shape)).lens()
    found, wanted, kernels = compiled(x, w, "", extents, **given)
    assert not any("columns" in k for k in kernels), kernels
    np.testing.assert_allclose(found, wanted, atol=4 * w[0].size * 2.0**-24 * np.abs(w).max())
