"""Depthwise convolutions: values compared with float64 sums, and the kernel that runs them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.plans import depthwise_convolution
from mgx_cpu_dnnl.shared import shared

rng = np.random.default_rng(17)


ROUNDING = {"float32": 0.0, "bfloat16": 2.0**-8}  # of the result, relative


def numbers(*lens: int, dtype: str = "float32") -> Any:
    return rng.standard_normal(lens).astype(dt.of(dtype).numpy)


def direct(x: Any, w: Any, padding: list[int], stride: list[int], gaps: list[int]) -> tuple[Any, Any]:
    """Returns the results in float64, and those of absolute values."""
    axes = w.ndim - 2
    around = list(zip(padding[:axes], padding[axes:], strict=True))
    w = w.astype(np.float64)
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *around))
    reach = [(k - 1) * g + 1 for k, g in zip(w.shape[2:], gaps, strict=True)]
    windows = sliding_window_view(padded, reach, tuple(range(2, 2 + axes)))
    windows = windows[(..., *(slice(None, None, s) for s in stride), *(slice(None, None, g) for g in gaps))]
    kernel = w[:, 0].reshape(1, w.shape[0], *[1] * axes, *w.shape[2:])
    taps = tuple(range(2 + axes, 2 + 2 * axes))
    return (windows * kernel).sum(taps), np.abs(windows * kernel).sum(taps)


def ours(steps: list[str], dtype: str = "float32", window: int = 3, step: int = 1) -> None:
    """With AVX2 only, oneDNN runs them, and narrow or strided windows of bfloat16."""
    narrow = dtype == "bfloat16" and "avx512_bf16" in native().cpu_features()
    assert ("conv depthwise" in steps) == (shared().engine.wide and not (narrow and (window < 5 or step > 1))), steps


def check(compiled: Any, x: Any, w: Any, padding: list[int], stride: list[int], gaps: list[int]) -> list[str]:
    def build(m: mgx.Module) -> mgx.Instruction:
        given = m.add_parameter("x", mgx.Shape(dt.of(x.dtype), x.shape))
        op = mgx.op("convolution", padding=padding, stride=stride, dilation=gaps, group=x.shape[1])
        return m.add(op, given, m.add_literal(w))

    program, steps = compiled(build, fusion_rules={"taps-in-padding": False})  # narrow rows keep their windows
    (found,) = program.run({"x": x})
    exact, size = direct(x, w, padding, stride, gaps)
    assert found.to_numpy().shape == exact.shape
    bound = 2.0**-24 * (w[0].size + 2) * size + ROUNDING[str(dt.of(x.dtype))] * np.abs(exact)
    assert (np.abs(found.to_numpy() - exact) <= bound).all()
    return list(steps)


@pytest.mark.pairs
@pytest.mark.parametrize("window", [3, 5, 7, 9, 11])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("channels", [16, 24, 70])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_every_width_of_a_row(compiled: Any, channels: int, step: int, window: int, dtype: str) -> None:
    """Rows of 1 to 43 inputs are split into tiles of all sizes, with and without adjacent zero padding."""
    for wide in (1, 2, 3, 5, 8, 11, 13, 14, 15, 20, 24, 29, 43):
        x, w = numbers(2, channels, 5, wide, dtype=dtype), numbers(channels, 1, window, window, dtype=dtype)
        ours(check(compiled, x, w, [window // 2] * 4, [step] * 2, [1, 1]), dtype, window, step)


@pytest.mark.parametrize(
    ("lens", "window", "padding", "stride", "gaps"),
    [
        ((1, 32, 9, 17), (3, 3), [0, 2, 1, 1], [1, 1], [1, 1]),
        ((1, 32, 9, 17), (3, 3), [4, 1, 3, 1], [1, 1], [1, 1]),  # rows of results without an input
        ((1, 32, 9, 17), (5, 3), [4, 1, 4, 1], [1, 1], [2, 1]),
        ((1, 32, 9, 17), (1, 5), [0, 2, 0, 2], [3, 1], [1, 1]),
        ((1, 32, 2, 30), (7, 7), [3, 3, 3, 3], [1, 1], [1, 1]),
        ((3, 40, 1, 30), (3, 3), [1, 1, 1, 1], [2, 2], [1, 1]),
        ((2, 40, 33), (5,), [2, 2], [2], [1]),
        ((2, 40, 33), (31,), [15, 15], [1], [1]),
        ((1, 20, 50), (15,), [14, 0], [1], [1]),
        ((1, 32, 70), (64,), [0, 0], [1], [1]),
    ],
)
def test_windows(compiled: Any, lens: Any, window: Any, padding: list[int], stride: list[int], gaps: list[int]) -> None:
    ours(check(compiled, numbers(*lens), numbers(lens[1], 1, *window), padding, stride, gaps))


@pytest.mark.parametrize(
    ("window", "stride", "gaps"),
    [((3, 4), [1, 1], [1, 1]), ((3, 3), [1, 3], [1, 1]), ((3, 3), [1, 1], [1, 2])],
)
def test_windows_that_it_has_no_tiles_for(compiled: Any, window: Any, stride: list[int], gaps: list[int]) -> None:
    steps = check(compiled, numbers(1, 32, 9, 17), numbers(32, 1, *window), [1] * 4, stride, gaps)
    assert "conv depthwise" not in steps


@pytest.mark.parametrize(("channels", "step", "left"), [(32, 2, True), (32, 1, False), (256, 1, True), (240, 1, False)])
def test_inputs_from_afar(compiled: Any, channels: int, step: int, left: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Convolutions with few products are left to oneDNN if large strides or cache set conflicts make them wait."""
    x = numbers(1, channels, 9, 17)
    monkeypatch.setattr(depthwise_convolution, "UNCACHED_BYTES", x.nbytes - 1)
    steps = check(compiled, x, numbers(channels, 1, 3, 3), [1] * 4, [step] * 2, [1, 1])
    assert ("conv depthwise" in steps) == (shared().engine.wide and not left)
    ours(check(compiled, x, numbers(channels, 1, 5, 5), [2] * 4, [step] * 2, [1, 1]))
    monkeypatch.setattr(depthwise_convolution, "UNCACHED_BYTES", x.nbytes)
    ours(check(compiled, x, numbers(channels, 1, 3, 3), [1] * 4, [step] * 2, [1, 1]))


