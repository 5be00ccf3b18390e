"""Pad and resize loops, compared with the ops' own compute, in several layouts."""

from __future__ import annotations

import numpy as np
import pytest
from run_loops import run_numpy, shape_of, strided

from mgx_core.errors import No
from mgx_core.ops.pad import Pad
from mgx_core.ops.resize import Resize
from mgx_core.types.shape import Shape
from mgx_cpu_dnnl.jit.move import MAX_EXTENT, compile_pad, resize_passes, resize_taps
from mgx_cpu_dnnl.jit.taps import compile_taps


def image(dims, dtype=np.float32, seed=0):
    r = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return r.integers(0, 100, dims).astype(dtype)
    return r.standard_normal(dims).astype(dtype)


def compile_resize(op, x, out, engine, fast=False):
    taps = resize_taps(op, x, out, fast)
    how = "copy" if op.mode == "nearest" else "sum"
    return taps if isinstance(taps, No) else compile_taps(x, out, taps, how, engine, "resize")


LAYOUTS = [(0, 1, 2, 3), (0, 2, 3, 1)]


def both(engine, compile_, op, x, layout, rtol=0.0, options=()):
    expected = op.compute(x)
    given = strided(x, layout)
    out = strided(np.ones_like(expected), layout)
    kernel = compile_(op, shape_of(given), shape_of(out), engine, *options)
    assert not isinstance(kernel, No), kernel
    run_numpy(kernel, [given, out], 3)
    np.testing.assert_allclose(out.astype(np.float64), expected.astype(np.float64), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["constant", "reflect", "edge", "wrap"])
@pytest.mark.parametrize(
    "pads", [(0, 0, 1, 2, 0, 0, 3, 1), (0, 1, 0, 0, 1, 2, 0, 0), (0, 0, 0, 5, 0, 0, 0, 4), (0, 0, 0, 0, 0, 0, 0, 0)]
)
def test_pad(engine, layout, mode, pads):
    both(engine, compile_pad, Pad(pads=pads, mode=mode, value=1.5), image((2, 5, 6, 7)), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [np.uint8, np.float16, np.float64, np.int64], ids=lambda d: d.__name__)
def test_pad_types(engine, layout, dtype):
    both(engine, compile_pad, Pad(pads=(0, 0, -1, 2, 0, 70, 1, -1), value=3.0), image((2, 20, 6, 9), dtype), layout)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("op", [
    Resize(scales=(1.0, 1.0, 2.0, 2.0), coordinate_transformation_mode="asymmetric"),
    Resize(sizes=(2, 19, 5, 11), nearest_mode="round_prefer_ceil"),
    Resize(scales=(2.0, 3.0), axes=(2, 3), mode="linear"),
    Resize(sizes=(5, 13), axes=(2, 3), mode="linear", coordinate_transformation_mode="align_corners"),
    Resize(sizes=(5, 13), axes=(2, 3), mode="cubic"),
    Resize(sizes=(7, 9), axes=(2, 3), mode="linear"),
    Resize(scales=(0.5, 0.6), axes=(2, 3), mode="linear", antialias=True),
    Resize(sizes=(4, 4), axes=(2, 3), mode="linear", keep_aspect_ratio_policy="not_larger"),
], ids=str)  # fmt: skip
def test_resize(engine, layout, op):
    both(engine, compile_resize, op, image((2, 19, 7, 9)), layout, 0.0 if op.mode == "nearest" else 3e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("op", [
    Resize(scales=(2.0, 2.0), axes=(2, 3), mode="cubic"),
    Resize(scales=(2.0, 2.0), axes=(2, 3), mode="cubic", coordinate_transformation_mode="asymmetric"),
    Resize(sizes=(5, 13), axes=(2, 3), mode="cubic", coordinate_transformation_mode="align_corners"),
    Resize(sizes=(5, 13), axes=(2, 3), mode="cubic", exclude_outside=True),
    Resize(scales=(2.0, 2.0), axes=(2, 3), mode="linear", coordinate_transformation_mode="asymmetric"),
    Resize(scales=(0.4, 0.3), axes=(2, 3), mode="cubic", antialias=True),
], ids=str)  # fmt: skip
def test_resize_of_numbers_that_are_not_finite(engine, layout, number, op):
    """One at a time, at borders and inside: also with weights of 0, and where several positions beyond a border read the same
    element.
    """
    for at in [(0, 0), (6, 3), (3, 8), (2, 4)]:
        x = image((1, 3, 7, 9))
        x[0, 1][at] = number
        with np.errstate(invalid="ignore"):
            both(engine, compile_resize, op, x, layout, 3e-6)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_fast_resize_leaves_out_elements_of_weight_0(engine, layout):
    """Other results equal the reference, also at borders, where an infinity with weights of both signs gives NaN."""
    op = Resize(scales=(2.0, 2.0), axes=(2, 3), mode="cubic")
    x = image((1, 3, 7, 9))
    x[0, 1, 0, 0] = np.inf
    with np.errstate(invalid="ignore"):
        assert np.isnan(op.compute(x)).any()
        both(engine, compile_resize, op, x, layout, 3e-6, [True])
    op = Resize(scales=(2.0, 2.0), axes=(2, 3), mode="linear", coordinate_transformation_mode="asymmetric")
    out = strided(np.ones((1, 3, 14, 18), np.float32), layout)
    kernel = compile_resize(op, shape_of(strided(x, layout)), shape_of(out), engine, True)
    assert not isinstance(kernel, No)
    run_numpy(kernel, [strided(x, layout), out], 3)
    assert np.isinf(out).sum() == 4 and not np.isnan(out).any()


def test_long_axes_are_resized(engine):
    both(
        engine,
        compile_resize,
        Resize(sizes=(9000,), axes=(3,), mode="linear"),
        image((1, 1, 1, 3000)),
        LAYOUTS[0],
        3e-6,
    )


@pytest.mark.parametrize(
    ("lens", "layout", "out", "passes"),
    [
        ((1, 21, 32, 32), (0, 2, 3, 1), (256, 256), [[3], [2]]),  # rows of adjacent pixels
        ((1, 21, 32, 32), (0, 1, 2, 3), (256, 256), [[3], [2]]),  # fewer elements, non-contiguous
        ((1, 256, 64, 64), (0, 1, 2, 3), (16, 16), [[2], [3]]),
        ((1, 2048, 2, 2), (0, 2, 3, 1), (3, 3), [[3], [2]]),
        ((1, 3, 8, 9), (0, 1, 2, 3), (8, 9), [[]]),  # a copy, which failed unless a rule had removed it
    ],
)
def test_passes_of_resampling(lens, layout, out, passes):
    x = shape_of(strided(image(lens), layout))
    op = Resize(sizes=out, axes=(2, 3), mode="linear")
    assert resize_passes(resize_taps(op, x, op.infer(Shape("float32", lens))), x, [*lens[:2], *out]) == passes


@pytest.mark.parametrize(("extent", "size"), [(0, 8), (8, MAX_EXTENT + 1)])
def test_axes_without_elements_or_with_too_many_are_refused(extent, size):
    op = Resize(sizes=(size,), axes=(1,), mode="nearest")
    x, out = Shape("float32", [1, extent]), Shape("float32", [1, size])
    assert resize_taps(op, x, out) == No(f"resizing an axis from {extent} to {size} elements is not supported")
