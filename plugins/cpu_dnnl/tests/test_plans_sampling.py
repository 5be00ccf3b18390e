"""Images sampled by grids, regions and windows, and selection of boxes, compared with the reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core import dtype as dt
from mgx_cpu_dnnl.runner import CpuRunner
from mgx_cpu_dnnl.target import CpuTarget

rng = np.random.default_rng(6)
Check = Callable[..., None]
TOLERANCE = {"float32": 2e-5, "float64": 1e-12, "float16": 2e-3, "bfloat16": 1.6e-2}


def floats(*lens: int, name: str = "float32") -> Any:
    return rng.standard_normal(lens).astype(dt.of(name).numpy)


@pytest.mark.pairs
@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("corners", [False, True])
def test_grids(agrees: Check, mode: str, padding: str, corners: bool) -> None:
    op = mgx.op("grid_sample", mode=mode, padding_mode=padding, align_corners=corners)
    for lens in ((7,), (5, 9), (1, 4), (3, 4, 5)):
        places = (rng.random((2, *(6,) * len(lens), len(lens))) * 5 - 2.5).astype(np.float32)
        places.reshape(-1)[:3] = [np.nan, np.inf, -1e30]
        agrees(op, floats(2, 3, *lens), places, tolerance=1e-4)


@pytest.mark.parametrize("mode", ["linear", "nearest"])
@pytest.mark.parametrize("padding", ["zeros", "border"])
@pytest.mark.parametrize("corners", [False, True])
def test_grids_of_more_places_than_are_looked_up_at_once(agrees: Check, mode: str, padding: str, corners: bool) -> None:
    op = mgx.op("grid_sample", mode=mode, padding_mode=padding, align_corners=corners)
    x, places = floats(2, 3, 12, 10), (rng.random((2, 13, 11, 2)) * 3 - 1.5).astype(np.float32)
    x[rng.random(x.shape) < 0.05] = np.inf
    agrees(op, x, places)


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
@pytest.mark.parametrize("grid", ["float32", "float64"])
def test_grids_of_other_types(agrees: Check, name: str, grid: str) -> None:
    places = (rng.random((2, 30, 20, 2)) * 2.2 - 1.1).astype(grid)
    agrees(mgx.op("grid_sample"), floats(2, 5, 12, 10, name=name), places, tolerance=2 * TOLERANCE[name])


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16"])
def test_grids_of_images_with_channels_innermost(mode: str, name: str) -> None:
    """As returned by convolutions; the result has the same layout, so that the next convolution needs no copy."""
    x, found = floats(2, 9, 7, 19, name=name), []
    grid = "float64" if name == "float64" else "float32"
    places = (rng.random((2, 4, 5, 2)) * 2.4 - 1.2).astype(grid)
    for target in ("ref", "cpu"):
        program = mgx.Program()
        m = program.get_main_module()
        image = m.add_parameter("x", mgx.Shape(name, x.shape))
        image = m.add(mgx.op("transpose", permutation=[0, 3, 1, 2]), image)
        sampled = m.add(mgx.op("grid_sample", mode=mode), image, m.add_parameter("grid", mgx.Shape(grid, places.shape)))
        m.add_return([m.add(mgx.op("transpose", permutation=[0, 2, 3, 1]), sampled)])
        program.compile(mgx.get_target(target))
        found.append(program.run({"x": x, "grid": places})[0].to_numpy().astype(np.float64))
        if target == "cpu" and name == grid:  # others are widened before and narrowed after it
            steps = program.executable.instances()[0].runner.schedule.steps
            assert [s.name for s in steps] == ["grid_sample"]
    assert np.abs(found[0] - found[1]).max() <= 4 * TOLERANCE[name] * np.abs(found[0]).max()


@pytest.mark.pairs
@pytest.mark.parametrize("mode", ["avg", "max"])
@pytest.mark.parametrize("coordinates", ["half_pixel", "output_half_pixel"])
@pytest.mark.parametrize("ratio", [0, 2])
@pytest.mark.parametrize("name", ["float32", "float16", "float64"])
def test_regions(agrees: Check, mode: str, coordinates: str, ratio: int, name: str) -> None:
    corners = rng.random((9, 2)) * 20 - 4
    rois = np.concatenate([corners, corners + rng.random((9, 2)) * 15 - 1], 1).astype(dt.of(name).numpy)
    op = mgx.op(
        "roialign", mode=mode, coordinate_transformation_mode=coordinates, output_height=3, output_width=4,
        sampling_ratio=ratio, spatial_scale=0.75,
    )  # fmt: skip
    for kind in (np.int64, np.int32):
        agrees(op, floats(2, 5, 11, 13, name=name), rois, rng.integers(0, 2, 9).astype(kind), tolerance=TOLERANCE[name])


@pytest.mark.parametrize("mode", ["avg", "max"])
def test_points_of_vast_regions_outside_the_image_are_not_visited(agrees: Check, mode: str) -> None:
    """The second region has 2e9 points along one axis, the third 1e30."""
    rois = [[-3e9, 1, 3.3, 2], [1, -2e9, 2, 3.3], [0, 0, 1e30, 1e30], [-9e15, 0, -8e15, 3], [4e9, 0, 5e9, 3]]
    op = mgx.op("roialign", mode=mode, output_height=1, output_width=2)
    agrees(op, floats(1, 3, 4, 5), np.array(rois, np.float32), np.zeros(5, np.int64), tolerance=1e-5)


@pytest.mark.parametrize("name", ["float32", "float16", "float64", "bfloat16"])
def test_maxima_of_regions(agrees: Check, name: str) -> None:
    x, corners = floats(2, 5, 11, 13, name=name), rng.random((9, 2)) * 20 - 4
    rois = np.concatenate([rng.integers(0, 2, (9, 1)), corners, corners + rng.random((9, 2)) * 15 - 1], 1)
    x[0, 1, 4, 4], x[1, 2] = np.nan, -np.inf
    agrees(mgx.op("max_roi_pool", pooled_shape=(3, 4), spatial_scale=0.75), x, rois.astype(x.dtype))
    agrees(mgx.op("max_roi_pool", pooled_shape=(3, 4)), x, rois[:0].astype(x.dtype))


def test_maxima_of_empty_regions(fails: Check) -> None:
    x, op = floats(1, 2, 5, 5), mgx.op("max_roi_pool", pooled_shape=(2, 2))
    here, there = (np.array([[image, 0, 0, 3, 3]], np.float32) for image in (0, 1))
    fails("index 1 is out of bounds", op, [x, there], [x, here])


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int8", "int64"])
@pytest.mark.parametrize("lens", [(9,), (7, 10), (4, 5, 6)])
def test_windows_summed_into_images(agrees: Check, name: str, lens: tuple[int, ...]) -> None:
    for length, moves in (
        (2, {}),
        (2, {"stride": (2,) * len(lens)}),
        (3, {"padding": (1,) * len(lens), "stride": (2,) * len(lens)}),
        (3, {"padding": (3, 0) * len(lens)}),
        (2, {"dilation": (2,) * len(lens), "padding": (2,) * len(lens)}),
        (3, {"stride": (3,) * len(lens), "padding": (2,) * len(lens)}),
        (2, {"dilation": (3,) * len(lens), "stride": (4,) * len(lens), "padding": (3, 1) * len(lens)}),
        (3, {"stride": (5,) * len(lens), "padding": (4, 5) * len(lens)}),
    ):
        op = mgx.op("col2im", image_shape=lens, block_shape=(length,) * len(lens), **moves)
        windows = int(np.prod([int(n) for n in op.counts(lens, op.block_shape)]))
        x = (rng.standard_normal((2, 3 * length ** len(lens), windows)) * 4).astype(dt.of(name).numpy)
        agrees(op, x, tolerance=TOLERANCE.get(name, 0.0))


def test_invalid_regions(fails: Check) -> None:
    x, roi, op = floats(1, 2, 5, 5), np.array([[0, 0, 3, 3]], np.float32), mgx.op("roialign")
    bad = np.array([[0, 0, np.inf, 3]], np.float32)
    fails("region 0 is not finite", op, [x, bad, np.array([0])], [x, roi, np.array([0])], mgx.ParameterError)
    fails("index 1 is out of bounds", op, [x, roi, np.array([1])], [x, roi, np.array([0])])


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16", "float64", "int8", "uint8", "int64"])
@pytest.mark.parametrize("order", [0, 1])
def test_maxima_and_places(agrees: Check, name: str, order: int) -> None:
    x = (rng.integers(-3, 4, (2, 3, 9, 11))).astype(dt.of(name).numpy)
    for more in (
        {},
        {"padding": (1, 0, 1, 1), "stride": (2, 1)},
        {"dilations": (2, 3)},
        {"ceil_mode": True, "stride": (2, 2)},
    ):
        agrees(mgx.op("max_pool_indices", lengths=(2, 3), storage_order=order, **more), x)
    agrees(mgx.op("max_pool_indices", lengths=(3,), storage_order=order), x[0])


def test_maxima_among_nan_and_infinities(agrees: Check) -> None:
    x = rng.choice(np.array([-np.inf, 0, 1, np.nan], np.float32), (1, 2, 8, 28))
    agrees(mgx.op("max_pool_indices", lengths=(3, 3), padding=(1, 1)), x)
    agrees(mgx.op("max_pool_indices", lengths=(3, 3), padding=(1, 1), stride=(2, 2)), x)
    agrees(mgx.op("max_pool_indices", lengths=(3, 3), padding=(1, 1)), np.full((2, 1, 3, 3), -np.inf, np.float32))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_maxima_of_narrow_floats_are_compared_as_float32(agrees: Check, name: str) -> None:
    """In vectors; the conversion is exact."""
    kind = dt.of(name)
    op = mgx.op("max_pool_indices", lengths=(3, 3), padding=(1, 1))
    agrees(op, rng.choice(np.array([-np.inf, 0, 1, np.nan], kind.numpy), (1, 2, 8, 28)))
    program = mgx.Program()
    m = program.get_main_module()
    both = m.add(op, m.add_parameter("x", mgx.Shape(kind, (1, 2, 8, 28))))
    m.add_return([m.add(mgx.op("get_tuple_elem", index=n), both) for n in (0, 1)])
    program.compile(CpuTarget())
    program.run({"x": floats(1, 2, 8, 28, name=name)})
    assert program.executable is not None
    runner = program.executable.instances()[0].runner
    assert isinstance(runner, CpuRunner)
    assert len(runner.schedule.steps) == 3  # between two conversions


def boxes(count: int, classes: int, batch: int, kind: Any) -> list[Any]:
    corners = rng.random((batch, count, 2)) * 20
    near = corners + rng.standard_normal((batch, count, 2)) * 9
    scores = np.round(rng.random((batch, classes, count)), 2)  # some are equal
    return [np.concatenate([corners, near], 2).astype(kind), scores.astype(kind)]


@pytest.mark.pairs
@pytest.mark.parametrize("kind", [np.float32, np.float64, np.float16])
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("count", [1, 70])
def test_choices_of_boxes(agrees: Check, kind: Any, center: bool, count: int) -> None:
    op, given = mgx.op("nonmaxsuppression", center_point_box=center), boxes(count, 3, 2, kind)
    for most in (0, 4, 1000):
        for overlap in (0.0, 0.3, 1.0):
            agrees(op, *given, np.array([most]), np.array([overlap], np.float32), np.array([0.4], np.float32))
            agrees(op, *given, np.array([most], np.int32), np.array([overlap], np.float32))


def test_choices_of_many_boxes(agrees: Check) -> None:
    agrees(mgx.op("nonmaxsuppression"), *boxes(300, 3, 2, np.float32), np.array([1000]), np.array([0.3], np.float32))


def test_boxes_with_nan(agrees: Check) -> None:
    given = boxes(40, 2, 1, np.float32)
    given[0][0, 3, 1] = given[1][0, 1, 7] = np.nan
    agrees(mgx.op("nonmaxsuppression"), *given, np.array([40]), np.array([0.2], np.float32))


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_compress(agrees: Check, name: str, axis: int | None, share: float) -> None:
    x = floats(4, 5, 6, name="float32").astype(dt.of(name).numpy)
    agrees(mgx.op("compress", axis=axis), x, rng.random(4) < share)


@pytest.mark.parametrize("name", ["float32", "float16", "int64", "bool"])
@pytest.mark.parametrize("lens", [(), (7,), (3, 4, 5)])
def test_nonzero(agrees: Check, name: str, lens: tuple[int, ...]) -> None:
    agrees(mgx.op("nonzero"), (rng.random(lens) < 0.4).astype(dt.of(name).numpy))


@pytest.mark.pairs
@pytest.mark.parametrize("name", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("channels", [1, 3, 45])
def test_maxima_keep_nan_and_infinities(agrees: Check, name: str, channels: int) -> None:
    values = np.array([-np.inf, -np.inf, -np.inf, np.inf, 0, -1, 2, np.nan])
    for lens, more in (
        ((2, channels, 7, 6), {"lengths": (2, 2), "stride": (2, 2)}),
        ((1, channels, 7, 6), {"lengths": (3, 2), "padding": (1, 0, 0, 1), "dilations": (2, 3)}),
        ((1, channels, 7, 6), {"lengths": (3, 3), "stride": (2, 2), "padding": (1, 1), "ceil_mode": True}),
        ((1, channels, 7), {"lengths": (3,), "stride": (2,), "padding_mode": "same_upper"}),
        ((1, channels, 4, 5, 6), {"lengths": (2, 1, 2), "stride": (1, 2, 2)}),
        ((1, channels, 4, 6), {"dyn_global": True}),
    ):
        x = rng.choice(values, lens, p=[0.3, 0.2, 0.2, 0.05, 0.1, 0.05, 0.05, 0.05])
        agrees(mgx.op("pooling", mode="max", **more), x.astype(dt.of(name).numpy))
    agrees(mgx.op("pooling", mode="max", lengths=(2, 2)), np.full((1, channels, 4, 4), np.nan, dt.of(name).numpy))
    agrees(mgx.op("pooling", mode="max", lengths=(2, 2)), np.full((1, channels, 4, 4), -np.inf, dt.of(name).numpy))


@pytest.mark.pairs
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("parts", [1, 2, 6])
@pytest.mark.parametrize(("stride", "dilation", "padding"), [((), (), ()), ((2, 1), (1, 2), (1, 2, 1, 2))])
def test_deformed_windows(agrees, stride, dilation, padding, groups, parts, masked):
    """parts: groups of the weights."""
    r, outer = np.random.default_rng(5), 5 if parts == 1 else 12
    where = {"stride": stride, "dilation": dilation, "padding": padding}
    op = mgx.op("deform_conv", **where, offset_group=groups, group=parts)
    x, w = (r.standard_normal(lens).astype(np.float32) for lens in ((2, 6, 9, 8), (outer, 6 // parts, 3, 2)))
    offsets = (2, 6 * groups * 2)
    out = op.infer(
        *(mgx.Shape("float32", a.shape) for a in (x, w)), mgx.Shape("float32", [*offsets, *places(op, x, w)])
    )
    offset = (3 * r.standard_normal((*offsets, *out.lens()[2:]))).astype(np.float32)
    mask = r.random((2, 6 * groups, *out.lens()[2:])).astype(np.float32) if masked else None
    agrees(op, x, w, offset, r.standard_normal(outer).astype(np.float32), mask, tolerance=1e-5)


def places(op, x, w):
    """Returns the extents of the window positions."""
    plain = mgx.op("convolution", stride=op.stride, dilation=op.dilation, padding=op.padding, group=op.group)
    return plain.infer(*(mgx.Shape("float32", a.shape) for a in (x, w))).lens()[2:]


def test_grids_of_affine_maps_are_one_loop(both: Any) -> None:
    program = mgx.Program()
    m = program.get_main_module()
    theta = m.add_parameter("theta", mgx.Shape("float32", [2, 2, 3]))
    m.add_return([m.add(mgx.op("affine_grid", size=(2, 3, 9, 11)), theta)])
    found, wanted, steps = both(program, {"theta": floats(2, 2, 3)})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
    assert steps == ["loop"], steps


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32"])
def test_integers_are_resampled_as_floats_and_not_on_the_host(dtype: str, mode: str) -> None:
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", mgx.Shape(dtype, [1, 3, 7, 5]))
    main.add_return([main.add(mgx.op("resize", mode=mode, scales=(1, 1, 2, 1.5)), x)])
    image = rng.integers(-50, 100, (1, 3, 7, 5)).astype(dtype)
    right = program.clone()
    right.compile(mgx.get_target("ref"))
    program.compile(CpuTarget())
    found, wanted = (np.asarray(p.run({"x": image})[0]).astype(np.int64) for p in (program, right))
    assert np.ptp(wanted) > 50
    assert np.abs(found - wanted).max() <= 1  # sums in another order may round to the other side of an integer
    assert not any(s.host for s in program.executable.instances()[-1].runner.schedule.steps)