@pytest.mark.parametrize("window", [12, 15, 24])
def test_long_windows_of_bfloat16(compiled: Any, window: int) -> None:
    """Their rows are never 3 wide, for which there is no loop of this type."""
    x, w = numbers(2, 33, 47, dtype="bfloat16"), numbers(33, 1, window, dtype="bfloat16")
    ours(check(compiled, x, w, [4, 2], [1], [1]), "bfloat16", window)


def test_the_zeros_that_complete_a_long_window_meet_no_infinities(compiled: Any) -> None:
    def build(m: mgx.Module) -> mgx.Instruction:
        given = m.add_parameter("x", mgx.shape(type="float32", lens=[1, 32, 60]))
        return m.add(mgx.op("convolution", padding=[0, 0], group=32), given, m.add_literal(numbers(32, 1, 31)))

    x = numbers(1, 32, 60)
    x[..., 31] = np.inf
    program, steps = compiled(build, fast_math=False)
    (found,) = program.run({"x": x})
    assert "conv depthwise" not in steps
    assert np.isfinite(found.to_numpy()).sum() == 32


def test_infinite_weights_are_left_to_onednn(compiled: Any) -> None:
    w = numbers(32, 1, 3, 3)
    w[3, 0, 0, 0] = np.inf

    def build(m: mgx.Module) -> mgx.Instruction:
        given = m.add_parameter("x", mgx.shape(type="float32", lens=[1, 32, 9, 17]))
        return m.add(mgx.op("convolution", padding=[1] * 4, group=32), given, m.add_literal(w))

    program, steps = compiled(build)
    assert "conv depthwise" not in steps
    (found,) = program.run({"x": numbers(1, 32, 9, 17)})
    assert np.isfinite(found.to_numpy()[0, 3, 0]).all()


