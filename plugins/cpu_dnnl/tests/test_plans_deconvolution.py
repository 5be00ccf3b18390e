"""Transposed convolutions by oneDNN, compared with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(3)

CASES: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((1, 8, 5, 5), (8, 12, 3, 3), {}),
    ((2, 8, 5, 7), (8, 12, 3, 3), {"stride": [2, 2], "padding": [1, 1]}),
    ((2, 8, 5, 7), (8, 12, 3, 3), {"stride": [2, 2], "padding": [1, 1], "output_padding": [1, 1]}),
    ((2, 8, 5, 7), (8, 3, 3, 3), {"stride": [2, 2], "padding": [0, 1, 1, 0], "group": 4}),
    ((2, 8, 5, 7), (8, 1, 4, 4), {"stride": [2, 2], "padding": [1, 1], "group": 8}),
    ((2, 6, 9), (6, 5, 4), {"stride": [3], "dilation": [2]}),
    ((1, 4, 3, 4, 5), (4, 6, 3, 3, 3), {"stride": [2, 1, 2]}),
    ((1, 8, 6, 6), (8, 12, 4, 4), {"stride": [2, 2], "padding_mode": "same_lower"}),
]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(("dims", "weights", "attributes"), CASES)
def test_float32(dims: Any, weights: Any, attributes: dict[str, Any], epilogue: bool, constant: bool) -> None:
    check(np.float32, dims, weights, attributes, epilogue, constant, 1e-5)


@pytest.mark.parametrize(("channels", "extents", "window", "step", "padding"), [
    (512, (8, 8), (4, 4), 2, 1), (256, (28, 19), (4, 4), 2, 2), (64, (3, 32), (9, 9), 3, 0), (192, (26, 3), (5, 5), 5, 0),
])  # fmt: skip
def test_sums_of_many_terms_are_finished_once(
    channels: int, extents: Any, window: Any, step: int, padding: int
) -> None:
    """oneDNN's loops for AVX-512 applied the bias and relu to each of several partial sums."""
    attributes = {"stride": [step] * 2, "padding": [padding] * 2}
    check(np.float32, (1, channels, *extents), (channels, 64, *window), attributes, True, True, 1e-5)


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (dt.bfloat16.numpy, 1.6e-2)])
@pytest.mark.parametrize("constant", [True, False])
def test_narrow_floats(dtype: Any, tolerance: float, constant: bool) -> None:
    check(dtype, *CASES[2], False, constant, tolerance)


def check(dtype: Any, dims: Any, lens: Any, attributes: Any, epilogue: bool, constant: bool, tolerance: float) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = rng.standard_normal(dims).astype(dtype)
    w = (rng.standard_normal(lens) * 0.3).astype(dtype)
    given = {"x": x} if constant else {"x": x, "w": w}
    weights = m.add_literal(w) if constant else m.add_parameter("w", mgx.Shape(dt.of(w.dtype), list(lens)))
    y = m.add(
        mgx.op("convolution_backwards", **attributes), m.add_parameter("x", mgx.Shape(dt.of(x.dtype), dims)), weights
    )
    if epilogue:
        bias = m.add_literal(rng.standard_normal((y.shape.lens()[1], *(1,) * (len(dims) - 2))).astype(dtype))
        y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=y.shape.lens()), bias))
        y = m.add(mgx.op("relu"), y)
    m.add_return([y])
    ordered = [given[n] for n in m.parameters]
    (wanted,) = Interpreter().run(m, ordered)
    program.compile(CpuTarget())
    (found,) = program.run(given)
    assert not [p for p in program.executable.instances()[0].placements if p.place == "host"]
    scale = float(np.abs(wanted.astype(np.float64)).max())
    np.testing.assert_allclose(
        np.asarray(found, np.float64), wanted.astype(np.float64), rtol=tolerance, atol=tolerance * scale
    )
