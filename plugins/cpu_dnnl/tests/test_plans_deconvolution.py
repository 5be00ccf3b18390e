"""Transposed convolutions by oneDNN or by sums of columns, compared with the reference."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_cpu_dnnl.plans.folding import summed_columns
from mgx_cpu_dnnl.runner import CpuRunner
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

SUMMED: list[tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ((2, 8, 5, 7), (8, 3, 3, 3), {"stride": [2, 3], "dilation": [2, 1], "padding": [0, 1, 1, 2], "group": 4}),
    ((1, 6, 9), (6, 1, 4), {"stride": [3], "dilation": [2], "group": 6, "output_padding": [2]}),
    ((2, 7, 6, 5), (7, 3, 4, 2), {"stride": [2, 2], "padding": [1, 0]}),
    ((1, 16, 1, 5), (16, 1, 3, 3), {"stride": [2, 2], "padding_mode": "same_upper"}),
    ((2, 4, 3, 4, 5), (4, 6, 3, 2, 3), {"stride": [2, 1, 2], "dilation": [2, 1, 3]}),
    ((1, 8, 6, 6), (8, 20, 3, 3), {"dilation": [2, 2]}),
    ((1, 8, 4, 5, 6), (8, 2, 3, 2, 4), {"stride": [2, 1, 2]}),
    ((1, 8, 6, 6), (8, 1, 3, 3), {"dilation": [2, 2], "group": 8}),
]


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(("dims", "weights", "attributes"), CASES)
def test_float32(dims: Any, weights: Any, attributes: dict[str, Any], epilogue: bool, constant: bool) -> None:
    check(np.float32, dims, weights, attributes, epilogue, constant, 1e-5)


@pytest.mark.parametrize("constant", [True, False])
@pytest.mark.parametrize("epilogue", [False, True])
@pytest.mark.parametrize(("dims", "weights", "attributes"), SUMMED)
def test_sums_of_columns(dims: Any, weights: Any, attributes: dict[str, Any], epilogue: bool, constant: bool) -> None:
    steps = check(np.float32, dims, weights, attributes, epilogue, constant, 1e-5)
    assert "convolution_backwards" in steps and not any(name.startswith("deconv ") for name in steps)


def test_columns_of_images_that_are_stored_channels_last() -> None:
    """The result of a convolution is; its pixels are read where they are."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, 16, 9, 7]))
    first, second = (
        m.add_literal((rng.standard_normal(lens) * 0.3).astype(np.float32)) for lens in ((32, 16, 3, 3), (32, 2, 4, 4))
    )
    made = m.add(mgx.op("convolution_backwards", stride=[2, 2]), m.add(mgx.op("convolution"), x, first), second)
    m.add_return([made])
    values = rng.standard_normal((2, 16, 9, 7)).astype(np.float32)
    (wanted,) = Interpreter().run(m, [values])
    program.compile(CpuTarget())
    np.testing.assert_allclose(np.asarray(program.run({"x": values})[0]), wanted, rtol=1e-5, atol=1e-5)
    assert "convolution_backwards" in step_names(program)


@pytest.mark.parametrize("given", [(1, 8, 1, 1), (1, 1, 1, 1), (2, 8, 1, 7), (2, 8, 5, 1)])
def test_columns_of_images_that_are_broadcast(given: tuple[int, ...]) -> None:
    """All pixels of a channel, or of a line, may be one element of memory."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add(mgx.op("multibroadcast", out_lens=[2, 8, 5, 7]), m.add_parameter("x", mgx.Shape("float32", given)))
    w = m.add_literal((rng.standard_normal((8, 3, 4, 4)) * 0.3).astype(np.float32))
    m.add_return([m.add(mgx.op("convolution_backwards", stride=[2, 2]), x, w)])
    values = rng.standard_normal(given).astype(np.float32)
    (wanted,) = Interpreter().run(m, [values])
    program.compile(CpuTarget())
    np.testing.assert_allclose(np.asarray(program.run({"x": values})[0]), wanted, rtol=1e-5, atol=1e-5)
    assert "convolution_backwards" in step_names(program)


@pytest.mark.parametrize(("dims", "weights", "attributes"), [
    ((1, 8, 40, 40), (8, 3, 12, 12), {"stride": [2, 2]}),  # columns of 2.8 MB
    ((1, 8, 6, 6), (8, 7, 3, 3), {"stride": [2, 2]}),
    ((1, 8, 6, 6), (8, 2, 3, 3), {"stride": [2, 2], "group": 2}),
    ((1, 8, 4, 5, 6), (8, 3, 3, 3, 3), {"stride": [2, 2, 2]}),
    ((1, 8, 6, 6), (8, 2, 3, 3), {"dilation": [2, 2], "group": 4}),
    ((1, 16, 80, 80), (16, 1, 7, 7), {"dilation": [2, 2], "group": 16}),  # columns of 20 MB
])  # fmt: skip
def test_other_windows_are_not_summed(dims: Any, weights: Any, attributes: dict[str, Any]) -> None:
    assert "convolution_backwards" not in check(np.float32, dims, weights, attributes, False, True, 1e-5)


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


def test_strided_channels_of_narrow_floats_are_computed_in_float32() -> None:
    """OneDNN's kernels of bfloat16 compute each channel as a group of its own."""
    attributes = {"stride": [2, 2], "padding": [1, 1], "output_padding": [1, 1], "group": 32}
    steps = check(dt.bfloat16.numpy, (2, 32, 8, 8), (32, 1, 3, 3), attributes, False, False, 1.6e-2)
    assert any(name.startswith("deconv ") for name in steps)
    assert not any("bf16" in name for name in steps)


def test_columns_of_strided_groups_are_limited_by_memory() -> None:
    op = mgx.op("convolution_backwards", dilation=[2, 2], stride=[2, 2], group=64)
    x, w = mgx.Shape("float32", [1, 64, 64, 64]), mgx.Shape("float32", [64, 1, 7, 7])
    assert summed_columns(op, x, w) is None  # 51 MB
    refused = summed_columns(op, mgx.Shape("float32", [6, 64, 64, 64]), w)
    assert refused is not None and "308281344 bytes" in str(refused)


def step_names(program: mgx.Program) -> list[str]:
    """Returns the names of the native steps."""
    assert program.executable is not None
    runner = program.executable.instances()[0].runner
    assert isinstance(runner, CpuRunner)
    return [step.name for step in runner.schedule.steps]


def check(
    dtype: Any, dims: Any, lens: Any, attributes: Any, epilogue: bool, constant: bool, tolerance: float
) -> list[str]:
    """Compares results with the reference; returns the names of the native steps."""
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
    return step_names(program)
