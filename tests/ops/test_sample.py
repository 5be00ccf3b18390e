"""Sampling at computed positions, and regions of interest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from mgx_core import Module
from mgx_core.errors import MgxError
from mgx_core.ir.interpreter import Interpreter
from mgx_core.ops.roi import MaxRoiPool, Roialign
from mgx_core.ops.sample import AffineGrid, GridSample
from mgx_core.rules.engine import Builder
from mgx_core.types.argument import shape_of
from mgx_core.types.dim import symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(5)
X = RNG.uniform(-1, 1, (2, 3, 5, 4))


def identity(*dims: int, corners: bool = False) -> Any:
    rank = len(dims) - 2
    theta = np.broadcast_to(np.eye(rank, rank + 1), (dims[0], rank, rank + 1))
    op = AffineGrid(size=dims, align_corners=corners)
    grid = op.evaluate([theta])
    assert tuple(op.result([Shape("double", theta.shape)])) == grid.shape
    return grid


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_the_identity_grid_returns_the_image(corners: bool, mode: Any, padding: Any) -> None:
    op = GridSample(mode=mode, padding_mode=padding, align_corners=corners)
    np.testing.assert_allclose(op.evaluate([X, identity(*X.shape, corners=corners)]), X, atol=1e-9)
    deep = RNG.uniform(-1, 1, (1, 2, 3, 4, 2))
    np.testing.assert_allclose(op.evaluate([deep, identity(*deep.shape, corners=corners)]), deep, atol=1e-9)


@pytest.mark.parametrize(
    ("padding", "expected"),
    [("zeros", [0, 0.5, 1.5, 1, 0]), ("border", [1, 1, 1.5, 2, 2]), ("reflection", [2, 1, 1.5, 2, 1])],
)
def test_outside(padding: Any, expected: Any) -> None:
    x = np.array([[[1.0, 2.0]]])
    grid = np.array([-2.5, -1, 0, 1, 2.5]).reshape(1, 5, 1)
    out = GridSample(padding_mode=padding).evaluate([x, grid])
    np.testing.assert_allclose(out[0, 0], expected)


def test_non_finite_values_are_outside() -> None:
    grid = np.array([np.nan, np.inf]).reshape(1, 2, 1).astype(np.float32)
    assert GridSample().evaluate([np.ones((1, 1, 3), np.float32), grid]).tolist() == [[[0, 0]]]


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
def test_elements_outside_are_zero_next_to_non_finite_elements(mode: Any) -> None:
    x = np.array([[[np.nan, 1, 2, 3, np.inf]]], np.float32)
    grid = np.array([-9, 9, 0.1]).reshape(1, 3, 1).astype(np.float32)
    out = GridSample(mode=mode).evaluate([x, grid])
    assert out[0, 0, :2].tolist() == [0, 0]


def test_a_weight_of_zero_counts_regardless_of_the_other_positions() -> None:
    x = np.array([[[1, np.nan, 2]]], np.float32)
    alone, beside = (
        GridSample(align_corners=True).evaluate([x, np.array(at).reshape(1, -1, 1).astype(np.float32)])[0, 0]
        for at in ([-1.0], [-1.0, 0.3])
    )
    assert np.isnan(alone[0])
    assert np.isnan(beside[0])


def test_grid_shapes() -> None:
    n, h = symbol("n", 1, 9), symbol("h", 1, 99)
    out = GridSample().result([Shape("float", (n, 3, 8, 8)), Shape("float", (n, h, 7, 2))])
    assert out == Shape("float", (n, 3, h, 7))
    with pytest.raises(MgxError, match="last extent of grid must be 2"):
        GridSample().result([Shape("float", (1, 3, 8, 8)), Shape("float", (1, 7, 7, 3))])
    with pytest.raises(MgxError, match="numbers and grid floats"):
        GridSample().result([Shape("float", (1, 3, 8, 8)), Shape("int32", (1, 7, 7, 2))])
    with pytest.raises(MgxError, match="size must be"):
        AffineGrid(size=(1, 1, 4)).result([Shape("float", (1, 2, 3))])
    late = AffineGrid().evaluate([np.ones((1, 2, 3)), np.array([1, 1, 2, 5])])
    assert late.shape == (1, 2, 5, 2)


def test_a_region_of_whole_pixels_is_their_mean() -> None:
    op = Roialign(output_height=2, output_width=2, sampling_ratio=2)
    out = op.evaluate([X, np.array([[0.0, 0.0, 4.0, 4.0]]), np.array([1])])
    wanted = X[1, :, :4, :4].reshape(3, 2, 2, 2, 2).mean((2, 4))
    np.testing.assert_allclose(out[0], wanted, rtol=1e-9)
    shape = op.result([Shape("double", X.shape), Shape("double", (symbol("r"), 4)), Shape("int64", (symbol("r"),))])
    assert shape == Shape("double", (symbol("r"), 3, 2, 2))


def test_regions_outside_the_image_are_zero() -> None:
    out = Roialign(sampling_ratio=1).evaluate([X, np.array([[50.0, 50.0, 60.0, 60.0]]), np.array([0])])
    assert out.reshape(-1).tolist() == [0, 0, 0]


def vast(mode: str) -> Any:
    boxes = np.array([[-3e9, 1, 3, 2], [1, -2e12, 2, 4e12], [-9e15, 0, -8e15, 3], [4e9, 0, 5e9, 3]])
    op = Roialign(output_height=2, output_width=2, mode=mode, spatial_scale=1.0)
    return op.evaluate([np.ones((1, 1, 4, 5)), boxes, np.zeros(4, np.int64)])[:, 0]


def test_points_of_vast_regions_outside_the_image_are_not_visited() -> None:
    mean = vast("avg")
    assert 0 < mean[0, 0, 1] < 1e-8
    assert 0 < mean[1].max() < 1e-11
    assert not mean[2:].any()
    assert vast("max").max((1, 2)).tolist() == [0.75, 0.75, 0, 0]
    with pytest.raises(MgxError, match="sampling_ratio of 0 to 1024, got 1 x 1, 1025"):
        Roialign(sampling_ratio=1025)


def test_largest_in_each_cell() -> None:
    out = MaxRoiPool(pooled_shape=(2, 2)).evaluate(
        [X, np.array([[1.0, 0.0, 0.0, 3.0, 3.0], [0.0, 9.0, 9.0, 12.0, 12.0]])]
    )
    np.testing.assert_array_equal(out[0], X[1, :, :4, :4].reshape(3, 2, 2, 2, 2).max((2, 4)))
    assert not out[1].any()


def test_images_that_are_not_there() -> None:
    with pytest.raises(MgxError, match="regions name images 2 to 2, x has 2"):
        Roialign().evaluate([X, np.zeros((1, 4)), np.array([2])])
    with pytest.raises(MgxError, match="regions name images -1 to -1"):
        MaxRoiPool(pooled_shape=(1, 1)).evaluate([X, np.array([[-1.0, 0, 0, 1, 1]])])
    with pytest.raises(MgxError, match=r"rois must be float32 \[r, 4\]"):
        Roialign().result([Shape("float", (1, 1, 2, 2)), Shape("float", (1, 5)), Shape("int64", (1,))])
    with pytest.raises(MgxError, match="positive output"):
        Roialign(output_height=0)


def test_batches_that_turn_out_to_differ_are_refused() -> None:
    with pytest.raises(MgxError, match="one batch extent, got 2 and 1"):
        GridSample().compute(X, np.zeros((1, 2, 2, 2)))


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 3e-7), ("float64", 1e-15), ("float16", 1e-3)])
@pytest.mark.parametrize("dims", [(2, 3, 5, 4), (1, 1, 1, 7), (3, 2, 4, 1, 6), (2, 1, 0, 3)])
def test_a_grid_is_columns_times_coordinates(
    dims: tuple[int, ...], dtype: str, tolerance: float, corners: bool
) -> None:
    """Targets without a kernel compute the grid with pointwise ops."""
    rank, module = len(dims) - 2, Module("main")
    theta = RNG.uniform(-1, 1, (dims[0], rank, rank + 1)).astype(dtype)
    op = AffineGrid(size=dims, align_corners=corners)
    given = module.add_parameter("theta", shape_of(theta))
    whole = module.add(op, given)
    parts = op.decompose(Builder(module, whole), given)
    module.add_return([whole, parts])
    expected, found = Interpreter().run(module, [theta])
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)
    assert found.dtype == expected.dtype and found.shape == expected.shape


def test_a_grid_of_a_symbolic_image_is_not_decomposed() -> None:
    module = Module("main")
    theta = module.add_parameter("theta", Shape("float32", [1, 2, 3]))
    op = AffineGrid(size=(1, 1, symbol("h"), 4))
    assert op.decompose(Builder(module, module.add(op, theta)), theta) is None