@pytest.mark.parametrize("threads", [1, 3])
def test_items_of_all_sizes(threads: int, both: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of vectors, the last one smaller, and parts of rows."""
    monkeypatch.setattr(depthwise_convolution, "CACHED_BYTES", 4 * 16 * 2 * 3 * 19)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.shape(type="float32", lens=[2, 72, 11, 19]))
    m.add_return([m.add(mgx.op("convolution", padding=[1] * 4, group=72), x, m.add_literal(numbers(72, 1, 3, 3)))])
    found, right, steps = both(program, {"x": numbers(2, 72, 11, 19)}, threads)
    ours(steps)
    np.testing.assert_allclose(found, right, rtol=0, atol=1e-5)


AFTER: Any = {
    "relu": lambda y, r: np.maximum(y, 0),
    "clip": lambda y, r: np.clip(y, -0.5, 0.75),
    "swish": lambda y, r: y / (1 + np.exp(-y)),
    "gelu_erf": lambda y, r: y / 2 * (1 + np.vectorize(math.erf)(y / 2**0.5)),
    "residual": lambda y, r: np.maximum(y + np.tanh(r), 0),
    "scaled": lambda y, r: (y + np.tanh(r)) * 0.75 + 0.5,
}


@pytest.mark.parametrize("word", AFTER)
@pytest.mark.parametrize("channels", [32, 36])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_bias_and_what_follows_it(compiled: Any, channels: int, word: str, dtype: str) -> None:
    lens, kind = [2, channels, 9, 17], dt.of(dtype).numpy
    x, w, bias, residual = (numbers(*n, dtype=dtype) for n in (lens, (channels, 1, 5, 5), (channels,), lens))

    def build(m: mgx.Module) -> mgx.Instruction:
        wide = lambda v: m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(np.array([v], kind)))  # noqa: E731
        across = lambda v: m.add(mgx.op("broadcast", axis=1, out_lens=lens), m.add_literal(v))  # noqa: E731
        given = m.add_parameter("x", mgx.Shape(dtype, lens))
        y = m.add(mgx.op("convolution", padding=[2] * 4, group=channels), given, m.add_literal(w))
        y = m.add(mgx.op("add"), y, across(bias))
        if word in ("residual", "scaled"):
            y = m.add(mgx.op("add"), y, m.add(mgx.op("tanh"), m.add_parameter("r", given.shape)))
        if word == "scaled":
            y = m.add(mgx.op("mul"), y, across(np.full(channels, 0.75, kind)))
            return m.add(mgx.op("add"), y, across(np.full(channels, 0.5, kind)))
        if word == "clip":
            return m.add(mgx.op("clip"), y, wide(-0.5), wide(0.75))
        if word == "gelu_erf":
            return m.add(mgx.op("gelu_erf"), y)
        return m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y)) if word == "swish" else m.add(mgx.op("relu"), y)

    program, steps = compiled(build)
    ours(steps, dtype, 5)
    (found,) = program.run({"x": x} | ({"r": residual} if word in ("residual", "scaled") else {}))
    exact, size = direct(x, w, [2] * 4, [1, 1], [1, 1])
    bias = bias.astype(np.float64)[:, None, None]
    exact = AFTER[word](exact + bias, residual.astype(np.float64))
    slack = 2.0**-24 * 32 * (size + np.abs(bias) + 1)
    slack += ROUNDING[dtype] * np.abs(exact)
    if word in ("residual", "scaled"):  # which is channels first: sums and operand are rounded
        slack += ROUNDING[dtype] * (size + np.abs(bias) + 1)
    assert (np.abs(found.to_numpy() - exact) <= slack).all()


@pytest.mark.parametrize("swish", [False, True])
@pytest.mark.parametrize("channels", [32, 36])
@pytest.mark.parametrize("dtype", ROUNDING)
def test_residuals_are_added_before_rounding(channels: int, swish: bool, dtype: str) -> None:
    """Initial values of the sums, or an operand of the epilogue, in the type of the result."""
    first, w, bias = (numbers(*n, dtype=dtype) for n in ((channels, 8, 1, 1), (channels, 1, 5, 5), (channels, 1, 1)))
    lens = [2, channels, 9, 17]
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dtype, [2, 8, 9, 17]))
    before = m.add(mgx.op("convolution"), x, m.add_literal(first))
    y = m.add(mgx.op("convolution", padding=[2] * 4, group=channels), before, m.add_literal(w))
    y = m.add(mgx.op("add"), y, m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(bias)))
    y = m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y)) if swish else y
    m.add_return([m.add(mgx.op("relu"), m.add(mgx.op("add"), y, before)), before])
    program.compile(mgx.get_target("cpu"))
    found, middle = (r.to_numpy().astype(np.float64) for r in program.run({"x": numbers(2, 8, 9, 17, dtype=dtype)}))
    exact, size = direct(middle, w, [2] * 4, [1, 1], [1, 1])
    exact += bias.astype(np.float64)
    exact = np.maximum((exact / (1 + np.exp(-exact)) if swish else exact) + middle, 0)
    slack = 2.0**-24 * 32 * (size + 4) + ROUNDING[dtype] * exact
    if not shared().engine.wide:  # oneDNN runs it, and sums are rounded
        slack += ROUNDING[dtype] * (size + 4)
    assert (np.abs(found - exact) <= slack).all()
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    ours(steps, dtype, 5)
    assert not shared().engine.wide or not any(s.startswith("loop") for s in steps), steps


@pytest.mark.skipif(not shared().engine.wide, reason="with AVX2, oneDNN runs it, whose relu of NaN is 0")
def test_not_a_number_stays(compiled: Any) -> None:
    x = numbers(1, 32, 9, 17)
    x[0, 5, 4, 4] = np.nan

    def build(m: mgx.Module) -> mgx.Instruction:
        given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
        y = m.add(mgx.op("convolution", padding=[1] * 4, group=32), given, m.add_literal(numbers(32, 1, 3, 3)))
        return m.add(mgx.op("relu"), y)

    program, _ = compiled(build)
    (found,) = program.run({"x": x})
    wrong = np.isnan(found.to_numpy())
    assert wrong[0, 5, 3:6, 3:6].all()
    assert wrong.sum() == 9


@pytest.mark.pairs
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize(
    ("per", "groups", "window", "ours"),
    [
        (2, 24, (3, 3), True), (2, 24, (3, 5), False), (2, 20, (3, 3), True), (2, 3, (3, 3), False),
        (4, 12, (3, 3), True), (4, 9, (3, 3), True), (8, 6, (5, 3), True), (8, 3, (3, 3), True), (8, 1, (3, 3), False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", ROUNDING)
def test_narrow_groups(
    both: Any, per: int, groups: int, window: Any, ours: bool, step: int, threads: int, dtype: str
) -> None:
    """Groups of two, four and eight channels, some of which leave a partial last vector; more values in
    test_plans_grouped_convolution.
    """
    lens, w = [2, per * groups, 11, 33], numbers(per * groups, per, *window, dtype=dtype)
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape(dtype, lens))
    y = m.add(mgx.op("convolution", padding=[1] * 4, stride=[step] * 2, group=groups), x, m.add_literal(w))
    m.add_return([m.add(mgx.op("relu"), y)])
    found, right, steps = both(program, {"x": numbers(*lens, dtype=dtype)}, threads)
    features = native().cpu_features()
    if dtype == "bfloat16" and "avx512_bf16" in features:  # oneDNN multiplies two numbers per lane
        ours &= per <= 4 and "amx_bf16" not in features
    assert ("conv narrow groups" in steps) == (ours and shared().engine.wide), steps
    np.testing.assert_allclose(found.astype(float), right.astype(float), rtol=2 * ROUNDING[dtype], atol=1e-4)


@pytest.mark.parametrize("fast_math", [True, False])
def test_groups_of_two_next_to_infinities(fast_math: bool) -> None:
    """Two groups become one of four channels with zeros between them, unless infinities must stay in their groups."""
    x, w = numbers(1, 16, 6, 9), numbers(16, 2, 3, 3)
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
    m.add_return([m.add(mgx.op("convolution", padding=[1] * 4, group=8), given, m.add_literal(w))])
    program.compile(mgx.get_target("cpu"), fast_math=fast_math)
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps] if program.run({"x": x}) else []
    assert ("conv narrow groups" in steps) == (fast_math and shared().engine.wide), steps
    if not fast_math:
        x[0, 4] = np.inf
        assert np.isfinite(np.delete(program.run({"x": x})[0].to_numpy(), [4, 5], 1)).all()
