"""Depthwise convolutions of bytes with dot products of four bytes: exact sums, and their epilogues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.int8_depthwise import has_avx512_vnni

pytestmark = pytest.mark.skipif(not has_avx512_vnni(), reason="the processor has no dot products of bytes with AVX-512")


def convolution(
    drawn: Any, x: Any, window: Any, kind: Any, zero: int | None, points: Any = None, weights: Any = np.int8, **how: Any
) -> Any:
    """A program of one depthwise convolution, and its inputs."""
    r = np.random.default_rng(x[1])
    program = mgx.Program()
    main = program.get_main_module()
    given = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), list(x)))
    more = []
    if zero is not None or points is not None:
        more.append(main.add_literal(np.array(zero or 0, kind)))
    if points is not None:
        more.append(main.add_literal(np.asarray(points, weights)))
    w = main.add_literal(drawn(r, weights, (x[1], 1, *window)))
    main.add_return([main.add(mgx.op("quant_convolution", group=x[1], **how), given, w, *more)])
    return program, {"x": drawn(r, kind, x)}


def assert_exact(both: Any, given: Any, threads: int = 2) -> None:
    got, wanted, steps = both(*given, threads=threads)
    assert any(s.startswith("conv fours") for s in steps)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.pairs
@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [None, 77])
@pytest.mark.parametrize("channels", [16, 23, 64, 90])
@pytest.mark.parametrize(
    ("lens", "window", "how"),
    [
        ((9, 8), (3, 3), {"padding": (1, 1, 1, 1)}),
        ((31, 30), (5, 5), {"padding": (2, 2, 2, 2)}),
        ((13, 14), (3, 3), {"padding": (1, 1, 1, 1), "stride": (2, 2)}),
        ((12, 7), (5, 2), {"padding": (2, 0, 2, 1), "stride": (2, 2), "dilation": (1, 3)}),
        ((16, 9), (7, 7), {"padding": (3, 3, 3, 3), "stride": (1, 2)}),
        ((17, 11), (3, 3), {"padding": (4, 4, 4, 4), "dilation": (4, 4)}),
        ((6, 40), (1, 11), {"padding": (0, 5, 0, 5)}),
        ((40, 6), (11, 1), {"padding": (5, 0, 5, 0)}),
        ((4, 5), (1, 1), {}),
        ((20,), (9,), {"padding": (8, 8), "stride": (1,), "dilation": (2,)}),
        ((20,), (70,), {"padding": (40, 40), "stride": (1,), "dilation": (1,)}),
    ],
)
def test_sums_are_exact(
    both: Any, drawn: Any, lens: Any, window: Any, how: Any, channels: int, zero: int | None, kind: Any
) -> None:
    assert_exact(both, convolution(drawn, (2, channels, *lens), window, kind, zero, **how))


@pytest.mark.parametrize(("channels", "width"), [(300, 40), (1104, 7), (1040, 7), (529, 33)])
def test_channels_that_are_summed_block_by_block(both: Any, drawn: Any, channels: int, width: int) -> None:
    given = convolution(drawn, (1, channels, 7, width), (5, 5), np.uint8, 3, padding=(2, 2, 2, 2))
    assert_exact(both, given, threads=1)


@pytest.mark.parametrize("zero", [None, 200])
@pytest.mark.parametrize("points", [120, "one a channel"])
def test_weights_that_a_byte_does_not_hold_less_their_zero_points(
    both: Any, drawn: Any, points: Any, zero: int | None
) -> None:
    numbers = points if isinstance(points, int) else np.random.default_rng(3).integers(0, 256, 40)
    given = convolution(drawn, (1, 40, 9, 9), (3, 3), np.uint8, zero, numbers, np.uint8, padding=(1, 1, 1, 1))
    assert_exact(both, given)


def test_sums_of_the_largest_products(both: Any) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.uint8, [1, 16, 4, 4]))
    w = main.add_literal(np.full((16, 1, 3, 3), -128, np.int8))
    main.add_return([main.add(mgx.op("quant_convolution", group=16), x, w)])
    got, _, _ = both(program, {"x": np.full((1, 16, 4, 4), 255, np.uint8)})
    assert got.min() == got.max() == -9 * 255 * 128


def test_nothing_is_read_past_an_image(both: Any, drawn: Any, at_the_end_of_a_page: Any) -> None:
    program, feed = convolution(drawn, (1, 17, 5, 7), (3, 3), np.uint8, 3, padding=(1, 1, 1, 1))
    last = np.ascontiguousarray(feed["x"].transpose(0, 2, 3, 1))
    given = at_the_end_of_a_page(last).transpose(0, 3, 1, 2)
    got, wanted, _ = both(program, {"x": given})
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("zero", [0, 5])
@pytest.mark.parametrize("n", [16, 36, 96, 160])
def test_epilogues_end_within_one_unit(both: Any, drawn: Any, n: int, zero: int, kind: Any) -> None:
    """A bias, relu, another quantized image that is added, and rounding."""
    r = np.random.default_rng(2)
    program = mgx.Program()
    main = program.get_main_module()

    def scaled(name: str, x: Any, scale: float, point: int) -> Any:
        numbers = main.add_literal(np.float32(scale)), main.add_literal(np.array(point, kind))
        return main.add(mgx.op(name), x, *numbers)

    x, y = (main.add_parameter(name, mgx.Shape(dt.of(np.dtype(kind)), [1, n, 9, 9])) for name in "xy")
    scales = main.add_literal(r.uniform(0.005, 0.01, n).astype(np.float32))
    codes = main.add_literal(r.integers(-127, 128, (n, 1, 3, 3), np.int8))
    w = main.add(mgx.op("dequantizelinear", axis=0), codes, scales)
    how = mgx.op("convolution", padding=(1, 1, 1, 1), group=n)
    made = main.add(how, scaled("dequantizelinear", x, 0.05, zero), w)
    bias = main.add_literal(r.normal(0, 1, (1, n, 1, 1)).astype(np.float32))
    spread = main.add(mgx.op("multibroadcast", out_lens=tuple(made.shape.lens())), bias)
    total = main.add(mgx.op("relu"), main.add(mgx.op("add"), made, spread))
    total = main.add(mgx.op("add"), total, scaled("dequantizelinear", y, 0.02, zero))
    main.add_return([scaled("quantizelinear", total, 0.15, zero)])
    got, wanted, steps = both(program, {"x": drawn(r, kind, (1, n, 9, 9)), "y": drawn(r, kind, (1, n, 9, 9))})
    assert any(s.startswith("conv fours") for s in steps)
    apart = np.abs(got.astype(np.int64) - wanted.astype(np.int64))
    assert np.ptp(wanted.astype(np.int64)) > 60
    assert apart.max() <= 1  # if a sum is half way between two units, the last one may differ
    assert (apart > 0).mean() < 0.002
