"""Winograd convolutions, compared with float64 sums, within bounds that follow from the transforms and the number of terms."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.lib.stride_tricks import sliding_window_view

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl import winograd
from mgx_cpu_dnnl.native_library import native
from mgx_cpu_dnnl.target import CpuTarget
from mgx_cpu_dnnl.winograd import Partition, Problem, Tile, best_tile, partition

rng = np.random.default_rng(5)
POINTS = {1: [], 4: [1.0], 6: [5 / 8, 3 / 2], 8: [0.5, 1.0, 2.0], 10: [0.4, 0.8, 1.25, 2.5]}
# ratio of rounding errors to those of direct sums, by the number of points of an axis
GROWTH = {1: 1, 4: 2, 6: 4, 8: 5, 10: 10}


def matrices(outputs: int, taps: int, stride: int = 1) -> tuple[Any, Any, Any]:
    """Returns the matrices of outputs, taps and inputs: y = (a [g . t] b x) with the products at the points in between."""
    if stride == 2 and taps == 3:
        back, forth, inputs = matrices(outputs, 2)
        reach = 2 * outputs + 1
        wide, odd = np.zeros((outputs + 1, reach)), np.zeros((outputs, reach))
        wide[:, ::2], odd[:, 1::2] = inputs, np.eye(outputs)
        given = np.zeros((outputs + 1, 3))
        given[:, ::2] = forth
        middle = np.tile([0.0, 1.0, 0.0], (outputs, 1))
        return np.hstack([back, np.eye(outputs)]), np.vstack([given, middle]), np.vstack([wide, odd])
    n = outputs + taps - 1
    if n == 1:
        return np.ones((1, 1)), np.ones((1, 1)), np.ones((1, 1))
    points = [0.0] + [sign * p for p in POINTS[n] for sign in (1, -1)]
    back, forth, inputs = np.zeros((outputs, n)), np.zeros((n, taps)), np.zeros((n, n))
    for k, p in enumerate(points):
        others = [q for q in points if q != p]
        back[:, k] = [p**i for i in range(outputs)]
        forth[k] = [p**j / np.prod([p - q for q in others]) for j in range(taps)]
        inputs[k, : n - 1] = np.poly(others)[::-1]
    back[-1, -1] = forth[-1, -1] = 1
    inputs[-1] = np.poly(points)[::-1]
    return back, forth, inputs


def bound(tile: Tile, x: Any, w: Any) -> float:
    """Returns a bound of an output's rounding error: the sum over all stages, as if all signs were equal."""
    down = matrices(tile.down, tile.taps_down, tile.stride)
    across = matrices(tile.across, tile.taps_across, tile.stride)
    values = np.abs(down[2]).sum(1).max() * np.abs(across[2]).sum(1).max() * np.abs(x).max()
    factors = np.einsum("ia,ocab,jb->ocij", np.abs(down[1]), np.abs(w), np.abs(across[1])).sum(1).max((0, 1, 2))
    sums = np.abs(down[0]).sum(1).max() * np.abs(across[0]).sum(1).max()
    terms = w.shape[1] + 4 * tile.points**0.5 + 8
    return float(terms * 2.0**-24 * values * factors * sums)


def direct(x: Any, w: Any, padding: list[int], dtype: Any, stride: int = 1, dilation: tuple[int, int] = (1, 1)) -> Any:
    top, left, bottom, right = padding
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right))).astype(dtype)
    reach = [(taps - 1) * gap + 1 for taps, gap in zip(w.shape[2:], dilation, strict=True)]
    windows = sliding_window_view(padded, reach, (2, 3))[:, :, ::stride, ::stride, :: dilation[0], :: dilation[1]]
    return np.einsum("nchwab,ocab->nohw", windows, w.astype(dtype), optimize=dtype is np.float64)


