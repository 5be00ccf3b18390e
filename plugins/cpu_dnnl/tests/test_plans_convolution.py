"""Convolutions by oneDNN: channel multipliers, subnormal numbers, windows for which AMX kernels are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_core.ir.interpreter import Interpreter
from mgx_core.targets.values import Buffer, Value, channels_last
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.plans.convolution import swap_axes
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(12)
AMX = "amx_bf16" in native().cpu_features()


def depthwise(steps: Sequence[str]) -> bool:
    """True if there are convolutions and all are run by depthwise loops, oneDNN's (dw) or our own."""
    found = [name for name in steps if name.startswith("conv ")]
    return bool(found) and all("dw" in name or name == "conv depthwise" for name in found)


def convolved(
    dtype: str, lens: list[int], weights: list[int], tolerance: float, relu: bool = False, **attributes: Any
) -> list[str]:
    """Compares one convolution with its reference implementation; returns the names of the steps."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", lens))
    w = m.add_literal((rng.standard_normal(weights) * np.prod(weights[1:]) ** -0.5).astype(np.float32))
    operands = [m.add(mgx.op("convert", target_type=dtype), i) for i in (x, w)]
    made = m.add(mgx.op("convolution", **attributes), *operands)
    m.add_return([m.add(mgx.op("convert", target_type="float32"), m.add(mgx.op("relu"), made) if relu else made)])
    given = rng.standard_normal(lens).astype(np.float32)
    (wanted,) = Interpreter().run(m, [given])
    program.compile(CpuTarget())
    (found,) = program.run({"x": given})
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=tolerance, atol=tolerance)
    return [s.name for s in program.executable.instances()[0].runner.schedule.steps]


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("channels", "times", "window", "step"), [(48, 2, 7, 2), (5, 3, 3, 1), (16, 2, 1, 1)])
def test_several_results_a_channel_are_depthwise(channels: int, times: int, window: int, step: int, relu: bool) -> None:
    padding = [window // 2] * 2
    steps = convolved(
        "float32", [2, channels, 11, 9], [channels * times, 1, window, window], 1e-5, relu, padding=padding, stride=[step] * 2,
        dilation=[1, 1], group=channels,
    )  # fmt: skip
    assert depthwise(steps), steps


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(
    ("lens", "results", "stride", "padding", "copied"),
    [
        ([2, 40, 13, 10], 512, [2, 2], 0, True),
        ([1, 33, 12, 11], 530, [3, 1], 0, True),
        ([1, 24, 31], 512, [2], 0, True),
        ([2, 40, 13, 10], 128, [2, 2], 0, False),
        ([2, 40, 13, 10], 512, [2, 2], 1, False),
    ],
)
def test_strided_pixels_are_copied_for_many_results(
    lens: list[int], results: int, stride: list[int], padding: int, copied: bool, relu: bool
) -> None:
    axes = len(stride)
    steps = convolved(
        "float32", lens, [results, lens[1], *[1] * axes], 1e-5, relu, padding=[padding] * axes, stride=stride, dilation=[1] * axes
    )  # fmt: skip
    assert ("gemm" in steps) == copied, steps


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("lens", "gap", "padding"), [
    ([2, 24, 50], 1, [1, 1]), ([1, 40, 61], 2, [4, 0]), ([2, 16, 70], 16, [16, 16]), ([1, 20, 40], 9, [18, 0]),
    ([1, 16, 30, 29], 9, [9, 9]), ([2, 16, 30, 29], 8, [16, 0, 0, 16]),
])  # fmt: skip
def test_lines_and_wide_gaps_are_depthwise(
    dtype: str, relu: bool, lens: list[int], gap: int, padding: list[int]
) -> None:
    """oneDNN's depthwise loops support only 2-d images and narrow padding; its other kernels take up to a hundred times as
    long.
    """
    axes, tolerance = len(lens) - 2, 2e-2 if dtype == "bfloat16" else 1e-5
    steps = convolved(
        dtype, lens, [lens[1], 1, *[3] * axes], tolerance, relu, padding=padding, stride=[1] * axes, dilation=[gap] * axes,
        group=lens[1],
    )  # fmt: skip
    assert depthwise(steps), steps


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize(("lens", "window", "step", "gap", "padding"), [
    ([2, 24, 5, 9, 7], [3, 3, 3], [1, 1, 1], [1, 1, 1], [1, 1, 1]),
    ([1, 18, 6, 9, 7], [3, 3, 3], [2, 2, 2], [1, 1, 1], [1, 1, 1]),
    ([1, 16, 8, 6, 7], [5, 1, 1], [1, 1, 1], [1, 1, 1], [2, 0, 0]),
    ([2, 16, 8, 6, 7], [3, 1, 1], [2, 1, 1], [2, 1, 1], [2, 0, 0, 0, 0, 0]),
    ([2, 16, 4, 9, 8], [1, 3, 3], [1, 2, 1], [1, 1, 1], [0, 1, 0, 0, 1, 2]),
    ([1, 20, 7, 9, 9], [3, 3, 1], [1, 1, 1], [2, 1, 3], [4, 1, 0, 0, 1, 0]),
    ([1, 16, 3, 22, 20], [3, 3, 3], [1, 1, 1], [1, 8, 8], [1, 8, 8]),
    ([1, 16, 2, 5, 5], [5, 3, 3], [1, 1, 1], [1, 1, 1], [2, 1, 1]),
])  # fmt: skip
def test_volumes_are_depthwise(
    dtype: str, lens: list[int], window: list[int], step: list[int], gap: list[int], padding: list[int]
) -> None:
    """oneDNN's depthwise loops support only 2-d images; its other kernels took twenty times as long."""
    tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
    steps = convolved(
        dtype, lens, [lens[1], 1, *window], tolerance, True, padding=padding, stride=step, dilation=gap, group=lens[1]
    )
    assert depthwise(steps), steps


