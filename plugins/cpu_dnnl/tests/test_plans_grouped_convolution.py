"""Grouped convolutions with several channels per group: values compared with float64 sums, and the kernel that runs them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import mgx_core as mgx
from mgx_cpu_dnnl.plans import winograd
from mgx_cpu_dnnl.shared import shared

rng = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def directly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves no groups to Winograd's products, which test_plans_winograd has."""
    monkeypatch.setattr(winograd, "MIN_CHANNELS", 1 << 20)


def numbers(*lens: int) -> Any:
    return rng.standard_normal(lens).astype(np.float32)


def direct(x: Any, w: Any, group: int, padding: list[int], stride: list[int], gaps: list[int]) -> tuple[Any, Any]:
    """Returns the results in float64, and those of absolute values."""
    axes = w.ndim - 2
    around = list(zip(padding[:axes], padding[axes:], strict=True))
    padded = np.pad(x.astype(np.float64), ((0, 0), (0, 0), *around))
    reach = [(k - 1) * g + 1 for k, g in zip(w.shape[2:], gaps, strict=True)]
    windows = sliding_window_view(padded, reach, tuple(range(2, 2 + axes)))
    windows = windows[(..., *(slice(None, None, s) for s in stride), *(slice(None, None, g) for g in gaps))]
    if axes == 1:
        windows, w = windows[:, :, None, :, None, :], w[:, :, None]
    n, channels, high, wide, down, across = windows.shape
    apart = windows.reshape(n, group, channels // group, high, wide, down, across)
    # as matrix products: an einsum with an axis of groups is computed element by element
    rows = apart.transpose(0, 1, 3, 4, 2, 5, 6).reshape(n, group, high * wide, -1)
    columns = w.reshape(group, w.shape[0] // group, -1).astype(np.float64).swapaxes(1, 2)
    both = [(f(rows) @ f(columns)).swapaxes(2, 3).reshape(n, -1, high, wide) for f in (np.asarray, np.abs)]
    return (both[0][:, :, 0], both[1][:, :, 0]) if axes == 1 else (both[0], both[1])


def ours(steps: list[str], per: int, out: int) -> None:
    """With AVX-512 oneDNN has loops for groups, but fills whole vectors only with 24 channels per group."""
    assert ("conv groups" in steps) == (not shared().engine.wide or per == out == 24), steps
    assert not any(s.startswith("conv ") and s != "conv groups" for s in steps) or shared().engine.wide, steps


# input and output channels of a group, groups
SIZES = [
    (4, 4, 8),
    (4, 8, 3),
    (8, 8, 4),
    (8, 16, 3),
    (12, 24, 2),
    (16, 16, 2),
    (20, 48, 3),
    (64, 32, 2),
    (24, 24, 2),
    (24, 24, 5),
]


@pytest.mark.parametrize("window", [3, 1, 5])
@pytest.mark.parametrize(("per", "out", "group"), SIZES)
def test_every_width_of_a_row_and_size_of_a_group(compiled: Any, per: int, out: int, group: int, window: int) -> None:
    """Rows of 1 to 27 results are split into tiles of all sizes."""
    for wide in (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 20, 27):
        x, w = numbers(2, per * group, 4, wide), numbers(out * group, per, window, window)
        padding = [window // 2] * 4

        def build(m: mgx.Module) -> mgx.Instruction:
            given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))  # noqa: B023
            return m.add(mgx.op("convolution", padding=padding, group=group), given, m.add_literal(w))  # noqa: B023

        program, steps = compiled(build)
        ours(steps, per, out)
        (found,) = program.run({"x": x})
        exact, size = direct(x, w, group, padding, [1, 1], [1, 1])
        assert (np.abs(found.to_numpy() - exact) <= 2.0**-24 * (per * window**2 + 2) * size).all()


@pytest.mark.parametrize(
    ("extents", "window", "padding", "stride", "gaps"),
    [
        ((1, 15, 14), (3, 3), [1, 1, 1, 1], [2, 2], [1, 1]),
        ((3, 9, 16), (3, 3), [2, 2, 2, 2], [1, 1], [2, 2]),
        ((1, 40, 7), (5, 2), [0, 1, 3, 0], [3, 1], [1, 1]),
        ((1, 3, 3), (3, 3), [4, 4, 4, 4], [1, 1], [1, 1]),  # rows and columns of zeros only
        ((1, 5, 90), (1, 7), [0, 3, 0, 3], [1, 2], [1, 3]),
        ((2, 61), (9,), [4, 4], [1], [1]),
        ((1, 200, 130), (3, 3), [1, 1, 1, 1], [1, 1], [1, 1]),
    ],
)
@pytest.mark.parametrize(("channels", "group"), [(32, 8), (32, 4), (32, 2), (48, 2), (72, 3)])
def test_strides_gaps_and_borders(
    compiled: Any,
    extents: tuple[int, ...],
    window: tuple[int, ...],
    padding: list[int],
    stride: list[int],
    gaps: list[int],
    channels: int,
    group: int,
) -> None:
    """extents: images, then positions."""
    lens, per = (extents[0], channels, *extents[1:]), channels // group
    x, w = numbers(*lens), numbers(channels, per, *window)

    def build(m: mgx.Module) -> mgx.Instruction:
        given = m.add_parameter("x", mgx.shape(type="float32", lens=list(lens)))
        op = mgx.op("convolution", padding=padding, stride=stride, dilation=gaps, group=group)
        return m.add(op, given, m.add_literal(w))

    program, steps = compiled(build)
    ours(steps, per, per)
    (found,) = program.run({"x": x})
    exact, size = direct(x, w, group, padding, stride, gaps)
    assert found.to_numpy().shape == exact.shape
    assert (np.abs(found.to_numpy() - exact) <= 2.0**-24 * (w[0].size + 2) * size).all()


@pytest.mark.parametrize("word", ["relu", "clip", "swish", "gelu_erf", "residual"])
@pytest.mark.parametrize(("channels", "group"), [(64, 16), (64, 8), (64, 2), (48, 2), (72, 3)])
def test_bias_and_what_follows_it(compiled: Any, channels: int, group: int, word: str) -> None:
    lens, per = [2, channels, 9, 13], channels // group
    x, w, bias = numbers(*lens), numbers(channels, per, 3, 3) / 8, numbers(channels)
    residual = numbers(*lens)

    def build(m: mgx.Module) -> mgx.Instruction:
        wide = lambda v: m.add(mgx.op("multibroadcast", out_lens=lens), m.add_literal(np.float32([v])))  # noqa: E731
        given = m.add_parameter("x", mgx.shape(type="float32", lens=lens))
        y = m.add(mgx.op("convolution", padding=[1] * 4, group=group), given, m.add_literal(w))
        y = m.add(mgx.op("add"), y, m.add(mgx.op("broadcast", axis=1, out_lens=lens), m.add_literal(bias)))
        if word == "residual":
            return m.add(mgx.op("add"), y, m.add(mgx.op("tanh"), m.add_parameter("r", given.shape)))
        if word == "clip":
            return m.add(mgx.op("clip"), y, wide(-0.5), wide(0.75))
        if word == "gelu_erf":
            return m.add(mgx.op("gelu_erf"), y)
        return m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y)) if word == "swish" else m.add(mgx.op("relu"), y)

    program, steps = compiled(build)
    ours(steps, per, per)
    (found,) = program.run({"x": x} | ({"r": residual} if word == "residual" else {}))
    exact, size = direct(x, w, group, [1] * 4, [1, 1], [1, 1])
    exact = exact + bias[:, None, None]
    after = {
        "relu": lambda y: np.maximum(y, 0),
        "clip": lambda y: np.clip(y, -0.5, 0.75),
        "swish": lambda y: y / (1 + np.exp(-y)),
        "gelu_erf": lambda y: y / 2 * (1 + np.vectorize(math.erf)(y / 2**0.5)),
        "residual": lambda y: y + np.tanh(residual.astype(np.float64)),
    }[word]
    slack = 2.0**-24 * (9 * per + 12) * (size + np.abs(bias)[:, None, None] + 1)
    assert (np.abs(found.to_numpy() - after(exact)) <= slack).all()


@pytest.mark.parametrize(("channels", "group"), [(8, 2), (48, 2), (16, 16)])
def test_weights_whose_extents_depend_on_data(channels: int, group: int) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float", [1, channels, 6, 6]))
    w = main.add_parameter("w", mgx.Shape("float", [2 * channels, channels // group, 3, 3]))
    kept = main.add_parameter("kept", mgx.Shape("bool", [2 * channels]))
    taken = main.add(mgx.op("compress", axis=0), w, kept)
    main.add_return([main.add(mgx.op("convolution", group=group, padding=[1, 1]), x, taken)])
    program.compile(mgx.get_target("cpu"))
    image, weights, every_second = (
        numbers(1, channels, 6, 6),
        numbers(2 * channels, channels // group, 3, 3),
        [True, False],
    )
    (found,) = program.run({"x": image, "w": weights, "kept": np.array(every_second * channels)})
    wanted, sizes = direct(image, weights[::2], group, [1] * 4, [1, 1], [1, 1])
    assert np.all(np.abs(found.to_numpy() - wanted) <= 1e-6 * sizes)