def compiled(
    x: Any,
    w: Any,
    padding: list[int],
    stride: int = 1,
    group: int = 1,
    dilation: tuple[int, int] = (1, 1),
    **options: Any,
) -> tuple[Any, list[str]]:
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.Shape(dt.of(x.dtype), x.shape))
    op = mgx.op("convolution", padding=padding, stride=[stride] * 2, group=group, dilation=list(dilation))
    m.add_return([m.add(op, given, m.add_literal(w))])
    program.compile(CpuTarget(), **options)
    (found,) = program.run({"x": x})
    steps = program.executable.instances()[0].runner.schedule.steps
    return found.to_numpy(), [s.name for s in steps if "conv" in s.name]


@pytest.fixture
def only(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Forces a tile regardless of its cost."""

    def force(tile: Tile) -> None:
        monkeypatch.setattr(winograd, "TILES", (tile,))
        monkeypatch.setattr(winograd, "MAX_DIRECT_RATIO", float("inf"))

    return force


NARROW = pytest.param(
    "bfloat16",
    marks=pytest.mark.skipif(
        native().winograd_lanes() != 16 or "amx_bf16" in native().cpu_features(),
        reason="without AVX-512 there are no loops for bfloat16, and with AMX oneDNN is faster",
    ),
)
ALL_TAPS = {"taps-in-padding": False}  # tiles of images smaller than a window are tested, too

SHAPES = [
    ((1, 8, 12, 12), 16, "same"),
    ((1, 3, 9, 17), 5, "same"),
    ((2, 37, 13, 11), 45, "same"),
    ((3, 16, 8, 31), 33, "none"),
    ((1, 130, 7, 9), 131, "odd"),
    ((5, 24, 1, 1), 8, "same"),
    ((1, 64, 41, 40), 64, "same"),
]


@pytest.mark.pairs
@pytest.mark.parametrize("tile", winograd.TILES, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize(("dims", "outputs", "around"), SHAPES)
@pytest.mark.parametrize("dtype", ["float32", NARROW])
def test_values(only: Any, tile: Tile, dims: tuple[int, ...], outputs: int, around: str, dtype: str) -> None:
    down, across = tile.taps_down, tile.taps_across
    padding = {
        "same": [down // 2, across // 2] * 2,
        "none": [0] * 4,
        "odd": [down - 1, across // 2, 0, across - 1],
    }[around]
    only(tile)
    x, w = (rng.standard_normal(n).astype(dt.of(dtype).numpy) for n in (dims, (outputs, dims[1], down, across)))
    found, steps = compiled(x, w, padding, tile.stride, fusion_rules=ALL_TAPS)
    assert any(s.startswith(f"conv winograd {tile.down}x{tile.across}") for s in steps), steps
    x, w = (a.astype(np.float64) for a in (x, w))
    wanted = direct(x, w, padding, np.float64, tile.stride)
    assert found.shape == wanted.shape
    rounding = 0 if dtype == "float32" else 2.0**-8 * np.abs(wanted)
    assert (np.abs(found - wanted) <= bound(tile, x, w) + rounding).all()


DILATED = [t for t in winograd.TILES if t.stride == 1]


@pytest.mark.parametrize("tile", DILATED, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize(
    ("dims", "dilation", "around"),
    [
        ((1, 16, 28, 28), (2, 2), "same"),
        ((2, 37, 13, 11), (3, 2), "odd"),  # extents that the dilation does not divide
        ((1, 16, 40, 45), (4, 5), "none"),
        ((1, 24, 9, 14), (12, 20), "same"),  # fewer rows and columns than tiles: some have no outputs
        ((3, 16, 10, 33), (1, 6), "same"),
    ],
)
def test_dilated_windows(only: Any, tile: Tile, dims: tuple[int, ...], dilation: tuple[int, int], around: str) -> None:
    """The tiles of an axis take turns: each has inputs and outputs as far apart as the taps."""
    down, across = (tile.taps_down - 1) * dilation[0], (tile.taps_across - 1) * dilation[1]
    padding = {
        "same": [down // 2, across // 2] * 2,
        "none": [0] * 4,
        "odd": [down, across - across // 3, 1, across // 2],
    }[around]
    if dims[2] + padding[0] + padding[2] <= down or dims[3] + padding[1] + padding[3] <= across:
        padding = [down // 2, across // 2] * 2
    only(tile)
    x = rng.standard_normal(dims).astype(np.float32)
    w = rng.standard_normal((33, dims[1], tile.taps_down, tile.taps_across)).astype(np.float32)
    found, steps = compiled(x, w, padding, dilation=dilation, fusion_rules=ALL_TAPS)
    assert any(s.startswith(f"conv winograd {tile.down}x{tile.across}") for s in steps), steps
    wanted = direct(x, w, padding, np.float64, 1, dilation)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= bound(tile, x, w)


def test_dilated_windows_with_an_epilogue(only: Any) -> None:
    """A residual and a factor for each pixel are read where the tile's outputs are; one factor is for all."""
    only(Tile(4, 3, 4, 3))
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in ((1, 16, 19, 22), (24, 16, 3, 3)))
    rest, gate = (rng.standard_normal(lens).astype(np.float32) for lens in ((1, 24, 19, 22), (1, 1, 19, 22)))
    program = mgx.Program()
    m = program.get_main_module()
    y, r, g = (
        m.add_parameter(name, mgx.shape(type="float32", lens=list(a.shape)))
        for name, a in (("x", x), ("r", rest), ("g", gate))
    )
    op = mgx.op("convolution", padding=[3, 2, 3, 2], stride=[1, 1], dilation=[3, 2])
    y = m.add(mgx.op("add"), m.add(op, y, m.add_literal(w)), m.add(mgx.op("relu"), r))
    y = m.add(mgx.op("mul"), y, m.add(mgx.op("multibroadcast", out_lens=[1, 24, 19, 22]), m.add(mgx.op("relu"), g)))
    m.add_return([m.add(mgx.op("relu"), y)])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x, "r": rest, "g": gate})
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert any("winograd" in s for s in steps), steps
    wanted = (direct(x, w, [3, 2, 3, 2], np.float64, 1, (3, 2)) + np.maximum(rest, 0)) * np.maximum(gate, 0)
    allowed = (bound(Tile(4, 3, 4, 3), x, w) + 8 * 2.0**-24 * np.abs(rest).max()) * np.abs(gate).max()
    assert np.abs(found.to_numpy() - np.maximum(wanted, 0)).max() <= allowed


