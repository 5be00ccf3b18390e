"""Pooling: bytes whose results start at an offset in their memory, and large windows, axis by axis."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.shared import shared


@pytest.mark.parametrize("kind", [np.uint8, np.int8])
@pytest.mark.parametrize("channels", [1, 7, 8, 9, 15, 16, 17, 24, 25, 31, 32, 33, 40, 56, 57, 64])
def test_maxima_of_bytes(
    both: Callable[..., Any], at_the_end_of_a_page: Callable[[Any], Any], channels: int, kind: Any
) -> None:
    """Windows at the edges, and none after the last channel."""
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dt.of(np.dtype(kind)), [2, channels, 9, 7]))
    attributes = {"lengths": (3, 2), "stride": (2, 1), "padding": (1, 0, 1, 1), "dilations": (1, 2)}
    main.add_return([main.add(mgx.op("pooling", mode="max", **attributes), x)])
    info = np.iinfo(kind)
    drawn = np.random.default_rng(channels).integers(info.min, info.max + 1, (2, 9, 7, channels)).astype(kind)
    drawn[0, :4] = info.min
    found, wanted, steps = both(program, {"x": at_the_end_of_a_page(drawn).transpose(0, 3, 1, 2)})
    assert any(name.startswith("pooling") for name in steps)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("extents", "attributes"),
    [
        ([11, 14], {"lengths": [5, 5], "padding": [2, 2]}),
        ([13, 9], {"lengths": [9, 13], "padding": [4, 6], "dilations": [1, 1]}),
        ([23, 17], {"lengths": [5, 6], "padding": [1, 2, 3, 2], "stride": [2, 1]}),
        ([19, 22], {"lengths": [4, 5], "padding": [3, 4], "dilations": [3, 2], "ceil_mode": True, "stride": [1, 2]}),
        ([8, 7, 9], {"lengths": [3, 5, 4], "padding": [1, 2, 1]}),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_maxima_along_one_axis_after_the_other_are_those_of_windows(
    both: Callable[..., Any], extents: list[int], attributes: dict[str, Any], dtype: str
) -> None:
    rank = len(extents)
    given = {"stride": [1] * rank, "dilations": [1] * rank, "mode": "max", **attributes}
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dtype, [2, 11, *extents]))
    main.add_return([main.add(mgx.op("pooling", **given), x)])
    values = np.random.default_rng(0).standard_normal((2, 11, *extents)).astype(dt.of(dtype).numpy)
    values[0, 1, ..., 3] = np.nan
    values[1, 2] = -np.inf
    found, wanted, steps = both(program, {"x": values})
    np.testing.assert_array_equal(found.astype(np.float32), wanted.astype(np.float32))
    assert sum(name.startswith("pooling") for name in steps) == rank


@pytest.mark.parametrize(
    "attributes",
    [{"stride": (2, 1, 1)}, {"padding": (1, 0, 0, 0, 0, 0)}, {"padding": (0, 0, 0, 2, 0, 0), "stride": (2, 1, 1)}],
)
def test_windows_of_one_element_along_an_axis(agrees: Callable[..., None], attributes: dict[str, Any]) -> None:
    x = np.random.default_rng(1).standard_normal((1, 9, 5, 20, 20)).astype(np.float32)
    agrees(mgx.op("pooling", mode="max", lengths=(1, 11, 11), **attributes), x)


@pytest.mark.parametrize("channels", [5, 8])
@pytest.mark.parametrize(
    ("extents", "attributes"),
    [
        ([37], {"lengths": [4], "padding": [2], "stride": [3], "dilations": [2]}),
        ([11, 17], {"lengths": [3, 3], "padding": [1, 1], "stride": [2, 2]}),
        ([9, 40], {"lengths": [5, 4], "padding": [0, 2, 3, 1], "stride": [2, 3], "ceil_mode": True}),
        ([6, 9, 21], {"lengths": [3, 3, 3], "padding": [1, 1, 1], "stride": [2, 2, 2]}),
        ([5, 8, 16], {"lengths": [1, 3, 1], "padding": [0, 4, 0], "stride": [1, 2, 1], "dilations": [1, 4, 1]}),
    ],
)
def test_maxima_of_few_channels_read_images_in_their_layout(
    both: Callable[..., Any],
    at_the_end_of_a_page: Callable[[Any], Any],
    extents: list[int],
    attributes: dict[str, Any],
    channels: int,
) -> None:
    """Windows that consist of padding, NaN, and no copy next to the pooling."""
    given = {"dilations": [1] * len(extents), "mode": "max", **attributes}
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, channels, *extents]))
    main.add_return([main.add(mgx.op("pooling", **given), x)])
    values = np.random.default_rng(0).standard_normal((2, channels, *extents)).astype(np.float32)
    values[0, 1, ..., 3] = np.nan
    values[1, 2] = -np.inf
    found, wanted, steps = both(program, {"x": at_the_end_of_a_page(values)})
    np.testing.assert_array_equal(found, wanted)
    assert [name.split(" ")[0].split("[")[0] for name in steps] == ["pooling"]


@pytest.mark.parametrize(("mode", "name"), [("max", "float32"), ("average", "float32"), ("max", "uint8")])
def test_windows_of_no_images(agrees: Callable[..., None], mode: str, name: str) -> None:
    for lens in ((0, 3, 6, 6), (2, 0, 6, 6)):
        agrees(mgx.op("pooling", mode=mode, lengths=(2, 2)), np.zeros(lens, name))


@pytest.mark.parametrize(
    "attributes",
    [
        {"mode": "average", "dilations": (2, 3), "padding": (1, 2)},
        {"mode": "average", "stride": (3, 2), "padding": (1, 0), "ceil_mode": True, "count_include_pad": True},
        {"mode": "lpnorm", "stride": (2, 2), "padding": (1, 1)},
        {"mode": "lpnorm", "padding": (3, 2), "ceil_mode": True},
        {"mode": "lpnorm", "lp_order": 3, "dilations": (2, 1)},
        {"mode": "lpnorm", "lp_order": 1, "dyn_global": True},
    ],
    ids=str,
)
def test_averages_and_norms_that_onednn_does_not_compute(both: Callable[..., Any], attributes: dict[str, Any]) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape("float32", [2, 5, 13, 12]))
    main.add_return([main.add(mgx.op("pooling", lengths=(3, 2), **attributes), x)])
    given = np.random.default_rng(1).standard_normal((2, 5, 13, 12)).astype(np.float32)
    found, wanted, steps = both(program, {"x": given})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    assert not any(name.startswith("host") for name in steps), steps


@pytest.mark.parametrize("mode", ["average", "max"])
@pytest.mark.parametrize("channels", [3, 20])
@pytest.mark.parametrize(
    "attributes",
    [
        {"lengths": [2, 2], "stride": [2, 2]}, {"lengths": [3, 3], "stride": [2, 2], "padding": [1, 1]},
        {"lengths": [5, 5], "padding": [2, 2]}, {"lengths": [3, 2], "stride": [2, 1], "dilations": [2, 1]},
        {"lengths": [2, 3], "stride": [2, 1], "padding": [1, 0, 0, 2], "count_include_pad": True},
        {"lengths": [13, 13], "padding": [6, 6]},
    ],
)  # fmt: skip
def test_images_of_any_extents(
    agrees_open: Callable[..., None], mode: str, channels: int, attributes: dict[str, Any]
) -> None:
    op = mgx.op("pooling", mode=mode, **attributes)
    agrees_open(op, [2, channels, "h", "w"], [], [(14, 19), (30, 7), (8, 13), (61, 40)])


def test_means_of_windows_beside_the_image(agrees_open: Callable[..., None]) -> None:
    """The elements of a dilated window are on both sides of a small image."""
    op = mgx.op("pooling", mode="average", lengths=[2, 2], dilations=[5, 5], padding=[2, 2, 3, 3])
    agrees_open(op, [2, 3, "h", "w"], [], [(9, 3), (2, 5), (4, 2)])


@pytest.mark.parametrize("mode", ["average", "max"])
def test_signals_of_any_length(agrees_open: Callable[..., None], mode: str) -> None:
    if mode == "average" and not shared().engine.wide:
        pytest.skip("with AVX2, oneDNN computes means, for fixed extents")
    op = mgx.op("pooling", mode=mode, lengths=[4], stride=[3], padding=[1])
    agrees_open(op, ["b", 6, "t"], [], [(2, 14), (5, 30), (3, 6)])