@pytest.mark.parametrize("window", [[3, 3, 3], [3, 1, 1]])
def test_a_depthwise_convolution_of_volumes_fuses_its_epilogue(window: list[int]) -> None:
    """A bias, one number per image, an operand per pixel, and a residual without other readers."""
    lens = [2, 24, 4, 6, 5]
    program = mgx.Program()
    m = program.get_main_module()
    x, y = (m.add_parameter(n, mgx.Shape("float32", lens)) for n in "xy")
    w, b, s = (
        m.add_literal(rng.standard_normal(d).astype(np.float32))
        for d in ([24, 1, *window], [1, 24, 1, 1, 1], [2, 1, 4, 1, 1])
    )
    made = m.add(
        mgx.op("convolution", padding=[1, *(n // 2 for n in window[1:])], stride=[1] * 3, dilation=[1] * 3, group=24),
        x,
        w,
    )
    for op, other in (("add", b), ("mul", s)):
        made = m.add(mgx.op(op), made, m.add(mgx.op("multibroadcast", out_lens=lens), other))
    made = m.add(mgx.op("relu"), m.add(mgx.op("mul"), made, y))
    m.add_return([m.add(mgx.op("add"), made, m.add(mgx.op("mul"), y, y))])
    given = {n: rng.standard_normal(lens).astype(np.float32) for n in "xy"}
    (wanted,) = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget())
    (found,) = program.run(given)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert depthwise(steps), steps


def test_a_depthwise_convolution_of_lines_fuses_its_epilogue() -> None:
    """A bias, an operand per pixel, and a residual without other readers."""
    program = mgx.Program()
    m = program.get_main_module()
    x, y = (m.add_parameter(n, mgx.Shape("float32", [2, 24, 50])) for n in "xy")
    w, b = (m.add_literal(rng.standard_normal(s).astype(np.float32)) for s in ([24, 1, 5], [1, 24, 1]))
    made = m.add(mgx.op("convolution", padding=[4, 4], stride=[1], dilation=[2], group=24), x, w)
    made = m.add(mgx.op("add"), made, m.add(mgx.op("multibroadcast", out_lens=[2, 24, 50]), b))
    m.add_return([m.add(mgx.op("add"), m.add(mgx.op("relu"), made), m.add(mgx.op("mul"), y, y))])
    given = {n: rng.standard_normal([2, 24, 50]).astype(np.float32) for n in "xy"}
    (wanted,) = Interpreter().run(m, list(given.values()))
    program.compile(CpuTarget())
    (found,) = program.run(given)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-5, atol=1e-5)
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert depthwise(steps), steps


@pytest.mark.parametrize(("groups", "channels", "results"), [(32, 4, 4), (6, 4, 8), (5, 3, 3), (3, 40, 8), (4, 24, 24)])
@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_groups(dtype: str, groups: int, channels: int, results: int) -> None:
    attributes = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1], "group": groups}
    weights = [groups * results, channels, 3, 3]
    tolerance = 2e-2 if dtype == "bfloat16" else 1e-5
    steps = convolved(dtype, [1, groups * channels, 9, 12], weights, tolerance, relu=True, **attributes)
    if dtype == "bfloat16" and AMX:
        assert "conv brgconv:avx512_core_amx" in steps