def in_groups(x: Any, w: Any, padding: list[int], stride: int, group: int) -> Any:
    """Returns float64 sums of each group's channels."""
    inputs, filters = np.split(x, group, 1), np.split(w, group, 0)
    return np.concatenate([direct(a, b, padding, np.float64, stride) for a, b in zip(inputs, filters, strict=True)], 1)


@pytest.mark.pairs
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("tile", winograd.TILES, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize(("group", "per", "each"), [(2, 64, 64), (3, 24, 40), (5, 17, 16)])
def test_groups(only: Any, tile: Tile, group: int, per: int, each: int, threads: int) -> None:
    """Channels that fill vectors and panels of a group, and some that do not."""
    only(tile)
    padding = [tile.taps_down // 2, tile.taps_across // 2] * 2
    x = rng.standard_normal((2, group * per, 13, 11)).astype(np.float32)
    w = (rng.standard_normal((group * each, per, tile.taps_down, tile.taps_across))).astype(np.float32)
    found, steps = compiled(x, w, padding, tile.stride, group, threads=threads)
    assert steps == [f"conv winograd {tile.down}x{tile.across}"], steps
    assert np.abs(found - in_groups(x, w, padding, tile.stride, group)).max() <= bound(tile, x, w)


@pytest.mark.parametrize("tile", winograd.TILES, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize(("group", "per", "each"), [(1, 13, 37), (3, 24, 40)])
def test_weights_that_are_arguments_are_packed_in_each_run(
    only: Any, tile: Tile, group: int, per: int, each: int
) -> None:
    only(tile)
    padding = [tile.taps_down // 2, tile.taps_across // 2] * 2
    x = rng.standard_normal((2, group * per, 13, 11)).astype(np.float32)
    run = with_arguments("convolution", padding=padding, stride=[tile.stride] * 2, group=group)
    for _ in range(2):
        w = rng.standard_normal((group * each, per, tile.taps_down, tile.taps_across)).astype(np.float32)
        found, steps = run(x, w)
        assert f"conv winograd {tile.down}x{tile.across} weights" in steps, steps
        assert np.abs(found - in_groups(x, w, padding, tile.stride, group)).max() <= bound(tile, x, w)


@pytest.mark.parametrize("tile", DILATED, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize("gaps", [(1, 1), (2, 3)])
def test_a_transposed_convolution_with_stride_1_turns_its_weights(only: Any, tile: Tile, gaps: tuple[int, int]) -> None:
    only(tile)
    padding = [(taps - 1) * gap // 2 for taps, gap in zip((tile.taps_down, tile.taps_across), gaps, strict=True)]
    x = rng.standard_normal((2, 21, 13, 11)).astype(np.float32)
    w = rng.standard_normal((21, 35, tile.taps_down, tile.taps_across)).astype(np.float32)
    run = with_arguments("convolution_backwards", padding=padding, dilation=list(gaps))
    found, steps = run(x, w)
    assert f"conv winograd {tile.down}x{tile.across} weights" in steps, steps
    turned = np.swapaxes(w, 0, 1)[:, :, ::-1, ::-1]
    wanted = direct(x, turned, padding * 2, np.float64, 1, gaps)
    assert found.shape == wanted.shape
    assert np.abs(found - wanted).max() <= bound(tile, x, turned)


def with_arguments(name: str, **attributes: Any) -> Callable[[Any, Any], tuple[Any, list[str]]]:
    """Returns a function that runs a convolution whose weights are an argument; it returns the result and the steps."""
    program = mgx.Program()

    def run(x: Any, w: Any) -> tuple[Any, list[str]]:
        if program.executable is None:
            m = program.get_main_module()
            given = [m.add_parameter(n, mgx.Shape(dt.float32, v.shape)) for n, v in (("x", x), ("w", w))]
            m.add_return([m.add(mgx.op(name, **attributes), *given)])
            program.compile(CpuTarget())
        (found,) = program.run({"x": x, "w": w})
        assert program.executable is not None
        steps = program.executable.instances()[0].runner.schedule.steps
        return found.to_numpy(), [s.name for s in steps if "conv" in s.name]

    return run


@pytest.mark.parametrize(("group", "per", "each"), [(4, 8, 16), (4, 16, 8), (32, 1, 1)])
def test_narrow_groups_are_direct(only: Any, group: int, per: int, each: int) -> None:
    only(winograd.TILES[0])
    x = rng.standard_normal((1, group * per, 12, 12)).astype(np.float32)
    w = rng.standard_normal((group * each, per, 3, 3)).astype(np.float32)
    found, steps = compiled(x, w, [1] * 4, 1, group)
    assert not any("winograd" in s for s in steps), steps
    np.testing.assert_allclose(found, in_groups(x, w, [1] * 4, 1, group), rtol=0, atol=1e-4)


@pytest.mark.parametrize("tile", winograd.TILES, ids=lambda t: "x".join(map(str, t.numbers)))
def test_errors_are_near_those_of_direct_sums(only: Any, tile: Tile) -> None:
    only(tile)
    x = np.maximum(rng.standard_normal((1, 48, 28, 28)), 0).astype(np.float32)
    w = (rng.standard_normal((16, 48, tile.taps_down, tile.taps_across))).astype(np.float32)
    padding = [tile.taps_down // 2, tile.taps_across // 2] * 2
    found, _ = compiled(x, w, padding, tile.stride)
    wanted = direct(x, w, padding, np.float64, tile.stride)
    plain = direct(x, w, padding, np.float32, tile.stride)
    errors = [float(np.sqrt(np.mean((y - wanted) ** 2))) for y in (found, plain)]
    points = 4 if tile.stride == 2 else max(tile.down + tile.taps_down, tile.across + tile.taps_across) - 1
    assert errors[0] <= GROWTH[points] * errors[1]


def broadcast(m: mgx.Module, value: Any, like: mgx.Instruction) -> mgx.Instruction:
    literal = m.add_literal(value.astype(like.shape.dtype.numpy))
    return m.add(mgx.op("multibroadcast", out_lens=like.shape.lens()), literal)


AFTER = {
    "relu": (lambda m, y: m.add(mgx.op("relu"), y), lambda y: np.maximum(y, 0)),
    "leaky_relu": (lambda m, y: m.add(mgx.op("leaky_relu", alpha=0.25), y), lambda y: np.where(y < 0, y / 4, y)),
    "swish": (lambda m, y: m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y)), lambda y: y / (1 + np.exp(-y))),
    "tanh": (lambda m, y: m.add(mgx.op("tanh"), y), np.tanh),
    "hard_swish": (lambda m, y: m.add(mgx.op("hard_swish"), y), lambda y: y * np.clip(y / 6 + 0.5, 0, 1)),
    "gelu": (lambda m, y: m.add(mgx.op("gelu_erf"), y), lambda y: y / 2 * (1 + np.vectorize(math.erf)(y / 2**0.5))),
    "gelu_tanh": (
        lambda m, y: m.add(mgx.op("gelu_tanh"), y),
        lambda y: y / 2 * (1 + np.tanh((2 / np.pi) ** 0.5 * (y + 0.044715 * y**3))),
    ),
}


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("name", AFTER)
def test_the_epilogue_is_fused_into_the_step(only: Any, name: str, group: int) -> None:
    """A bias, an activation, a factor, a residual: twelve by ten outputs, so that tiles extend past them; a partial vector."""
    only(winograd.TILES[0])
    emit, meaning = AFTER[name]
    c = 21 * group
    x = rng.standard_normal((2, c, 12, 10)).astype(np.float32)
    first, w = (rng.standard_normal(lens).astype(np.float32) * 0.1 for lens in ((c, c, 1, 1), (c, 21, 3, 3)))
    bias, factor = rng.standard_normal((2, c, 1, 1))
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
    before = m.add(mgx.op("convolution", padding=[0, 0, 0, 0]), given, m.add_literal(first))
    y = m.add(mgx.op("convolution", padding=[1, 1, 1, 1], group=group), before, m.add_literal(w))
    y = emit(m, m.add(mgx.op("add"), y, broadcast(m, bias, y)))
    y = m.add(mgx.op("add"), m.add(mgx.op("mul"), y, broadcast(m, factor, y)), before)
    m.add_return([y])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x})
    middle = direct(x, first, [0] * 4, np.float64)
    wanted = meaning(in_groups(middle, w, [1] * 4, 1, group) + bias) * factor + middle
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-5, atol=2e-5)
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert sum("winograd" in s for s in steps) >= 1, steps
    assert not any(s.startswith("loop") for s in steps), steps


@pytest.mark.parametrize("tile", winograd.TILES, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize("channels", [32, 24])
def test_residuals_and_relu_on_sums_in_registers(only: Any, tile: Tile, channels: int) -> None:
    """A bias per channel, a residual per output, relu, which preserves NaN; whole and partial tiles."""
    only(tile)
    x = rng.standard_normal((1, 16, 17, 18)).astype(np.float32)
    w = rng.standard_normal((channels, 16, tile.taps_down, tile.taps_across)).astype(np.float32) * 0.1
    bias = rng.standard_normal((channels, 1, 1))
    padding = [tile.taps_down // 2, tile.taps_across // 2] * 2
    wanted = direct(x, w, padding, np.float64, tile.stride) + bias
    other = rng.standard_normal((1, 8, *wanted.shape[2:])).astype(np.float32)
    other[0, 5, 2, 3] = other[0, 7, -1, -1] = np.nan
    first = rng.standard_normal((channels, 8, 1, 1)).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    given, beside = (
        m.add_parameter(n, mgx.shape(type="float32", lens=list(v.shape))) for n, v in (("x", x), ("r", other))
    )
    y = m.add(mgx.op("convolution", padding=padding, stride=[tile.stride] * 2), given, m.add_literal(w))
    residual = m.add(mgx.op("convolution"), beside, m.add_literal(first))
    y = m.add(mgx.op("add"), m.add(mgx.op("add"), y, broadcast(m, bias, y)), residual)
    m.add_return([m.add(mgx.op("relu"), y)])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x, "r": other})
    wanted = np.maximum(wanted + direct(other, first, [0] * 4, np.float64), 0)
    np.testing.assert_allclose(found.to_numpy(), wanted, rtol=1e-5, atol=2e-5)
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert any("winograd" in s for s in steps), steps
    assert not any(s.startswith("loop") for s in steps), steps


@pytest.mark.parametrize("tile", DILATED, ids=lambda t: "x".join(map(str, t.numbers)))
@pytest.mark.parametrize(("channels", "swish"), [(32, False), (24, False), (32, True)])
@pytest.mark.parametrize("dtype", [NARROW])
def test_epilogues_of_bfloat16(only: Any, tile: Tile, channels: int, swish: bool, dtype: str) -> None:
    """A bias, a residual and an activation, which are added before the result is rounded."""
    only(tile)
    kind = dt.of(dtype).numpy
    padding = [tile.taps_down // 2, tile.taps_across // 2] * 2
    x = rng.standard_normal((1, 8, 17, 18)).astype(kind)
    first = rng.standard_normal((channels, 8, 1, 1)).astype(kind)
    w = (rng.standard_normal((channels, channels, tile.taps_down, tile.taps_across)) * 0.1).astype(kind)
    bias = rng.standard_normal((channels, 1, 1)).astype(kind)
    program = mgx.Program()
    m = program.get_main_module()
    before = m.add(mgx.op("convolution"), m.add_parameter("x", mgx.Shape(dtype, x.shape)), m.add_literal(first))
    y = m.add(mgx.op("convolution", padding=padding), before, m.add_literal(w))
    y = m.add(mgx.op("add"), m.add(mgx.op("add"), y, broadcast(m, bias, y)), before)
    y = m.add(mgx.op("mul"), y, m.add(mgx.op("sigmoid"), y)) if swish else m.add(mgx.op("relu"), y)
    m.add_return([y, before])
    program.compile(CpuTarget())
    found, middle = (r.to_numpy().astype(np.float64) for r in program.run({"x": x}))
    wanted = direct(middle, w.astype(float), padding, np.float64) + bias.astype(float) + middle
    wanted = wanted / (1 + np.exp(-wanted)) if swish else np.maximum(wanted, 0)
    np.testing.assert_allclose(found, wanted, rtol=2.0**-8, atol=1e-4)
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    assert any("winograd" in s for s in steps), steps
    assert not any(s.startswith("loop") for s in steps), steps


def test_tanh_keeps_its_digits_near_zero(only: Any) -> None:
    only(winograd.TILES[0])
    x = rng.standard_normal((1, 16, 12, 12)).astype(np.float32)
    w = (rng.standard_normal((16, 16, 3, 3)) * 1e-5).astype(np.float32)
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
    y = m.add(mgx.op("convolution", padding=[1, 1, 1, 1]), given, m.add_literal(w))
    m.add_return([m.add(mgx.op("tanh"), y)])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x})
    assert any("winograd" in s.name for s in program.executable.instances()[0].runner.schedule.steps)
    wanted = np.tanh(direct(x, w, [1] * 4, np.float64))
    assert np.abs(found.to_numpy() - wanted).max() <= 16 * 9 * 2.0**-24 * np.abs(wanted).max()  # one rounding per term


@pytest.mark.parametrize(
    ("tile", "length"), [(Tile(1, 1, 4, 3), 50), (Tile(1, 1, 5, 3, 2), 50), (Tile(1, 1, 5, 3, 2), 49)]
)
def test_lines_are_planes_of_one_row(only: Any, tile: Tile, length: int) -> None:
    only(tile)
    program = mgx.Program()
    m = program.get_main_module()
    x, w = (rng.standard_normal(lens).astype(np.float32) for lens in ((2, 16, length), (24, 16, 3)))
    given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
    op = mgx.op("convolution", padding=[1, 1], stride=[tile.stride], dilation=[1])
    m.add_return([m.add(op, given, m.add_literal(w))])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x})
    wanted = direct(x[:, :, None], w[:, :, None], [0, 1, 0, 1], np.float64, tile.stride)[:, :, 0]
    assert any("winograd" in s.name for s in program.executable.instances()[0].runner.schedule.steps)
    assert np.abs(found.to_numpy() - wanted).max() <= bound(tile, x, w[:, :, None])


