"""Resizing images of changing extents: kernels compute the neighbors and weights that are tables otherwise."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opened_program import opened

import mgx_core as mgx
from mgx_core.types.dim import symbol
from mgx_gpu_hip.target import GpuTarget

SIZES = ((13, 18), (40, 5), (7, 31), (4, 6))
CASES: list[dict[str, Any]] = [
    {"scales": [1.0, 1.0, 2.0, 4.0], "coordinate_transformation_mode": "asymmetric"},
    {"scales": [1.0, 1.0, 0.5, 3.0], "nearest_mode": "round_prefer_floor"},
    {"scales": [1.0, 1.0, 3.0, 1.0], "nearest_mode": "ceil", "coordinate_transformation_mode": "tf_half_pixel_for_nn"},
    {"scales": [0.5, 2.0], "axes": [2, 3], "nearest_mode": "simple", "coordinate_transformation_mode": "asymmetric"},
    {"scales": [2.0, 2.0], "axes": [2, 3], "mode": "linear"},
    {"scales": [2.0, 3.0], "axes": [2, 3], "mode": "linear", "coordinate_transformation_mode": "align_corners"},
    {"scales": [2.0, 0.5], "axes": [2, 3], "mode": "linear", "coordinate_transformation_mode": "pytorch_half_pixel"},
    {"scales": [2.0, 2.0], "axes": [2, 3], "mode": "cubic", "exclude_outside": True},
    {"scales": [3.0, 2.0], "axes": [2, 3], "mode": "cubic", "cubic_coeff_a": -0.5},
    {"scales": [1.5, 0.75], "axes": [2, 3], "mode": "linear"},
    {"scales": [0.5, 1.25], "axes": [2, 3], "mode": "linear", "antialias": True},
    {"scales": [0.75, 0.5], "axes": [2, 3], "mode": "cubic", "antialias": True},
    {"sizes": [5, 3], "axes": [2, 3], "mode": "cubic", "antialias": True, "exclude_outside": True},
    {"sizes": [2, -1], "axes": [2, 3], "mode": "linear", "coordinate_transformation_mode": "half_pixel_symmetric"},
    {"sizes": [-1, 5], "axes": [2, 3], "nearest_mode": "round_prefer_ceil"},
]


def program(target: Any, given: dict[str, Any], last: bool) -> mgx.Program:
    """Returns a program that resizes an image [2, 8, h, w], whose channels are last in memory; sizes: -1: 2 h + w."""
    made = mgx.Program()
    m = made.get_main_module()
    h, w = symbol("h", 0, 999), symbol("w", 0, 999)
    if last:
        x = m.add_parameter("x", mgx.Shape("float32", [2, h, w, 8]))
        x = m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), m.add(mgx.op("tanh"), x))
    else:
        x = m.add_parameter("x", mgx.Shape("float32", [2, 8, h, w]))
    sizes = [2 * h + w if n == -1 else n for n in given.get("sizes", ())]
    m.add_return([m.add(mgx.op("resize", **given | ({"sizes": sizes} if sizes else {})), x)])
    made.compile(target)
    return made


@pytest.mark.parametrize("last", [False, True], ids=["channels first", "channels last"])
@pytest.mark.parametrize("given", CASES, ids=lambda g: "-".join(str(v) for v in g.values()))
def test_images_of_any_size_are_those_of_the_definition(given: dict[str, Any], last: bool) -> None:
    made, reference = program(GpuTarget("host", 1), given, last), program(mgx.get_target("ref"), given, last)
    one = opened(made, h=9, w=14)
    rng = np.random.default_rng(8)
    for h, w in SIZES:
        assert one.fits({"h": h, "w": w})
        x = rng.standard_normal((2, h, w, 8) if last else (2, 8, h, w)).astype(np.float32)
        (got,), (want,) = one.runner.run([x]), reference.run({"x": x})
        np.testing.assert_allclose(np.asarray(got), want.to_numpy(), rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_axes_that_happen_to_keep_their_extents_keep_their_elements(mode: str) -> None:
    """They were resampled at the positions of the mode, and neighbors of an infinity became NaN."""
    made = mgx.Program()
    m = made.get_main_module()
    h, w = symbol("h", 0, 999), symbol("w", 0, 999)
    x = m.add_parameter("x", mgx.Shape("float32", [1, 2, h, w]))
    how = "tf_half_pixel_for_nn"
    m.add_return([m.add(mgx.op("resize", sizes=[w, h], axes=[2, 3], mode=mode, coordinate_transformation_mode=how), x)])
    made.compile(GpuTarget("host", 1))
    one = opened(made, h=9, w=14)
    assert one.fits({"h": 6, "w": 6})
    image = np.random.default_rng(9).standard_normal((1, 2, 6, 6)).astype(np.float32)
    image[0, 0, 3, 3] = np.inf
    for (got,) in (one.runner.run([image]), made.run({"x": image})):
        np.testing.assert_array_equal(np.asarray(got), image)


def test_kernels_with_tables_remain_where_positions_are_not_computed() -> None:
    """Images of symbolic extents went to the host if they were cropped."""
    crop = {"scales": [0.5, 0.5], "axes": [2, 3], "mode": "linear", "roi": [0.1, 0.2, 0.8, 1.0]}
    crop |= {"coordinate_transformation_mode": "tf_crop_and_resize"}
    made, reference = program(GpuTarget("host", 1), crop, False), program(mgx.get_target("ref"), crop, False)
    x = np.random.default_rng(9).standard_normal((2, 8, 6, 9)).astype(np.float32)
    (got,), (want,) = made.run({"x": x}), reference.run({"x": x})
    np.testing.assert_allclose(got.to_numpy(), want.to_numpy(), rtol=1e-5, atol=2e-6)
    assert made.executable is not None
    (instance,) = made.executable.instances()
    assert [s.name.startswith("resize") for s in instance.runner.schedule.steps] == [True]
