"""Resampling: known values, properties of each mode, run-time operands and symbolic extents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import mgx_core as mgx
from mgx_core.errors import MgxError, ParameterError, ShapeError
from mgx_core.ops.resize import Resize
from mgx_core.types.dim import Sym, symbol
from mgx_core.types.shape import Shape

RNG = np.random.default_rng(4)
RAMP = np.arange(8, dtype=np.float64)


def resized(x: Any, **attributes: Any) -> Any:
    op = Resize(**attributes)
    x = np.asarray(x, np.float64)
    out = op.evaluate([x])
    assert tuple(op.result([Shape("double", x.shape)])) == out.shape
    return out


@pytest.mark.parametrize(
    ("transformation", "expected"),
    [
        ("half_pixel", [0.5, 2.5, 4.5, 6.5]),
        ("pytorch_half_pixel", [0.5, 2.5, 4.5, 6.5]),
        ("half_pixel_symmetric", [0.5, 2.5, 4.5, 6.5]),
        ("asymmetric", [0, 2, 4, 6]),
        ("align_corners", [0, 7 / 3, 14 / 3, 7]),
        ("tf_half_pixel_for_nn", [1, 3, 5, 7]),
    ],
)
def test_source_positions_of_elements(transformation: Any, expected: Any) -> None:
    out = resized(RAMP, sizes=(4,), mode="linear", coordinate_transformation_mode=transformation)
    np.testing.assert_allclose(out, expected)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("round_prefer_floor", [0, 2, 4, 6]),
        ("round_prefer_ceil", [1, 3, 5, 7]),
        ("floor", [0, 2, 4, 6]),
        ("ceil", [1, 3, 5, 7]),
        ("simple", [1, 3, 5, 7]),
    ],
)
def test_nearest(mode: Any, expected: Any) -> None:
    assert resized(RAMP, scales=(0.5,), nearest_mode=mode).tolist() == expected


def test_enlarging() -> None:
    x = [1.0, 3.0]
    assert resized(x, scales=(2.0,), mode="linear").tolist() == [1, 1.5, 2.5, 3]
    assert resized(x, scales=(2.0,), nearest_mode="simple", coordinate_transformation_mode="asymmetric").tolist() == [
        1,
        1,
        3,
        3,
    ]
    line = resized(RAMP, scales=(3.0,), mode="cubic", cubic_coeff_a=-0.5)
    np.testing.assert_allclose(line[6:18], (np.arange(6, 18) + 0.5) / 3 - 0.5)  # this mode preserves straight lines


def test_antialias_weighs_all_elements_under_the_filter() -> None:
    one = np.eye(8)[3]
    out = resized(one, sizes=(4,), mode="linear", antialias=True)
    np.testing.assert_allclose(out, [0, 0.375, 0.125, 0])
    constant = resized(np.ones(9), sizes=(4,), mode="cubic", antialias=True, exclude_outside=True)
    np.testing.assert_allclose(constant, np.ones(4))


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_an_infinite_element_changes_only_what_the_filter_reaches(value: float) -> None:
    x = np.linspace(-1, 1, 12, dtype=np.float32)[None]
    shrink = Resize(sizes=(1, 5), mode="cubic", antialias=True, cubic_coeff_a=-0.5)
    expected = shrink.evaluate([x])
    x[0, 0] = value
    with np.errstate(invalid="ignore"):
        out = shrink.evaluate([x])
    assert not np.isfinite(out[0, :2]).any()
    np.testing.assert_allclose(out[0, 2:], expected[0, 2:], rtol=1e-6, atol=1e-6)


def test_exclude_outside_keeps_constants() -> None:
    np.testing.assert_allclose(resized(np.ones(4), scales=(1.7,), mode="cubic", exclude_outside=True), np.ones(6))


def test_crop_and_resize() -> None:
    crop = dict(coordinate_transformation_mode="tf_crop_and_resize", mode="linear", extrapolation_value=-1.0)
    np.testing.assert_allclose(resized(RAMP, sizes=(3,), roi=(2 / 7, 6 / 7), **crop), [2, 4, 6])
    np.testing.assert_allclose(resized(RAMP, sizes=(3,), roi=(0.0, 2.0), **crop), [0, 7, -1])
    np.testing.assert_allclose(resized(RAMP, sizes=(1,), roi=(0.0, 1.0), **crop), [3.5])


@pytest.mark.parametrize(("policy", "dims"), [("stretch", (4, 9)), ("not_larger", (4, 8)), ("not_smaller", (5, 9))])
def test_aspect_ratio(policy: Any, dims: Any) -> None:
    x = RNG.uniform(size=(2, 3, 6))
    out = resized(x, sizes=(4, 9), axes=(1, 2), keep_aspect_ratio_policy=policy, mode="linear")
    assert out.shape == (2, *dims)


def test_axes_are_independent() -> None:
    x = RNG.uniform(size=(4, 6))
    both = resized(x, sizes=(7, 9), mode="cubic")
    first = resized(x, sizes=(7,), axes=(0,), mode="cubic")
    np.testing.assert_allclose(resized(first, sizes=(9,), axes=(-1,), mode="cubic"), both)


def test_operands_known_while_running() -> None:
    x = RNG.uniform(size=(1, 2, 4)).astype(np.float32)
    op = Resize(mode="linear")
    shape = op.result([Shape("float", x.shape), None, Shape("int64", (3,))])
    assert all(isinstance(d, Sym) for d in shape.dims)
    late = op.evaluate([x, None, np.array([1, 2, 7])])
    np.testing.assert_array_equal(late, Resize(mode="linear", sizes=(1, 2, 7)).evaluate([x]))
    late = op.evaluate([x, np.float32([1, 1, 2.5])])
    np.testing.assert_array_equal(late, Resize(mode="linear", scales=(1, 1, 2.5)).evaluate([x]))
    with pytest.raises(MgxError, match="scales must be positive"):
        op.evaluate([x, np.float32([1, 1, -1])])


def test_symbolic_extents() -> None:
    n, h = symbol("n", 1, 9), symbol("h", 4, 99)
    x = Shape("float", (n, 3, h, h))
    assert Resize(scales=(1, 1, 2, 0.5)).result([x]) == Shape("float", (n, 3, 2 * h, h // 2))
    assert Resize(sizes=(n, 3, 7, 2 * h)).result([x]) == Shape("float", (n, 3, 7, 2 * h))


def test_sizes_beside_scales_are_extents_and_scales_say_where_elements_come_from() -> None:
    op = Resize(sizes=(5,), scales=(0.5,), mode="linear", coordinate_transformation_mode="asymmetric")
    assert op.evaluate([RAMP]).tolist() == [0, 2, 4, 6, 7]
    n = symbol("n", 1)
    assert Resize(sizes=(n // 2,), scales=(0.7,)).result([Shape("float", (n,))]) == Shape("float", (n // 2,))


def test_integers_and_strings() -> None:
    x = np.array([0, 255], np.uint8)
    assert Resize(scales=(2.0,), mode="linear").evaluate([x]).tolist() == [0, 63, 191, 255]
    words = np.array(["a", "b"], object)
    assert Resize(scales=(2.0,), nearest_mode="round_prefer_floor").evaluate([words]).tolist() == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        (dict(), "needs scales or sizes"),
        (dict(scales=(1.0, 2.0), sizes=(2,)), "for 2 axes"),
        (dict(scales=(1.0,)), "for 2 axes"),
        (dict(scales=(0.0, 1.0)), "positive"),
        (dict(sizes=(3,), axes=(4,)), "axes must lie"),
        (dict(sizes=(3, -1)), r"sizes must not be negative, got \[3, -1\]"),
        (dict(sizes=(3, -1), keep_aspect_ratio_policy="not_larger"), "sizes must not be negative"),
        (dict(scales=(1.0, 1.0), mode="quintic"), "'nearest', 'linear', 'cubic'"),
    ],
)
def test_refusals(attributes: Any, message: str) -> None:
    with pytest.raises(MgxError, match=message):
        Resize(**attributes).result([Shape("float", (2, 3))])


@pytest.mark.parametrize("policy", ["stretch", "not_larger"])
@pytest.mark.parametrize(
    ("scales", "sizes", "message"),
    [
        (None, [-4, 1], r"sizes must not be negative, got \[-4, 1\]"),
        ([0, 1], None, r"scales must be positive, got \[0\.0, 1\.0\]"),
    ],
)
def test_operands_that_make_no_extents_are_refused_while_running(
    policy: Any, scales: Any, sizes: Any, message: str
) -> None:
    op = Resize(keep_aspect_ratio_policy=policy)
    given = [np.ones((2, 4), np.float32), None if scales is None else np.float32(scales), sizes and np.int64(sizes)]
    with pytest.raises((ShapeError, ParameterError), match=message):
        op.evaluate(given)
    program = mgx.Program()
    main = program.get_main_module()
    x = main.add_parameter("x", Shape("float32", [2, 4]))
    kind = Shape("float32" if sizes is None else "int64", [2])
    vector = main.add_parameter("vector", kind)
    absent = main.add_absent()
    main.add_return([main.add(op, x, vector) if sizes is None else main.add(op, x, absent, vector)])
    program.compile(mgx.get_target("ref"))
    with pytest.raises((ShapeError, ParameterError), match=message) as caught:
        program.run({"x": given[0], "vector": scales or sizes})
    assert "static-resize" not in str(caught.value)