def test_exact_sums_are_direct() -> None:
    x = rng.standard_normal((1, 64, 56, 56)).astype(np.float32)
    w = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    for fast, expected in ((True, True), (False, False)):
        _, steps = compiled(x, w, [1] * 4, fast_math=fast)
        assert any("winograd" in s for s in steps) == expected


def test_results_do_not_depend_on_the_number_of_threads() -> None:
    x = rng.standard_normal((1, 64, 30, 30)).astype(np.float32)
    w = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    one, two = (compiled(x, w, [1] * 4, threads=n)[0] for n in (1, 2))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("lanes", [8, 16])
def test_choice_of_tiles(lanes: int) -> None:
    def chosen(*numbers: int) -> Tile | None:
        return best_tile(Problem(*numbers), lanes)

    assert chosen(1, 64, 64, 56, 56, 3, 3) == Tile(4, 3, 4, 3)
    assert chosen(1, 128, 128, 28, 28, 3, 3) == Tile(4, 3, 4, 3)
    assert chosen(1, 3, 64, 224, 224, 3, 3) is None  # only three channels share the transforms of the outputs
    assert chosen(1, 512, 512, 2, 2, 3, 3) is None  # reading the weights dominates
    assert chosen(1, 64, 64, 56, 56, 4, 4) is None  # no transforms exist
    assert chosen(1, 128, 128, 28, 28, 3, 3, 2) == Tile(3, 3, 3, 3, 2)
    assert chosen(1, 512, 512, 1, 1599, 1, 3, 2) == Tile(1, 1, 5, 3, 2)  # audio at 16 kHz
    assert chosen(1, 512, 512, 1, 400, 1, 5) == Tile(1, 1, 4, 5)
    assert chosen(1, 64, 64, 1, 3200, 1, 3) == Tile(1, 1, 4, 3)
    assert chosen(1, 32, 32, 1, 12800, 1, 3) is None  # the transforms of lines weigh more
    assert best_tile(Problem(1, 256, 256, 28, 28, 3, 3, gap_down=2, gap_across=2), lanes) == Tile(2, 3, 2, 3)
    two_outputs = Problem(1, 256, 256, 7, 7, 3, 3, gap_down=6, gap_across=6)  # per tile
    assert best_tile(two_outputs, lanes) is None
    few_tiles = chosen(1, 512, 512, 6, 6, 3, 3)
    assert few_tiles == (Tile(2, 3, 2, 3) if lanes == 16 else None)  # with AVX2, reading more weights takes too long
    small, large = chosen(1, 256, 256, 14, 14, 3, 3), chosen(32, 256, 256, 14, 14, 3, 3)
    assert large == Tile(4, 3, 4, 3)
    assert small is not None
    paired = [Problem(1, *sizes, 3, 3, narrow=True) for sizes in ((64, 64, 56, 56), (256, 256, 14, 14))]
    assert best_tile(paired[0], lanes) == Tile(4, 3, 4, 3)
    assert best_tile(paired[1], lanes) is None  # bfloat16: direct sums take half the time


