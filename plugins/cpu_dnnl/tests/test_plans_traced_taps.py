"""Resizing and padding of extents that change with every call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.types.dim import symbol
from mgx_cpu_dnnl.open_program import open_program
from mgx_cpu_dnnl.target import CpuTarget

Check = Callable[..., None]
SIZES = [(9, 14), (30, 5), (2, 3), (14, 9), (61, 40), (5, 64)]
POSITIONS = (
    "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric", "tf_half_pixel_for_nn",
)  # fmt: skip


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize("positions", POSITIONS)
def test_resizing_to_extents_that_change(agrees_open: Check, mode: str, positions: str) -> None:
    for sizes in (
        lambda d: (d[0], d[1], 2 * d[2], 3 * d[3]),
        lambda d: (d[0], d[1], d[2] + 1, d[2]),
        lambda d: (d[0], d[1], 7, d[3] // 2 + 1),
    ):

        def op(dims: Any, sizes: Any = sizes) -> mgx.Operation:
            return mgx.op("resize", sizes=sizes(dims), mode=mode, coordinate_transformation_mode=positions)

        agrees_open(op, [2, 5, "h", "w"], [], SIZES, 1e-4)
        agrees_open(op, [2, 1, "h", "w"], [], SIZES, 1e-4)


@pytest.mark.parametrize("rounding", ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple"])
def test_rounding_of_positions(agrees_open: Check, rounding: str) -> None:
    for factors in ((1.0, 1.0, 2.0, 3.0), (1.0, 1.0, 4.0, 1.0), (1.0, 1.0, 0.5, 2.0)):
        agrees_open(mgx.op("resize", scales=factors, nearest_mode=rounding), [1, 3, "h", "w"], [], SIZES)
    halved = mgx.op(
        "resize", scales=(2.0,), axes=(2,), nearest_mode=rounding, coordinate_transformation_mode="asymmetric"
    )
    agrees_open(halved, [1, 3, "h", "w"], [], SIZES)


@pytest.mark.parametrize("excluded", [True, False])
@pytest.mark.parametrize("coefficient", [-0.75, -0.5])
def test_cubic_weights(agrees_open: Check, coefficient: float, excluded: bool) -> None:
    def op(dims: Any) -> mgx.Operation:
        sizes = (dims[0], 2 * dims[1], dims[2] + 3)
        return mgx.op("resize", sizes=sizes, mode="cubic", cubic_coeff_a=coefficient, exclude_outside=excluded)

    agrees_open(op, [3, "h", "w"], [], SIZES, 1e-4)


@pytest.mark.parametrize("extents", [["b", 4, 6, 7], ["b", 4, "w", 7]])
@pytest.mark.parametrize("mode", ["nearest", "linear"])
def test_axes_that_keep_their_extents(agrees_open: Check, mode: str, extents: list[Any]) -> None:
    def op(dims: Any) -> mgx.Operation:
        return mgx.op("resize", sizes=(dims[0], 4, 2 * dims[2], 9), mode=mode)

    agrees_open(op, extents, [], [(3, 5), (9, 2), (2, 30)] if "w" in extents else [(3,), (9,), (2,)], 1e-4)


def test_an_axis_without_elements_is_not_resized() -> None:
    program = mgx.Program()
    m = program.get_main_module()
    h = symbol("h", 0, 999)
    x = m.add_parameter("x", mgx.Shape("float32", [h, 3]))
    part = m.add(mgx.op("slice", axes=[0], starts=[2], ends=[1 << 40]), x)
    m.add_return([m.add(mgx.op("resize", sizes=(h, 3)), part)])
    program.compile(CpuTarget())
    executable = program.executable
    opened = open_program(executable.parameters, {"h": 9}, frozenset("h"), executable._lowered)
    assert opened is not None and opened.fits({"h": 4})
    assert not opened.fits({"h": 2})


@pytest.mark.parametrize("empty", ["h", "w"])
def test_axes_without_elements(empty: str) -> None:
    """The other axis changes, so that the loops for traced extents are asked for."""
    program = mgx.Program()
    m = program.get_main_module()
    x = m.add_parameter("x", mgx.Shape("float32", [2, symbol("h", 0, 999), symbol("w", 0, 999)]))
    sizes = (2, x.shape.dims[1] // 2 + 1, x.shape.dims[2] + 1)
    m.add_return([m.add(mgx.op("resize", sizes=sizes, mode="linear"), x)])
    program.compile(CpuTarget())
    for n in range(3, 9):
        with pytest.raises(mgx.ShapeError, match="has no elements to make 1 from"):
            program.run({"x": np.zeros((2, 0, n) if empty == "h" else (2, n, 0), np.float32)})


@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize("pads", [(0, 0, 1, 2, 0, 0, 3, 0), (1, 0, 0, 4, 0, 2, 0, 5)])
def test_padding(agrees_open: Check, pads: tuple[int, ...], mode: str) -> None:
    agrees_open(mgx.op("pad", pads=pads, mode=mode, value=-1.5), [2, 3, "h", "w"], [], SIZES)


def test_padding_by_extents(agrees_open: Check) -> None:
    def op(dims: Any) -> mgx.Operation:
        return mgx.op("pad", pads=(0, dims[1], 0, 3), value=2.0)

    agrees_open(op, ["h", "w"], [], SIZES)


def test_padding_to_a_fixed_extent(agrees_open: Check) -> None:
    def op(dims: Any) -> mgx.Operation:
        return mgx.op("pad", pads=(0, 0, 0, 64 - dims[1]), mode="edge")

    agrees_open(op, ["h", "w"], [], SIZES)
