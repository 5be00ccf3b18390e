"""Products of bytes by sums of pairs: exact sums of all bytes, unlike sums of two products in 16 bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.jit.engine import Engine
from mgx_cpu_dnnl.plans import byte_channels, byte_pairs
from mgx_cpu_dnnl.shared import KernelCache, shared


@pytest.fixture(autouse=True)
def without_dot_products(monkeypatch: Any) -> None:
    """Processors with dot products of bytes have faster kernels, but these run there too."""
    monkeypatch.setattr(byte_pairs, "accumulates_int32", lambda: False)
    monkeypatch.setattr(byte_channels, "has_avx512_vnni", lambda: False)


def product(
    drawn: Any, a: Any, n: int, kind: Any, zero: int | None, other: Any = np.int8, column_zeros: bool = False
) -> Any:
    """A program of one product, and its inputs."""
    r = np.random.default_rng(n)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), list(a)))
    w = main.add_literal(drawn(r, other, (a[-1], n)))
    points = [] if zero is None else [main.add_literal(np.array(zero, kind))]
    if column_zeros:
        points.append(main.add_literal(drawn(r, other, (1, n))))
    main.add_return([main.add(mgx.op("quant_dot"), x, w, *points)])
    return program, {"x": drawn(r, kind, a)}


def convolution(drawn: Any, x: Any, w: Any, kind: Any, zero: int | None, **attributes: Any) -> Any:
    """A program of one convolution, and its inputs."""
    r = np.random.default_rng(w[0])
    program = mgx.Program()
    main = program.get_main_module()
    given = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), list(x)))
    points = [] if zero is None else [main.add_literal(np.array(zero, kind))]
    weights = main.add_literal(drawn(r, np.int8, w))
    main.add_return([main.add(mgx.op("quant_convolution", **attributes), given, weights, *points)])
    return program, {"x": drawn(r, kind, x)}


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 100])
@pytest.mark.parametrize(
    ("a", "n"), [((1, 5), 3), ((3, 40, 70), 33), ((13, 24), 130), ((250, 70), 8), ((49, 1600), 40), ((7, 4000), 17)]
)
def test_sums_of_products_are_exact(
    both: Any, drawn: Any, a: tuple[int, ...], n: int, zero: int | None, kind: Any
) -> None:
    got, wanted, steps = both(*product(drawn, a, n, kind, zero), threads=2)
    assert steps[-1].startswith("matmul pairs")
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("column_zeros", [False, True])
def test_unsigned_weights_and_zero_points_of_columns(both: Any, drawn: Any, column_zeros: bool) -> None:
    got, wanted, _ = both(*product(drawn, (9, 65), 20, np.uint8, 3, np.uint8, column_zeros))
    np.testing.assert_array_equal(got, wanted)


def test_pairs_of_the_largest_products_do_not_saturate(both: Any) -> None:
    """255 * 127 twice is 64770, and -255 * 128 twice -65280: both exceed 16 bits."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [6, 4]))
    w = np.stack([np.full(4, 127), np.full(4, -128)], 1).astype(np.int8)
    main.add_return([main.add(mgx.op("quant_dot"), x, main.add_literal(w))])
    got, wanted, _ = both(program, {"x": np.full((6, 4), 255, np.uint8)})
    assert got.tolist() == [[4 * 255 * 127, -4 * 255 * 128]] * 6
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 77])
@pytest.mark.parametrize(
    ("x", "w", "attributes"),
    [
        ((1, 64, 8, 8), (70, 64, 1, 1), {}),
        ((2, 3, 9, 12), (33, 3, 3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2)}),
        ((1, 3, 20, 301), (8, 3, 7, 7), {"padding": (3, 3, 3, 3), "stride": (2, 2)}),
        ((2, 3, 11, 900), (20, 3, 3, 3), {"padding": (0, 1, 1, 3), "stride": (1, 1)}),
        ((1, 2, 9, 40), (5, 2, 1, 1), {"stride": (2, 2)}),
        ((1, 2, 12, 7), (6, 2, 9, 5), {"padding": (4, 9, 4, 9), "stride": (1, 3)}),
        ((1, 24, 9, 20), (24, 8, 3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2), "group": 3}),
        ((1, 8, 9, 9), (16, 8, 5, 2), {"padding": (2, 0, 1, 2), "dilation": (2, 1)}),
        ((1, 600, 9, 9), (20, 600, 3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2)}),
        ((2, 32, 7, 7), (40, 8, 3, 3), {"padding": (1, 1, 1, 1), "group": 4}),
        ((2, 5, 11), (7, 5, 3), {"padding": (1, 2), "stride": (1,), "dilation": (2,)}),
        ((1, 4, 5, 6, 7), (9, 4, 2, 3, 3), {"padding": (0, 1, 2, 1, 1, 0), "stride": (1, 2, 1), "dilation": (1, 1, 1)}),
        ((1, 16, 6, 6), (20, 16, 2, 2), {"padding": (3, 3, 3, 3), "dilation": (3, 3)}),
    ],
)
def test_sums_of_convolutions_are_exact(
    both: Any, drawn: Any, x: Any, w: Any, attributes: Any, zero: int | None, kind: Any
) -> None:
    got, wanted, steps = both(*convolution(drawn, x, w, kind, zero, **attributes), threads=2)
    assert any(s.startswith("conv pairs") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.pairs
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 77])
@pytest.mark.parametrize("channels", [2, 7, 16, 17, 40])
@pytest.mark.parametrize(
    ("lens", "window", "attributes"),
    [
        ((9, 8), (3, 3), {"padding": (1, 1, 1, 1)}),
        ((21, 112), (3, 3), {"padding": (1, 1, 1, 1)}),
        ((23, 30), (4, 3), {"padding": (2, 0, 1, 1)}),
        ((23, 60), (5, 5), {"padding": (2, 2, 2, 2), "stride": (2, 2)}),
        ((14, 14), (2, 6), {"padding": (1, 3, 0, 2), "stride": (3, 3)}),
        ((12, 40), (1, 5), {"padding": (0, 2, 0, 2), "dilation": (1, 2)}),
        ((3, 2000), (3, 3), {"padding": (1, 1, 1, 1)}),
        ((12, 7), (5, 2), {"padding": (2, 0, 2, 1), "stride": (2, 2), "dilation": (1, 3)}),
        ((20,), (70,), {"padding": (40, 40), "stride": (1,), "dilation": (1,)}),
        ((20, 17), (5, 5), {"padding": (2, 2, 2, 2)}),
        ((9, 23), (7, 7), {"padding": (3, 3, 3, 3)}),
        ((11, 19), (4, 7), {"padding": (0, 5, 3, 0), "stride": (2, 1)}),
        ((37, 39), (33, 35), {"padding": (1, 2, 1, 0)}),
        ((20,), (9,), {"padding": (4, 4), "stride": (2,), "dilation": (1,)}),
    ],
)
def test_sums_of_single_channels_are_exact(
    both: Any, drawn: Any, lens: Any, window: Any, attributes: Any, channels: int, zero: int | None, kind: Any
) -> None:
    given = convolution(drawn, (2, channels, *lens), (channels, 1, *window), kind, zero, group=channels, **attributes)
    got, wanted, steps = both(*given, threads=2)
    assert any(s.startswith("conv channels") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("channels", [2, 3, 6, 12, 17])
def test_nothing_is_read_past_an_image(both: Any, drawn: Any, at_the_end_of_a_page: Any, channels: int) -> None:
    given = convolution(
        drawn, (1, channels, 5, 19), (channels, 1, 3, 3), np.uint8, 3, group=channels, padding=(1, 1, 1, 1)
    )
    program, feed = given
    last = np.ascontiguousarray(feed["x"].transpose(0, 2, 3, 1))
    got, wanted, _ = both(program, {"x": at_the_end_of_a_page(last).transpose(0, 3, 1, 2)})
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("window", [(3, 3), (1, 5)])
@pytest.mark.parametrize("channels", [3, 16, 36])
def test_weights_of_single_channels_end_with_whole_vectors(channels: int, window: tuple[int, int]) -> None:
    """Of 36 channels in blocks of 32, the last four are read as a vector of eight."""

    class Packs:
        def derived_literals(self, arrays: Any, how: Any, pack: Any) -> Any:
            return pack()

    w = np.ones((channels, 1, *window), np.int8)
    packed, totals = byte_pairs.pack_depthwise(Packs(), w, None)  # type: ignore[arg-type]
    whole = -(-channels // 8) * 8
    assert packed.shape[3] == whole
    assert totals.tolist() == [window[0] * window[1]] * channels + [0] * (whole - channels)


@pytest.mark.parametrize("channels", [6, 16, 40])
@pytest.mark.parametrize("parts", [2, 3])
def test_single_channels_of_a_part_of_an_image(both: Any, drawn: Any, channels: int, parts: int) -> None:
    """Pixels are further apart than the channels that are read."""
    r = np.random.default_rng(channels)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [2, channels * parts, 9, 11]))
    part = main.add(mgx.op("slice", axes=(1,), starts=(channels,), ends=(2 * channels,)), x)
    w = main.add_literal(drawn(r, np.int8, (channels, 1, 3, 3)))
    main.add_return([main.add(mgx.op("quant_convolution", group=channels, padding=(1, 1, 1, 1)), part, w)])
    got, wanted, steps = both(program, {"x": drawn(r, np.uint8, (2, channels * parts, 9, 11))})
    assert any(s.startswith("conv channels") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("window", [(3, 3), (5, 5), (1, 4)])
def test_single_channels_of_the_largest_products(both: Any, window: Any) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [1, 16, 9, 9]))
    w = main.add_literal(np.stack([np.full((1, *window), 127), np.full((1, *window), -128)] * 8).astype(np.int8))
    main.add_return([main.add(mgx.op("quant_convolution", group=16), x, w)])
    got, wanted, _ = both(program, {"x": np.full((1, 16, 9, 9), 255, np.uint8)})
    np.testing.assert_array_equal(got, wanted)
    assert got.min() == -255 * 128 * window[0] * window[1]


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 77])
def test_several_results_of_a_channel_are_sums_of_single_channels(
    both: Any, drawn: Any, zero: int | None, kind: Any
) -> None:
    given = convolution(drawn, (2, 24, 9, 8), (72, 1, 7, 7), kind, zero, group=24, padding=(3, 3, 3, 3), stride=(2, 2))
    got, wanted, steps = both(*given, threads=2)
    assert any(s.startswith("conv channels") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.pairs
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 77])
@pytest.mark.parametrize("padding", [(1, 1, 1, 1), (0, 2, 3, 0)])
@pytest.mark.parametrize("x", [(1, 16, 7, 7), (2, 42, 5, 12), (1, 300, 14, 14), (1, 16, 9, 90)])
def test_sums_of_minimal_filtering_are_exact(
    both: Any, drawn: Any, x: Any, padding: Any, zero: int | None, kind: Any
) -> None:
    got, wanted, steps = both(*convolution(drawn, x, (56, x[1], 3, 3), kind, zero, padding=padding), threads=2)
    assert any(s.startswith("conv filters") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(("channels", "filtered"), [(1827, True), (1828, False)])
def test_minimal_filtering_of_the_largest_sums(both: Any, channels: int, filtered: bool) -> None:
    """Four times a sum of 9 * 1828 products of 255 and 128 exceeds 2 ** 31."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [1, channels, 4, 4]))
    w = main.add_literal(np.full((16, channels, 3, 3), -128, np.int8))
    main.add_return([main.add(mgx.op("quant_convolution", padding=(1, 1, 1, 1)), x, w)])
    got, wanted, steps = both(program, {"x": np.full((1, channels, 4, 4), 255, np.uint8)})
    assert any(s.startswith("conv filters") for s in steps) is filtered
    assert got.min() == -9 * 255 * 128 * channels
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("zero", [np.uint8(9), np.int8(-128)])
def test_a_zero_point_that_is_computed(both: Any, drawn: Any, zero: Any) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.of(zero.dtype), [5, 20]))
    point = main.add_parameter("zero", mgx.Shape(dt.of(zero.dtype), [1]))
    w = main.add_literal(drawn(np.random.default_rng(0), np.int8, (20, 30)))
    main.add_return([main.add(mgx.op("quant_dot"), x, w, point)])
    feed = {"x": drawn(np.random.default_rng(1), zero.dtype, (5, 20)), "zero": np.array([zero])}
    got, wanted, steps = both(program, feed)
    assert any(s.startswith("matmul pairs") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("a", [(3, 1), (3, 3), (5, 7), (2, 8), (4, 15), (3, 16), (3, 31)])
def test_nothing_is_read_past_the_rows(both: Any, drawn: Any, at_the_end_of_a_page: Any, a: tuple[int, int]) -> None:
    program, feed = product(drawn, a, 9, np.uint8, 3)
    got, wanted, _ = both(program, {"x": at_the_end_of_a_page(feed["x"])})
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.pairs
@pytest.mark.parametrize(("kind", "zero"), [(np.uint8, 0), (np.uint8, 5), (np.int8, 5)])
@pytest.mark.parametrize(
    ("channels", "n", "group", "window"),
    [
        (36, 64, 1, 3),
        (36, 100, 1, 3),
        (36, 36, 1, 3),
        (36, 36, 36, 3),
        (36, 36, 2, 3),
        (36, 20, 1, 1),
        (36, 12, 1, 1),
        (36, 5, 1, 1),
        (5, 5, 5, 3),
        (8, 8, 8, 3),
        (12, 12, 12, 3),
        (72, 72, 72, 3),
    ],
)
def test_epilogues_end_within_one_unit(
    both: Any,
    drawn: Any,
    monkeypatch: Any,
    channels: int,
    n: int,
    group: int,
    window: int,
    zero: int,
    kind: Any,
    engine: Engine,
) -> None:
    """A bias, relu and rounding."""
    monkeypatch.setitem(vars(shared()), "engine", engine)
    monkeypatch.setattr(shared(), "kernels", KernelCache())
    r = np.random.default_rng(2)
    program = mgx.Program()
    main = program.get_main_module()

    def scaled(name: str, x: Any, scale: float, point: int) -> Any:
        numbers = main.add_literal(np.float32(scale)), main.add_literal(np.array(point, kind))
        return main.add(mgx.op(name), x, *numbers)

    x = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), [1, channels, 9, 9]))
    scales = main.add_literal(r.uniform(0.005, 0.01, n).astype(np.float32))
    codes = main.add_literal(r.integers(-127, 128, (n, channels // group, window, window), np.int8))
    w = main.add(mgx.op("dequantizelinear", axis=0), codes, scales)
    how = mgx.op("convolution", padding=(window // 2,) * 4, group=group)
    made = main.add(how, scaled("dequantizelinear", x, 0.05, zero), w)
    bias = main.add_literal(r.normal(0, 1, (1, n, 1, 1)).astype(np.float32))
    spread = main.add(mgx.op("multibroadcast", out_lens=tuple(made.shape.lens())), bias)
    total = main.add(mgx.op("relu"), main.add(mgx.op("add"), made, spread))
    main.add_return([scaled("quantizelinear", total, 0.05 * window * (channels / group) ** 0.5, zero)])
    got, wanted, steps = both(program, {"x": drawn(r, kind, (1, channels, 9, 9))})
    name = "channels" if group == channels else "filters" if group == 1 and window == 3 else "pairs"
    assert any(s.startswith(f"conv {name}") for s in steps)
    apart = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
    assert np.ptp(wanted.astype(np.int64)) > 60
    assert apart.max() <= 1  # if a sum is half way between two units, the last one may differ
    assert (apart > 0).mean() < 0.002