@pytest.mark.parametrize(("threads", "lanes"), list(product([1, 2, 7, 64], [8, 16])))
@pytest.mark.parametrize("extent", [1, 4, 7, 14, 57, 160])
def test_work_is_cut_without_rest(threads: int, lanes: int, extent: int) -> None:
    p, tile = Problem(1, 40, 200, extent, extent, 3, 3), winograd.TILES[0]
    tiles = p.tiles(tile)
    work: Partition = partition(p, tile, lanes, threads)
    assert work.span % (2 * lanes) == 0
    assert 1 <= work.block <= tiles
    blocks = -(-tiles // work.block)
    if not work.separate:
        assert blocks >= min(threads, tiles) * 3 // 4  # nobody is idle for long
    assert work.separate == (tiles < threads * lanes // 2)


# weights that exceed every near cache, and weights that fit all of them
@pytest.mark.parametrize(("channels", "blocks"), [(1024, 2), (16, 3)])
def test_weights_beyond_the_cache_are_read_for_larger_blocks(channels: int, blocks: int) -> None:
    p, tile = Problem(1, channels, channels, 14, 14, 3, 3), Tile(2, 3, 2, 3)
    assert -(-p.tiles(tile) // partition(p, tile, 16, 1).block) == blocks


def test_operands_of_a_concatenation_are_written_in_place(only: Any) -> None:
    """Each of two results next to the other, and no copy of either; between them an operand that no convolution computes."""
    only(Tile(4, 3, 4, 3))
    x = rng.standard_normal((1, 16, 13, 13)).astype(np.float32)
    first, second = (rng.standard_normal((n, 16, 3, 3)).astype(np.float32) for n in (24, 20))
    program = mgx.Program()
    m = program.get_main_module()
    given = m.add_parameter("x", mgx.shape(type="float32", lens=list(x.shape)))
    parts = [m.add(mgx.op("convolution", padding=[1, 1]), given, m.add_literal(w)) for w in (first, second)]
    m.add_return([m.add(mgx.op("concat", axis=1), parts[0], given, parts[1])])
    program.compile(CpuTarget())
    (found,) = program.run({"x": x})
    around = [1, 1, 1, 1]
    wanted = [direct(x, first, around, np.float64), x, direct(x, second, around, np.float64)]
    np.testing.assert_allclose(found.to_numpy(), np.concatenate(wanted, 1), atol=bound(Tile(4, 3, 4, 3), x, first))
    steps = [s.name for s in program.executable.instances()[0].runner.schedule.steps]
    each = ["copy", "conv winograd 4x4"]  # x in channels-last layout, for each of the two
    assert steps == [*each, *each, "copy", "copy"]  # then the operand that is x, and the result


def test_a_wide_sum_is_not_placed_in_concatenated_bytes(both: Callable[..., Any]) -> None:
    """Both have the same extents: the sums of a convolution, and their rounded values."""
    rng = np.random.default_rng(3)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, 40, 6, 6]))
    scale, zero = main.add_literal(np.float32(0.2)), main.add_literal(np.uint8(116))
    weights = main.add_literal((rng.standard_normal((40, 40, 3, 3)) / 20).astype(np.float32))
    total = main.add(mgx.op("add"), x, main.add(mgx.op("convolution", padding=(1, 1)), x, weights))
    parts = [main.add(mgx.op("quantizelinear"), part, scale, zero) for part in (total, main.add(mgx.op("tanh"), x))]
    main.add_return([main.add(mgx.op("dequantizelinear"), main.add(mgx.op("concat", axis=1), *parts), scale, zero)])
    found, wanted, _ = both(program, {"x": rng.standard_normal((2, 40, 6, 6)).astype(np.float32)})
    np.testing.assert_allclose(found, wanted, atol=0.21)