@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize(("lens", "weights", "group", "stride", "padding"), [
    ([1, 16, 9, 11], [32, 4, 3, 3], 4, [1, 1], [4, 3, 0, 5]), ([2, 24, 7, 7], [24, 3, 3, 3], 8, [2, 1], [3, 3, 3, 3]),
    ([1, 32, 8, 8], [32, 8, 1, 1], 4, [1, 1], [2, 2, 2, 2]), ([1, 12, 20], [24, 4, 3], 3, [1], [4, 5]),
    ([1, 8, 5, 6, 7], [16, 4, 3, 3, 2], 2, [1, 1, 1], [3, 3, 3, 3, 3, 3]), ([1, 3, 9, 9], [16, 3, 3, 3], 1, [1, 1], [4, 0, 0, 4]),
])  # fmt: skip
def test_padding_beyond_the_window_is_written_first(
    lens: list[int], weights: list[int], group: int, stride: list[int], padding: list[int], relu: bool
) -> None:
    """oneDNN's kernels for groups and for few channels take twice as long if a window can lie in the padding as a whole."""
    attributes = {"padding": padding, "stride": stride, "dilation": [1] * len(stride), "group": group}
    steps = convolved("float32", lens, weights, 1e-5, relu, **attributes)
    (conv,) = [n for n, name in enumerate(steps) if name.startswith("conv ")]
    assert "pad" in steps[:conv] or steps[conv] == "conv groups", steps


def test_an_infinity_stays_in_its_group() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("bfloat16", [1, 16, 9, 9]))
    w = m.add_literal(rng.standard_normal([16, 4, 3, 3]).astype(mgx.dtype.bfloat16.numpy))
    attributes = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1], "group": 4}
    made = m.add(mgx.op("convolution", **attributes), x, w)
    m.add_return([m.add(mgx.op("convert", target_type="float32"), made)])
    given = rng.standard_normal([1, 16, 9, 9]).astype(mgx.dtype.bfloat16.numpy)
    given[0, 0, 4, 4] = np.inf
    program.compile(CpuTarget(), fast_math=False)
    (found,) = program.run({"x": given})
    finite = np.isfinite(np.asarray(found))
    assert finite[:, 4:].all()
    assert (~finite[:, :4]).sum((0, 2, 3)).tolist() == [9] * 4


@pytest.mark.parametrize("step", ["relu", "exp", "clip", "max", "min", "gelu_erf"])
@pytest.mark.parametrize("window", [1, 3])
def test_without_fast_math_epilogues_keep_nan_and_infinities(step: str, window: int) -> None:
    """oneDNN's own post-ops do not: they would give 0, a bound or the other operand for NaN, and NaN for an infinity."""
    kernel = np.zeros([16, 1, window, window], np.float32)
    kernel[:, :, window // 2, window // 2] = 1
    attributes = {"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1], "group": 16}
    bounds = {"clip": 2, "max": 1, "min": 1}.get(step, 0)
    given = rng.standard_normal([1, 16, 8, 8]).astype(np.float32)
    given[0, :, 3, 3] = [np.nan] * 8 + [np.inf] * 8
    both = []
    for target in ("ref", "cpu"):
        program = mgx.Program()
        m = program.get_main_module()
        x = m.add_parameter("x", mgx.Shape("float32", given.shape))
        made = m.add(mgx.op("convolution", **attributes), x, m.add_literal(kernel))
        others = [m.add_literal(np.full(made.shape.lens(), number, np.float32)) for number in range(bounds)]
        m.add_return([m.add(mgx.op(step), made, *others)])
        program.compile(mgx.get_target(target), fast_math=False)
        with np.errstate(invalid="ignore"):  # the reference multiplies infinities by adjacent zeros
            both.append(np.asarray(program.run({"x": given})[0]))
    assert np.isnan(both[0]).any()
    np.testing.assert_allclose(both[1], both[0], rtol=1e-5, atol=1e-6)


def test_without_fast_math_a_sigmoid_keeps_nan_where_the_padding_exceeds_the_window() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [3, 1, 9, 5]))
    attributes = {"padding": [3, 0, 3, 3], "stride": [1, 1], "dilation": [1, 1], "group": 1}
    made = m.add(mgx.op("convolution", **attributes), x, m.add_literal(np.ones([1, 1, 2, 1], np.float32)))
    m.add_return([m.add(mgx.op("sigmoid"), made)])
    given = np.ones([3, 1, 9, 5], np.float32)
    given[1, 0, 4, 2] = np.nan
    program.compile(CpuTarget(), fast_math=False)
    assert np.argwhere(np.isnan(np.asarray(program.run({"x": given})[0]))).tolist() == [[1, 0, 6, 2], [1, 0, 7, 2]]


@pytest.mark.parametrize("channels", [24, 48, 80])
@pytest.mark.parametrize("window", [2, 4])
def test_windows_of_even_width_in_bfloat16(channels: int, window: int) -> None:
    attributes = {"padding": [0, 0], "stride": [window] * 2, "dilation": [1, 1], "group": 1}
    steps = convolved("bfloat16", [1, channels, 28, 28], [32, channels, window, window], 2e-2, **attributes)
    if AMX:  # rejected there, and hence computed in float32
        assert "conv brgconv:avx512_core" in steps


@pytest.mark.parametrize(("groups", "channels"), [(2, 48), (3, 48), (2, 20), (3, 33)])
@pytest.mark.parametrize("window", [2, 4])
def test_groups_with_windows_of_even_width_in_bfloat16(groups: int, channels: int, window: int) -> None:
    """Neither the channels of a group nor all channels fill tiles."""
    attributes = {"padding": [0, 0], "stride": [window] * 2, "dilation": [1, 1], "group": groups}
    weights = [groups * 32, channels, window, window]
    steps = convolved("bfloat16", [1, groups * channels, 28, 28], weights, 2e-2, **attributes)
    if AMX:
        assert "conv brgconv:avx512_core_amx" in steps


def test_primitives_flush_subnormals_to_zero() -> None:
    """Adjacent loops keep such numbers."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [4, 16, 20, 20]))
    attributes = {"padding": [1, 1], "stride": [1, 1], "dilation": [1, 1], "group": 1}
    made = m.add(mgx.op("convolution", **attributes), x, m.add_literal(np.ones((16, 16, 3, 3), np.float32)))
    m.add_return([made, m.add(mgx.op("add"), x, x)])
    program.compile(CpuTarget(), fast_math=False)
    for _ in range(3):
        product, doubled = program.run({"x": np.full((4, 16, 20, 20), 1e-40, np.float32)})
        assert not np.asarray(product).any()
        assert (np.asarray(doubled) == 2 * np.float32(1e-40)).all()


def pixels(lens: list[int], results: int, word: str, added: bool) -> list[str]:
    """Compares a convolution of single pixels, a bias, an activation and a sum with float64; returns the names of the steps."""
    x, w = rng.standard_normal(lens).astype(np.float32), rng.standard_normal([results, lens[1]]).astype(np.float32)
    bias, rest = rng.standard_normal(results).astype(np.float32), rng.standard_normal([lens[0], results, *lens[2:]])
    program, axes = mgx.Program(), len(lens) - 2
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape("float32", lens))
    numbers = {"padding": [0] * axes, "stride": [1] * axes, "dilation": [1] * axes, "group": 1}
    y = m.add(mgx.op("convolution", **numbers), given, m.add_literal(w.reshape(results, lens[1], *[1] * axes)))
    y = m.add(mgx.op("add"), y, m.add(mgx.op("broadcast", axis=1, out_lens=y.shape.lens()), m.add_literal(bias)))
    y = m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y)) if word == "silu" else m.add(mgx.op(word), y)
    if added:
        y = m.add(mgx.op("add"), y, m.add_literal(rest.astype(np.float32)))
    m.add_return([y])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x})
    exact = np.einsum("nc...,oc->no...", x.astype(np.float64), w) + bias.reshape(-1, *[1] * axes)
    exact = {"silu": lambda v: v / (1 + np.exp(-v)), "relu": lambda v: np.maximum(v, 0), "tanh": np.tanh}[word](exact)
    np.testing.assert_allclose(np.asarray(found), exact + rest * added, rtol=1e-5, atol=2e-6 * lens[1])
    return [s.name for s in program.executable.instances()[0].runner.schedule.steps]


@pytest.mark.parametrize("added", [False, True])
@pytest.mark.parametrize("word", ["silu", "relu", "tanh"])
@pytest.mark.parametrize(
    ("lens", "results"),
    [([1, 24, 14, 14], 144), ([2, 40, 5, 7], 17), ([1, 130, 50], 33), ([1, 16, 60, 60], 96), ([3, 20, 3, 3, 2], 8)],
)
def test_single_pixels_are_a_product(lens: list[int], results: int, word: str, added: bool) -> None:
    steps = pixels(lens, results, word, added)
    if (
        native().cpu_features()
        and "avx512f" in native().cpu_features()
        and (np.prod(lens[2:]) <= 4096 or word != "relu")
    ):
        assert any(name.startswith("gemm") for name in steps) and not any("conv" in name for name in steps), steps


def test_a_product_of_numbers_below_the_normal_range_is_quick_and_small() -> None:
    """Their products are flushed to 0, and the flush mode ends with the step."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [16, 32]))
    made = m.add(mgx.op("dot"), x, m.add_literal(np.ones((32, 48), np.float32)))
    m.add_return([made, m.add(mgx.op("mul"), x, x)])
    program.compile(CpuTarget())
    small, after = program.run({"x": np.full((16, 32), 1e-41, np.float32)})
    assert (np.abs(np.asarray(small)) <= 32.1e-41).all() and (np.asarray(after) == 0).all()
    assert np.float32(1e-41) * np.float32(0.5) > 0


@pytest.mark.parametrize(("channels", "results", "groups"), [(24, 40, 1), (32, 32, 32)])
def test_images_of_one_column(channels: int, results: int, groups: int) -> None:
    convolved(
        "float32", [2, channels, 70, 1], [results, channels // groups, 5, 1], 1e-5, True, padding=[2, 0, 1, 0], stride=[2, 1],
        dilation=[1, 1], group=groups,
    )  # fmt: skip


def test_an_image_of_one_column_is_seen_as_one_row_in_the_layout_that_onednn_knows() -> None:
    lens = [2, 24, 33, 1]
    seen = swap_axes(Value(mgx.Shape("float32", lens, channels_last(lens)), Buffer("input", 2 * 24 * 33 * 4), 0))
    assert (seen.lens, seen.strides) == ([2, 24, 1, 33], channels_last([2, 24, 1, 33]))
    back = swap_axes(seen)
    assert (back.lens, back.strides) == (lens, channels_last(lens))


def test_an_image_of_one_column_fuses_its_epilogue() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, 24, 33, 1]))
    other = m.add_parameter("other", mgx.Shape("float32", [2, 16, 33, 1]))
    w = m.add_literal(rng.standard_normal((16, 24, 3, 1)).astype(np.float32))
    bias = m.add_literal(rng.standard_normal((16, 1, 1)).astype(np.float32))
    made = m.add(mgx.op("convolution", padding=[1, 0], stride=[1, 1], dilation=[1, 1]), x, w)
    made = m.add(mgx.op("add"), made, m.add(mgx.op("multibroadcast", out_lens=[2, 16, 33, 1]), bias))
    m.add_return([m.add(mgx.op("relu"), m.add(mgx.op("add"), made, other))])
    given = [rng.standard_normal(lens).astype(np.float32) for lens in ([2, 24, 33, 1], [2, 16, 33, 1])]
    (wanted,) = Interpreter().run(m, given)
    program.compile(CpuTarget())
    (found,) = program.run(dict(zip(("x", "other"), given, strict=True)))
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)
    assert len(program.executable.instances()[0].placements) == 1  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["convolution", "convolution_backwards"])
@pytest.mark.parametrize("channels", [1, 3, 5, 17])
def test_infinities_stay_where_they_belong_without_fast_math(name: str, channels: int) -> None:
    """oneDNN multiplies pairs of bfloat16 channels, and turns an infinity next to an odd last one into NaN."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("bfloat16", [1, channels, 12]))
    dims = [4, channels, 3] if name == "convolution" else [channels, 4, 3]
    weights = np.linspace(-1, 1, 12 * channels, dtype=np.float32).reshape(dims) + np.float32(0.01)
    m.add_return([m.add(mgx.op(name, padding=(1, 1)), x, m.add_literal(weights.astype(dt.bfloat16.numpy)))])
    given = np.ones((1, channels, 12), dt.bfloat16.numpy)
    given[0, 0, 5] = np.inf
    (wanted,) = Interpreter().run(m, [given])
    program.compile(CpuTarget(), fast_math=False)
    found = np.asarray(program.run({"x": given})[0].to_numpy(), np.float32)
    np.testing.assert_allclose(found, np.asarray(wanted, np.float32), rtol=2e-2, atol=2e-2)
    assert np.isinf(found).any(1).sum() == 3


@pytest.mark.parametrize("stride", [1, 2, 3])
def test_pixels_of_images_of_any_extents(agrees_open: Any, stride: int) -> None:
    w = np.random.default_rng(3).standard_normal((40, 24, 1, 1)).astype(np.float32)
    sizes = [(2, 14, 19), (3, 30, 9), (5, 21, 33), (2, 60, 41)]
    agrees_open(mgx.op("convolution", stride=[stride, stride]), ["b", 24, "h", "w"], [w], sizes, 1e-4)
